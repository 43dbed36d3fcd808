"""The vectors as declarations, a module for each field; ``make.py`` turns them into JSON."""

from tests.vectors.record import Topic
from tests.vectors.topics import (
    admission,
    clients,
    expiry,
    fences,
    limits,
    numbers,
    refusals,
    rows,
    shards,
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
    *limits.TOPICS,
    *clients.TOPICS,
    *refusals.TOPICS,
]
