"""What is wrong with a namespace: tables."""

from dataclasses import replace
from typing import Any

import pytest

from acker_redis.doctor import checks_namespace as checks
from acker_redis.doctor.facts import Missing, Waiting
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.move import Move
from tests.doctor.made import DENIED, NOW, TICK_MS, namespace, status

MS = NOW * 1000


@pytest.mark.parametrize(
    ("ticked_ms", "tick_ms", "level"),
    [
        (MS, TICK_MS, "ok"),
        (MS - 2 * TICK_MS, TICK_MS, "ok"),
        (MS - 2 * TICK_MS - 1, TICK_MS, "error"),
        (MS - 1000, 10, "ok"),  # it looks once a second
        (MS - 1011, 10, "error"),
        (MS + 1000, TICK_MS, "ok"),
        (MS + 3_600_000, TICK_MS, "warning"),
    ],
)
def test_rotator(ticked_ms: int, tick_ms: int, level: str) -> None:
    shard = status(1, AckerConfig(shards=2, tick_ms=tick_ms), ticked_ms=ticked_ms)
    found = checks.rotator(namespace(status(0, shard.config), shard))
    assert found.level == level
    if level == "error":
        assert "1 of 2 shards (1)" in found.detail
        assert "acker-redis rotator orders" in found.fix


def test_what_a_spark_query_keeps_is_not_left_lying() -> None:
    """It reads, waits for more, and keeps its last micro-batch; another source's are reported."""
    config = AckerConfig(tick_ms=TICK_MS)
    shard = status(0, config, backlog={"shop": 5, "till": 1})
    old = 10 * config.timeout_ms
    waiting = (Waiting("shop", 1, 5, old), Waiting("till", 1, 1, old))
    both = checks.outcomes(namespace(shard, waiting=waiting), {"shop", "till"})
    assert (both.level, "6 of them are kept by Spark queries" in both.detail) == ("ok", True)
    one = checks.outcomes(namespace(shard, waiting=waiting), {"shop"})
    assert one.level == "warning"
    assert "till (1," in one.detail
    assert "shop" not in one.detail


def test_before_the_first_tick_no_rotator_is_on_time() -> None:
    for ticks, words in ((0, "no tick yet, the first one is due in 60 s"), (1, "on time")):
        fresh = status(0, AckerConfig(tick_ms=60_000), ticks=ticks)
        found = checks.rotator(namespace(fresh))
        assert (found.level, found.detail.startswith(words)) == ("ok", True), found.detail


@pytest.mark.parametrize(
    ("expiring", "since", "level"),
    [(0, 9000, "ok"), (5, 5000, "ok"), (5, 5001, "warning")],
)
def test_drain(expiring: int, since: int, level: str) -> None:
    facts = namespace(status(expiring=expiring, ticked_ms=MS - since))
    assert checks.drain(facts, facts).level == level


@pytest.mark.parametrize(
    ("pending", "level"), [(9, "ok"), (10, "warning"), (19, "warning"), (20, "error")]
)
def test_high_water(pending: int, level: str) -> None:
    config = AckerConfig(shards=2, high_water=20)
    shards = (status(0, config), status(1, config, pending=(pending, 0, 0)))
    assert checks.high_water(namespace(*shards)).level == level


LIVES = 3 * TICK_MS


@pytest.mark.parametrize(
    ("backlog", "oldest", "level"),
    [
        (0, None, "ok"),
        (80, LIVES, "ok"),
        (5, LIVES + 1, "warning"),
        (81, 0, "warning"),
        (99, LIVES + 1, "warning"),
        (100, 0, "error"),
        (5, None, "ok"),
    ],
)
def test_outcomes(backlog: int, oldest: int | None, level: str) -> None:
    config = AckerConfig(shards=2, tick_ms=TICK_MS, outcomes_limit=200)
    shard = status(1, config, backlog={"shop": backlog, "quiet": 0})
    waiting = (Waiting("shop", 1, backlog, oldest),) if backlog else ()
    found = checks.outcomes(namespace(status(0, config), shard, waiting=waiting))
    assert found.level == level
    if level != "ok":
        assert f"shop ({backlog}" in found.detail


def test_outcomes_that_may_not_be_read() -> None:
    busy = status(backlog={"shop": 3})
    assert checks.outcomes(namespace(busy, waiting=DENIED)).level == "skipped"
    full = status(0, AckerConfig(outcomes_limit=3), backlog={"shop": 3})
    assert checks.outcomes(namespace(full, waiting=DENIED)).level == "error"


@pytest.mark.parametrize("counter", ["overflow", "conflict", "orphaned"])
def test_counters(counter: str) -> None:
    before = namespace(status(counters={counter: 7}))
    after = namespace(status(counters={counter: 9, "tracked": 100}))
    assert checks.counters(before, before).level == "ok"
    found = checks.counters(before, after)
    assert found.level == "warning"
    assert f"{counter} +2 (in all" in found.detail
    assert ";" not in found.fix, "one counter grew, and one thing is to be done"
    # A namespace that was not there before has no growth.
    assert checks.counters(replace(before, shards=()), after).level == "ok"


@pytest.mark.parametrize(
    ("lanes", "durable", "level"),
    [
        (80_000, 80_000, "ok"),
        (80_001, 0, "warning"),
        (0, 80_001, "warning"),
        (100_000, 0, "error"),
        (0, 100_000, "error"),
    ],
)
def test_fences(lanes: int, durable: int, level: str) -> None:
    assert checks.fences(namespace(lanes=lanes, durable=durable)).level == level


@pytest.mark.parametrize(
    ("most", "level"), [(0, "ok"), (800, "ok"), (801, "warning"), (1000, "error")]
)
def test_tasks(most: int, level: str) -> None:
    few, many = ({f"pod-{n}": 0 for n in range(number)} for number in (min(most, 3), most))
    found = checks.tasks(namespace(status(0, backlog=few), status(0, backlog=many)))
    assert found.level == level
    assert found.detail.startswith(f"{most:,} on the fullest shard")


@pytest.mark.parametrize(("retry_for", "level"), [(10.0, "ok"), (20.0, "ok"), (20.1, "warning")])
def test_tick(retry_for: float, level: str) -> None:
    found = checks.tick(namespace(), retry_for)
    assert found.level == level
    if found.fix:
        tick_ms = int(found.fix.split()[-1])
        mended = namespace(status(0, AckerConfig(tick_ms=tick_ms)))
        assert checks.tick(mended, retry_for).level == "ok"


@pytest.mark.parametrize(
    ("field", "fix"),
    [
        ("tick_ms", "change it again: acker-redis config set orders tick_ms VALUE"),
        ("buckets", "no command does that; drop it and create it anew: acker-redis drop orders"),
    ],
)
def test_shards_that_differ(field: str, fix: str) -> None:
    facts = namespace(status(0), status(1), status(2))
    metas: list[dict[str, str]] = [{field: "3"}, {field: "4"}, {field: "3"}]
    shards = zip(facts.shards, metas, strict=True)
    differing = tuple(replace(shard, meta={"schema": "1", **meta}) for shard, meta in shards)
    found = checks.namespace(replace(facts, shards=differing))
    assert found.level == "error"
    assert f"{field} is 3 on 0, 2, 4 on 1" in found.detail
    assert found.fix == fix


FOUR, TWO = AckerConfig(shards=4, tick_ms=TICK_MS), AckerConfig(shards=2, tick_ms=TICK_MS)


@pytest.mark.parametrize(
    ("shards", "shown", "fix"),
    [
        # Shard 0 is behind: the others have moved, and two are gone.
        ((status(0, FOUR), status(1, TWO), None, None), "2, 3 are gone", 4),
        ((status(0, FOUR, moving=Move(4, 2)), status(1, TWO), None, None), "2, 3 are gone", 2),
        ((status(0, TWO), status(1, FOUR)), "shards is not set", 2),
        ((status(0, TWO), status(1, TWO, moving=Move(4, 2))), "its shards differ", 2),
    ],
)
def test_a_move_that_was_set_back(shards: tuple[Any, ...], shown: str, fix: int) -> None:
    """To create what is gone would be refused, or wrong."""
    facts = namespace(*(each or status(at, FOUR) for at, each in enumerate(shards)))
    made = tuple(
        fact if each else replace(fact, meta={}, status=None)
        for fact, each in zip(facts.shards, shards, strict=True)
    )
    found = checks.namespace(replace(facts, shards=made))
    assert found.level == "error"
    assert shown in found.detail
    assert found.fix.endswith(f": acker-redis migrate orders --shards {fix}")


def test_a_namespace_that_may_not_be_read() -> None:
    assert checks.refused("orders", DENIED).level == "skipped"
    away = Missing("EVALSHA", "Redis did not answer", denied=False)
    found: Any = checks.refused("orders", away)
    assert (found.level, found.where) == ("error", "orders")


def test_canaries() -> None:
    assert checks.canaries(()).level == "ok"
    found = checks.canaries(("acker-doctor-1", "acker-doctor-2"))
    assert found.level == "warning"
    assert "drop acker-doctor-1 --yes" in found.fix
