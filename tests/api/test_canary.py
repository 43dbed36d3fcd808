"""/readyz: a canary tree of the service completes, and leaves no record."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from acker_api.reading import canary
from acker_api.reading.canary import NAME, SOURCE, Canary
from acker_api.reading.reader import Reader
from acker_redis import Acker, Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.ops import acl
from acker_redis.protocol import commands
from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from acker_redis.transport.connect import connect_async
from proof.simulate.redis_shard import glob
from tests.api.service import TOKEN, asked, bearer, get, is_problem
from tests.api.test_namespaces import V1, late
from tests.conftest import MakeAcker
from tests.support import dump
from tests.transport.proxy import proxied

KEYS = ShardKeys(NAME, 0)
STREAM = KEYS.outcomes(SOURCE)
Talk = Callable[[Canary], Awaitable[None]]


def flying(url: str, talk: Talk, **more: Any) -> None:
    """Run a talk with a canary."""

    async def run() -> None:
        reader = Reader(connect_async(url, 60.0), 60.0, 60.0)
        bird = Canary(reader, more.pop("within", 60.0), **more)
        try:
            await talk(bird)
        finally:
            await bird.close()
            await reader.close()

    asyncio.run(run())


async def flies(bird: Canary, state: str = "ok", why: str = "") -> None:
    flight = await bird.fly()
    assert (flight.state, why in flight.why) == (state, True), flight


@pytest.fixture(autouse=True)
def no_tick_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks happen only when a test forces them, also on a slow machine."""
    monkeypatch.setattr(canary, "CONFIG", replace(canary.CONFIG, tick_ms=3_600_000))


@pytest.fixture
def client(server: EmbeddedRedis, make_acker: MakeAcker) -> redis.Redis:
    """Return a client of an empty server."""
    found: redis.Redis = make_acker().connection.client
    return found


def _status(client: redis.Redis) -> Any:
    with Acker(client, NAME) as acker:
        return acker.status()


def test_canary_completes_and_leaves_no_record(server: EmbeddedRedis, client: redis.Redis) -> None:
    before = set(client.keys())

    async def talk(bird: Canary) -> None:
        await flies(bird)
        made = set(client.keys())
        for _ in range(3):
            await flies(bird)
        assert set(client.keys()) == made

    flying(server.url, talk)
    # The rest is its configuration, and the fence of its lane, which expires with the bucket.
    new = {key.decode() for key in set(client.keys()) - before}
    assert {KEYS.meta, KEYS.fence(0)} <= new <= {KEYS.meta, KEYS.fence(0), KEYS.pending(0), STREAM}
    assert client.xlen(STREAM) == client.hlen(KEYS.pending(0)) == 0
    assert NAME.encode() not in client.smembers(NAMESPACES)
    status = _status(client)
    assert (status.counters["tracked"], status.counters["acked"]) == (4, 4)
    assert (status.pending, sum(status.backlog.values())) == (0, 0)


def test_concurrent_canaries_do_not_interfere(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    client = make_any_acker().connection.client

    async def run() -> None:
        reader = Reader(connect_async(any_server.url, 60.0), 60.0, 60.0)
        birds = [Canary(reader, 60.0) for _ in range(8)]
        for _ in range(3):
            flights = await asyncio.gather(*(bird.fly() for bird in birds))
            assert [flight.state for flight in flights] == ["ok"] * 8, flights
        await reader.close()

    asyncio.run(run())
    status = _status(client)
    assert status.counters["tracked"] == status.counters["acked"] == 24
    assert (status.pending, client.xlen(STREAM)) == (0, 0)


def test_abandoned_canaries_are_removed(
    server: EmbeddedRedis, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = Acker(client, NAME)
    acker.connection.run(commands.create(KEYS, canary.CONFIG, commands.new_salt()))
    for verdict in range(3):  # acked, and not taken
        row = f'[["{verdict + 1:016x}","canary",1,""]]'
        fields = {"verdict": "ack", "reason": "completed", "n": 1, "rows": row}
        client.xadd(STREAM, fields, id=f"{verdict + 1}-1")
    client.hset(KEYS.meta, f"backlog:{SOURCE}", 3)
    left = Batch(SOURCE)
    left.track(7, "canary", [40])  # tracked, and never acked
    acker.apply(left)

    async def talk(bird: Canary) -> None:
        await flies(bird)
        assert client.xlen(STREAM) == 0
        assert _status(client).pending == 1
        for _ in range(3):
            late(acker, 0, 2 * canary.CONFIG.tick_ms)
            await flies(bird)
        assert _status(client).pending == 0
        assert client.xlen(STREAM) == 1, "a nack that is not old enough"
        monkeypatch.setattr(canary, "ABANDONED_MS", -1)
        await flies(bird)

    flying(server.url, talk)
    assert client.xlen(STREAM) == 0
    assert _status(client).backlog == {SOURCE: 0}


def test_full_backlog_of_abandoned_canaries_is_cleared(
    server: EmbeddedRedis, client: redis.Redis
) -> None:
    acker = Acker(client, NAME)
    acker.connection.run(commands.create(KEYS, canary.CONFIG, commands.new_salt()))
    row = '[["0000000000000001","canary",1,""]]'
    for each in range(3):
        fields = {"verdict": "ack", "reason": "completed", "n": 1, "rows": row}
        client.xadd(STREAM, fields, id=f"{each + 1}-1")
    client.hset(KEYS.meta, f"backlog:{SOURCE}", canary.CONFIG.outcomes_limit)
    flying(server.url, flies)
    assert client.xlen(STREAM) == 0


def _after(bird: Canary, calls: int, do: Callable[[], object], times: int = 1) -> None:
    """Call ``do`` after so many batches, ``times`` times."""
    apply, sent = bird._acker.apply, 0

    async def applied(batch: Batch) -> Any:
        nonlocal sent, times
        done = await apply(batch)
        sent += 1
        if sent % calls == 0 and times:
            times -= 1
            do()
        return done

    bird._acker.apply = applied  # type: ignore[method-assign, assignment]


def test_canary_creates_its_namespace_again(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    client = make_any_acker().connection.client

    def gone_and_back() -> None:
        client.flushall()
        Acker(client, NAME).connection.run(
            commands.create(KEYS, canary.CONFIG, commands.new_salt())
        )

    async def talk(bird: Canary) -> None:
        await flies(bird)
        client.flushall()
        await flies(bird)
        _after(bird, 1, client.flushall)  # between its track and its ack
        await flies(bird)
        _after(bird, 1, gone_and_back)  # another service has created it again
        await flies(bird)

    flying(any_server.url, talk)
    assert not client.exists(NAMESPACES)


def test_lost_canary_verdict_is_reported(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_any_acker().connection.client

    async def talk(bird: Canary) -> None:
        _after(bird, 2, lambda: client.delete(STREAM), times=1)
        await flies(bird)  # a single loss is retried
        _after(bird, 2, lambda: client.delete(STREAM), times=100)
        await flies(bird, "failed", "its verdict is missing")

    flying(any_server.url, talk)


def test_read_only_user_gets_a_denied_canary(server: EmbeddedRedis, client: redis.Redis) -> None:
    now = [0.0]
    words = acl.rule("viewer", password="a-password").split()[1:]
    client.acl_deluser("viewer")
    client.execute_command("ACL", "SETUSER", *words)
    url = server.url.replace("redis://", "redis://viewer:a-password@")

    def refusals() -> int:
        return sum(int(entry["count"]) for entry in client.acl_log())

    async def talk(bird: Canary) -> None:
        client.acl_log_reset()
        before = dump(Acker(client, NAME))
        await flies(bird, "denied")
        once = refusals()
        for _ in range(3):
            now[0] += canary.DENIED_FOR / 4
            await flies(bird, "denied", "this user may not do that")
        assert refusals() == once
        now[0] += canary.DENIED_FOR
        await flies(bird, "denied")
        assert refusals() > once
        assert dump(Acker(client, NAME)) == before
        rights = ("create", "apply", "rotate", "expire", "take")
        client.acl_setuser(
            "viewer",
            enabled=True,
            commands=[f"+{each}" for right in rights for each in acl.SCRIPTS[right]],
            keys=["acker:{*}*"],
        )
        now[0] += canary.DENIED_FOR
        await flies(bird)

    try:
        answer = get(url, "/readyz")
        assert answer.json() == {"status": "ok", "namespaces": 1, "canary": "denied"}
        flying(url, talk, clock=lambda: now[0])
        # Also if the namespace exists, because other users may write.
        client.execute_command("ACL", "SETUSER", *words)
        assert get(url, "/readyz").json()["canary"] == "denied"
    finally:
        client.acl_deluser("viewer")


def test_redis_that_refuses_writes_fails_the_canary(
    server: EmbeddedRedis, client: redis.Redis
) -> None:
    async def talk(bird: Canary) -> None:
        await flies(bird)
        # The replica of an unreachable master; it still answers reads.
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            await flies(bird, "failed", "read-only replica")
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")
        for setting, value, why in (
            ("maxmemory", 1, "at maxmemory"),
            ("min-replicas-to-write", 1, "min-replicas-to-write"),
        ):
            client.config_set(setting, value)
            try:
                await flies(bird, "failed", why)
            finally:
                client.config_set(setting, 0)
        with unable_to_save(client):
            await flies(bird, "failed", "MISCONF")
        await flies(bird)

    flying(server.url, talk)


@contextmanager
def unable_to_save(client: redis.Redis) -> Iterator[None]:
    """Let Redis fail to save: a folder is in the place of the file."""
    place = Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]
    saved = client.config_get("save")["save"]
    client.config_set("save", "3600 1")
    place.unlink(missing_ok=True)
    (place / "full").mkdir(parents=True)
    try:
        client.bgsave()
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            time.sleep(0.005)
        assert client.info("persistence")["rdb_last_bgsave_status"] == "err"
        yield
    finally:
        (place / "full").rmdir()
        place.rmdir()
        client.config_set("save", saved)
        client.save()
        place.unlink()


def test_failed_canary_makes_readyz_503_with_its_reason(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    client = make_any_acker().connection.client

    async def talk(http: httpx.AsyncClient) -> None:
        for headers in ({}, bearer(TOKEN)):
            body = is_problem(await http.get("/readyz", headers=headers), 503, "canary")
            assert "at maxmemory" in body["detail"]
        assert (await http.get(V1, headers=bearer(TOKEN))).status_code == 200

    client.config_set("maxmemory", 1)
    try:
        asked(any_server.url, talk, token=TOKEN)
    finally:
        client.config_set("maxmemory", 0)


def test_tampered_canary_keys_are_reported_with_a_fix(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    client = make_any_acker().connection.client
    client.set(STREAM, "something")
    body = is_problem(get(any_server.url, "/readyz"), 503, "canary")
    assert f"delete its keys, {KEYS.prefix}:*" in body["detail"]
    stranger = is_problem(get(any_server.url, "/readyz", token=TOKEN), 503, "canary")
    assert stranger["detail"] == "see the log of the service"

    async def talk(bird: Canary) -> None:
        client.delete(STREAM)
        client.xadd(STREAM, {"verdict": "ack"})
        await flies(bird, "failed", f"delete its keys, {KEYS.prefix}:*")
        client.delete(*client.keys(glob(KEYS.prefix) + ":*"))
        await flies(bird)

    flying(any_server.url, talk)


def test_canary_can_be_switched_off(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    client = make_any_acker().connection.client
    before = client.dbsize()
    assert get(any_server.url, "/readyz", ready_canary=False).json()["canary"] == "off"
    assert client.dbsize() == before


def test_canary_round_trips_do_not_pile_up(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    client = make_any_acker().connection.client

    async def run(url: str, stall: Callable[[bool], None]) -> None:
        reader = Reader(connect_async(url, 60.0), 60.0, 60.0)
        bird = Canary(reader, 60.0)
        await flies(bird)
        bird._within = 0.05
        stall(True)
        for _ in range(5):
            await flies(bird, "failed", "no verdict within 0.05 s")
        assert len([t for t in asyncio.all_tasks() if t.get_name() == "acker-canary"]) == 1
        stall(False)
        bird._within = 60.0
        await flies(bird)
        await flies(bird)
        await bird.close()
        await reader.close()

    with proxied(any_server.url) as line:
        asyncio.run(run(line.url, lambda on: setattr(line, "stall", on)))
    assert _status(client).counters["tracked"] <= 5
