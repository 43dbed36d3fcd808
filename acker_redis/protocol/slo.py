"""The completeness objective of a namespace: how many trees completed in time. No I/O.

The objective is ``slo_target`` percent of the trees that end. A tree is *good* if it was acked
within ``slo_ms`` (0: before it expired). A tree that is nacked and replayed counts once for each
attempt. The other trees are *bad*. The *error budget* is the number of bad trees that the target
allows. The *burn rate* is the share of bad trees divided by the share that the target allows: at 1
the budget lasts exactly for the window, at 14.4 two percent of the budget of 30 days are gone
within an hour (Google, The Site Reliability Workbook, chapter 5).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.history import HOUR_MS, MINUTE_MS
from acker_redis.protocol.series import Bucket

WINDOWS: Mapping[str, int] = {"5m": 5 * MINUTE_MS, "1h": HOUR_MS, "6h": 6 * HOUR_MS}
"""Windows of the burn rates, in ms."""
DAY_MS = 24 * HOUR_MS
OTHERS = "(others)"
"""Name for the sources that are not named, together; it is not a valid name of a source."""


@dataclass(frozen=True, slots=True)
class Share:
    """Trees that ended in a window, and those of them that completed in time."""

    over_ms: int
    """Length of the window, as far as history has it."""
    ended: int = 0
    good: int = 0

    @property
    def bad(self) -> int:
        """Trees that ended and did not complete in time."""
        return self.ended - self.good

    def burn_rate(self, target: float) -> float | None:
        """Return the burn rate for a target in percent; None if no tree ended.

        >>> Share(3_600_000, ended=1000, good=980).burn_rate(99.0)
        2.0
        """
        return (
            round(100 * self.bad / self.ended / round(100 - target, 3), 4) if self.ended else None
        )


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective of a namespace, or of one of its sources, over a window.

    >>> made = Objective("", 99.0, 60_000, Share(30 * 86_400_000, 10_000, 9_959))
    >>> made.sentence
    '99.59 % complete within 60 s, 30 days, budget left 59 %'
    """

    source: str
    """'' for the whole namespace, or ``(others)``."""
    target: float
    """Percentage of trees that must be good."""
    within_ms: int
    """0: they must complete before they expire."""
    share: Share
    burns: Mapping[str, Share] = field(default_factory=dict)
    """Recent windows by their name, ``5m``, ``1h`` and ``6h``; one that is unknown is missing."""

    @property
    def ratio(self) -> float | None:
        """Percentage of good trees; None if no tree ended."""
        return 100 * self.share.good / self.share.ended if self.share.ended else None

    @property
    def budget_left(self) -> float | None:
        """The rest of the error budget, in percent; negative if it is overspent."""
        burnt = self.share.burn_rate(self.target)
        return None if burnt is None else round(100 - 100 * burnt, 2)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if no tree ended."""
        return None if self.ratio is None else self.ratio >= self.target

    @property
    def sentence(self) -> str:
        """One line for people."""
        within = f"within {time_of(self.within_ms)}" if self.within_ms else "before they expire"
        if self.ratio is None or self.budget_left is None:
            return f"no tree ended within {time_of(self.share.over_ms)}"
        return (
            f"{percent(self.ratio)} % complete {within}, {time_of(self.share.over_ms)}, "
            f"budget left {self.budget_left:.0f} %"
        )


def objectives(
    config: AckerConfig, hours: Sequence[Bucket], minutes: Sequence[Bucket], now_ms: int
) -> list[Objective]:
    """Return the objective of the namespace, and those of its sources, most endings first.

    ``hours`` are the buckets of the window, ``minutes`` those of the last 6 hours. Buckets that
    span a gap count: their numbers are exact. The burn rates of sources come from the hours, so
    they have no window of 5 minutes, and their windows begin up to an hour early.
    """
    target, within = config.slo_target, config.slo_ms
    whole = Objective(
        "",
        target,
        within,
        _share(hours, ""),
        {name: _share(_since(minutes, now_ms - ms), "") for name, ms in WINDOWS.items()},
    )
    total: dict[str, int] = {}
    for bucket in hours:
        for name, (ended, _) in bucket.sources.items():
            total[name] = total.get(name, 0) + ended
    names = sorted((name for name in total if total[name]), key=lambda name: (-total[name], name))
    shares = {name: _share(hours, name) for name in names}
    rest = _rest(whole.share, shares.values())
    if rest.ended:
        shares[OTHERS] = rest
    recent = {name: _since(hours, now_ms - ms) for name, ms in WINDOWS.items() if name != "5m"}
    return [whole] + [
        Objective(
            name,
            target,
            within,
            share,
            {}
            if name == OTHERS
            else {window: _share(buckets, name) for window, buckets in recent.items()},
        )
        for name, share in shares.items()
    ]


def _since(buckets: Sequence[Bucket], since_ms: int) -> list[Bucket]:
    return [bucket for bucket in buckets if bucket.to_ms > since_ms]


def _share(buckets: Sequence[Bucket], source: str) -> Share:
    if not buckets:
        return Share(0)
    over_ms = buckets[-1].to_ms - buckets[0].from_ms
    if not source:
        return Share(over_ms, sum(b.ended for b in buckets), sum(b.counts["good"] for b in buckets))
    pairs = [bucket.sources.get(source, (0, 0)) for bucket in buckets]
    return Share(over_ms, sum(ended for ended, _ in pairs), sum(good for _, good in pairs))


def _rest(whole: Share, named: Iterable[Share]) -> Share:
    """Return what no source has: those that are not named, and endings of forgotten sources."""
    named = list(named)
    ended = max(0, whole.ended - sum(share.ended for share in named))
    return Share(whole.over_ms, ended, min(ended, max(0, whole.good - sum(s.good for s in named))))


def percent(value: float) -> str:
    """Return a percentage, rounded down: 100 means that nothing was bad.

    >>> percent(99.98765), percent(100.0), percent(99.9999)
    ('99.987', '100', '99.999')
    """
    return f"{int(1000 * value + 1e-6) / 1000:.3f}".rstrip("0").rstrip(".")


def time_of(ms: int) -> str:
    """Return a length of time in words.

    >>> time_of(60_000), time_of(7_200_000), time_of(30 * 86_400_000), time_of(1_500)
    ('60 s', '2 h', '30 days', '1.5 s')
    """
    if ms >= 36 * HOUR_MS:
        return f"{round(ms / DAY_MS)} days"
    if ms >= 2 * HOUR_MS:
        return f"{ms // HOUR_MS} h"
    if ms >= 2 * MINUTE_MS:
        return f"{ms // MINUTE_MS} min"
    return f"{ms / 1000:g} s"
