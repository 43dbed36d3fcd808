"""The health of all namespaces: one survey reads them, and the judgement of the house judges them.

A survey costs one script per shard, and some ages (``ages.py``). A thousand namespaces take long,
so the next survey begins after ten times the duration of the last one: the cost is bounded, and a
judgement becomes older. ``every`` of a judgement says how old it may become. A survey that has
waited for an unavailable Redis has cost little, and soon another one must see that it is back.
"""

import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from acker_api.problems import of_error
from acker_api.reading.ages import Ages
from acker_api.reading.reader import ReadStatus, Survey
from acker_redis.errors import AckerError, RedisUnavailableError, SchemaError
from acker_redis.operate import Event, Readings, health

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Minimum of the seconds between two surveys."""
TIMES = 10.0
"""A survey may take a tenth of the time at most."""
AWAY = 2.0
"""Maximum of the seconds between two surveys while Redis is unavailable, if only in part."""
LISTED = 1000
"""Maximum number of namespaces in an answer, the worst ones."""
RANK = {"error": 0, "warning": 1, "ok": 2}
Row = dict[str, Any]
"""A namespace, as ``shapes/overview.py`` describes it."""


@dataclass(frozen=True)
class Judged:
    """All namespaces, the worst first, then by name."""

    rows: tuple[Row, ...]
    every: float = PERIOD
    """Seconds until they are judged again, at least."""

    def body(self, rows: Iterable[Row] | None = None, limit: int = LISTED) -> dict[str, Any]:
        """Return ``limit`` of some rows, or of all, and the counts of these rows, as JSON."""
        chosen = self.rows if rows is None else tuple(rows)
        counts: Mapping[str, int] = Counter(row["level"] for row in chosen)
        return {
            "namespaces": chosen[:limit],
            "total": len(chosen),
            "counts": {each: counts[each] for each in RANK},
            "every_ms": round(1000 * self.every),
        }


class Overview:
    """Judges all namespaces; it keeps their readings, so there is one in a process."""

    def __init__(self, survey: Callable[[], Awaitable[Survey]], ages: Ages) -> None:
        self._survey, self._ages = survey, ages
        # Not limited: it holds the namespaces of the last survey, which come in the same order
        # each time. A smaller limit would drop each of them before its next reading.
        self._minute = Readings(lately=False, names=sys.maxsize)

    async def judge(self) -> Judged:
        """Read and judge all namespaces. Raise AckerError if not even the names can be read."""
        survey = await self._survey()
        if survey.error:
            raise survey.error
        begun = time.monotonic()
        self._minute.forget_others(survey.found)
        self._ages.forget_others(survey.found)
        rows = [self.row(name, seen) for name, seen in survey.found.items()]
        rows.sort(key=lambda row: (RANK[row["level"]], row["name"]))
        took = survey.seconds + time.monotonic() - begun
        away = any(isinstance(seen, RedisUnavailableError) for seen in survey.found.values())
        return Judged(tuple(rows), min(max(PERIOD, TIMES * took), AWAY if away else math.inf))

    def row(self, name: str, seen: ReadStatus | AckerError) -> Row:
        """Judge a namespace; an error means that it cannot be read."""
        if isinstance(seen, AckerError):
            return _away(name, seen)
        try:
            return self._judged(name, seen)
        except Exception as error:
            # With any content of the keys of one namespace, the others are judged.
            log.exception(Event("no_judgement", namespace=name))
            return _away(name, SchemaError(f"{name} cannot be judged: {error!s:.160}"))

    def _judged(self, name: str, seen: ReadStatus) -> Row:
        status = seen.status
        growth = self._minute.add(status)
        found = health.wrong(
            health.judge(status, growth, seen.oldest_ms, None, seen.untaken, seen.recent)
        )
        return {
            "name": name,
            "up": True,
            "level": health.level(found),
            "findings": [finding.to_dict() for finding in found],
            "open": status.open,
            "pending": status.pending,
            "expiring": status.expiring,
            "untaken": sum(status.backlog.values()),
            "oldest_ms": seen.oldest_ms,
            "rotator": health.rotation(status.shards),
            "high_water": status.high_water,
            "high_water_ratio": status.high_water_ratio,
            "lag_ms": status.lag_ms,
            "resharding_to": status.reshard.target if status.reshard else None,
            "counters": {**status.counters, "after_failure": status.after_failure},
            "now_ms": status.shards[0].now_ms,
        }


def _away(name: str, error: AckerError) -> Row:
    """Return the row of a namespace that cannot be read."""
    return {"name": name, "up": False, "level": "error", "problem": of_error(error).body()}
