"""The stream reader of verdicts, called step by step as Spark does."""

import logging
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from acker_redis.errors import (
    ConfigError,
    DataLossError,
    NamespaceNotFoundError,
    RedisUnavailableError,
)
from acker_redis.protocol.config import AckerConfig
from acker_redis.spark.streams import outcomes_stream
from acker_redis.spark.streams.outcome_offsets import VerdictOffset
from acker_redis.spark.streams.outcome_reads import Listed
from acker_redis.spark.streams.outcomes_stream import OutcomesStreamReader
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.spark.waiting_verdicts import (
    acked,
    add,
    ids,
    in_shards,
    read_now,
    reader,
    stream_key,
)
from tests.support import (
    backlog,
)


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(high_water=20)


def everything(found: OutcomesStreamReader, start: Any, end: Any) -> list[str]:
    return [
        r["source_id"]
        for part in found.partitions(start, end)
        for batch in found.read(pickle.loads(pickle.dumps(part)))
        for r in batch.to_pylist()
    ]


def test_offset_lists_the_oldest_entries_up_to_the_limit(acker: Acker) -> None:
    acked(acker, "a", "b", "c")
    it = reader(acker)
    nothing = it.initialOffset()
    assert it.getDefaultReadLimit() == ReadMaxRows(256)
    assert reader(acker, maxentriespertrigger=3).getDefaultReadLimit() == ReadMaxRows(3)
    one = it.latestOffset(nothing, ReadMaxRows(2))
    assert one["ids"] == {"0": " ".join(ids(acker)[:2])}
    two = it.latestOffset(one, ReadMaxRows(2))
    assert two["ids"] == {"0": ids(acker)[2]}
    assert it.latestOffset(two, ReadMaxRows(2))["ids"] == one["ids"], "they were not committed"
    it.commit(one)
    assert it.latestOffset(two, ReadMaxRows(2)) is two
    assert it.latestOffset(nothing, ReadAllAvailable())["ids"] == two["ids"]
    both = one | {"ids": {"0": f"{one['ids']['0']} {two['ids']['0']}"}}
    assert everything(it, one, both) == ["c"]


def test_new_entries_are_found_across_pages(acker: Acker) -> None:
    """More entries than a page, before and after the known entries."""
    for number in range(1, 101):
        add(acker, f"{number}-0", f"n{number}")
    assert [r["source_id"] for r in read_now(acker)] == [f"n{n}" for n in range(1, 101)]
    it = reader(acker)
    known = it.initialOffset() | {"ids": {"0": " ".join(f"{n}-0" for n in range(41, 61))}}
    found = it.latestOffset(known, ReadAllAvailable())
    names = [*range(1, 41), *range(61, 101)]
    assert found["ids"]["0"].split() == [f"{n}-0" for n in names]
    assert it.latestOffset(known, ReadMaxRows(50))["ids"]["0"].split() == [
        f"{n}-0" for n in names[:50]
    ]
    assert everything(it, known, found) == [f"n{n}" for n in names]


def test_commit_deletes_exactly_the_listed_entries(acker: Acker) -> None:
    acked(acker, "a", "b", "c")
    it, waiting = reader(acker), ids(acker)
    it.commit(it.initialOffset() | {"ids": {"0": waiting[1]}})
    assert ids(acker) == [waiting[0], waiting[2]]
    assert backlog(acker) == 2
    it.commit(it.initialOffset() | {"ids": {"0": waiting[1], "7": "1-0"}})
    assert backlog(acker) == 2


@pytest.mark.parametrize("new", ["1-0", "15-5", "25-0"])
def test_smaller_ids_after_a_failover_are_found(acker: Acker, new: str) -> None:
    """Before, between or after the ids of the last batch."""
    for number in (10, 12, 20):
        add(acker, f"{number}-0", f"n{number}")
    it = reader(acker)
    last = it.latestOffset(it.initialOffset(), ReadMaxRows(5))
    acker.connection.client.delete(stream_key(acker))
    for id_ in sorted(["10-0", "12-0", new], key=lambda id_: int(id_[:-2])):
        add(acker, id_, f"at {id_}")
    found = it.latestOffset(last, ReadMaxRows(5))
    assert found["ids"] == {"0": new}
    assert everything(it, last, found) == [f"at {new}"]


def test_entries_between_known_ids_are_found_by_a_thorough_poll(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutcomesStreamReader, "THOROUGH", 3)
    for number in (10, 20):
        add(acker, f"{number}-0", f"n{number}")
    it = reader(acker)
    last = it.latestOffset(it.initialOffset(), ReadMaxRows(5))
    assert it.latestOffset(last, ReadMaxRows(5)) is last
    acker.connection.client.delete(stream_key(acker))
    for id_ in ("10-0", "15-0"):
        add(acker, id_, "n")
    assert [it.latestOffset(last, ReadMaxRows(5))["ids"] for _ in range(3)] == [
        last["ids"],
        last["ids"],
        {"0": "15-0"},
    ]


def test_first_empty_poll_after_a_batch_is_thorough(acker: Acker) -> None:
    it, start = reader(acker), reader(acker).initialOffset()
    for first, last, new in (("10-0", "20-0", "15-0"), ("30-0", "40-0", "35-0")):
        assert it.latestOffset(start, ReadMaxRows(5)) is start
        add(acker, first, "n")
        add(acker, last, "n")
        start = it.latestOffset(start, ReadMaxRows(5))
        acker.connection.client.delete(stream_key(acker))
        add(acker, first, "n")
        add(acker, new, "n")
        assert it.latestOffset(start, ReadMaxRows(5))["ids"] == {"0": new}
        acker.connection.client.delete(stream_key(acker))


def test_reader_retries_while_redis_does_not_answer(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acked(acker, "a", "b")
    it = reader(acker)
    connection = it._options.target.client().connection
    asked: list[str] = []

    def hesitant(name: str) -> None:
        answer = getattr(connection, name)

        def call(*args: Any) -> Any:
            asked.append(name)
            if asked.count(name) % 2:
                raise RedisUnavailableError("no answer")
            return answer(*args)

        monkeypatch.setattr(connection, name, call)

    hesitant("commands")
    hesitant("run")
    nothing = it.initialOffset()
    end = it.latestOffset(nothing, ReadMaxRows(1))
    assert everything(it, nothing, end) == ["a"]
    it.commit(end)
    assert backlog(acker) == 1
    assert (asked.count("commands"), asked.count("run")) == (4, 6)


def test_available_now_reads_only_waiting_verdicts(acker: Acker) -> None:
    acked(acker, "a", "b", "c")
    waiting, it = ids(acker), reader(acker)
    it.prepareForTriggerAvailableNow()
    acked(acker, "d")
    found, start = [], it.initialOffset()
    while (end := it.latestOffset(start, ReadMaxRows(2))) != start:
        it.commit(start)
        found.append(end["ids"]["0"].split())
        start = end
    assert found == [waiting[:2], waiting[2:]]
    it.prepareForTriggerAvailableNow()
    assert it.latestOffset(start, ReadMaxRows(2))["ids"] == {"0": ids(acker)[-1]}


def test_available_now_of_a_source_without_verdicts(acker: Acker) -> None:
    it = reader(acker)
    it.prepareForTriggerAvailableNow()
    acked(acker, "late")
    nothing = it.initialOffset()
    assert it.latestOffset(nothing, ReadMaxRows(2)) is nothing


@pytest.fixture
def four_shards(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=4)


def test_one_partition_per_shard_with_entries(four_shards: Acker) -> None:
    in_shards(four_shards, 1, 3, 5, 9)
    it = reader(four_shards)
    nothing = it.initialOffset()
    end = it.latestOffset(nothing, ReadMaxRows(2))
    parts = [p.value for p in it.partitions(nothing, end)]
    assert all(isinstance(p, Listed) for p in parts)
    assert [(p.shard, len(p.ids)) for p in parts] == [(1, 2), (3, 1)]
    assert sorted(everything(it, nothing, end)) == ["s1", "s3", "s5"]
    assert it.latestOffset(end, ReadMaxRows(2))["ids"] == {"1": ids(four_shards, 1)[2]}


def test_missing_entries_are_an_error_that_says_what_to_do(acker: Acker) -> None:
    acked(acker, "a", "b", "c")
    it = reader(acker)
    nothing = it.initialOffset()
    end = it.latestOffset(nothing, ReadMaxRows(9))
    acker.connection.client.xdel(stream_key(acker), *ids(acker)[:2])
    with pytest.raises(DataLossError) as raised:
        everything(it, nothing, end)
    words = str(raised.value)
    assert "2 of 3 entries of shard 0" in words
    for word in ("another reader", "checkpoint was restored", "Redis lost", "failOnDataLoss=false"):
        assert word in words


def test_missing_entries_can_be_skipped(acker: Acker, caplog: pytest.LogCaptureFixture) -> None:
    acked(acker, "a", "b", "c")
    it = reader(acker, failondataloss="False")
    nothing = it.initialOffset()
    end = it.latestOffset(nothing, ReadMaxRows(9))
    acker.connection.client.xdel(stream_key(acker), ids(acker)[1])
    with caplog.at_level(logging.WARNING):
        assert everything(it, nothing, end) == ["a", "c"]
    assert "1 of 3 entries of shard 0" in caplog.text


def test_namespace_created_again_with_fewer_shards_is_read(four_shards: Acker) -> None:
    """Planned entries are lost, which is an error; later entries are read from the new shards."""
    in_shards(four_shards, 1, 3)
    it = reader(four_shards)
    nothing = it.initialOffset()
    end = it.latestOffset(nothing, ReadMaxRows(9))
    four_shards.connection.client.flushall()
    four_shards.create(AckerConfig(shards=1))
    with pytest.raises(DataLossError, match="shard 1"):
        everything(it, nothing, end)
    acked(four_shards, "new")
    it = reader(four_shards)
    new = it.latestOffset(end, ReadMaxRows(9))
    assert everything(it, end, new) == ["new"]
    it.commit(end)
    assert backlog(four_shards) == 1


def test_namespace_created_again_with_more_shards_is_read_completely(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutcomesStreamReader, "THOROUGH", 2)
    it = reader(acker)
    nothing = it.initialOffset()
    assert it.latestOffset(nothing, ReadMaxRows(9)) is nothing
    acker.connection.client.flushall()
    acker.create(AckerConfig(shards=2))
    in_shards(acker, 3)
    assert it.latestOffset(nothing, ReadMaxRows(9)) is nothing
    assert it.latestOffset(nothing, ReadMaxRows(9))["ids"] == {"1": ids(acker, 1)[0]}


def test_lost_namespace_is_an_error_for_a_running_query(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutcomesStreamReader, "THOROUGH", 2)
    it = reader(acker)
    nothing = it.initialOffset()
    it.latestOffset(nothing, ReadMaxRows(9))
    acker.connection.client.flushall()
    with pytest.raises(NamespaceNotFoundError, match=acker.namespace):
        for _ in range(2):
            it.latestOffset(nothing, ReadMaxRows(9))


def test_the_checkpoint_of_another_source_is_refused(acker: Acker) -> None:
    """Entries of two sources may have the same ids, so a commit could delete the wrong entries."""
    acked(acker, "a")
    it = reader(acker)
    other = VerdictOffset(acker.namespace, "other", {0: (ids(acker)[0],)}).to_dict()
    for call in (
        lambda: it.commit(other),
        lambda: it.latestOffset(other, ReadMaxRows(1)),
        lambda: it.partitions(other, it.initialOffset()),
    ):
        with pytest.raises(ConfigError, match="source other .* checkpointLocation"):
            call()
    for broken in ({}, {"ids": {"0": "x"}}, {"ids": {"x": "1-0"}}, {"ids": {"0": 5}}):
        with pytest.raises(ConfigError, match="checkpointLocation"):
            it.commit(broken)
    assert backlog(acker) == 1


def test_planning_on_restart_deletes_no_unfinished_batch(acker: Acker) -> None:
    """On a restart, Spark first plans from the last logged offset to the same offset."""
    acked(acker, "a", "b")
    it = reader(acker)
    nothing = it.initialOffset()
    one = it.latestOffset(nothing, ReadMaxRows(1))
    two = it.latestOffset(one, ReadMaxRows(1))
    again = reader(acker)
    assert again.partitions(two, two) == []
    assert backlog(acker) == 2
    assert everything(again, one, two) == ["b"]
    assert backlog(acker) == 1, "Spark plans the second batch only after the first is finished"
    assert everything(again, one, two) == ["b"]


def test_planning_without_a_commit_is_refused(acker: Acker) -> None:
    """As with asynchronous progress tracking: the same verdicts would be read repeatedly."""
    acked(acker, "a", "b", "c")
    it = reader(acker)
    offsets = [it.initialOffset()]
    for _ in range(3):
        offsets.append(it.latestOffset(offsets[-1], ReadMaxRows(1)))
        it.commit(offsets[-2])
        it.partitions(*offsets[-2:])
        it.partitions(*offsets[-2:])
    acked(acker, "d", "e")
    offsets.append(it.latestOffset(offsets[-1], ReadMaxRows(1)))
    with pytest.raises(ConfigError, match="asynchronous progress tracking"):
        it.partitions(*offsets[-2:])
    assert backlog(acker) == 3


def test_idle_polls_are_few_and_never_stale(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only pauses advance the fake clock, so it shows the rate of the polls."""
    now = [1000.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s)
    )
    acked(acker, "a", "b")
    client = acker.connection.client
    it = reader(acker)
    start = it.latestOffset(it.initialOffset(), ReadMaxRows(9))
    monkeypatch.setattr(outcomes_stream, "time", clock)
    client.config_resetstat()
    for _ in range(95):
        assert it.latestOffset(start, ReadMaxRows(9)) is start
    asked = client.info("commandstats")
    assert asked["cmdstat_xrange"]["calls"] == 2 * 95 + 2, "two per poll, and two thorough polls"
    assert asked["cmdstat_evalsha"]["calls"] == 1, "the number of shards is read again"
    assert now[0] == pytest.approx(1000 + 94 * it.IDLE_SECONDS)
    add(acker, f"{2**42}-0", "new")
    assert it.latestOffset(start, ReadMaxRows(9))["ids"] == {"0": f"{2**42}-0"}
    moved = now[0]
    it.latestOffset(start, ReadMaxRows(9))
    assert now[0] == moved, "a poll that finds entries does not wait"
