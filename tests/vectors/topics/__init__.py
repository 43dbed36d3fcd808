"""Declarations of the vectors, one module per subject; ``make.py`` writes them as JSON."""

from tests.vectors.record import Topic
from tests.vectors.topics import (
    admission,
    block_refusals,
    blocks,
    blocks_absent,
    blocks_ends,
    clients,
    expiry,
    fences,
    limits,
    numbers,
    refusals,
    rows,
    shards,
    show,
    texts,
    trees,
)

TOPICS: list[Topic] = [
    *trees.TOPICS,
    *numbers.TOPICS,
    *rows.TOPICS,
    *shards.TOPICS,
    *texts.TOPICS,
    *fences.TOPICS,
    *admission.TOPICS,
    *expiry.TOPICS,
    *blocks.TOPICS,
    *blocks_ends.TOPICS,
    *blocks_absent.TOPICS,
    *show.TOPICS,
    *limits.TOPICS,
    *clients.TOPICS,
    *refusals.TOPICS,
    *block_refusals.TOPICS,
]
