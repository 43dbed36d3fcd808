"""Messages of ended trees are not processed, and in doubt they are: Streams on real servers.

No test waits: entries get ids of the past, and the memory of the shard is set in ``meta``.
"""

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from acker_redis import Acker, AckerConfig, Backoff, Batch, MessageId, RedisUnavailableError, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.core.ended import Ended, Sent
from acker_redis.integrations.streams import StreamWorker
from acker_redis.protocol.keys import ShardKeys
from tests.cluster.fixtures import cluster, session_cluster
from tests.cluster.servers import Cluster
from tests.support import tick
from tests.waiting import wait_until

__all__ = ["cluster", "session_cluster"]

CONFIG = AckerConfig(tick_ms=60_000, publish=False)
"""A tree lives two to three minutes."""
OLD, LONG = 600, 3600
"""Seconds: the age of an entry, and for how long the shard remembers."""
A = 4242


class Queue:
    """A namespace, and a stream into which a source sends."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url)
        self.stream = f"skip-{uuid.uuid4().hex[:8]}"
        self.acker = Acker.from_url(url, self.stream, retry_for=0)
        self.acker.create(CONFIG)
        self.meta = ShardKeys(self.stream, 0).meta
        self.remember()
        self.handled: list[bytes] = []

    def now_ms(self) -> int:
        seconds, micros = self.client.time()
        return seconds * 1000 + micros // 1000

    def remember(self, since: float = LONG, until: float = 0) -> None:
        """Let the shard remember all trees of a span of time, in seconds before now."""
        tick(self.acker)
        *_, run = self.client.hget(self.meta, "whole").decode().split(":")
        now = self.now_ms()
        span = f"{now - int(since * 1000)}:{now - int(until * 1000)}:{run}"
        self.client.hset(self.meta, "whole", span)

    def put(self, ids: MessageId | str, age: float = OLD, entry: str = "") -> None:
        """Add an entry, as if Redis had made its id so many seconds ago."""
        entry = entry or f"{self.now_ms() - int(age * 1000)}-0"
        self.client.xadd(self.stream, {"acker-tuple": str(ids)}, id=entry)

    def track(self, *anchors: int) -> None:
        batch = Batch("shop")
        for anchor in anchors:
            batch.track(anchor, str(anchor), [A])
        self.acker.apply(batch)

    def worker(self, **options: Any) -> StreamWorker:
        options = {"skip_ended": True, "on_failure": self.handle, **options}
        return StreamWorker(self.acker, self.client, self.stream, "group", **options)

    def handle(self, fields: Any, *_: object) -> None:
        self.handled.append(fields[b"acker-tuple"])

    def work(self, **options: Any) -> int:
        """Read all entries, and handle those that are returned; return how many are skipped."""
        with self.worker(**options) as worker:
            worker._reading._pace.fits = 100
            for _, entries in worker.read(block=0):
                for key, fields in entries:
                    worker.handle(key, fields, self.handle)
            worker.settle()
            pending = self.client.xpending(self.stream, "group")["pending"]
            assert pending == 0, "an entry that is skipped leaves the group"
            return worker.skipped


@pytest.fixture
def queue(server: EmbeddedRedis) -> Iterator[Queue]:
    made = Queue(server.url)
    yield made
    made.acker.close()
    made.client.close()


def test_entries_of_ended_trees_are_skipped(queue: Queue) -> None:
    """Of an acked, an expired and an unknown tree, and of several; with one call of ``alive``."""
    queue.track(1, 2)
    queue.acker.apply(_acked(1))
    tick(queue.acker, 3)
    queue.remember()
    for number, ids in enumerate(({1: A}, {2: A}, {3: A}, {1: A, 2: A})):
        queue.put(MessageId(ids), OLD - number)
    calls = _calls(queue.acker)
    assert (queue.work(), queue.handled) == (4, [])
    assert calls.count("alive") == 1


def test_entries_are_processed_by_default(queue: Queue) -> None:
    queue.put("1:7")
    calls = _calls(queue.acker)
    assert (queue.work(skip_ended=False), queue.handled) == (0, [b"1:7"])
    assert "alive" not in calls


def test_trees_of_blocks_are_skipped_too(queue: Queue) -> None:
    ended = queue.acker.track_block("shop", "page 1", [A, A])
    queue.acker.apply(_acked(*ended))
    pending = queue.acker.track_block("shop", "page 2", [A, A])
    batch = Batch()
    batch.fail(pending[1], "no", A)
    queue.acker.apply(batch)
    for number, anchor in enumerate((*ended, *pending)):
        queue.put(MessageId({anchor: A}), OLD - number)
    assert queue.work() == 3
    assert queue.handled == [str(MessageId({pending[0]: A})).encode()]


def test_live_tree_is_processed_although_a_clock_is_wrong(queue: Queue) -> None:
    """Its entry looks old. Of several trees, one pending tree is enough."""
    queue.track(1)
    queue.put("1:4242")
    queue.put("1:4242,2:4242", OLD - 1)
    queue.put("3:4242", OLD - 2)
    assert (queue.work(), queue.handled) == (1, [b"1:4242", b"1:4242,2:4242"])


def test_young_entries_cost_no_call(queue: Queue) -> None:
    queue.put("1:7", age=100)
    calls = _calls(queue.acker)
    assert (queue.work(), queue.handled) == (0, [b"1:7"])
    assert "alive" not in calls


@pytest.mark.parametrize("entry", ["5-0", "1-1", "future"])
def test_entry_id_that_is_no_time_of_redis_is_processed(queue: Queue, entry: str) -> None:
    queue.put("1:7", entry=f"{queue.now_ms() + 600_000}-0" if entry == "future" else entry)
    assert (queue.work(), queue.handled) == (0, [b"1:7"])


def test_entries_without_a_valid_id_are_processed(queue: Queue) -> None:
    for number, ids in enumerate(("", "7:", "0:1", "4611686018427391999:7")):
        queue.put(ids, OLD - number)
    assert (queue.work(), len(queue.handled)) == (0, 4)


def _create_again(queue: Queue) -> None:
    queue.acker.create(CONFIG)
    tick(queue.acker)
    queue.acker.flows.known, queue.acker.flows.ids_due = None, 0.0


def _flush(queue: Queue) -> None:
    queue.client.flushall()
    _create_again(queue)


def _drop(queue: Queue) -> None:
    queue.acker.drop()
    _create_again(queue)


def _meta(field: str, value: str) -> Callable[[Queue], object]:
    return lambda queue: queue.client.hset(queue.meta, field, value)


DOUBTS: dict[str, Callable[[Queue], object]] = {
    "flushed, and created again": _flush,
    "dropped, and created again": _drop,
    "no tick": lambda queue: queue.client.hdel(queue.meta, "whole"),
    "remembers less": lambda queue: queue.remember(since=OLD),
    "remembers its time, but not a lifetime before": lambda queue: queue.remember(since=OLD + 179),
    "no tick since": lambda queue: queue.remember(until=OLD + 1),
    "a reshard": _meta("reshard", "1:2"),
    "another salt": _meta("salt", "0" * 32),
    "other shards": _meta("shards", "2"),
    "tampered with": _meta("buckets", "99"),
    "no number": _meta("whole", "1:9" + "9" * 400 + ":ab"),
    "no namespace": lambda queue: queue.client.delete(queue.meta),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_in_doubt_an_entry_is_processed(queue: Queue, doubt: str) -> None:
    with queue.worker() as worker:  # it knows the namespace as it was
        assert worker.acker.config == CONFIG
        DOUBTS[doubt](queue)
        queue.put(MessageId({2: 7}))
        worker._group.create()
        entries = worker._without(worker._ended, worker._group.new(10, None))  # type: ignore[arg-type]
        assert (len(entries), worker.skipped) == (1, 0)
        queue.client.delete(queue.stream)
    if doubt == "no namespace":
        queue.acker.create(CONFIG)


def test_edge_of_the_memory(queue: Queue) -> None:
    """The entry is skipped as soon as both ends are a bit further away."""
    queue.remember(since=OLD + 180 + 5, until=OLD - 5)
    queue.put("2:7")
    assert queue.work() == 1


@pytest.mark.parametrize("where", ["alive", "clock"])
def test_errors_leave_entries_to_their_handlers(
    queue: Queue, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def broken(*_: object) -> Any:
        asked.append(where)
        raise RedisUnavailableError("no answer") if where == "alive" else redis.TimeoutError("none")

    with queue.worker() as worker, monkeypatch.context() as patch:
        if where == "alive":
            run = queue.acker.connection.run
            patch.setattr(
                queue.acker.connection,
                "run",
                lambda call: broken() if call.script == "alive" else run(call),
            )
        else:
            patch.setattr(worker._ended, "_clock", broken)
        for number in (1, 2):
            queue.put(f"{number}:7", OLD - number)
            ((_, entries),) = worker.read(block=0)
            worker.handle(*entries[0], queue.handle)
    assert (len(queue.handled), asked) == (2, [where]), "a server that hangs delays few reads"


def test_entry_of_a_dead_worker_is_skipped(queue: Queue) -> None:
    """It has waited for another worker, or in a join: the answer is that of its new delivery."""
    queue.put("2:7")
    with queue.worker(consumer="dead") as dead:
        dead._group.create()
        ((key, _),) = dead._group.new(10, None)
        with queue.worker() as worker:
            queue.client.xclaim(queue.stream, "group", "dead", 0, [key], idle=60_000, justid=True)
            assert (worker.read(block=0), worker.skipped) == ([], 1)
    assert not queue.client.xpending(queue.stream, "group")["pending"]


def test_run_skips_and_goes_on(queue: Queue) -> None:
    queue.track(5)
    for number in range(1, 6):
        queue.put(f"{number}:4242", OLD - number)
    with queue.worker() as worker:

        def handle(fields: Any) -> None:
            queue.handle(fields)
            worker.stop()

        worker.run(handle)
        assert (worker.skipped, queue.handled) == (4, [b"5:4242"])


LIFE, SKEW = 180, 600


@pytest.mark.parametrize(
    ("age", "since", "until", "is_skipped"),
    [
        (3600, 3600 + LIFE + SKEW + 5, 3600 - SKEW - 5, True),
        (3600, 3600 + LIFE + SKEW - 5, 3600 - SKEW - 5, False),
        (3600, 3600 + LIFE + SKEW + 5, 3600 - SKEW + 5, False),
        (120 + SKEW + 5, 7200, 0, True),
        (120 + SKEW - 5, 7200, 0, False),
    ],
)
def test_another_clock_needs_ten_minutes_to_spare(
    queue: Queue, age: float, since: float, until: float, is_skipped: bool
) -> None:
    queue.remember(since, until)
    sent = [Sent(at, lambda: "1:7") for at in (None, queue.now_ms() - int(age * 1000))]
    found = queue.acker.connection.drive(Ended(queue.acker.flows).find(sent))
    assert found == ({1} if is_skipped else set())


def test_clock_of_the_consumer_and_slow_answers_skip_nothing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is an hour ahead looks up too much. The time of its call counts, too."""
    queue.remember(since=OLD + LIFE + 5, until=50)

    def find(age: float) -> set[int]:
        ended = Ended(queue.acker.flows, queue.now_ms)
        sent = [Sent(queue.now_ms() - int(age * 1000), lambda: "1:7")]
        return queue.acker.connection.drive(ended.find(sent))

    assert find(OLD) == {0}
    with monkeypatch.context() as patch:
        patch.setattr("time.time", lambda: queue.now_ms() / 1000 + 3600)
        assert (find(119), find(121)) == (set(), {0})
    with monkeypatch.context() as patch:
        times = itertools.count(time.monotonic(), 10)
        patch.setattr("acker_redis.integrations.core.ended.time.monotonic", lambda: next(times))
        assert (find(OLD), find(OLD - 120)) == (set(), {0})


def test_source_replays_what_its_worker_skips(queue: Queue) -> None:
    """The first message is skipped after its tree has expired; the second acks the record."""
    done: list[str] = []

    def send(record: Any, ids: list[MessageId]) -> None:
        queue.put(ids[0], OLD if record.attempt == 1 else 0)

    source = Source(
        queue.acker, "shop", send, backoff=Backoff(0, 0), poll=0.01,
        on_ack=lambda record: done.append(record.source_id),
    )  # fmt: skip
    with source:
        source.emit("order-1", "a hat")
        wait_until(lambda: queue.client.xlen(queue.stream) == 1, "the first message")
        tick(queue.acker, 3)
        queue.remember()
        wait_until(lambda: queue.client.xlen(queue.stream) == 2, "the second message")
        assert queue.work() == 1
        wait_until(lambda: done == ["order-1"], "the ack")
    assert len(queue.handled) == 1


def test_clock_of_a_stream_in_a_cluster(cluster: Cluster) -> None:
    client = cluster.client()
    with Acker(cluster.client(), "skip") as acker:
        worker = StreamWorker(acker, client, "orders", "group", skip_ended=True)
        seconds, _ = client.get_redis_connection(client.get_node_from_key("orders")).time()
        assert 0 <= worker._group.now_ms() - seconds * 1000 < 60_000


def test_clock_is_that_of_the_queue(queue: Queue) -> None:
    with queue.worker() as worker:
        before = queue.now_ms()
        assert before <= worker._group.now_ms() <= queue.now_ms()
        assert worker._group.sent_ms("1700-3", {}) == worker._group.sent_ms(b"1700-3", {}) == 1700
    assert abs(time.time() * 1000 - before) < 60_000, "entries are chosen by the local clock"


def _acked(*anchors: int) -> Batch:
    batch = Batch()
    for anchor in anchors:
        batch.ack(anchor, A)
    return batch


def _calls(acker: Acker) -> list[str]:
    """Return the scripts that are called from now on."""
    made: list[str] = []
    run = acker.connection.run

    def noted(call: Any) -> Any:
        made.append(call.script)
        return run(call)

    acker.connection.run = noted  # type: ignore[method-assign]
    return made
