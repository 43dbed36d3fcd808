"""State of a namespace as JSON, for ``acker-redis status --json`` and REST.

Numbers are numbers. Ids are text, because many JSON readers round a number beyond 2^53. Times are
milliseconds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from acker_redis.doctor.health import judge, rotation, wrong
from acker_redis.flows.browse import OldestTree
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.growth import Growth
from acker_redis.protocol.status import Status
from acker_redis.protocol.tree import TreeState

MAX_SOURCES = 1000
"""Maximum number of sources that are named, those with most waiting verdicts."""
OTHERS = "(others)"
"""Name for all other sources together; it is not a valid source name."""


def status_json(
    status: Status,
    growth: Growth | None = None,
    oldest: OldestTree | None = None,
    rates: Growth | None = None,
    untaken: Mapping[str, int] | None = None,
    recent: Growth | None = None,
) -> dict[str, Any]:
    """Return the state of a namespace and its problems.

    ``growth`` is the recent growth of its counters, for the findings; None if unknown. ``oldest``
    is its oldest pending tree; None if there is none, or if it is unknown. ``rates`` is the growth
    that is shown; None: ``growth``. ``untaken`` is the age of the oldest untaken verdict in ms by
    source, for the findings; None if unknown. ``recent`` is the growth over some 15 minutes.
    """
    reshard, latency, shown = status.reshard, status.latency, rates or growth
    age_ms = oldest.tree.age_ms if oldest else None
    findings = wrong(judge(status, growth, age_ms, untaken=untaken, recent=recent))
    return {
        "namespace": status.namespace,
        "findings": [finding.to_dict() for finding in findings],
        "open": status.open,
        "pending": status.pending,
        "pending_by_bucket": list(status.pending_by_bucket),
        "in_blocks": status.in_blocks,
        "expiring": status.expiring,
        "high_water": status.high_water,
        "high_water_ratio": status.high_water_ratio,
        "rotator": rotation(status.shards),
        "lag_ms": status.lag_ms,
        "late_ms": status.late_ms,
        "ticks": status.ticks,
        "counters": {**status.counters, "after_failure": status.after_failure},
        "odd": status.odd,
        "latency": {
            "upper_ms": list(latency.upper_ms),
            "counts": list(latency.counts),
            "sum_ms": latency.sum_ms,
        },
        "backlog": most_waiting(status.backlog),
        "backlog_ratio": backlog_ratio(status),
        "resharding_to": reshard.target if reshard else None,
        "reshard_phase": reshard.phase if reshard else None,
        "recent": recent
        and {"over_ms": recent.over_ms, "ended": recent.ended, "nacked": recent.nacked},
        "rates": shown and {"over_ms": shown.over_ms, **shown.per_second()},
        "oldest": oldest and {"exact": oldest.exact, "tree": _tree(oldest.tree, status.config)},
        "config": config_json(status.config),
        "shards": [_shard(shard) for shard in status.shards],
    }


def config_json(config: AckerConfig) -> dict[str, Any]:
    """Return a configuration with the times that follow from it."""
    return {
        **asdict(config),
        "edges": list(config.edges),
        "timeout_ms": config.timeout_ms,
        "lifetime_ms": config.lifetime_ms,
    }


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
    return {
        source: waiting / share for source, waiting in most_waiting(status.fullest, max).items()
    }


def _shard(shard: ShardStatus) -> dict[str, Any]:
    return {
        "shard": shard.shard,
        "open": shard.open,
        "pending": list(shard.pending),
        "in_blocks": list(shard.in_blocks),
        "expiring": shard.expiring,
        "fences": shard.fences,
        "rotator": rotation([shard]),
        "lag_ms": shard.lag_ms,
        "late_ms": shard.late_ms,
        "ticked_ms": shard.ticked_ms,
        "now_ms": shard.now_ms,
    }


def _tree(tree: TreeState, config: AckerConfig) -> dict[str, Any]:
    """Return a tree without the slots of its block, which may be thousands, and without ids."""
    return {
        "anchor": str(tree.anchor),
        "edges": list(tree.open_edges(config.edges)),
        "source": tree.source,
        "source_id": tree.source_id,
        "state": tree.state,
        "why": tree.why,
        "age_ms": tree.age_ms,
        "idle_ms": tree.idle_ms,
        "bucket": tree.bucket,
        "block": tree.block and {"block": str(tree.block.block), "slots": tree.block.slots},
    }
