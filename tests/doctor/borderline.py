"""For each threshold, a healthy namespace that is unhealthy if the threshold is halved."""

from dataclasses import dataclass, replace

from acker_redis.doctor.health import THRESHOLDS, Thresholds
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.growth import Growth
from acker_redis.protocol.status import Status
from tests.doctor.made import NOW, TICK_MS, status

MS = NOW * 1000


@dataclass(frozen=True)
class Borderline:
    finding: str
    after: Status
    before: Status | None = None
    oldest_ms: int | None = None
    untaken: dict[str, int] | None = None

    @property
    def growth(self) -> Growth | None:
        return Growth.between(self.before, self.after) if self.before else None


def halved(name: str) -> Thresholds:
    """Return the thresholds with one of them halved."""
    value = getattr(THRESHOLDS, name)
    return replace(THRESHOLDS, **{name: type(value)(value / 2)})


def _one(**more: object) -> Status:
    shard = status(0, AckerConfig(tick_ms=TICK_MS, outcomes_limit=100), **more)
    return Status("orders", shard.config, (shard,))


def _before(ms: int) -> Status:
    return _one(now_ms=MS - ms)


def _late() -> Status:
    shard = status(0, AckerConfig(tick_ms=1000), ticked_ms=MS - 5000, ticks=1)
    return Status("orders", shard.config, (shard,))


BORDERLINE = {
    "late_ms": Borderline("rotator", _late()),
    "drain": Borderline("drain", _one(expiring=1, ticked_ms=MS - 4000)),
    "full": Borderline("outcomes", _one(backlog={"shop": 60})),
    "burn": Borderline("nacks", _one(counters={"acked": 930, "failed": 70})),
    "least_nacks": Borderline("nacks", _one(counters={"failed": 6}), _before(10_000)),
    "stalled_ms": Borderline("acks", _one(pending=(0, 0, 1)), _before(30_000)),
    "old_ms": Borderline("oldest", _one(), oldest_ms=2_000_000),
    "untaken_ms": Borderline("outcomes", _one(backlog={"shop": 3}), untaken={"shop": 200_000}),
}
