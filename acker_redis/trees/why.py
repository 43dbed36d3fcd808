"""Why a tree was nacked, in one sentence for people."""

from collections.abc import Sequence

from acker_redis.protocol.outcome import Outcome


def why_expired(outcome: Outcome) -> str:
    """Return why a tree expired, in one sentence; of another outcome, the ``why`` of its bolt.

    The sentence names the edges on which an odd number of messages is unaccounted for, the time
    since the last row of the tree, and the age of the tree.

    Examples:
        >>> residual = 1 << 55 | 40
        >>> why_expired(
        ...     Outcome(
        ...         "nack", "expired", 7, "order-1", 90_000, "",
        ...         cause="idle", residual=residual, idle_ms=41_000, edges=("plane",),
        ...     )
        ... )
        'no ack on edge plane; last row 41 s ago, of 90 s'

    """
    if outcome.reason != "expired":
        return outcome.why
    parts = ["deadline reached"] if outcome.cause == "deadline" else []
    if outcome.edges:
        parts.append(f"no ack on edge{'s' * (len(outcome.edges) > 1)} {_listed(outcome.edges)}")
    elif outcome.residual:
        parts.append("not all messages were acked")
    else:
        parts.append("the block has lost its checksums")
    parts.append(f"last row {_seconds(outcome.idle_ms)} ago, of {_seconds(outcome.age_ms)}")
    return "; ".join(parts)


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _seconds(ms: int) -> str:
    """Return a duration in one unit: ``250 ms``, ``1.5 s``, ``90 s``, ``3,600 s``."""
    if ms < 1000:
        return f"{ms} ms"
    seconds = ms / 1000
    return (f"{seconds:.1f}".removesuffix(".0") if seconds < 10 else f"{seconds:,.0f}") + " s"
