"""Workers and senders of Redis Streams: failovers, outages, forks, entries that are no text."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from acker_redis import Acker, AckerConfig, Backoff, ConfigError, Record, Source, emit
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.streams import StreamSender, StreamWorker
from tests.conftest import binary_of
from tests.integrations.test_streams import LATER, Shop, dead, price, shops
from tests.transport.address import TwoServers
from tests.waiting import LIMIT


@pytest.fixture
def shop(server: EmbeddedRedis) -> Iterator[Shop]:
    yield from shops(redis.Redis.from_url(server.url))


@pytest.fixture
def two() -> Iterator[TwoServers]:
    with TwoServers(binary_of("default")) as running:
        yield running


def test_worker_and_sender_leave_a_demoted_master(two: TwoServers) -> None:
    """Its connections stay open. The worker, which waits for entries, gets UNBLOCKED."""
    handled: list[Any] = []
    with (
        redis.Redis.from_url(two.url) as reads,
        redis.Redis.from_url(two.url) as adds,
        Acker.from_url(two.url, "n", retry_for=LIMIT) as acker,
    ):
        acker.create(AckerConfig())
        worker = StreamWorker(acker, reads, "hats", "packing")
        thread = threading.Thread(target=worker.run, args=(handled.append,))
        thread.start()
        try:
            sender = StreamSender(acker, adds, "hats")
            backoff = Backoff(0.1, 0.1)
            with Source(acker, "shop", sender, backoff=backoff, attempts=1000) as source:
                source.emit("order-1", {"name": "a hat"})
                assert source.join(LIMIT)
                two.fail_over()
                source.emit("order-2", {"name": "a shoe"})
                assert source.join(LIMIT)
                assert thread.is_alive()
            sender.close()
        finally:
            worker.stop()
            thread.join()
    assert [fields[b"name"] for fields in handled][-1] == b"a shoe"


@pytest.mark.parametrize(
    "error",
    [
        redis.TimeoutError("Timeout reading from socket"),
        redis.exceptions.RedisClusterException("Redis Cluster cannot be connected"),
        redis.ResponseError("BUSY Redis is busy running a script"),
        redis.ResponseError("NOREPLICAS Not enough good replicas to write."),
        redis.ResponseError("MISCONF Redis is configured to save RDB snapshots, but .."),
        AttributeError("redis-py's bug #4015: a slot moves to an unknown master"),
    ],
    ids=["timeout", "cluster", "busy", "noreplicas", "misconf", "slot"],
)
def test_run_goes_on_after_a_transient_error(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    ids = shop.put()
    monkeypatch.setattr("acker_redis.integrations.core.worker.PAUSE", 0.01)
    worker = shop.worker()
    fail_once(shop, monkeypatch, error)
    worker.run(lambda _: worker.stop())
    assert shop.open_ids(ids) is None


def fail_once(shop: Shop, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the next XREADGROUP raise an error."""
    read, errors = shop.client.xreadgroup, [error]

    def fails_once(*args: Any, **options: Any) -> Any:
        if errors:
            raise errors.pop()
        return read(*args, **options)

    monkeypatch.setattr(shop.client, "xreadgroup", fails_once)


def test_read_raises_what_an_outage_causes_and_works_when_called_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = shop.put()
    worker = shop.worker()
    fail_once(shop, monkeypatch, redis.TimeoutError("Timeout reading from socket"))
    with pytest.raises(redis.RedisError, match="Timeout reading"):
        worker.read()
    assert shop.work(worker, lambda _: None) == 1
    worker.close()
    assert shop.open_ids(ids) is None


def test_error_of_a_callback_ends_run_although_redis_py_may_raise_such_errors(shop: Shop) -> None:
    def broken(*_: Any) -> None:
        raise AttributeError("no such name")

    shop.put()
    with pytest.raises(AttributeError, match="no such name"):
        shop.worker(on_failure=broken).run(broken)
    assert shop.pending() == 1


def test_run_ends_after_a_lasting_error(shop: Shop) -> None:
    shop.client.set(shop.orders, "no stream")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        shop.worker().run(pytest.fail)


@pytest.mark.parametrize("patient", [True, False])
def test_run_goes_on_for_a_while_after_a_refusal_that_may_pass(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, patient: bool
) -> None:
    monkeypatch.setattr("acker_redis.integrations.core.worker.PAUSE", 0.01)
    if not patient:
        monkeypatch.setattr("acker_redis.integrations.core.worker.PATIENCE", 0.0)
    refused = [redis.AuthenticationError("WRONGPASS"), redis.exceptions.OutOfMemoryError("full")]
    worker, read = shop.worker(), shop.client.xreadgroup

    def handle(fields: Any) -> None:
        if fields[b"name"] == b"last":
            worker.stop()
            return
        monkeypatch.setattr(shop.client, "xreadgroup", fails_twice)
        shop.put("last")

    def fails_twice(*args: Any, **options: Any) -> Any:
        if refused:
            raise refused.pop()
        return read(*args, **options)

    shop.put()
    if patient:
        worker.run(handle)
        assert refused == []
    else:
        with pytest.raises(redis.RedisError):
            worker.run(handle)
    monkeypatch.setattr(shop.client, "xreadgroup", read)


def test_run_ends_at_once_if_its_password_was_never_right(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        raise redis.AuthenticationError("invalid username-password pair or user is disabled.")

    monkeypatch.setattr(shop.client, "xreadgroup", refuses)
    with pytest.raises(redis.AuthenticationError):
        shop.worker(consumer="one").run(pytest.fail)


def test_entry_that_is_no_text_fails_instead_of_its_workers(
    shop: Shop, server: EmbeddedRedis
) -> None:
    told: list[Any] = []
    good, _ = shop.put("good"), shop.put("bad", blob=b"\xff")
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        worker = shop.worker(client, idle=LATER, on_failure=lambda *given: told.append(given))
        worker._reading._pace.fits = 2
        with worker:
            assert shop.work(worker, pytest.fail) == 0, "the batch stays pending"
            shop.idle()
            worker._reading._look_at = 0
            assert shop.work(worker, lambda fields: fields["name"]) == 1
    assert shop.open_ids(good) is None
    assert shop.why()["bad"].startswith("UnicodeDecodeError: ")
    assert told[0][0][b"blob"] == b"\xff"
    assert shop.pending() == 0


def test_entry_that_is_no_text_and_was_deleted_leaves_the_group(
    shop: Shop, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.put(blob=b"\xff")
    dead(shop)
    shop.idle()
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        worker = shop.worker(client, idle=LATER)
        undecoded = worker._group.undecoded

        def deletes(key: Any) -> Any:
            shop.client.xtrim(shop.orders, maxlen=0, approximate=False)
            return undecoded(key)

        monkeypatch.setattr(worker._group, "undecoded", deletes)
        with worker:
            assert shop.work(worker, pytest.fail) == 0
            shop.idle()
            worker._reading._look_at = 0
            assert shop.work(worker, pytest.fail) == 0
    assert shop.pending() == 0


def test_worker_never_waits_so_long_that_new_entries_are_late(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the fix, it left entries to others that came after half of ``idle``."""
    waits: list[int | None] = []

    def new(_: int, block: int | None) -> list[Any]:
        waits.append(block)
        return []

    with shop.worker(idle=LATER) as worker:
        monkeypatch.setattr(worker._group, "new", new)
        worker.read(block=30)
        worker.read(block=0.1)
        worker.read(block=0)
    assert waits == [250, 100, None]


def test_closed_sender_refuses_a_record_and_keeps_nothing(shop: Shop) -> None:
    sender = StreamSender(shop.acker, shop.client, shop.orders)
    sender.close()
    with pytest.raises(RuntimeError, match="shutdown"):
        sender(Record("order-1", {"name": "hat"}), emit("order-1").ids)
    sender.flush(timeout=0)
    sender.close()


def test_forked_child_leaves_the_entries_of_its_parent_alone(shop: Shop) -> None:
    """Before the fix, it added their children again, and had the parent's name in the group."""
    shop.put("hat", priced=shop.priced)
    shop.put("shoe", priced=shop.priced)
    worker = shop.worker()
    worker._reading._pace.fits = 2
    ((_, entries),) = worker.read(block=0)
    worker._settling._settled_at = float("inf")
    for key, fields in entries:
        worker.handle(key, fields, price, worker)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            consumer = worker._group.consumer
            worker.close()
            code = 0 if consumer.split("-")[-2] == str(os.getpid()) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert shop.children() == []
    worker.close()
    assert len(shop.children()) == 2
    assert shop.pending() == 0


def test_worker_starts_on_a_server_that_is_full(shop: Shop) -> None:
    """Before the fix, it could not, so nothing emptied the stream."""
    shop.put()
    dead(shop)
    shop.put("shoe")
    shop.client.config_set("maxmemory", 1)
    try:
        with shop.worker(delete=True) as worker:
            assert shop.work(worker, lambda _: None) == 1
    finally:
        shop.client.config_set("maxmemory", 0)
    assert shop.client.xlen(shop.orders) == 1


def test_stream_that_is_deleted_while_a_worker_waits_gets_its_group_again(shop: Shop) -> None:
    with shop.worker() as worker:
        worker.read(block=0)
        deletes = threading.Timer(0.05, shop.client.delete, [shop.orders])
        deletes.start()
        assert worker.read(block=0.3) == []
        deletes.join()
        ids = shop.put()
        assert shop.work(worker, lambda _: None) == 1
    assert shop.open_ids(ids) is None


@pytest.mark.parametrize(
    "client", [redis.asyncio.Redis(), "redis://localhost"], ids=["async", "url"]
)
def test_client_must_be_a_blocking_one(shop: Shop, client: Any) -> None:
    with pytest.raises(ConfigError, match="blocking client of redis-py, not "):
        shop.worker(client)
    with pytest.raises(ConfigError, match="blocking client of redis-py, not "):
        StreamSender(shop.acker, client, shop.orders)
