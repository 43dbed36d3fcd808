"""Replies are lost and requests are cut: each client retries the same bytes under the same number,
or gives up with an error. No row counts twice, and no tree is acked falsely."""

import itertools
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.sync.bolt import Bolt
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from acker_redis.trees.message_id import MessageId
from tests.conftest import MakeAcker
from tests.languages.cases import Call, calls_of
from tests.languages.driver import PATIENCE_MS, Driver, DriverError
from tests.languages.monitor import Monitor
from tests.support import tick, total, verdicts
from tests.transport.proxy import Proxy
from tests.waiting import wait_until

STOPPED = ("UNAVAILABLE", "LATE")
"""Codes of a client that has given up."""
RETRY_MS = 120_000


class Relay(Proxy):
    """A proxy for clients that close connections at any time, or write two commands at once."""

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._target) as redis:
            losing = False
            while True:
                ready, _, _ = select.select([client, redis], [], [])
                source = client if client in ready else redis
                data = source.recv(1 << 20)
                self.held += self.stall and source is client
                while self.stall:
                    time.sleep(0.002)
                if not data or (losing and source is redis):
                    return
                if source is client and self.cut > 0:
                    self.cut -= 1
                    self.lost += 1
                    redis.sendall(data[: len(data) // 2])
                    return
                if source is client and self.swallow > 0 and b"evalsha" in data.lower():
                    self.swallow -= 1
                    self.lost += 1
                    losing = True
                (redis if source is client else client).sendall(data)


@pytest.fixture
def proxy(any_server: EmbeddedRedis) -> Iterator[Proxy]:
    relay = Relay(any_server.url)
    yield relay
    relay.close()


@pytest.fixture
def monitor(any_server: EmbeddedRedis) -> Iterator[Monitor]:
    with Monitor([any_server.port]) as running:
        yield running


@pytest.fixture
def direct(make_any_acker: MakeAcker) -> Acker:
    """Return an acker of the same namespace that bypasses the proxy."""
    return make_any_acker()


def through(
    driver: Driver,
    proxy: Proxy,
    namespace: str,
    retry_ms: int = RETRY_MS,
    timeout_ms: int = PATIENCE_MS,
) -> str:
    """Connect a client through the proxy, and track a tree; return its first message."""

    def track() -> str:
        driver.connect(urlsplit(proxy.url).port or 0, timeout_ms=timeout_ms)
        driver.begin(namespace, retry_ms=retry_ms)
        (message,) = driver.ask("track", task="t", source_id="s", emit=1)["emitted"]
        return str(message)

    if timeout_ms == PATIENCE_MS:
        return track()
    # With a short timeout a slow machine loses replies too: repeat until all three succeed.
    messages: list[str] = []

    def answered() -> bool:
        with suppress(DriverError):
            messages.append(track())
        return bool(messages)

    wait_until(answered, "a client that is connected")
    return messages[0]


def process(driver: Driver, message: str) -> None:
    """Process a message and emit a child that no bolt ever processes."""
    driver.ask("work", inputs=[message], emit=[[0]], end="ack", why="", flush=True)


def stops(driver: Driver, message: str) -> bool:
    """As :func:`process`; return whether the client has given up."""
    return has_stopped(lambda: process(driver, message))


def has_stopped(ask: Callable[[], object]) -> bool:
    """Return whether the client answers that it has given up."""
    try:
        ask()
    except DriverError as error:
        if error.code not in STOPPED:
            raise
        return True
    return False


def applied(monitor: Monitor, direct: Acker) -> list[Call]:
    """Return the batches of this namespace that reached the server; earlier tests may be late."""
    keys = f"{{{direct.namespace}:".encode().hex()
    calls = calls_of(monitor.end())
    return [call for call in calls if call[0].startswith("apply") and keys in call[1][0]]


def checksum(direct: Acker, message: str) -> int:
    """Return the checksum of the pending tree of a message."""
    state = direct.show(*MessageId.parse(message))
    assert state is not None
    return state.checksum


def test_retry_sends_the_same_bytes_under_the_same_number(
    driver: Driver, proxy: Proxy, monitor: Monitor, direct: Acker
) -> None:
    message = through(driver, proxy, direct.namespace)
    proxy.swallow = 1
    monitor.begin()
    stopped = stops(driver, message)
    calls = applied(monitor, direct)
    assert proxy.lost == 1
    assert len(calls) >= (1 if stopped else 2)
    assert len(set(map(str, calls))) == 1
    assert bytes.fromhex(calls[0][2][1]).partition(b":")[2], "a client sends a digest"
    counters = total(direct)
    assert (counters["tracked"], counters["acked"], counters["pending"]) == (1, 0, 1)
    assert counters["repeated"] == len(calls) - 1
    # Applied once, the row leaves the id of the child in the checksum. Applied twice, it would have
    # cancelled itself.
    (sent,) = {int(call[2][4], 16) for call in calls}
    (first,) = MessageId.parse(message).values()
    assert checksum(direct, message) == first ^ sent != first
    tick(direct, 3)
    assert [verdict[:2] for verdict in verdicts(direct)] == [("nack", "expired")]


def test_retry_after_one_of_two_shard_calls_is_lost(
    driver: Driver, proxy: Proxy, monitor: Monitor, make_any_acker: MakeAcker
) -> None:
    """Each call keeps its number in a retry, also a call that was answered or not yet sent."""
    direct = make_any_acker(shards=4)
    trees: dict[int, str] = {}
    first = through(driver, proxy, direct.namespace)
    while len(trees) < 2:
        (anchor,) = MessageId.parse(first)
        trees[anchor % 4] = first
        (first,) = driver.ask("track", task="t", source_id="s", emit=1)["emitted"]
    message = ",".join(sorted(trees.values(), key=lambda text: int(text.partition(":")[0])))
    proxy.swallow = 1
    monitor.begin()
    stops(driver, message)
    numbers: dict[str, set[str]] = {}
    for _, keys, argv in applied(monitor, direct):
        numbers.setdefault(str((keys, argv[2:])), set()).add(str(argv[:2]))
    assert proxy.lost == 1
    assert all(len(its) == 1 for its in numbers.values())
    assert len({str(its) for its in numbers.values()}) == len(numbers)
    assert total(direct)["acked"] == 0
    for anchor, id_ in MessageId.parse(message).items():
        state = direct.show(anchor)
        assert state is not None
        # Unchanged if the client gave up before it; otherwise the child's id is left.
        assert len(numbers) < 2 or state.checksum != id_
    tick(direct, 3)
    assert {verdict[0] for verdict in verdicts(direct)} == {"nack"}


def test_retried_track_is_applied_once(driver: Driver, proxy: Proxy, direct: Acker) -> None:
    through(driver, proxy, direct.namespace)
    proxy.swallow = 1
    driver.send("track", task="t", source_id="s2", emit=1)
    answers: list[dict[str, list[str]]] = []
    if not has_stopped(lambda: answers.append(driver.answer())):
        (message,) = answers[0]["emitted"]
        with Producer(direct) as producer:
            Bolt(producer).process(message).ack()
        assert [verdict[:2] for verdict in verdicts(direct)] == [("ack", "completed")]
    assert proxy.lost == 1
    counters = total(direct)
    assert (counters["tracked"], counters["conflict"]) == (2, 0)


def test_request_that_never_arrived_is_retried_or_reported(
    driver: Driver, proxy: Proxy, direct: Acker
) -> None:
    message = through(driver, proxy, direct.namespace)
    (first,) = MessageId.parse(message).values()
    proxy.cut = 1
    if stops(driver, message):
        assert total(direct)["acked"] == 0
        return
    assert proxy.lost == 1
    assert checksum(direct, message) != first
    assert total(direct)["acked"] == 0


def test_number_of_a_batch_that_was_given_up_is_not_reused(
    driver: Driver, proxy: Proxy, monitor: Monitor, direct: Acker
) -> None:
    message = through(driver, proxy, direct.namespace, retry_ms=100, timeout_ms=200)
    monitor.begin()
    proxy.swallow = 1_000_000
    stopped = stops(driver, message)
    wait_until(lambda: proxy.lost, "a reply that is lost")
    proxy.swallow = 0
    assert stopped
    # The next batch is applied under another number or in another lane. (Some libraries wait for
    # seconds before they reconnect.)
    attempts = itertools.count()

    def answered() -> bool:
        try:
            driver.ask("track", task="t", source_id=f"s{next(attempts)}", emit=1)
        except DriverError:
            return False
        return True

    wait_until(answered, "an answer")
    contents: dict[tuple[str, str], set[str]] = {}
    for script, keys, argv in applied(monitor, direct):
        number = bytes.fromhex(argv[1]).decode().partition(":")[0]
        contents.setdefault((argv[0], number), set()).add(str((script, keys, argv)))
    assert all(len(its) == 1 for its in contents.values())
    assert len(contents) >= 2
    counters = total(direct)
    assert counters["tracked"] >= 2
    assert (counters["acked"], counters["conflict"]) == (0, 0)


def test_client_does_not_retry_after_its_fence_may_have_expired(
    driver: Driver, proxy: Proxy, monitor: Monitor, make_any_acker: MakeAcker
) -> None:
    """Fences hold for one millisecond here, and clients wait at least ten before a retry."""
    direct = make_any_acker(tick_ms=1, buckets=2)
    messages: list[str] = []

    def tracked() -> bool:
        # A process that is preempted for a millisecond may not even send its first attempt.
        with suppress(DriverError):
            messages.append(through(driver, proxy, direct.namespace))
        return bool(messages)

    wait_until(tracked, "a tree")
    (message,) = messages
    proxy.swallow = 1
    monitor.begin()
    stopped = stops(driver, message)
    calls = applied(monitor, direct)
    if driver.library not in driver.client.resends:
        assert stopped
        # No call at all: the process was preempted between the start of its fence and its attempt.
        assert len(calls) <= 1
    # No tick has happened, so a second application would show in the checksum.
    (first,) = MessageId.parse(message).values()
    assert (checksum(direct, message) != first) == bool(calls)


def test_calls_that_arrive_late_are_applied_once(
    driver: Driver, proxy: Proxy, monitor: Monitor, direct: Acker
) -> None:
    """The server hangs, and all calls of that time arrive late and together."""
    message = through(driver, proxy, direct.namespace, timeout_ms=50)
    monitor.begin()
    (first,) = MessageId.parse(message).values()
    proxy.stall = True
    driver.send("work", inputs=[message], emit=[[0]], end="ack", why="", flush=True)
    wait_until(lambda: proxy.held, "a request")
    time.sleep(0.2)  # the client times out; the test is also valid without that
    proxy.stall = False
    has_stopped(driver.answer)
    # A client that has given up does not wait for its call.
    wait_until(lambda: checksum(direct, message) != first, "the call")
    calls = applied(monitor, direct)
    assert len(set(map(str, calls))) == 1
    assert checksum(direct, message) == first ^ int(calls[0][2][4], 16)
    assert total(direct)["acked"] == 0
