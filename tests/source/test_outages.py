"""Redis is away for a while, or its replies are lost: nothing is lost, and no attempt is spent."""

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
from tests.source.bolts import Bolts, Told
from tests.source.conftest import AnySource, Clock, MakeSource
from tests.source.test_timeouts import TIMEOUT, lose_all
from tests.source.test_track import fill
from tests.support import backlog, tick, total
from tests.transport.proxy import Proxy
from tests.waiting import LIMIT, wait_until


def lose(source: AnySource, proxy: Proxy, replies: int = 1) -> None:
    """A step whose call of a script gets no reply."""
    proxy.swallow = replies
    with pytest.raises(RedisUnavailableError):
        source.step()
    assert proxy.swallow == 0


@pytest.fixture
def ready(make_source: MakeSource, acker: Acker, bolts: Bolts, proxy: Proxy) -> AnySource:
    """A source behind the proxy that tries each call once, and has read the configuration."""
    source = make_source(acker, bolts.send, url=proxy.url, retry_for=0)
    source.step()
    return source


def test_a_track_in_doubt_is_applied_under_its_number(
    ready: AnySource, acker: Acker, bolts: Bolts, told: Told, proxy: Proxy
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
    assert (told.take(), ready.pending) == (["ack a"], 0)


def test_one_that_never_arrived_is_applied_later(
    ready: AnySource, acker: Acker, bolts: Bolts, told: Told, proxy: Proxy
) -> None:
    ready.emit("a")
    proxy.cut = 1
    with pytest.raises(RedisUnavailableError):
        ready.step()
    assert total(acker)["tracked"] == 0
    ready.step()
    ready.step()
    assert bolts.attempts == [("a", 1)]


def test_what_was_rejected_unheard_is_not_sent_and_was_no_attempt(
    make_source: MakeSource, make_any_acker: MakeAcker, told: Told, proxy: Proxy, clock: Clock
) -> None:
    """The nack is heard before the reply."""
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
    assert (set(told.take()), bolts.sent, source.pending) == ({"fail a overflow"}, [], 1)
    tick(acker, 3)  # there is room again
    for _ in range(3):
        clock.advance(60)
        source.step()
    assert bolts.attempts == [("a", 1)]
    bolts.ack()
    source.step()
    assert [word for word in told.take() if "overflow" not in word] == ["ack a"]


def test_what_was_rejected_and_asked_again_at_once_is_not_sent(
    make_source: MakeSource, make_any_acker: MakeAcker, told: Told, proxy: Proxy, clock: Clock
) -> None:
    """The repeat is answered, and does not say which were rejected."""
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
    assert sorted(told.take()) == ["fail b overflow", "fail c overflow"]


def test_what_expired_while_its_reply_was_awaited_is_not_sent_dead(
    ready: AnySource, acker: Acker, bolts: Bolts, told: Told, proxy: Proxy
) -> None:
    ready.emit("a")
    lose(ready, proxy)
    tick(acker, 3)
    ready.step()
    ready.step()
    ready.step()
    assert told.take() == ["fail a expired"]
    assert bolts.attempts == [("a", 2)]
    bolts.ack()
    ready.step()
    assert (told.take(), ready.pending, backlog(acker)) == (["ack a"], 0, 0)


def test_an_error_between_tracking_and_sending_does_not_cost_the_attempt(
    ready: AnySource, acker: Acker, bolts: Bolts, told: Told, proxy: Proxy
) -> None:
    """A replay: its old nack is to be taken when it is tracked anew, and that is not answered."""
    ready.emit("a")
    ready.step()
    bolts.fail("no")
    take = ready._flows._take
    lost: list[bool] = []

    def loses_the_second() -> Any:
        if ready._flows._doubt is not None and not lost:
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
    assert told.take() == ["fail a failed no", "ack a"]
    assert total(acker)["tracked"] == 2


def test_callbacks_are_not_repeated_when_the_taking_was_not_answered(
    ready: AnySource, acker: Acker, bolts: Bolts, told: Told, proxy: Proxy
) -> None:
    ready.emit("a")
    ready.step()
    bolts.ack()
    lose(ready, proxy)
    assert told.take() == ["ack a"]
    for _ in range(3):
        ready.step()
    assert (told.take(), ready.pending, backlog(acker)) == ([], 0, 0)


def test_what_could_not_be_said_of_a_send_that_failed_is_said_later(
    make_source: MakeSource, acker: Acker, told: Told, proxy: Proxy
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
        source.emit(name, edges=edges)
        with pytest.raises(RedisUnavailableError):
            source.step()
        assert source.join(LIMIT)
        words = f"fail {name} failed OSError: no queue"
        assert told.take() == [words, f"ack {name}"]


@pytest.mark.parametrize("shards", [1, 4])
def test_away_and_back_with_its_memory(
    make_source: MakeSource, make_any_acker: MakeAcker, told: Told, proxy: Proxy, shards: int
) -> None:
    """The line is down for a while: before, in, and behind each call of a step."""
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
    assert sorted(told.take()) == sorted(f"ack {name}" for name in names)
    counters = total(acker)
    assert (counters["tracked"], counters["conflict"], counters["pending"]) == (60, 0, 0)
    assert sum(acker.status().backlog.values()) == 0


def joined(source: AnySource, bolts: Bolts) -> bool:
    """Whether nothing is left after one more step, and all that was sent is processed."""
    source.step()
    bolts.ack()
    return not source.pending


def test_the_pump_goes_on_when_redis_is_back(
    make_source: MakeSource, acker: Acker, bolts: Bolts, told: Told, proxy: Proxy
) -> None:
    with make_source(acker, bolts.send_and_ack, url=proxy.url, retry_for=0) as source:
        source.emit("a")
        assert source.join(LIMIT)
        proxy.swallow = 3
        source.emit("b")
        assert source.join(LIMIT)
        assert proxy.swallow == 0
    assert told.take() == ["ack a", "ack b"]


def test_during_an_outage_nothing_times_out(
    ready: AnySource, bolts: Bolts, told: Told, proxy: Proxy, clock: Clock
) -> None:
    """The verdicts are there, but cannot be read."""
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
    assert told.take() == ["ack a"]


@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize("others", [1, 2, 4])
def test_the_namespace_is_dropped_and_made_anew(
    make_source: MakeSource,
    make_any_acker: MakeAcker,
    told: Told,
    clock: Clock,
    shards: int,
    others: int,
) -> None:
    """With as many shards, or others: what is tracked, what is owed, what is new."""
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
    bolts.fail("no")  # nacks that nobody has heard
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
    acked = {word[4:] for word in told.take() if word.startswith("ack ")}
    wanted = {f"{age}-{number}" for age in ("old", "new") for number in range(16)}
    assert acked == wanted | {"meanwhile"}


def test_what_is_owed_of_a_shard_that_is_no_more_does_not_stop_it(
    make_source: MakeSource, make_any_acker: MakeAcker, told: Told, clock: Clock
) -> None:
    """Nacks of four shards wait for their replays, and then there is one."""
    acker = make_any_acker(shards=4)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, retry_for=0, backoff=Backoff(60, 60))
    for number in range(32):
        source.emit(f"record-{number}")
    source.step()
    bolts.fail("no")
    while len(told.words) < 32:
        source.step()
    acker.connection.client.flushall()
    acker.create(AckerConfig(tick_ms=3_600_000, shards=1))
    for _ in range(10):
        clock.advance(60)
        with suppress(WrongShardError, NamespaceNotFoundError):
            joined(source, bolts)
    assert sorted(told.take()[32:]) == sorted(f"ack record-{number}" for number in range(32))
    assert source.pending == 0


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory whose name is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="acker-") as name:
        yield Path(name)


@contextmanager
def server_at(socket: Path) -> Iterator[str]:
    """Start a server that keeps nothing, on this socket; its URL."""
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


def test_a_server_that_restarts_without_its_memory(
    make_source: MakeSource, told: Told, clock: Clock, directory: Path
) -> None:
    """At the same address, empty: the source asks until the namespace is there, and goes on."""
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
        acked = {word for word in told.take() if word.startswith("ack ")}
        assert (acked, source.pending) == ({"ack a", "ack b", "ack c"}, 0)
        acker.close()


def test_emptied_under_its_feet_everything_is_processed_in_the_end(
    make_source: MakeSource, acker: Acker, bolts: Bolts, told: Told, clock: Clock
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
    acked = {word for word in told.take() if word.startswith("ack ")}
    assert acked == {f"ack record-{number}" for number in range(30)}
    assert source.pending == 0
