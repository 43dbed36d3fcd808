"""Reads planned entries of a source's verdicts, as record batches.

The driver plans which entries a read returns; a part is the plan of one shard. The data source and
:func:`read_outcomes` read the same parts.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from acker_redis.errors import DataLossError
from acker_redis.protocol.outcome import Entry
from acker_redis.spark.streams.outcome_offsets import Ids
from acker_redis.spark.streams.outcome_options import OutcomeOptions
from acker_redis.spark.streams.outcome_rows import record_batches
from acker_redis.spark.streams.outcome_streams import OutcomeStreams

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Waiting:
    """The entries of one shard, from the oldest to an id."""

    shard: int
    last: str
    edges: tuple[str, ...]
    """Names of the namespace's edges, from the driver."""


@dataclass(frozen=True)
class Listed:
    """Entries of one shard, by their ids."""

    shard: int
    ids: Ids
    edges: tuple[str, ...]
    """Names of the namespace's edges, from the driver."""


Part = Waiting | Listed


def streams_of(options: OutcomeOptions) -> OutcomeStreams:
    """Return the streams of the source."""
    return OutcomeStreams(options.target.client(), options.source)


def waiting(options: OutcomeOptions) -> list[Waiting]:
    """Return a part for each shard in which verdicts wait now."""
    streams = streams_of(options)
    last_ids, edges = streams.last_ids(), streams.edges()
    return [Waiting(shard, last, edges) for shard, last in last_ids.items()]


def read(options: OutcomeOptions, part: Part) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part.

    Entries of :class:`Waiting` that were taken in the meantime are left out. Raises DataLossError
    if entries of :class:`Listed` were deleted, unless failOnDataLoss is false.
    """
    streams = streams_of(options)
    if isinstance(part, Waiting):
        yield from _batches(options, streams.entries_until(part.shard, part.last, part.edges))
        return
    missing = 0

    def found() -> Iterator[Entry]:
        nonlocal missing
        for entry in streams.entries(part.shard, part.ids, part.edges):
            if entry:
                yield entry
            else:
                missing += 1

    yield from _batches(options, found())
    if missing:
        _report(options, part.shard, missing, len(part.ids))


def _batches(options: OutcomeOptions, entries: Iterator[Entry]) -> Iterator[pa.RecordBatch]:
    return record_batches(entries, options.target.namespace, options.source, options.expand)


def _report(options: OutcomeOptions, shard: int, missing: int, of: int) -> None:
    what = (
        f"{missing} of {of} entries of shard {shard} of {options.target} that this "
        f"micro-batch needs were deleted: another reader took verdicts of "
        f"{options.source} (a source must have one reader), or the checkpoint was restored "
        "to an older state, or Redis lost data, or the namespace was created again"
    )
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{what}. Make sure that this query is the only reader. Then start it with the "
            "option failOnDataLoss=false to continue without these entries, or with a new "
            "checkpointLocation to read all verdicts that wait"
        )
    log.warning("%s. The query continues without them (failOnDataLoss=false)", what)
