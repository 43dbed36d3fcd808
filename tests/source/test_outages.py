"""Redis is unreachable, or replies are lost: no record is lost, and no attempt is used up."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from acker_redis import Acker, AckerConfig, Backoff
from acker_redis.embedded.binary import find_server
from acker_redis.errors import NamespaceNotFoundError, RedisUnavailableError, WrongShardError
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import AnySource, Clock, MakeSource
from tests.source.test_timeouts import TIMEOUT, lose_all
from tests.source.test_track import fill
from tests.support import backlog, tick, total
from tests.transport.proxy import Proxy
from tests.waiting import LIMIT, wait_until


def lose(source: AnySource, proxy: Proxy, replies: int = 1) -> None:
    """Run a step whose script call gets no reply."""
    proxy.swallow = replies
    with pytest.raises(RedisUnavailableError):
        source.step()
    assert proxy.swallow == 0


@pytest.fixture
def ready(make_source: MakeSource, acker: Acker, bolts: Bolts, proxy: Proxy) -> AnySource:
    """A source through the proxy that tries each call once and has read the configuration."""
    source = make_source(acker, bolts.send, url=proxy.url, retry_for=0)
    source.step()
    return source


def test_track_in_doubt_is_applied_once_under_its_number(
    ready: AnySource, acker: Acker, bolts: Bolts, called: CallbackLog, proxy: Proxy
) -> None:
    ready.emit("a")
    lose(ready, proxy)
    lose(ready, proxy)
    assert bolts.sent == []
    ready.step()
    assert bolts.attempts == [("a", 1)]
    bolts.ack()
    ready.step()
    counters = total(acker)
    assert (counters["tracked"], counters["conflict"]) == (1, 0)
    assert (called.take(), ready.pending) == (["ack a"], 0)


def test_track_that_never_arrived_is_applied_later(
    ready: AnySource, acker: Acker, bolts: Bolts, called: CallbackLog, proxy: Proxy
) -> None:
    ready.emit("a")
    proxy.cut = 1
    with pytest.raises(RedisUnavailableError):
        ready.step()
    assert total(acker)["tracked"] == 0
    ready.step()
    ready.step()
    assert bolts.attempts == [("a", 1)]


def test_rejection_read_before_the_reply_is_not_sent_and_no_attempt(
    make_source: MakeSource,
    make_any_acker: MakeAcker,
    called: CallbackLog,
    proxy: Proxy,
    clock: Clock,
) -> None:
    """The nack is read before the reply."""
    acker = make_any_acker(high_water=1)
    fill(acker, 2)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, url=proxy.url, retry_for=0, attempts=1)
    source.step()
    source.emit("a")
    lose(source, proxy)
    for _ in range(3):
        clock.advance(60)
        source.step()
    assert (set(called.take()), bolts.sent, source.pending) == ({"fail a overflow"}, [], 1)
    tick(acker, 3)  # makes room
    for _ in range(3):
        clock.advance(60)
        source.step()
    assert bolts.attempts == [("a", 1)]
    bolts.ack()
    source.step()
    assert [word for word in called.take() if "overflow" not in word] == ["ack a"]


def test_rejected_record_is_not_sent_after_a_repeated_batch(
    make_source: MakeSource,
    make_any_acker: MakeAcker,
    called: CallbackLog,
    proxy: Proxy,
    clock: Clock,
) -> None:
    """The reply to the repeated batch does not name the rejected trees."""
    acker = make_any_acker(high_water=1)
    fill(acker, 1)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, url=proxy.url, attempts=1)
    source.step()
    for name in "abc":
        source.emit(name)
    proxy.swallow = 1
    source.step()
    assert bolts.attempts == [("a", 1)]
    clock.advance(60)
    source.step()
    assert sorted(called.take()) == ["fail b overflow", "fail c overflow"]


def test_record_that_expired_before_its_reply_is_sent_in_a_new_attempt(
    ready: AnySource, acker: Acker, bolts: Bolts, called: CallbackLog, proxy: Proxy
) -> None:
    ready.emit("a")
    lose(ready, proxy)
    tick(acker, 3)
    ready.step()
    ready.step()
    ready.step()
    assert called.take() == ["fail a expired no ack"]
    assert bolts.attempts == [("a", 2)]
    bolts.ack()
    ready.step()
    assert (called.take(), ready.pending, backlog(acker)) == (["ack a"], 0, 0)


def test_error_between_track_and_send_costs_no_attempt(
    ready: AnySource, acker: Acker, bolts: Bolts, called: CallbackLog, proxy: Proxy
) -> None:
    """A replay: taking its old nack, once it is tracked again, gets no reply."""
    ready.emit("a")
    ready.step()
    bolts.fail("no")
    take = ready._flows._take
    lost: list[bool] = []

    def loses_the_second() -> Any:
        if ready._flows._doubts and not lost:
            lost.append(True)
            proxy.swallow = 1
        return (yield from take())

    ready._flows._take = loses_the_second
    with pytest.raises(RedisUnavailableError):
        ready.step()
    assert bolts.sent == []
    ready.step()
    assert bolts.attempts == [("a", 2)]
    bolts.ack()
    ready.step()
    assert called.take() == ["fail a failed no", "ack a"]
    assert total(acker)["tracked"] == 2


def test_callbacks_are_not_repeated_after_a_take_without_reply(
    ready: AnySource, acker: Acker, bolts: Bolts, called: CallbackLog, proxy: Proxy
) -> None:
    ready.emit("a")
    ready.step()
    bolts.ack()
    lose(ready, proxy)
    assert called.take() == ["ack a"]
    for _ in range(3):
        ready.step()
    assert (called.take(), ready.pending, backlog(acker)) == ([], 0, 0)


def test_failed_send_is_reported_after_an_outage(
    make_source: MakeSource, acker: Acker, called: CallbackLog, proxy: Proxy
) -> None:
    bolts = Bolts(acker)

    def send(record: Any, given: Any) -> None:
        if record.attempt == 1:
            proxy.swallow = 1
            raise OSError("no queue")
        bolts.send_and_ack(record, given)

    source = make_source(acker, send, url=proxy.url, retry_for=0)
    source.step()
    for name, edges in (("a", 1), ("open", None)):
        source.emit(name, messages=edges)
        with pytest.raises(RedisUnavailableError):
            source.step()
        assert source.join(LIMIT)
        words = f"fail {name} failed OSError: no queue"
        assert called.take() == [words, f"ack {name}"]


@pytest.mark.parametrize("shards", [1, 4])
def test_source_survives_an_outage_of_redis_with_its_data(
    make_source: MakeSource,
    make_any_acker: MakeAcker,
    called: CallbackLog,
    proxy: Proxy,
    shards: int,
) -> None:
    """The connection fails for a while: before, during and after each call of a step."""
    acker = make_any_acker(shards=shards)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, url=proxy.url, retry_for=0, attempts=2)
    names = [f"record-{number}" for number in range(60)]
    for number, name in enumerate(names):
        source.emit(name)
        setattr(proxy, ("swallow", "cut")[number % 2], number % 5)
        for _ in range(number % 4):
            try:
                source.step()
            except RedisUnavailableError:
                continue
        bolts.ack()
    proxy.swallow = proxy.cut = 0
    wait_until(lambda: joined(source, bolts), "all of them")
    assert sorted(called.take()) == sorted(f"ack {name}" for name in names)
    counters = total(acker)
    assert (counters["tracked"], counters["conflict"], counters["pending"]) == (60, 0, 0)
    assert sum(acker.status().backlog.values()) == 0


def joined(source: AnySource, bolts: Bolts) -> bool:
    """Run a step and process all messages; return whether no record is pending."""
    source.step()
    bolts.ack()
    return not source.pending


def test_source_thread_continues_after_an_outage(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, proxy: Proxy
) -> None:
    with make_source(acker, bolts.send_and_ack, url=proxy.url, retry_for=0) as source:
        source.emit("a")
        assert source.join(LIMIT)
        proxy.swallow = 3
        source.emit("b")
        assert source.join(LIMIT)
        assert proxy.swallow == 0
    assert called.take() == ["ack a", "ack b"]


def test_no_attempt_times_out_during_an_outage(
    ready: AnySource, bolts: Bolts, called: CallbackLog, proxy: Proxy, clock: Clock
) -> None:
    """The verdicts exist, but cannot be read."""
    ready.emit("a")
    ready.step()
    bolts.ack()
    ready.emit("b")
    for _ in range(10):
        clock.advance(TIMEOUT)
        proxy.cut = 4
        with pytest.raises(RedisUnavailableError):
            ready.step()
    proxy.cut = 0
    ready.step()
    assert called.take() == ["ack a"]


@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize("others", [1, 2, 4])
def test_source_survives_a_namespace_dropped_and_created_again(
    make_source: MakeSource,
    make_any_acker: MakeAcker,
    called: CallbackLog,
    clock: Clock,
    shards: int,
    others: int,
) -> None:
    """With the same or another number of shards: tracked records, unreplayed nacks, new records."""
    acker = make_any_acker(shards=shards)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, attempts=3, retry_for=0)
    for number in range(16):
        source.emit(f"old-{number}")
    source.step()
    half, bolts.sent = bolts.sent[:8], bolts.sent[8:]
    bolts.fail("no")
    source.step()
    bolts.sent = [*half[:4], *bolts.sent]
    bolts.fail("no")  # nacks that no source has read
    acker.connection.client.flushall()
    with pytest.raises(NamespaceNotFoundError):
        for _ in range(5):
            source.emit("meanwhile")
            source.step()
    acker.create(AckerConfig(tick_ms=3_600_000, shards=others))
    for number in range(16):
        source.emit(f"new-{number}")
    for _ in range(100):
        clock.advance(TIMEOUT / 8)
        with suppress(WrongShardError, NamespaceNotFoundError):
            joined(source, bolts)
        if not source.pending:
            break
    assert source.pending == 0
    acked = {word[4:] for word in called.take() if word.startswith("ack ")}
    wanted = {f"{age}-{number}" for age in ("old", "new") for number in range(16)}
    assert acked == wanted | {"meanwhile"}


def test_unreplayed_nacks_of_a_removed_shard_do_not_stop_the_source(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    """Nacks of four shards wait for their replays, then there is one shard."""
    acker = make_any_acker(shards=4)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, retry_for=0, backoff=Backoff(60, 60))
    for number in range(32):
        source.emit(f"record-{number}")
    source.step()
    bolts.fail("no")
    while len(called.words) < 32:
        source.step()
    acker.connection.client.flushall()
    acker.create(AckerConfig(tick_ms=3_600_000, shards=1))
    for _ in range(10):
        clock.advance(60)
        with suppress(WrongShardError, NamespaceNotFoundError):
            joined(source, bolts)
    assert sorted(called.take()[32:]) == sorted(f"ack record-{number}" for number in range(32))
    assert source.pending == 0


@pytest.fixture
def directory() -> Iterator[Path]:
    """Make a directory whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="acker-") as name:
        yield Path(name)


@contextmanager
def server_at(socket: Path) -> Iterator[str]:
    """Start a server without persistence on this socket; yield its URL."""
    binary = find_server()
    assert binary
    options = ("--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no")
    server = subprocess.Popen([str(binary.path), *options], stdout=subprocess.DEVNULL)
    try:
        url = f"unix://{socket}"
        with redis.Redis.from_url(url) as client:
            wait_until(lambda: answers(client), "a server that answers", pause=0.02)
        yield url
    finally:
        server.kill()
        server.wait()


def answers(client: "redis.Redis") -> bool:
    with suppress(redis.ConnectionError):
        return bool(client.ping())
    return False


def test_source_survives_a_server_that_restarts_empty(
    make_source: MakeSource, called: CallbackLog, clock: Clock, directory: Path
) -> None:
    """It restarts empty at the same address: the source retries until the namespace exists."""
    # Not a port, which another process could take while the server is down.
    address = directory / "redis.sock"
    config = AckerConfig(tick_ms=3_600_000)
    with server_at(address) as url:
        acker = Acker.from_url(url, "restarted")
        acker.create(config)
        bolts = Bolts(acker)
        source = make_source(acker, bolts.send, url=url, retry_for=0)
        for name in "ab":
            source.emit(name)
        source.step()
        bolts.sent.pop()
        bolts.ack()
    source.emit("c")
    with pytest.raises(RedisUnavailableError):
        source.step()
    with server_at(address):
        with pytest.raises(NamespaceNotFoundError):
            source.step()
        acker.create(config)
        for _ in range(60):
            clock.advance(TIMEOUT / 10)
            joined(source, bolts)
        acked = {word for word in called.take() if word.startswith("ack ")}
        assert (acked, source.pending) == ({"ack a", "ack b", "ack c"}, 0)
        acker.close()


def test_every_record_is_processed_although_redis_is_emptied(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send, attempts=10)
    for number in range(30):
        source.emit(f"record-{number}")
        source.step()
        if number % 3 == 0:
            bolts.ack()
        elif number % 3 == 1:
            bolts.fail("no")
        if number % 7 == 0:
            lose_all(acker)
    for _ in range(100):
        clock.advance(TIMEOUT / 10)
        joined(source, bolts)
    acked = {word for word in called.take() if word.startswith("ack ")}
    assert acked == {f"ack record-{number}" for number in range(30)}
    assert source.pending == 0


def test_emits_during_an_outage_do_not_end_the_pause(
    make_source: MakeSource, acker: Acker, bolts: Bolts, proxy: Proxy
) -> None:
    """Otherwise a source that emits all the time would try all the time."""
    source = make_source(acker, bolts.send, url=proxy.url, retry_for=0)
    proxy.close()
    step, steps, pauses = source._flows.step, list[int](), list[int]()

    def counted() -> Any:
        steps.append(1)
        return step()

    def long_pause(failures: int) -> float:
        pauses.append(failures)
        return 3600.0

    source._flows.step, source._flows.pause_after = counted, long_pause
    with source:
        wait_until(lambda: pauses, "the first failure")
        for number in range(50):
            source.emit(f"record-{number}")
    assert (len(steps), pauses) == (1, [1])
