"""JSON output of the commands: numbers are numbers, ids are text, ages are milliseconds.

Anchors and tuple ids are text because many JSON readers round a number beyond 2^53.
"""

from dataclasses import asdict
from typing import Any

from acker_redis.flows.browse import BlockEntry
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.outcome import Entry
from acker_redis.protocol.tree import TreeState


def config(config: AckerConfig) -> dict[str, Any]:
    """Return a namespace's configuration."""
    return asdict(config)


def tree(tree: TreeState) -> dict[str, Any]:
    """Return a pending tree and its block."""
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
    """Return a pending block, as an element of a list."""
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
    """Return the verdicts of an entry, one dict per verdict."""
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
