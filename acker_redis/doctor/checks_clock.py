"""Checks of the clocks of the servers. No I/O."""

from collections.abc import Mapping, Sequence

from acker_redis.doctor.facts import ClockSample
from acker_redis.doctor.finding import Finding, ok, warning

ALLOWED = 1.0
"""Seconds by which clocks may differ or jump."""
_NTP = "synchronize all machines by NTP (chronyc tracking), by slewing and not by stepping"


def check(samples: Mapping[str, Sequence[ClockSample]]) -> Finding:
    """Compare the nodes' clocks with this machine's, with each other, and with earlier samples.

    Ticks use only the clock of the shard's node, so a wrong clock loses nothing. But a clock that
    jumps makes trees live longer, or up to one tick shorter, than configured.
    """
    found = [
        f"{name}'s clock jumped by {abs(_jump(its)):,.1f} s {'ahead' if _jump(its) > 0 else 'back'}"
        for name, its in samples.items()
        if abs(_jump(its)) > ALLOWED + its[0].doubt + its[-1].doubt
    ]
    offsets = {name: its[-1].node - its[-1].here for name, its in samples.items()}
    doubt = max((its[-1].doubt for its in samples.values()), default=0.0)
    low, high = min(offsets.values(), default=0.0), max(offsets.values(), default=0.0)
    if high - low > ALLOWED + 2 * doubt:
        found.append(f"the nodes' clocks differ by {high - low:,.1f} s")
    worst = max((low, high), key=abs)
    if abs(worst) > ALLOWED + doubt:
        side = "ahead of" if worst > 0 else "behind"
        found.append(f"the clock of Redis is {abs(worst):,.1f} s {side} that of this machine")
    if found:
        return warning("clock", "; ".join(found), _NTP)
    return ok("clock", f"within {max(abs(worst), doubt):.2f} s of this machine")


def _jump(samples: Sequence[ClockSample]) -> float:
    first, last = samples[0], samples[-1]
    return (last.node - first.node) - (last.steady - first.steady)
