"""What is wrong with a namespace: tables."""

from dataclasses import replace
from typing import Any

import pytest

from acker_redis.doctor import checks_namespace as checks
from acker_redis.doctor.facts import Missing, NamespaceFacts, Waiting
from acker_redis.doctor.finding import Finding, ok
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.reshard import Reshard
from tests.doctor.made import DENIED, NOW, TICK_MS, namespace, status

MS = NOW * 1000


def said(id_: str, facts: NamespaceFacts) -> Finding:
    """What the doctor says of a namespace that stays as it is."""
    (found,) = [each for each in checks.check(facts, facts, 10.0) if each.id == id_]
    return found


def test_what_grows_is_judged_between_two_looks() -> None:
    before = namespace(status(counters={"orphaned": 7}))
    after = namespace(status(counters={"orphaned": 9}, now_ms=MS + 1000))
    found = {each.id: each for each in checks.check(before, after, 10.0)}
    assert found["counters"].level == "warning"
    assert "orphaned +2 (in all" in found["counters"].detail
    # A namespace that was not there before has no growth.
    new = {each.id for each in checks.check(replace(before, shards=()), after, 10.0)}
    assert "counters" not in new


def test_what_a_spark_query_keeps_is_not_left_lying() -> None:
    """It reads, waits for more, and keeps its last micro-batch; another source's are reported."""
    config = AckerConfig(tick_ms=TICK_MS)
    shard = status(0, config, backlog={"shop": 5, "till": 1})
    old = 10 * config.timeout_ms
    waiting = (Waiting("shop", 1, 5, old), Waiting("till", 1, 1, old))
    fine = ok("outcomes", "6 verdicts wait", "orders")
    both = checks.waiting(namespace(shard, waiting=waiting), fine, {"shop", "till"})
    assert (both.level, "6 of them are kept by Spark queries" in both.detail) == ("ok", True)
    one = checks.waiting(namespace(shard, waiting=waiting), fine, {"shop"})
    assert one.level == "warning"
    assert "till (1," in one.detail
    assert "shop" not in one.detail


LIVES = 3 * TICK_MS


@pytest.mark.parametrize(
    ("backlog", "oldest", "level"),
    [
        (0, None, "ok"),
        (79, LIVES, "ok"),
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
    found = said("outcomes", namespace(status(0, config), shard, waiting=waiting))
    assert found.level == level
    if level != "ok":
        assert f"shop ({backlog}" in found.detail


def test_outcomes_that_may_not_be_read() -> None:
    busy = status(backlog={"shop": 3})
    assert said("outcomes", namespace(busy, waiting=DENIED)).level == "skipped"
    full = status(0, AckerConfig(outcomes_limit=3), backlog={"shop": 3})
    assert said("outcomes", namespace(full, waiting=DENIED)).level == "error"


@pytest.mark.parametrize(
    ("lanes", "durable", "level"),
    [
        (79_999, 79_999, "ok"),
        (80_000, 0, "warning"),
        (0, 80_000, "warning"),
        (100_000, 0, "error"),
        (0, 100_000, "error"),
    ],
)
def test_fences(lanes: int, durable: int, level: str) -> None:
    assert checks.fences(namespace(lanes=lanes, durable=durable)).level == level


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
        ((status(0, FOUR, reshard=Reshard(4, 2)), status(1, TWO), None, None), "2, 3 are gone", 2),
        ((status(0, TWO), status(1, FOUR)), "shards is not set", 2),
        ((status(0, TWO), status(1, TWO, reshard=Reshard(4, 2))), "its shards differ", 2),
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
    assert found.fix.endswith(f": acker-redis reshard orders --shards {fix}")


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
