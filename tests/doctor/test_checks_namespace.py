"""Checks of a namespace: tables of facts and findings."""

from dataclasses import replace
from typing import Any

import pytest

from acker_redis.doctor import checks_namespace as checks
from acker_redis.doctor.facts import Missing, NamespaceFacts, Waiting
from acker_redis.doctor.finding import Finding
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.reshard import Reshard
from acker_redis.transport.readers import reader_name
from tests.doctor.made import DENIED, NOW, TICK_MS, namespace, status

MS = NOW * 1000


def said(id_: str, facts: NamespaceFacts) -> Finding:
    """Return a finding about a namespace that does not change."""
    (found,) = [each for each in checks.check(facts, facts, 10.0) if each.id == id_]
    return found


def test_counters_are_compared_between_two_readings() -> None:
    before = namespace(status(counters={"orphaned": 7}))
    after = namespace(status(counters={"orphaned": 9}, now_ms=MS + 1000))
    found = {each.id: each for each in checks.check(before, after, 10.0)}
    assert found["counters"].level == "warning"
    assert "orphaned +2 (in all" in found["counters"].detail
    # A namespace that did not exist in the first reading has no growth.
    new = {each.id for each in checks.check(replace(before, shards=()), after, 10.0)}
    assert "counters" not in new


def test_verdicts_kept_by_a_spark_query_are_no_warning() -> None:
    """A Spark query keeps its last micro-batch; verdicts of other sources are reported."""
    shard = status(0, AckerConfig(tick_ms=TICK_MS), backlog={"shop": 5, "till": 1})
    waiting = (Waiting("shop", 1, 5, LATE_MS), Waiting("till", 1, 1, LATE_MS))
    facts = namespace(shard, waiting=waiting)

    def found(*readers: str) -> Finding:
        checked = checks.check(facts, facts, 10.0, frozenset(readers))
        (outcomes,) = [each for each in checked if each.id == "outcomes"]
        return outcomes

    shop, till = (reader_name(facts.name, name, shard.salt.reveal()) for name in ("shop", "till"))
    both = found(shop, till)
    assert (both.level, "6 of them are kept by Spark queries" in both.detail) == ("ok", True)
    one = found(shop, till.rpartition(":")[0], f"{till[:-16]}{shop[-16:]}")
    assert one.level == "warning"
    assert "till (1," in one.detail
    assert "shop" not in one.detail


LATE_MS = 300_001


@pytest.mark.parametrize(
    ("backlog", "oldest", "level"),
    [
        (0, None, "ok"),
        (79, LATE_MS - 1, "ok"),
        (5, LATE_MS, "warning"),
        (81, 0, "warning"),
        (99, LATE_MS, "warning"),
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


def test_unreadable_outcomes_are_skipped_unless_full() -> None:
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
        fixed = namespace(status(0, AckerConfig(tick_ms=tick_ms)))
        assert checks.tick(fixed, retry_for).level == "ok"


@pytest.mark.parametrize(
    ("field", "fix"),
    [
        ("tick_ms", "set it again: acker-redis config set orders tick_ms VALUE"),
        ("deadline_ms", "set it again: acker-redis config set orders deadline_ms VALUE"),
        ("slo_target", "set it again: acker-redis config set orders slo_target VALUE"),
        (
            "buckets",
            "no command can change it; drop it and create it again: acker-redis drop orders",
        ),
    ],
)
def test_shards_that_differ(field: str, fix: str) -> None:
    facts = namespace(status(0), status(1), status(2))
    metas: list[dict[str, str]] = [{field: "3"}, {field: "4"}, {field: "3"}]
    shards = zip(facts.shards, metas, strict=True)
    differing = tuple(replace(shard, meta={"schema": "2", **meta}) for shard, meta in shards)
    found = checks.namespace(replace(facts, shards=differing))
    assert found.level == "error"
    assert f"{field} is 3 (shards 0, 2), 4 (shards 1)" in found.detail
    assert found.fix == fix


FOUR, TWO = AckerConfig(shards=4, tick_ms=TICK_MS), AckerConfig(shards=2, tick_ms=TICK_MS)


@pytest.mark.parametrize(
    ("shards", "shown", "fix"),
    [
        # Shard 0 was reverted: the others have the new number of shards, and two are missing.
        ((status(0, FOUR), status(1, TWO), None, None), "shards 2, 3 are missing", 4),
        (
            (status(0, FOUR, reshard=Reshard(4, 2)), status(1, TWO), None, None),
            "shards 2, 3 are missing",
            2,
        ),
        ((status(0, TWO), status(1, FOUR)), "shards is not set", 2),
        ((status(0, TWO), status(1, TWO, reshard=Reshard(4, 2))), "its shards differ", 2),
    ],
)
def test_an_interrupted_or_reverted_reshard_is_an_error(
    shards: tuple[Any, ...], shown: str, fix: int
) -> None:
    """The fix is reshard: create would be refused, or wrong."""
    facts = namespace(*(each or status(at, FOUR) for at, each in enumerate(shards)))
    made = tuple(
        fact if each else replace(fact, meta={}, status=None)
        for fact, each in zip(facts.shards, shards, strict=True)
    )
    found = checks.namespace(replace(facts, shards=made))
    assert found.level == "error"
    assert shown in found.detail
    assert found.fix.endswith(f": acker-redis reshard orders --shards {fix}")


def test_an_unreadable_namespace_is_skipped_or_an_error() -> None:
    assert checks.refused("orders", DENIED).level == "skipped"
    away = Missing("EVALSHA", "Redis did not answer", denied=False)
    found: Any = checks.refused("orders", away)
    assert (found.level, found.where) == ("error", "orders")


def test_canaries() -> None:
    assert checks.canaries(()).level == "ok"
    found = checks.canaries(("acker-doctor-1", "acker-doctor-2"))
    assert found.level == "warning"
    assert "drop acker-doctor-1 --yes" in found.fix
