"""Outages and refusals in each language: first rows wait, and some refusals are retried."""

import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import scripts
from acker_redis.sync.client import Acker
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import Processing, emit
from tests.conftest import MakeAcker
from tests.languages.driver import Driver, DriverError
from tests.support import total, verdicts
from tests.transport.proxy import Proxy
from tests.waiting import wait_until

RETRY_MS = 120_000
APPLY = scripts.load("apply").sha.encode()
MAY_PASS = (
    b"MISCONF Redis is configured to save RDB snapshots",
    b"UNBLOCKED force unblock from blocking operation",
    b"ERR max number of clients reached",
    b"OOM command not allowed when used memory > 'maxmemory'.",
    b"ACKER BACKLOG full",
    b"NOAUTH Authentication required.",
    b"WRONGPASS invalid username-password pair or user is disabled.",
    b"NOPERM User p has no permissions to run the 'evalsha' command",
    b"ERR Error running script (call to f_1): @user_script:9: -MISCONF Redis is configured",
)
LASTS = (
    b"ERR ACL failure in script: User p has no permissions to run the 'hdel' command",
    b"ERR Error running script (call to f_1): @user_script:9: -NOPERM The user executing the "
    b"script can't run this command or subcommand",
    b"NOPROTO unsupported protocol version",
)


class Refusing(Proxy):
    """A proxy that replies to some calls of ``apply`` itself: they never reach the server."""

    reply = b""
    """The text of an error, or a reply that is an array."""
    refusals = 0
    """Calls to refuse from now on."""

    def __init__(self, url: str) -> None:
        self.lanes: list[bytes] = []
        """The lane of each call of ``apply``."""
        super().__init__(url)

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._target) as redis:
            while True:
                ready, _, _ = select.select([client, redis], [], [])
                source = client if client in ready else redis
                data = source.recv(1 << 20)
                if not data:
                    return
                if source is client and self.cut > 0:
                    self.lost += 1
                    return
                if source is client and APPLY in data:
                    while not data.endswith(b"\r\n"):
                        data += client.recv(1 << 20)
                    # Before the lane are the script, the number of keys, and two keys.
                    self.lanes.append(data.partition(APPLY)[2].split(b"\r\n")[8])
                    if self.swallow > 0:
                        self.swallow -= 1
                        redis.sendall(data)
                        redis.recv(1 << 20)
                        return
                    if self.refusals > 0:
                        self.refusals -= 1
                        is_array = self.reply.startswith(b"*")
                        client.sendall(self.reply if is_array else b"-%b\r\n" % self.reply)
                        continue
                (redis if source is client else client).sendall(data)


@pytest.fixture
def proxy(any_server: EmbeddedRedis) -> Iterator[Refusing]:
    relay = Refusing(any_server.url)
    yield relay
    relay.close()


@pytest.fixture
def direct(make_any_acker: MakeAcker) -> Acker:
    """Return an acker of the same namespace that bypasses the proxy."""
    return make_any_acker(edges=("mill", "shop"))


def track(acker: Acker) -> str:
    """Track a tree; return its message."""
    tree, batch = emit("s", ids=acker.ids), Batch("t")
    batch.add(tree.row)
    acker.apply(batch)
    return str(tree.ids[0])


def connect(driver: Driver, proxy: Proxy, namespace: str, timeout_ms: int = 120_000) -> None:
    driver.connect(urlsplit(proxy.url).port or 0, timeout_ms=timeout_ms)
    driver.begin(namespace, retry_ms=RETRY_MS)


def work(driver: Driver, message: str, **more: object) -> None:
    asked = {"inputs": [message], "emit": [], "end": "ack", "why": "", "flush": True, **more}
    driver.send("work", **asked)


def test_first_row_of_a_process_waits_for_redis(
    driver: Driver, proxy: Refusing, direct: Acker
) -> None:
    """It emits a message without an edge meanwhile, which is right in any namespace.

    A client that sends each row at once has none that waits.
    """
    lingers = "linger" in driver.client.can
    message = track(direct)
    connect(driver, proxy, direct.namespace, timeout_ms=500)
    proxy.cut = 1
    end = "ack" if lingers else "none"
    work(driver, message, emit=[[0]], edges=["mill"], end=end, flush=False)
    (child,) = driver.answer()["emitted"]  # while Redis is away
    assert all(id_ >> 55 == 0 for id_ in MessageId.parse(child).values())
    if not lingers:
        proxy.cut = 0
        return
    driver.send("flush")
    wait_until(lambda: proxy.lost > 1, "attempts that fail")
    proxy.cut = 0
    driver.answer()
    work(driver, child, emit=[[0]], edges=["mill"])
    (named,) = driver.answer()["emitted"]
    assert [id_ >> 55 for id_ in MessageId.parse(named).values()] == [1]
    work(driver, named)
    driver.answer()
    assert [v[:2] for v in verdicts(direct)] == [("ack", "completed")]


def test_message_with_a_key_waits_for_the_salt_or_is_refused(
    driver: Driver, proxy: Refusing, direct: Acker
) -> None:
    message = track(direct)
    connect(driver, proxy, direct.namespace, timeout_ms=500)
    proxy.cut = 1
    work(driver, message, emit=[[0]], keys=["k"])
    wait_until(lambda: proxy.lost > 0, "an attempt that fails")
    proxy.cut = 0
    try:
        emitted = driver.answer()["emitted"]
    except DriverError as error:
        if error.code != "UNAVAILABLE":
            raise
        driver.begin(direct.namespace, retry_ms=RETRY_MS)
        work(driver, message, emit=[[0]], keys=["k"])
        emitted = driver.answer()["emitted"]
    assert emitted == [str(Processing(message, ids=direct.ids).emit(key="k"))]


def test_batch_is_retried_after_a_refusal_that_may_pass(
    driver: Driver, proxy: Refusing, direct: Acker
) -> None:
    connect(driver, proxy, direct.namespace)
    for proxy.reply in MAY_PASS:
        message = track(direct)
        work(driver, message, end="touch")  # it knows the namespace
        driver.answer()
        proxy.refusals = 2
        work(driver, message)
        driver.answer()
        assert proxy.refusals == 0
    counted = total(direct)
    assert (counted["acked"], counted["repeated"]) == (len(MAY_PASS), 0)


def test_batch_is_given_up_after_a_lasting_refusal(
    driver: Driver, proxy: Refusing, direct: Acker
) -> None:
    """Also after one inside a script, whose first commands may have run."""
    connect(driver, proxy, direct.namespace)
    for proxy.reply in LASTS:
        message = track(direct)
        work(driver, message, end="touch")
        driver.answer()
        proxy.refusals = 2
        work(driver, message)
        with pytest.raises(DriverError) as refused:
            driver.answer()
        assert refused.value.code == "REDIS"
        assert proxy.refusals == 1
        proxy.refusals = 0
    assert total(direct)["acked"] == 0


def test_trees_to_be_tracked_do_not_wait_for_memory(
    driver: Driver, proxy: Refusing, direct: Acker
) -> None:
    """They would hold up rows that free memory."""
    connect(driver, proxy, direct.namespace)
    driver.ask("track", task="t", source_id="first", emit=1)
    proxy.reply, proxy.refusals = MAY_PASS[3], 2
    with pytest.raises(DriverError) as refused:
        driver.ask("track", task="t", source_id="s", emit=1)
    assert refused.value.code == "REDIS"
    assert proxy.refusals == 1


def test_batch_in_doubt_is_not_sent_to_other_shards(
    driver: Driver, proxy: Refusing, direct: Acker
) -> None:
    """Its first attempt was applied, so the client may not pack it again."""
    if driver.library in driver.client.resends:
        pytest.skip("the library hides that a reply was lost")
    connect(driver, proxy, direct.namespace)
    message = track(direct)
    work(driver, message, end="touch")
    driver.answer()
    proxy.swallow, proxy.refusals, proxy.reply = 1, 1, b"ACKER SHARD row 0"
    work(driver, message)
    with pytest.raises(DriverError) as refused:
        driver.answer()
    assert (refused.value.code, proxy.refusals) == ("SHARD", 0)
    counted = total(direct)
    assert (counted["acked"], counted["repeated"], counted["orphaned"]) == (1, 0, 0)


def test_lane_that_another_process_has_used_is_not_used_again(
    driver: Driver, proxy: Refusing, direct: Acker
) -> None:
    connect(driver, proxy, direct.namespace)
    message = track(direct)
    work(driver, message, end="touch")
    driver.answer()
    proxy.reply, proxy.refusals = b"*2\r\n:0\r\n$1\r\n9\r\n", 1
    work(driver, message)
    with pytest.raises(DriverError) as refused:
        driver.answer()
    assert refused.value.code == "LANE"
    ahead = proxy.lanes[-1]
    for _ in range(6):  # some clients have several lanes
        work(driver, track(direct))
        driver.answer()
    assert len(ahead) >= 32
    assert ahead not in proxy.lanes[-6:]
    assert total(direct)["acked"] == 6
