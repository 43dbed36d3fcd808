"""JSON output of the commands: numbers are numbers, ids are text, ages are milliseconds.

Anchors and tuple ids are text because many JSON readers round a number beyond 2^53.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from acker_redis.flows.browse import BlockEntry
from acker_redis.flows.waits import Waits
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.outcome import Entry, Outcome
from acker_redis.protocol.tree import TreeState


def config(config: AckerConfig) -> dict[str, Any]:
    """Return a namespace's configuration."""
    return asdict(config)


def tree(tree: TreeState, edges: Sequence[str]) -> dict[str, Any]:
    """Return a pending tree and its block; ``edges`` are those of the namespace."""
    block = tree.block
    return {
        "anchor": str(tree.anchor),
        "checksum": f"{tree.checksum:016x}",
        "source": tree.source,
        "source_id": tree.source_id,
        "state": tree.state,
        "why": tree.why,
        "age_ms": tree.age_ms,
        "idle_ms": tree.idle_ms,
        "edges": list(tree.open_edges(edges)),
        "bucket": tree.bucket,
        "block": block
        and {
            "block": str(block.block),
            "slots": block.slots,
            "open": list(block.open),
            "failed": list(block.failed),
            "absent": list(block.absent),
        },
    }


def block(block: BlockEntry) -> dict[str, Any]:
    """Return a pending block, as an element of a list."""
    return {
        "block": str(block.block),
        "first_anchor": str(block.anchors[0]),
        "slots": block.slots,
        "partial": block.partial,
        "source": block.source,
        "label": block.label,
        "age_ms": block.age_ms,
        "idle_ms": block.idle_ms,
        "bucket": block.bucket,
    }


def outcome(outcome: Outcome, entry: Entry) -> dict[str, Any]:
    """Return a verdict of an entry."""
    return {
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "source_id": outcome.source_id,
        "slot": outcome.slot,
        "anchor": str(outcome.anchor),
        "age_ms": outcome.age_ms,
        "why": outcome.why,
        **expired(outcome),
        "at_ms": entry.at_ms,
        "entry": f"{entry.shard}:{entry.id}",
    }


def expired(outcome: Outcome) -> dict[str, Any]:
    """Return how a tree expired; '', [] and null for another outcome. Zeros: unknown residual."""
    if outcome.reason != "expired":
        return {"cause": "", "residual": None, "edges": [], "idle_ms": None}
    return {
        "cause": outcome.cause,
        "residual": f"{outcome.residual:016x}",
        "edges": list(outcome.edges),
        "idle_ms": outcome.idle_ms,
    }


def waits(waits: Waits) -> dict[str, Any]:
    """Return on which edges the trees of a sample wait."""
    return {
        "sampled": waits.sampled,
        "pending": waits.pending,
        "edges": [{**asdict(each), "share": each.trees / waits.sampled} for each in waits.edges],
    }
