"""How many verdicts wait to be taken, by source; for the status and the metrics."""

from collections.abc import Callable, Iterable

from acker_redis.protocol.status import Status

MAX_SOURCES = 1000
"""Maximum number of sources that are named, those with most waiting verdicts."""
OTHERS = "(others)"
"""Name for all other sources together; it is not a valid source name."""


def most_waiting(
    backlog: dict[str, int], together: Callable[[Iterable[int]], int] = sum
) -> dict[str, int]:
    """Return the 1000 sources with most waiting verdicts, and one item for all others."""
    ranked = sorted(backlog.items(), key=lambda item: (-item[1], item[0]))
    found = dict(ranked[:MAX_SOURCES])
    if others := ranked[MAX_SOURCES:]:
        found[OTHERS] = together(count for _, count in others)
    return found


def backlog_ratio(status: Status) -> dict[str, float]:
    """Return by source how full its fullest shard is; the scripts limit each shard to its share."""
    share = status.config.backlog_share
    fullest = most_waiting(status.fullest, max)
    return {source: waiting / share for source, waiting in fullest.items()}
