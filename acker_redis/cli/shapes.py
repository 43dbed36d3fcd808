"""What the commands print as JSON: numbers are numbers, ids are text, ages are milliseconds.

Anchors and tuple ids are text because a JSON number beyond 2^53 is bent by many readers.
"""

from dataclasses import asdict
from typing import Any

from acker_redis.flows.browse import BlockEntry
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.latency import Latency
from acker_redis.protocol.outcome import Entry
from acker_redis.protocol.status import Status
from acker_redis.protocol.tree import TreeState


def config(config: AckerConfig) -> dict[str, Any]:
    """A namespace's configuration."""
    return asdict(config)


def status(status: Status) -> dict[str, Any]:
    """State of a namespace."""
    return {
        "namespace": status.namespace,
        "pending": status.pending,
        "pending_by_bucket": list(status.pending_by_bucket),
        "in_blocks": status.in_blocks,
        "expiring": status.expiring,
        "high_water": status.high_water,
        "high_water_ratio": status.high_water_ratio,
        "lag_ms": status.lag_ms,
        "late_ms": status.late_ms,
        "ticks": status.ticks,
        "counters": status.counters,
        "latency": latency(status.latency),
        "backlog": status.backlog,
        "moving_to": moving.target if (moving := status.moving) else None,
        "moving_phase": moving.phase if moving else None,
        "config": config(status.config),
        "shards": [_shard(shard) for shard in status.shards],
    }


def latency(latency: Latency) -> dict[str, Any]:
    """How long acked trees took: each count less than its upper_ms, and not less than the last."""
    return {
        "upper_ms": list(latency.upper_ms),
        "counts": list(latency.counts),
        "sum_ms": latency.sum_ms,
    }


def _shard(shard: ShardStatus) -> dict[str, Any]:
    return {
        "shard": shard.shard,
        "pending": list(shard.pending),
        "in_blocks": list(shard.in_blocks),
        "expiring": shard.expiring,
        "fences": shard.fences,
        "lag_ms": shard.lag_ms,
        "late_ms": shard.late_ms,
        "ticked_ms": shard.ticked_ms,
        "now_ms": shard.now_ms,
    }


def tree(tree: TreeState) -> dict[str, Any]:
    """A pending tree, and its block."""
    block = tree.block
    return {
        "anchor": str(tree.anchor),
        "checksum": f"{tree.checksum:016x}",
        "task": tree.task,
        "source_id": tree.source_id,
        "state": tree.state,
        "why": tree.why,
        "age_ms": tree.age_ms,
        "bucket": tree.bucket,
        "block": block
        and {
            "block": str(block.block),
            "slots": block.slots,
            "open": list(block.open),
            "failed": list(block.failed),
        },
    }


def block(block: BlockEntry) -> dict[str, Any]:
    """A pending block in a list."""
    return {
        "block": str(block.block),
        "first_anchor": str(block.anchors[0]),
        "slots": block.slots,
        "task": block.task,
        "label": block.label,
        "age_ms": block.age_ms,
        "bucket": block.bucket,
    }


def outcomes(entry: Entry) -> list[dict[str, Any]]:
    """The verdicts of an entry, one by one."""
    return [
        {
            "verdict": outcome.verdict,
            "reason": outcome.reason,
            "source_id": outcome.source_id,
            "slot": outcome.slot,
            "anchor": str(outcome.anchor),
            "age_ms": outcome.age_ms,
            "why": outcome.why,
            "at_ms": entry.at_ms,
            "entry": f"{entry.shard}:{entry.id}",
        }
        for outcome in entry
    ]
