"""Read the history of a namespace. No I/O: see :mod:`acker_redis.flows.steps`.

To parse the points of a day takes some 10 ms of Python. So the flows return :class:`Readings`, and
an asyncio program may compute :func:`history_of`, :func:`objectives_of` and :func:`losses_of` in a
thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from acker_redis.flows.namespace import Flows
from acker_redis.flows.steps import AskAll, Flow
from acker_redis.protocol.history import (
    HOUR_MS,
    HOURS,
    MINUTE_MS,
    Point,
    Unit,
    names_of,
    within,
)
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.losses import RECENT_MS, Losses, base, losses
from acker_redis.protocol.series import RANGES, Bucket, Range, series
from acker_redis.protocol.slo import WINDOWS, Objective, objectives
from acker_redis.protocol.status import Status

KNOWN_HOURS = 26
"""Points of hours that are read with points of minutes, which do not say what the settings were."""
FIELDS = 240
"""Fields per command: each command takes some 100 us of Redis's time."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Fields of the history, and the status that was read before them."""

    status: Status
    minutes: Sequence[bytes | None]
    """Points of minutes."""
    hours: Sequence[bytes | None]
    """Points of hours."""


@dataclass(frozen=True, slots=True)
class History:
    """The buckets of a range; the last one ends now."""

    namespace: str
    range: Range
    now_ms: int
    """By the clock of Redis."""
    step_ms: int
    """Usual length of a bucket."""
    buckets: Sequence[Bucket]
    high_water: int
    """The high-water mark now; the changes of buckets say what it was before."""

    @property
    def from_ms(self) -> int:
        """Where the range begins, with or without buckets."""
        return self.now_ms - RANGES[self.range][1] * self.step_ms


def read_history(flows: Flows, wanted: Range) -> Flow[Readings]:
    """Read what :func:`history_of` needs. Raise NamespaceNotFoundError if there is no namespace."""
    unit, number = RANGES[wanted]
    # A bucket needs a point at each end. The ring of a day, or of 30 days, has no further one.
    minutes = number + (wanted != "24h") if unit == "m" else 0
    return (yield from _read(flows, minutes, HOURS if unit == "h" else KNOWN_HOURS))


def read_slo(flows: Flows) -> Flow[Readings]:
    """Read what :func:`objectives_of` needs. Raise NamespaceNotFoundError as above."""
    return (yield from _read(flows, max(WINDOWS.values()) // MINUTE_MS + 1, HOURS))


def read_base(status: Status) -> Flow[Point | None]:
    """Return the point of some 15 minutes ago, for the growth since then; a later one if need be.

    None if there is no history, or if a counter has gone back since.
    """
    now_ms, key = status.shards[0].now_ms, ShardKeys(status.namespace, 0).history
    names = names_of("m", RECENT_MS // MINUTE_MS + 1, now_ms)
    (values,) = yield AskAll((("HMGET", key, *names),))
    return base(within(values, now_ms - RECENT_MS - MINUTE_MS, now_ms - 1), status)


def history_of(readings: Readings, wanted: Range) -> History:
    """Return the buckets of a range up to the moment of the reading."""
    status, now = readings.status, Point.of(readings.status)
    unit, number = RANGES[wanted]
    length = _length(unit)
    values = readings.minutes if unit == "m" else readings.hours
    points = within(values, now.at_ms - (number + 1) * length, now.at_ms - 1)
    # The points of hours know the settings that points of minutes refer to.
    known = within(readings.hours, 0, now.at_ms) if unit == "m" else []
    settings = [point.settings for point in (*known, now) if point.settings]
    buckets = series([*points, now], unit, settings)
    return History(status.namespace, wanted, now.at_ms, length, buckets, status.config.high_water)


def objectives_of(readings: Readings) -> list[Objective]:
    """Return the objective of the namespace over 30 days, and those of its sources."""
    now = Point.of(readings.status)
    longest = max(WINDOWS.values()) + MINUTE_MS
    recent = within(readings.minutes, now.at_ms - longest, now.at_ms - 1)
    month = within(readings.hours, now.at_ms - HOURS * HOUR_MS, now.at_ms - 1)
    month = [*_begin(recent, (*month, now)[0]), *month]
    return objectives(
        readings.status.config,
        series([*month, now], "h"),
        series([*recent, now], "m"),
        now.at_ms,
    )


def losses_of(readings: Readings) -> Losses | None:
    """Return the nacks of the last 15 minutes, from the reading of :func:`read_slo`."""
    now = Point.of(readings.status)
    longest = max(WINDOWS.values()) + MINUTE_MS
    recent = within(readings.minutes, now.at_ms - longest, now.at_ms - 1)
    return losses(series([*recent, now], "m"), now.at_ms)


def _begin(recent: Sequence[Point], first: Point) -> list[Point]:
    """Return the point before the first one of an hour, if a minute has it.

    The point of an hour is that of its end, or of the last minute. So without this one, the first
    hour of a namespace would be missing. If that hour has only one point, the first minute has the
    same one: the namespace was created in the last minute of an hour.
    """
    if not recent or recent[0].at_ms > first.at_ms:
        return []
    (point, *_), settings = recent, first.settings
    if settings is None or point.ticks * settings.tick_ms > 2 * MINUTE_MS:
        return [point]
    # The history is as old as the namespace, whose counters were all 0 when it was created.
    return [Point(point.at_ms, mark=settings.mark, settings=settings)]


def _read(flows: Flows, minutes: int, hours: int) -> Flow[Readings]:
    status = yield from flows.status()
    now_ms, key = status.shards[0].now_ms, ShardKeys(flows.namespace, 0).history
    names = [*names_of("m", minutes, now_ms), *names_of("h", hours, now_ms)]
    starts = range(0, len(names), FIELDS)
    asked = tuple(("HMGET", key, *names[start : start + FIELDS]) for start in starts)
    values = [value for reply in (yield AskAll(asked)) for value in reply]
    return Readings(status, values[:minutes], values[minutes:])


def _length(unit: Unit) -> int:
    return MINUTE_MS if unit == "m" else HOUR_MS
