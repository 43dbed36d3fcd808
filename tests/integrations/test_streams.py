"""Entries of Redis Streams on real servers: acks, failures, second deliveries, and doubts."""

import contextvars
import functools
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from operator import xor
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
import redis

from acker_redis import Acker, AckerConfig, Batch, ClosedError, ConfigError, MessageId, Source, emit
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.core.settling import Leased
from acker_redis.integrations.core.work import current
from acker_redis.integrations.streams import StreamSender, StreamWorker
from tests.cluster.fixtures import cluster, session_cluster
from tests.cluster.servers import Cluster
from tests.waiting import wait_until

__all__ = ["cluster", "session_cluster"]

LATER = 1.0
"""Seconds after which a worker of these tests may take an entry over."""


class Shop(NamedTuple):
    """A namespace, and a stream of orders that leads to a stream of priced orders."""

    acker: Acker
    client: Any
    orders: str
    priced: str

    def put(self, name: str = "hat", **fields: Any) -> MessageId:
        """Track a record, and add its entry; return its id."""
        tree = emit(name, edge="orders", ids=self.acker.ids)
        batch = Batch("shop")
        batch.add(tree.row)
        self.acker.apply(batch)
        self.client.xadd(self.orders, {"name": name, **fields, **tree.ids[0].to_headers()})
        return tree.ids[0]

    def worker(self, client: Any = None, **options: Any) -> StreamWorker:
        return StreamWorker(self.acker, client or self.client, self.orders, "pricing", **options)

    def work(self, worker: StreamWorker, handler: Callable[..., object], *args: Any) -> int:
        """Handle all entries that are there, without an end of the worker; return their number."""
        count = 0
        while found := worker.read(block=0):
            for key, fields in found[0][1]:
                worker.handle(key, fields, handler, *args)
                count += 1
        return count

    def children(self) -> list[MessageId]:
        return [MessageId.from_headers(fields) for _, fields in self.client.xrange(self.priced)]

    def open_ids(self, given: MessageId) -> int | None:
        """Return the checksum of a tree; None if it has a verdict."""
        state = self.acker.show(next(iter(given)))
        return state.checksum if state else None

    def why(self) -> dict[str, str]:
        """Return the reasons of nacks, by source id."""
        found = self.acker.outcomes("shop")
        return {each.source_id: each.why for each in found if each.verdict == "nack"}

    def pending(self) -> int:
        return int(self.client.xpending(self.orders, "pricing")["pending"])

    def idle(self, seconds: float = LATER) -> None:
        """Let all pending entries be idle, as if time had passed."""
        for each in self.client.xpending_range(self.orders, "pricing", "-", "+", 100):
            self.client.xclaim(
                self.orders, "pricing", each["consumer"], 0, [each["message_id"]],
                idle=int(seconds * 1000), justid=True,
            )  # fmt: skip


def shops(client: Any) -> Iterator[Shop]:
    name = f"streams-{uuid.uuid4().hex[:8]}"
    with Acker(client, name) as acker:
        acker.create(AckerConfig(edges=("orders", "priced")))
        yield Shop(acker, client, f"{name}-orders", f"{name}-priced")
        acker.drop()


@pytest.fixture
def shop(server: EmbeddedRedis) -> Iterator[Shop]:
    yield from shops(redis.Redis.from_url(server.url))


def price(fields: Any, worker: StreamWorker) -> None:
    worker.xadd(fields[b"priced"], fields, edge="priced")


def dead(shop: Shop, **options: Any) -> None:
    """Read all entries as a worker that dies before it handles them."""
    group = shop.worker(**options)._group
    group.create()
    assert group.new(100, None)


def test_entry_is_acked_with_its_children_when_its_handler_has_returned(shop: Shop) -> None:
    ids, blob = shop.put(priced=shop.priced, blob=b"\xff\0"), b"\xff\0"
    with shop.worker() as worker:
        assert shop.work(worker, price, worker) == 1
        (child,) = shop.children()
        assert shop.open_ids(ids) == child[next(iter(ids))]
        assert shop.acker.ids.edges_of(child[next(iter(ids))]) == ("priced",)
        ((_, fields),) = shop.client.xrange(shop.priced)
        assert fields[b"blob"] == blob
        assert len(fields) == 4, "the id of the parent is replaced"
        assert (shop.pending(), shop.client.xlen(shop.orders)) == (0, 1)


def test_entry_whose_handler_raises_fails_with_its_words(shop: Shop) -> None:
    told = []

    def park(fields: Any, error: BaseException) -> None:
        told.append((fields[b"name"], str(error)))
        worker.xadd(shop.priced, fields)

    def broken(fields: Any) -> None:
        raise ValueError("no such address")

    shop.put()
    with shop.worker(on_failure=park, delete=True) as worker:
        shop.work(worker, broken)
        assert shop.why() == {"hat": "ValueError: no such address"}
        assert told == [(b"hat", "no such address")]
        assert shop.children() == [MessageId()], "a dead letter is not tracked"
        assert (shop.pending(), shop.client.xlen(shop.orders)) == (0, 0)


def test_handler_may_fail_its_entry_by_itself(shop: Shop) -> None:
    ids = shop.put()
    with shop.worker() as worker:
        shop.work(worker, lambda _: worker.current.fail("no such address"))
    assert shop.why() == {"hat": "no such address"}
    assert shop.open_ids(ids) is None


def test_handler_that_was_not_run_is_not_acked(shop: Shop) -> None:
    async def handle(_: Any) -> None: ...

    def generate(_: Any) -> Iterator[None]:
        yield

    with shop.worker() as worker:
        with pytest.raises(ConfigError, match="coroutine function"):
            shop.worker().run(handle)
        for function in (handle, generate):
            shop.put()
            shop.work(worker, function)
            assert "was not run: it returned" in shop.why()["hat"]
        shop.put()
        shop.work(worker, lambda _: Future())
        assert "has not done its work" in shop.why()["hat"]


def test_refused_child_fails_the_entry_and_no_other(shop: Shop) -> None:
    ids = shop.put("hat"), shop.put("shoe")
    shop.client.set(shop.priced, "no stream")

    def handle(fields: Any) -> None:
        worker.xadd(shop.priced if fields[b"name"] == b"hat" else f"{shop.orders}-2", {"a": 1})

    with shop.worker() as worker:
        shop.work(worker, handle)
    assert shop.why()["hat"].startswith("ResponseError: WRONGTYPE")
    assert shop.open_ids(ids[1])
    assert shop.pending() == 0


def test_entry_of_a_dead_worker_goes_to_another(shop: Shop) -> None:
    ids = [shop.put(str(n)) for n in range(3)]
    dead(shop)
    with shop.worker(idle=LATER) as worker:
        assert shop.work(worker, lambda _: None) == 0, "they are not idle yet"
    shop.idle()
    with shop.worker(idle=LATER) as worker:
        (one,) = [entries for _, entries in worker.read(block=0)]
        assert len(one) == 1, "taken over alone"
        worker.handle(*one[0], lambda _: None)
        assert shop.work(worker, lambda _: None) == 2
    assert [shop.open_ids(each) for each in ids] == [None] * 3
    assert shop.pending() == 0


def test_entry_that_kills_its_workers_fails(shop: Shop) -> None:
    shop.put()
    dead(shop)
    for _ in range(2):
        shop.idle()
        assert len(shop.worker(idle=LATER, deliveries=3).read(block=0)) == 1
    shop.idle()
    with shop.worker(idle=LATER, deliveries=3) as worker:
        assert shop.work(worker, pytest.fail) == 0
    assert shop.why() == {"hat": "AckerError: delivered 3 times, and no worker has settled it"}
    assert shop.pending() == 0


def test_entries_deleted_meanwhile_are_not_delivered_and_never_acked(shop: Shop) -> None:
    ids = shop.put()
    dead(shop)
    shop.client.xtrim(shop.orders, maxlen=0, approximate=False)
    shop.idle()
    with shop.worker(idle=LATER) as worker:
        assert shop.work(worker, pytest.fail) == 0
    assert shop.pending() == 0
    assert shop.open_ids(ids) == ids[next(iter(ids))]


def test_entry_deleted_while_it_is_handled_is_acked(shop: Shop) -> None:
    ids = shop.put()
    with shop.worker() as worker:
        shop.work(worker, lambda _: shop.client.delete(shop.orders))
        assert shop.work(worker, pytest.fail) == 0, "the group is created again"
        again = shop.put()
        assert shop.work(worker, lambda _: None) == 1
    assert (shop.open_ids(ids), shop.open_ids(again)) == (None, None)


def test_slow_worker_discards_an_entry_that_another_has_taken(shop: Shop) -> None:
    ids = shop.put(priced=shop.priced)
    slow, other = (shop.worker(idle=LATER) for _ in range(2))

    def handle(fields: Any) -> None:
        work = current(Leased)
        assert work
        work.message.since -= LATER
        shop.idle()
        assert shop.work(other, price, other) == 1
        price(fields, slow)
        with pytest.raises(ClosedError, match="taken message"):
            slow.renew()

    with slow, other:
        assert shop.work(slow, handle) == 1
    (child,) = shop.children()
    assert shop.open_ids(ids) == child[next(iter(ids))]


def test_entry_that_waited_too_long_for_its_handler_is_left_to_others(shop: Shop) -> None:
    ids = shop.put()
    with shop.worker(idle=LATER) as worker:
        ((_, entries),) = worker.read(block=0)
        worker._reading.read_at -= LATER
        worker.handle(*entries[0], pytest.fail)
    assert shop.pending() == 1
    assert shop.open_ids(ids)


def test_renewed_entry_stays_with_its_worker(shop: Shop) -> None:
    shop.put()

    def handle(_: Any) -> None:
        shop.idle()
        worker.renew()
        with shop.worker(idle=LATER) as other:
            assert shop.work(other, pytest.fail) == 0

    with shop.worker(idle=LATER) as worker:
        assert shop.work(worker, handle) == 1


def test_entry_stays_pending_while_redis_has_not_applied_its_row(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.put()
    worker = shop.worker(idle=LATER)

    def no_reply(timeout: float | None = None) -> None:
        raise redis.ConnectionError("no reply")

    with monkeypatch.context() as patch:
        patch.setattr(worker._sink, "flush", no_reply)
        with pytest.raises(redis.ConnectionError):
            shop.work(worker, lambda _: None)
    assert shop.pending() == 1
    shop.idle()
    # The row was applied nevertheless: the second ack changes nothing.
    worker._sink.flush()
    with worker:
        worker._reading._look_at = 0
        assert shop.work(worker, lambda _: None) == 1
    assert shop.pending() == 0
    (outcome,) = shop.acker.outcomes("shop")
    assert outcome.verdict == "ack"


def test_entry_stays_pending_if_it_is_unknown_whether_its_child_was_added(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = shop.put(priced=shop.priced)
    worker = shop.worker()
    module = "acker_redis.integrations.streams.group.add"
    with monkeypatch.context() as patch:
        patch.setattr(module, lambda *_: (_ for _ in ()).throw(redis.TimeoutError("no reply")))
        with pytest.raises(redis.TimeoutError):
            shop.work(worker, price, worker)
    worker.close()
    assert shop.pending() == 1
    assert shop.open_ids(ids) == ids[next(iter(ids))]


def test_entry_stays_pending_after_a_doubtful_flush_that_its_handler_ignores(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [shop.put(priced=shop.priced), shop.put()]

    def no_reply(*_: Any) -> None:
        raise redis.TimeoutError("no reply")

    def handle(fields: Any) -> None:
        if b"priced" in fields:
            price(fields, worker)
            with monkeypatch.context() as patch, pytest.raises(redis.TimeoutError):
                patch.setattr("acker_redis.integrations.streams.group.add", no_reply)
                worker.flush()

    with shop.worker() as worker:
        assert shop.work(worker, handle) == 2
    assert shop.pending() == 1
    assert [bool(shop.open_ids(each)) for each in ids] == [True, False]


def test_worker_asks_its_client_for_the_encoder_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Mock(wraps=shop.client.get_encoder)
    monkeypatch.setattr(shop.client, "get_encoder", asked)
    for name in ("hat", "shoe", "coat"):
        shop.put(name)
    with shop.worker() as worker:
        assert shop.work(worker, lambda _: worker.xadd(shop.priced, {"a": 1})) == 3
    assert shop.client.xlen(shop.priced) == 3
    assert asked.call_count == 1


def test_many_children_are_added_while_their_handler_runs(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acker_redis.integrations.core.worker.MOST", 3)
    ids = shop.put()
    (anchor,) = ids

    def handle(_: Any) -> None:
        for count in (0, 0, 3, 3):
            worker.xadd(shop.priced, {"a": 1})
            assert shop.client.xlen(shop.priced) == count
        later.append(contextvars.copy_context())

    later: list[contextvars.Context] = []
    with shop.worker() as worker:
        shop.work(worker, handle)
        with pytest.raises(ClosedError, match="its handler has returned"):
            later[0].run(worker.xadd, shop.priced, {"a": 1})
    assert shop.open_ids(ids) == functools.reduce(xor, (each[anchor] for each in shop.children()))


def test_entry_stays_pending_if_its_failure_cannot_be_told(shop: Shop) -> None:
    ids, good = shop.put("bad"), shop.put("good")

    def handle(fields: Any) -> None:
        if fields[b"name"] == b"bad":
            raise ValueError("no such address")

    def park(fields: Any, _: BaseException) -> None:
        worker.xadd(shop.orders + "-dead", fields)

    shop.client.set(shop.orders + "-dead", "no stream")
    worker = shop.worker(on_failure=park)
    worker._reading._pace.fits = 2
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        worker.run(handle)
    assert shop.pending() == 2, "the second was not begun"
    assert shop.open_ids(ids)
    shop.client.delete(shop.orders + "-dead")
    shop.idle()
    with shop.worker(on_failure=park, idle=LATER) as worker:
        assert shop.work(worker, handle) == 2
    assert shop.why() == {"bad": "ValueError: no such address"}
    assert shop.open_ids(good) is None


def test_slow_entry_of_a_stream_that_was_deleted_is_not_acked(shop: Shop) -> None:
    ids = shop.put()

    def handle(_: Any) -> None:
        work = current(Leased)
        assert work
        work.message.since -= LATER
        shop.client.delete(shop.orders)

    with shop.worker(idle=LATER) as worker:
        assert shop.work(worker, handle) == 1
    assert shop.open_ids(ids)


def test_second_delivery_with_a_derived_child_is_dropped_as_a_duplicate(shop: Shop) -> None:
    """A worker dies after it has added its child: the tree completes all the same."""
    ids = shop.put()
    seen: set[bytes] = set()

    def child(_: Any, worker: StreamWorker) -> None:
        worker.xadd(shop.priced, {"a": 1}, child="priced")

    class Died(BaseException):
        pass

    def dies(fields: Any, worker: StreamWorker) -> None:
        child(fields, worker)
        worker.flush()
        raise Died

    first = shop.worker(idle=LATER)
    with pytest.raises(Died):
        shop.work(first, dies, first)
    shop.idle()
    with shop.worker(idle=LATER) as second:
        assert shop.work(second, child, second) == 1

    def ship(fields: Any, worker: StreamWorker) -> None:
        if fields[b"acker-tuple"] in seen:
            worker.drop()
        seen.add(fields[b"acker-tuple"])

    with StreamWorker(shop.acker, shop.client, shop.priced, "shipping") as shipping:
        assert shop.work(shipping, ship, shipping) == 2
    assert shop.open_ids(ids) is None
    assert not shop.why()


def test_entries_without_an_id_pass_through_untracked(shop: Shop) -> None:
    shop.client.xadd(shop.orders, {"priced": shop.priced})
    with shop.worker() as worker:
        assert shop.work(worker, price, worker) == 1
    assert shop.children() == [MessageId()]
    assert shop.pending() == 0


@pytest.mark.parametrize("fields", [{"a": 1}, {"acker-tuple": "seven"}])
def test_failure_of_an_entry_without_an_id_ends_the_worker(
    shop: Shop, fields: dict[Any, Any]
) -> None:
    good = shop.put()
    shop.client.xadd(shop.orders, fields)
    shop.put()

    def handle(fields: Any) -> None:
        if b"name" not in fields:
            raise ValueError("no such address")

    with pytest.raises(ValueError, match="no such address|seven"):
        shop.worker().run(handle)
    assert shop.pending() >= 1
    assert shop.open_ids(good) is None


def test_clients_that_decode_and_resp3_work(shop: Shop, server: EmbeddedRedis) -> None:
    for options in ({"decode_responses": True}, {"protocol": 3}, {"protocol": 2}):
        shop.client.delete(shop.priced)
        client = redis.Redis.from_url(server.url, **options)
        ids = shop.put("hüt")

        def handle(fields: Any) -> None:
            assert worker.stream == shop.orders
            name = fields["name"] if "name" in fields else fields[b"name"].decode()
            worker.xadd(shop.priced, {"name": name})

        with shop.worker(client) as worker:
            assert shop.work(worker, handle) == 1
        dead_ids = shop.put()
        dead(shop, client=client)
        shop.idle()
        with shop.worker(client, idle=LATER) as worker:
            assert shop.work(worker, lambda _: None) == 1
        (child,) = shop.children()
        assert shop.open_ids(ids) == child[next(iter(ids))]
        assert shop.open_ids(dead_ids) is None
        client.close()


def test_run_ends_after_a_signal_and_gives_entries_back(shop: Shop) -> None:
    for n in range(4):
        shop.put(str(n))
    handled = []

    def handle(fields: Any) -> None:
        handled.append(fields)
        signal.raise_signal(signal.SIGTERM)

    worker = shop.worker()
    worker._reading._pace.fits = 4
    worker.run(handle)
    assert (len(handled), shop.pending()) == (1, 3)
    with shop.worker() as other:
        assert shop.work(other, handled.append) == 3, "at once"
    assert shop.pending() == 0
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        shop.client.xinfo_consumers(shop.orders, "shipping")
    names = [each["name"] for each in shop.client.xinfo_consumers(shop.orders, "pricing")]
    assert len(names) == 1, "the worker that had nothing pending has left the group"


def test_run_needs_the_namespace(any_server: EmbeddedRedis) -> None:
    acker = Acker.from_url(any_server.url, "missing")
    with pytest.raises(Exception, match="missing"):
        StreamWorker(acker, redis.Redis.from_url(any_server.url), "s", "g").run(pytest.fail)


def test_run_survives_errors_of_the_connection(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.put()
    worker = shop.worker()
    monkeypatch.setattr("acker_redis.integrations.core.worker.PAUSE", 0.01)
    whole, errors = worker._group.new, [redis.ConnectionError("reset"), redis.TimeoutError("slow")]

    def new(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return whole(*args)

    monkeypatch.setattr(worker._group, "new", new)
    worker.run(lambda _: worker.stop())
    assert shop.pending() == 0


def test_batches_fit_to_the_handlers(shop: Shop) -> None:
    for _ in range(8):
        shop.put()
    worker = shop.worker()
    sizes = []
    while found := worker.read(block=0):
        sizes.append(len(found[0][1]))
        for key, fields in found[0][1]:
            worker.handle(key, fields, lambda _: None)
        if len(sizes) == 2:
            worker._reading.read_at -= 1
    assert sizes == [1, 2, 1, 2, 2]
    worker.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [({"idle": 0}, "idle"), ({"deliveries": 0}, "deliveries"), ({"deliveries": 1.5}, "deliveries")],
)
def test_invalid_settings_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        StreamWorker(Acker.from_url("redis://127.0.0.1:1", "x"), None, "s", "g", **options)


def test_xadd_needs_an_entry_in_process_and_valid_fields(shop: Shop) -> None:
    shop.put()
    with shop.worker() as worker:
        with pytest.raises(ConfigError, match="in process"):
            worker.xadd("priced", {"a": 1})

        other = shop.worker()

        def handle(_: Any) -> None:
            with pytest.raises(ConfigError, match="of this worker"):
                other.xadd("priced", {"a": 1})
            for fields in ({}, {"a": None}, {None: 1}, "text"):
                with pytest.raises(redis.DataError):
                    worker.xadd(shop.priced, fields)  # type: ignore[arg-type]

        shop.work(worker, handle)
    assert not shop.why()
    assert not shop.children()


def test_sender_adds_records_in_few_round_trips_and_reports_refusals(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_reply(*_: Any) -> None:
        raise redis.TimeoutError("no reply")

    sender = StreamSender(shop.acker, shop.client, shop.orders, maxlen=1000)
    ended: dict[str, str] = {}
    source = Source(
        shop.acker, "shop", sender, attempts=1,
        on_ack=lambda record: ended.update({record.source_id: ""}),
        on_fail=lambda record, reason, why: ended.update({record.source_id: why}),
    )  # fmt: skip
    with source, shop.worker() as worker:
        for n in range(100):
            source.emit(f"order-{n}", {"name": n, "blob": b"\xff"})
        source.emit("empty", {})
        thread = threading.Thread(target=worker.run, args=(lambda _: None,))
        thread.start()
        assert source.join(60)
        worker.stop()
        thread.join()
        assert ended.pop("empty").startswith("DataError")
        assert ended == {f"order-{n}": "" for n in range(100)}
        shop.client.delete(shop.orders)
        shop.client.set(shop.orders, "no stream")
        source.emit("hat", {"name": 1})
        wait_until(lambda: "hat" in ended, "the failure")
        monkeypatch.setattr("acker_redis.integrations.streams.sender.add", no_reply)
        source.emit("shoe", {"name": 1})
        wait_until(lambda: "shoe" in ended, "the failure")
    sender.close()
    assert ended["hat"].startswith("ResponseError: WRONGTYPE")
    assert ended["shoe"] == "TimeoutError: no reply"


@pytest.mark.full
def test_streams_of_a_cluster(cluster: Cluster) -> None:
    for shop in shops(cluster.client()):
        ids = [shop.put(priced=shop.priced), shop.put(priced=shop.priced)]
        dead(shop)
        shop.idle()
        with shop.worker(idle=LATER, delete=True) as worker:
            assert shop.work(worker, price, worker) == 2
        assert {shop.open_ids(each) for each in ids} == {
            child[anchor] for child in shop.children() for anchor in child
        }
        assert (shop.pending(), shop.client.xlen(shop.orders)) == (0, 0)
