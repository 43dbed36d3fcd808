"""The history of a namespace: one hash of points, as two rings. No I/O.

The rotators write a *point* once a minute: the counters of the namespace since it was created,
summed over its shards, and some gauges. The field ``m<minute % 1440>`` holds the point of a minute,
for 24 hours, and ``h<hour % 720>`` the last point of an hour, for 30 days.

- **Bounded.** A field is written again after its ring has gone round. Nothing has to be deleted.
- **Idempotent.** A point holds counters and no growth. So any number of rotators may write the
  point of a minute, in any order: each of them is right at the time that the point states.
- **No old point in a new window.** Each point begins with its time. A reader drops the points that
  are outside of its window, such as those of yesterday while no rotator runs.

A shard is read in one atomic call, so ``tracked`` is the sum of the endings and the open trees in
each shard, and so in the sum. The shards are read one after the other.

Layout of a point: version (2) · ms since 1970 (6) · fingerprint of the settings (2) · fingerprint
of the run of Redis (2, zeros: unknown) · 15 varints: tracked, acked, failed, expired, overflow,
conflict, slow, pending, waiting verdicts, ticks; and five of sources: useless, window, in flight,
held, down. (Version 1 is without these five.) A point of an hour goes on with seven varints, the
settings, and up to 16 sources, those with the most endings: length of the name (1) · name · ended ·
good. The first of these bytes is 1 if the namespace has more sources than these. A varint has seven
bits a byte, the lowest first; the highest bit says that another byte follows.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Literal

from acker_redis.protocol.commands import ENDED
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import check_name
from acker_redis.protocol.status import Status

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
MINUTES, HOURS = 1440, 720
"""Number of points in each ring: 24 hours, and 30 days."""
MAX_SOURCES = 16
"""Maximum number of sources in the point of an hour."""
_VERSION = 2
_MAX_BYTES = 2048
"""Maximum length of a point."""

Unit = Literal["m", "h"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that history remembers, so that it can say what changed."""

    shards: int
    tick_ms: int
    high_water: int
    outcomes_limit: int
    deadline_ms: int
    slo_target: float
    slo_ms: int

    @classmethod
    def of(cls, config: AckerConfig) -> "Settings":
        """Return those of a configuration."""
        return cls(*(getattr(config, each.name) for each in fields(cls)))

    @property
    def mark(self) -> bytes:
        """Fingerprint of two bytes."""
        text = ",".join(str(number) for number in self.numbers)
        return hashlib.sha256(text.encode()).digest()[:2]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The values as whole numbers; ``slo_target`` in thousandths of a percent."""
        return (
            *(self.shards, self.tick_ms, self.high_water, self.outcomes_limit, self.deadline_ms),
            *(round(1000 * self.slo_target), self.slo_ms),
        )

    def changes(self, after: "Settings") -> dict[str, tuple[float, float]]:
        """Return the values before and after, of the settings that differ."""
        names = [each.name for each in fields(self)]
        pairs = {name: (getattr(self, name), getattr(after, name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(frozen=True, slots=True)
class Point:
    """A reading of a namespace; its counters count since the namespace was created.

    >>> Point(at_ms=1_700_000_000_000, tracked=5, acked=3, failed=1).open
    1
    """

    at_ms: int
    """Time of the reading by the clock of Redis, in ms since 1970."""
    tracked: int = 0
    acked: int = 0
    failed: int = 0
    expired: int = 0
    overflow: int = 0
    conflict: int = 0
    slow: int = 0
    """Acked trees that took longer than ``slo_ms``."""
    pending: int = 0
    """What counts toward the high-water mark."""
    waiting: int = 0
    """Verdicts that wait to be taken."""
    ticks: int = 0
    useless: int = 0
    """Trees that got rows after they had expired; negative: unknown, in a point of version 1."""
    window: int = 0
    """Records that sources may have in flight, by their reports, like the next three."""
    in_flight: int = 0
    held: int = 0
    """Records that wait in sources."""
    down: int = 0
    """Edges on which a source gets no answer."""
    mark: bytes = b"\0\0"
    """Fingerprint of the settings."""
    run: bytes = b"\0\0"
    """Fingerprint of the run of Redis: it changes when Redis starts again. Zeros: unknown."""
    settings: Settings | None = None
    """None in a point of a minute."""
    sources: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Ended and good trees per source; {} in a point of a minute."""
    more_sources: bool = False
    """Whether the namespace has sources that ``sources`` does not have."""

    @classmethod
    def of(cls, status: Status, run_id: str = "") -> "Point":
        """Return the point of a reading; ``run_id`` is that of the server of shard 0."""
        counters, settings, good = status.counters, Settings.of(status.config), status.good
        windows = [each for report in status.reports.values() for each in report.windows]
        ranked = sorted(status.ended.items(), key=lambda item: (-item[1], item[0]))
        return cls(
            status.shards[0].now_ms,
            **{name: counters[name] for name in ("tracked", *ENDED)},
            slow=status.slow,
            pending=status.pending,
            waiting=sum(status.backlog.values()),
            ticks=status.ticks,
            useless=status.useless,
            window=sum(each.window or 0 for each in windows),
            in_flight=sum(each.in_flight for each in windows),
            held=sum(each.waiting for each in windows),
            down=sum(each.down_for is not None for each in windows),
            mark=settings.mark,
            run=hashlib.sha256(run_id.encode()).digest()[:2] if run_id else b"\0\0",
            settings=settings,
            sources={name: (count, good.get(name, 0)) for name, count in ranked[:MAX_SOURCES]},
            more_sources=len(ranked) > MAX_SOURCES,
        )

    @property
    def ended(self) -> int:
        """Trees that were acked or nacked."""
        return sum(getattr(self, name) for name in ENDED)

    @property
    def open(self) -> int:
        """Trees without a verdict."""
        return max(0, self.tracked - self.ended)

    @property
    def good(self) -> int:
        """Trees that were acked in time."""
        return self.acked - self.slow

    def fields(self) -> dict[str, bytes]:
        """Return the fields of the hash to write, with their values."""
        return {name_of("m", self.at_ms): self._minute(), name_of("h", self.at_ms): self._hour()}

    def _minute(self) -> bytes:
        numbers = (getattr(self, name) for name in _NUMBERS)
        head = bytes((_VERSION,)) + self.at_ms.to_bytes(6, "big") + self.mark + self.run
        return head + b"".join(map(_varint, numbers))

    def _hour(self) -> bytes:
        if not self.settings:
            raise ValueError("only a point of a status can be written, which has the settings")
        parts = [self._minute(), *map(_varint, self.settings.numbers), bytes((self.more_sources,))]
        for name, counts in self.sources.items():
            parts += [bytes((len(name),)), name.encode(), *map(_varint, counts)]
        return b"".join(parts)


_NUMBERS = (
    *("tracked", *ENDED, "slow", "pending", "waiting", "ticks"),
    *("useless", "window", "in_flight", "held", "down"),
)
_NUMBERS_1 = _NUMBERS[:-5]
"""Those of version 1."""


def name_of(unit: Unit, at_ms: int) -> str:
    """Return the field of the point of a time.

    >>> name_of("m", 1_700_000_000_000), name_of("h", 1_700_000_000_000)
    ('m1333', 'h622')
    """
    length, size = (MINUTE_MS, MINUTES) if unit == "m" else (HOUR_MS, HOURS)
    return f"{unit}{at_ms // length % size}"


def names_of(unit: Unit, number: int, now_ms: int) -> list[str]:
    """Return the fields of the last ``number`` minutes or hours, the oldest first."""
    length = MINUTE_MS if unit == "m" else HOUR_MS
    return [name_of(unit, now_ms - age * length) for age in reversed(range(number))]


def parse(value: bytes) -> Point | None:
    """Return the point of a field; None for one of another version, or a damaged one."""
    if not 11 <= len(value) <= _MAX_BYTES or value[0] not in (1, _VERSION):
        return None
    return _cached(value)


@lru_cache(maxsize=4096)
def _cached(value: bytes) -> Point | None:
    """Points do not change, so the service parses those of a page once."""
    try:
        return _parse(value)
    except (IndexError, ValueError):
        return None


def _parse(value: bytes) -> Point:
    names = _NUMBERS_1 if value[0] == 1 else _NUMBERS
    numbers, at = _varints(value, 11, len(names))
    settings, more, sources = None, False, {}
    if at < len(value):
        (shards, tick_ms, mark, limit, deadline_ms, target, slo_ms), at = _varints(value, at, 7)
        settings = Settings(shards, tick_ms, mark, limit, deadline_ms, target / 1000, slo_ms)
        if not (shards and tick_ms and mark and limit and 50 <= settings.slo_target < 100):
            raise ValueError("no namespace has these settings")
        more, at = bool(value[at]), at + 1
    while at < len(value):
        end = at + 1 + value[at]
        name = check_name("source", value[at + 1 : end].decode())
        (ended, good), at = _varints(value, end, 2)
        sources[name] = (ended, good)
    counters = {"useless": -1, **dict(zip(names, numbers, strict=True))}
    return Point(
        int.from_bytes(value[1:7], "big"),
        **counters,
        mark=value[7:9],
        run=value[9:11],
        settings=settings,
        sources=sources,
        more_sources=more,
    )


def within(values: Iterable[bytes | None], since_ms: int, now_ms: int) -> list[Point]:
    """Return the points of a window, the oldest first.

    Points of an earlier round of the ring are dropped, and so are points of the future: the clock
    went back.
    """
    points = (parse(value) for value in values if value)
    return sorted(
        (point for point in points if point and since_ms <= point.at_ms <= now_ms),
        key=lambda point: point.at_ms,
    )


def _varint(number: int) -> bytes:
    parts, number = bytearray(), max(0, number)
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _varints(value: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Return numbers from a position on, and the position after them."""
    numbers = []
    for _ in range(count):
        number = shift = 0
        while (byte := value[at]) > 127:
            number |= (byte & 127) << shift
            shift, at = shift + 7, at + 1
            if shift > 56:
                raise ValueError("the number has more than 63 bits")
        numbers.append(number | byte << shift)
        at += 1
    return numbers, at
