"""How long verdicts have waited for their sources. No I/O: see ``flows/steps.py``."""

from acker_redis.flows.steps import AskAll, Flow
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.status import Status

LEAST_MS = 60_000
"""Verdicts that have waited for a shorter time are not read: a source may be about to take them."""
MAX_STREAMS = 256
"""Maximum number of streams that are read, those with most verdicts first. A source has a stream
in each shard."""


def read_untaken(status: Status) -> Flow[dict[str, int]]:
    """Return by source how long its oldest untaken verdict has waited, in ms by Redis's clock.

    Sources whose verdicts have all waited for less than ``LEAST_MS`` are not included. One round
    trip, whose replies are empty while sources take their verdicts in time.
    """
    found = [
        (-count, name, shard)
        for shard in status.shards
        for name, count in shard.backlog.items()
        if count
    ]
    found.sort(key=lambda each: (*each[:2], each[2].shard))
    streams = [(name, shard) for _, name, shard in found[:MAX_STREAMS]]
    if not streams:
        return {}
    # Only the id is needed, but no command returns ids alone; an entry may have 100 KB.
    replies = yield AskAll(
        tuple(
            (
                "XRANGE",
                ShardKeys(status.namespace, shard.shard).outcomes(name),
                "-",
                str(max(0, shard.now_ms - LEAST_MS)),
                "COUNT",
                1,
            )
            for name, shard in streams
        )
    )
    ages: dict[str, int] = {}
    for (name, shard), reply in zip(streams, replies, strict=True):
        for id_, _ in reply:
            age = shard.now_ms - int(id_.partition(b"-")[0])
            ages[name] = max(age, ages.get(name, 0))
    return ages
