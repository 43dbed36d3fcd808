"""Why a tree expired, in one sentence for people."""

from acker_redis.protocol.outcome import Outcome


def why_expired(outcome: Outcome) -> str:
    """Return why a tree expired; '' for any other outcome.

    It names the edges on which an odd number of messages is unaccounted for, how long before the
    verdict the last row came, and how old the tree was then.

    >>> lost = Outcome("nack", "expired", 7, "s", 90_000, "", "idle", 40, 41_000, ("plane",))
    >>> why_expired(lost)
    'no ack on edge plane; last row 41 s ago, of 90 s'
    """
    if not outcome.cause:
        return ""
    where = ""
    if outcome.edges:
        where = f" on edge{'s' * (len(outcome.edges) > 1)} {', '.join(outcome.edges)}"
    ended = "deadline reached, " if outcome.cause == "deadline" else ""
    return (
        f"{ended}no ack{where}; last row {_seconds(outcome.idle_ms)} ago, of "
        f"{_seconds(outcome.age_ms)}"
    )


def _seconds(ms: int) -> str:
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.3g} s" if ms < 10_000 else f"{ms // 1000} s"
