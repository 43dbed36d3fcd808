"""Replays of nacked records: attempts, back-off, dead letters, room, and a job that dies."""

from functools import wraps
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis import Backoff
from acker_redis.batching.batch import Batch
from acker_redis.errors import ConfigError, DataLossError, InvalidBatchError
from acker_redis.spark import (
    FileQueue,
    ReplayWriter,
    counted,
    read_outcomes,
    with_attempt,
)
from acker_redis.spark.replays import waiting
from acker_redis.spark.replays import writer as replay_writer
from acker_redis.sync.client import Acker as Client
from tests.spark.conftest import url_of
from tests.spark.replay_shop import HOURS, KINDS, MakeShop, make_shop
from tests.support import backlog, row, tick, total
from tests.waiting import wait_until

__all__ = ["make_shop"]


def third(n: int) -> bool:
    return n % 3 == 0


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param("loose", "driver", marks=pytest.mark.nightly),
        pytest.param("counted", "executors", marks=pytest.mark.nightly),
        ("ledger", "driver"),
        ("keyed", "executors"),
        pytest.param("loose", "executors", marks=pytest.mark.nightly),
        pytest.param("counted", "driver", marks=pytest.mark.nightly),
        pytest.param("ledger", "executors", marks=pytest.mark.nightly),
        pytest.param("keyed", "driver", marks=pytest.mark.nightly),
    ],
)
def test_each_nack_is_replayed_until_the_last_attempt(
    make_shop: MakeShop, kind: str, mode: str
) -> None:
    """Of 30 records 10 are bad, and 4 of them forever."""
    shop = make_shop(kind, {"shards": 2, "high_water": 10_000}, mode)
    shop.track(30)
    for cure in (30, 27, 12, 12):
        shop.bolt(lambda n, cure=cure: third(n) and n < cure)
        shop.replay()
    names = [f"p/{n}" for n in range(30)]
    tries = {
        name: 3 if third(n) and n < 27 else 2 if third(n) else 1 for n, name in enumerate(names)
    }
    assert shop.sent() == {name: times * shop.lines for name, times in tries.items()}
    bad = [n for n in range(12) if third(n)]
    assert shop.given_up() == sorted((f"p/{n}", 2, "attempts", f"bad {n}") for n in bad)
    shop.replay()
    assert shop.waits() == {}
    assert backlog(shop.client) == 0
    counters = total(shop.client)
    assert (counters["tracked"], counters["acked"]) == (sum(tries.values()), 26)
    assert counters["pending"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_know_their_attempt(spark: SparkSession, make_shop: MakeShop, kind: str) -> None:
    shop = make_shop(kind)
    columns = shop.records(80).withColumn("try", F.col("n").cast("int") % 4)
    with shop.acker.batch(columns, 0, query_id="source") as b:
        b.track(source="t", edges="out", attempt="try", **shop.ids)
    tick(shop.client, 3)
    url = url_of(shop.client)
    verdicts = read_outcomes(spark, shop.acker.namespace, "t", url=url)
    if shop.acker.application.ledger:
        verdicts = shop.acker.application.ledger.name(verdicts)
    found = with_attempt(verdicts, shop.acker, "t", attempts=3).select("source_id", "attempt")
    wanted: dict[str, int | None] = {f"p/{n}": n % 4 for n in range(80)}
    if kind in ("loose", "keyed"):  # the others have the attempt in their label
        wanted |= {f"p/{n}": None for n in range(3, 80, 4)}
        others = with_attempt(verdicts, shop.acker, "other").where("attempt IS NOT NULL")
        assert others.isEmpty()
    assert dict(map(tuple, found.collect())) == wanted
    assert found.count() == 80


def test_nack_waits_for_the_back_off(make_shop: MakeShop) -> None:
    """One hour after the first attempt, two after the second; nothing else waits."""
    shop = make_shop(backoff=HOURS)
    shop.track(4)
    shop.bolt(lambda n: n == 1)
    for _ in range(3):
        shop.replay()
    assert backlog(shop.client) == 0, "the verdicts are taken meanwhile"
    assert (shop.sent()["p/1"], shop.waits()) == (1, {1: 1})
    shop.age(3500)
    shop.replay()
    assert shop.sent()["p/1"] == 1
    shop.age(101)
    shop.replay()
    assert shop.sent()["p/1"] == 2
    shop.bolt(lambda n: n == 1)
    shop.replay()
    assert shop.waits() == {2: 1}
    shop.age(3601)
    shop.replay()
    assert shop.sent()["p/1"] == 2
    shop.age(3600)
    shop.replay()
    shop.bolt(lambda n: n == 1)
    shop.replay()
    assert shop.sent() == {"p/0": 1, "p/1": 3, "p/2": 1, "p/3": 1}
    assert shop.given_up() == [("p/1", 2, "attempts", "bad 1")], "without a wait"


class Deaths:
    """Lets the job die once before and once after each call of some functions."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.happened: list[str] = []
        for owner, name in (
            (FileQueue, "write"),
            (FileQueue, "replace"),
            (waiting, "_save"),
            (waiting.Waiting, "_forget"),
            (waiting._File, "delete"),
            (waiting.uuid, "uuid4"),
            (Client, "apply_part"),
        ):
            patch.setattr(owner, name, self._dying(getattr(owner, name), name))

    def _dying(self, call: Any, name: str) -> Any:
        @wraps(call)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            step = f"{name} {' '.join(str(a.path) for a in args[:1] if hasattr(a, 'path'))}"
            self._die(f"before {step}")
            found = call(*args, **kwargs)
            self._die(f"after {step}")
            return found

        return wrapped

    def _die(self, step: str) -> None:
        if step not in self.happened:
            self.happened.append(step)
            raise KeyboardInterrupt(step)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind == "loose" else [pytest.mark.nightly]) for kind in KINDS],
)
def test_job_that_dies_at_each_step_replays_each_nack_once(
    make_shop: MakeShop, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each record once for each attempt, each dead letter once, and nothing is left."""
    shop = make_shop(kind, attempts=2, lookup=lambda _: shop.records(30).where("n <> 6"))
    shop.track(30)
    shop.bolt(third)
    deaths = Deaths(monkeypatch)
    runs = 0

    def insist() -> None:
        nonlocal runs
        while runs < 200:
            runs += 1
            try:
                shop.replay()
            except KeyboardInterrupt:
                continue
            return

    insist()
    monkeypatch.undo()
    shop.bolt(lambda n: n == 3)
    deaths.__init__(monkeypatch)  # type: ignore[misc]
    insist()
    insist()
    monkeypatch.undo()
    assert runs > 15
    shop.replay()
    tries = {f"p/{n}": 2 if third(n) and n != 6 else 1 for n in range(30)}
    assert shop.sent() == {name: times * shop.lines for name, times in tries.items()}
    assert shop.given_up() == [("p/3", 1, "attempts", "bad 3"), ("p/6", 0, "no record", "bad 6")]
    assert shop.waits() == {}
    assert [each.name for each in (shop.folder / "state").glob("*/records/*")] == ["_lock"]
    assert total(shop.client)["tracked"] == sum(tries.values())
    assert total(shop.client)["conflict"] == 0


def test_batch_that_runs_again_replays_the_same_records(make_shop: MakeShop) -> None:
    """Although more nacks are due, and the records have changed."""
    shop = make_shop(backoff=HOURS)
    shop.track(6)
    shop.bolt(third)
    shop.replay()
    shop.age(4000)
    shop.replay()
    shop.age(4000)
    again = {"lookup": lambda _: shop.records(0)}
    shop.replay(1, **again)
    assert shop.sent() == {"p/0": 2, "p/3": 2, "p/1": 1, "p/2": 1, "p/4": 1, "p/5": 1}
    assert shop.given_up() == []


def test_lookup_may_return_more_records_or_less(make_shop: MakeShop) -> None:
    """It gets the nacks with their attempts; ids of an earlier attempt are dropped."""
    seen: list[Any] = []

    def lookup(nacks: DataFrame) -> DataFrame:
        seen.append(sorted(map(tuple, nacks.select("source_id", "attempt", "why").collect())))
        return shop.messages().where("n <> 3")

    shop = make_shop(lookup=lookup)
    shop.track(6)
    shop.bolt(third)
    shop.replay()
    assert seen == [[("p/0", 0, "bad 0"), ("p/3", 0, "bad 3")]]
    assert shop.sent()["p/0"] == 2
    assert shop.given_up() == [("p/3", 0, "no record", "bad 3")]
    assert "next_attempt" not in shop.spark.read.parquet(str(shop.queue.path / "batch-*")).columns


def test_lookup_that_is_wrong_is_called_again(make_shop: MakeShop) -> None:
    """Once it is repaired, the query continues: the wrong records are not kept."""
    shop = make_shop()
    shop.track(6)
    shop.bolt(third)
    twice = {"lookup": lambda _: shop.records(9).union(shop.records(9))}
    with pytest.raises(InvalidBatchError, match="2 source ids occur more than once"):
        shop.replay(**twice)
    with pytest.raises(Exception, match="sid"):
        shop.replay(lookup=lambda _: shop.records(9).drop("sid"))
    assert shop.waits() == {1: 2}
    shop.replay()
    assert shop.sent()["p/0"] == shop.sent()["p/3"] == 2
    assert shop.given_up() == []


def test_overflow_uses_up_no_attempt(make_shop: MakeShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message of the record was sent, so the next tree has the same anchor."""
    from acker_redis.spark import tracking

    shop = make_shop(config={"high_water": 5}, attempts=1)
    with monkeypatch.context() as patch:
        patch.setattr(tracking, "wait_for_room", lambda *_: 0.0)
        shop.track(12)
    assert sum(shop.sent().values()) == 10
    shop.bolt(lambda _: False)
    shop.replay()
    shop.bolt(lambda _: False)
    shop.replay()
    assert shop.sent() == {f"p/{n}": 1 for n in range(12)}
    assert total(shop.client)["acked"] == 12
    assert shop.given_up() == []


def test_two_nacks_of_a_record_are_one_replay(make_shop: MakeShop) -> None:
    """With the later attempt, for example of two trees after a checkpoint was deleted."""
    shop = make_shop()
    for attempt in (0, 1):
        with shop.acker.batch(shop.records(1), attempt, query_id="source") as b:
            b.track(source="t", source_id="sid", attempt=attempt)
    tick(shop.client, 3)
    shop.replay()
    [anchor] = [each["anchor"] for each in shop.messages().collect()]
    wanted = shop.records(1).select(shop.acker.ids.anchor("sid", attempt=2, source="t"))
    assert anchor == wanted.collect()[0][0]


def test_trees_of_other_programs_are_given_up(make_shop: MakeShop) -> None:
    """And trees whose attempt is not among the first ones: neither has a next attempt."""
    shop = make_shop()
    batch = Batch("t", ids=shop.client.ids)
    batch.track(77, "p/1", [5])
    batch.track_block("page 1", [6, 7])
    shop.client.apply(batch)
    with shop.acker.batch(shop.records(1), 0, query_id="source") as b:
        b.track(source="t", source_id="sid", attempt=3)
    tick(shop.client, 3)
    shop.replay()
    found = [(name, attempt, gave_up) for name, attempt, gave_up, _ in shop.given_up()]
    names = ["p/0", "p/1", "page 1#0", "page 1#1"]
    assert found == [(name, None, "unknown") for name in names]
    assert shop.sent() == {}


def test_replays_wait_for_room_and_other_verdicts_do_not(make_shop: MakeShop) -> None:
    """The oldest first, and dead letters at once."""
    shop = make_shop(config={"high_water": 32}, attempts=2)
    shop.track(24)
    shop.bolt(lambda n: n < 8)
    shop.track(0, 1)
    other = Batch("other", ids=shop.client.ids)
    for n in range(29):
        other.track(1000 + n, f"o{n}", [5000 + n])
    shop.client.apply(other)
    assert sum(shop.waits().values()) == 0
    for left in (6, 4, 4):
        shop.replay()
        if left == 6:
            assert backlog(shop.client) == 24
        assert sum(shop.waits().values()) in (8, 6)
    assert len(shop.sent()) == 24
    assert sum(shop.sent().values()) == 24 + 2, "room for two records: a file has two"
    assert backlog(shop.client) == 0
    for n in range(29):
        row(shop.client, 1000 + n, 5000 + n)
    shop.replay()
    assert sum(shop.sent().values()) == 24 + 8


def test_replays_wait_while_many_verdicts_wait(make_shop: MakeShop) -> None:
    """This query takes the verdicts, so it must not wait for them to be taken."""
    shop = make_shop(config={"outcomes_limit": 20})
    shop.track(10)
    shop.bolt(lambda n: n == 0)
    shop.replay()
    assert (backlog(shop.client), shop.waits()) == (10, {1: 1})
    assert shop.sent()["p/0"] == 1
    shop.replay()
    assert shop.sent()["p/0"] == 2


def test_room_that_is_taken_meanwhile_postpones_the_replay(
    make_shop: MakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = make_shop(config={"high_water": 8})
    shop.track(8)
    shop.bolt(third)
    others = Batch("other", ids=shop.client.ids)
    for n in range(8):
        others.track(1000 + n, f"o{n}", [5000 + n])

    def lookup(_: DataFrame) -> DataFrame:
        shop.client.apply(others)
        return shop.records(8)

    shop.replay(lookup=lookup)
    assert (shop.waits(), sum(shop.sent().values())) == ({1: 3}, 8)
    shop.replay()
    assert backlog(shop.client) == 0
    for n in range(8):
        row(shop.client, 1000 + n, 5000 + n)
    shop.replay()
    assert sum(shop.sent().values()) == 11


def test_numbered_records_with_gaps_find_room(make_shop: MakeShop) -> None:
    """A block of every eighth number takes eight slots for each record."""
    shop = make_shop("counted", {"high_water": 130})
    shop.settings["lookup"] = lambda _: shop.records(130)
    with shop.acker.batch(shop.records(128).where("n % 8 = 0"), 0, query_id="source") as b:
        b.hand_on(b.track(source="t", edges="out", **shop.ids).drop("edge"), shop.queue)
    tick(shop.client, 3)
    for _ in range(4):
        shop.replay()
    assert shop.sent() == {f"p/{n}": 2 for n in range(0, 128, 8)}


def test_checkpoint_that_was_set_back_is_refused(make_shop: MakeShop) -> None:
    shop = make_shop()
    shop.track(3)
    shop.bolt(third)
    shop.replay(5)
    writer = shop.writer()
    nothing = read_outcomes(shop.spark, shop.acker.namespace, "t", url=url_of(shop.client))
    with pytest.raises(DataLossError, match="batch 4 of query test@replay comes after batch 5"):
        writer(nothing, 4)


def test_new_checkpoint_keeps_the_nacks_that_wait(make_shop: MakeShop) -> None:
    """The last batch of the old query may be incomplete: its nacks are replayed again."""
    shop = make_shop(backoff=HOURS)
    shop.track(6)
    shop.bolt(third)
    shop.replay(0)
    shop.age(4000)
    shop.replay(1)
    assert shop.sent()["p/0"] == 2
    nothing = shop.spark.createDataFrame([], replay_writer.SCHEMA)
    shop.writer(query_id="new")(nothing, 0)
    assert total(shop.client)["conflict"] == 2, "their replays were pending"
    shop.writer(query_id="new")(nothing, 1)
    assert shop.waits() == {}
    shop.replay(2, query_id="new2")
    assert shop.waits()[2] == 2, "the conflicts are nacks of the second attempt"


def test_wrong_arguments_are_refused(make_shop: MakeShop) -> None:
    shop = make_shop()
    queues: dict[str, Any] = {"out": shop.queue}
    given: dict[str, Any] = {"lookup": print, "dead_letters": shop.dead, "folder": shop.folder}
    for wrong, words in (
        ({"queues": {}}, "needs at least one edge"),
        ({"dead_letters": FileQueue(shop.queue.path)}, "share one queue"),
        ({"attempts": 0}, "attempts must be 1 or more, not 0"),
        ({"source": "a b"}, "source"),
        ({"source_id": counted("prefix", number="n"), "key": "line"}, "key= needs a STRING"),
    ):
        with pytest.raises(ConfigError, match=words):
            ReplayWriter(shop.acker, **{"source": "t", "queues": queues} | given | wrong)


def test_nack_becomes_due_while_no_verdict_comes(make_shop: MakeShop) -> None:
    """The stream has a clock. A query that is started again continues."""
    shop = make_shop(config={"shards": 2}, backoff=Backoff(2, 2), query_id=None)
    shop.track(4)
    shop.bolt(third)

    def start() -> Any:
        replay = shop.writer()
        stream = replay.read_stream(shop.spark).writeStream.foreachBatch(replay)
        checkpoint = str(shop.folder / "checkpoint")
        return stream.option("checkpointLocation", checkpoint).start()

    for times in (2, 3):
        query = start()
        try:
            wait_until(lambda times=times: shop.sent()["p/3"] == times, "the replays")  # type: ignore[misc]
            wait_until(lambda: shop.waits() == {} and backlog(shop.client) == 0, "the next batch")
        finally:
            query.stop()
        shop.bolt(third)
    assert shop.sent() == {"p/0": 3, "p/1": 1, "p/2": 1, "p/3": 3}
