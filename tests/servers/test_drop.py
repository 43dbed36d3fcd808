"""drop.lua and Acker.drop: bounded calls, resumable after any failure, only the own keys."""

import asyncio
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import redis

from acker_redis.aio import AsyncAcker
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    AckerError,
    InvalidBatchError,
    NamespaceExistsError,
    NamespaceNotFoundError,
    RedisRefusedError,
    ReshardError,
    SchemaError,
)
from acker_redis.flows import namespace as flows
from acker_redis.protocol import commands, scripts
from acker_redis.protocol.blocks import pack_deltas, pack_track
from acker_redis.protocol.commands import Call, Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from acker_redis.protocol.reshard import Reshard
from acker_redis.protocol.rows import Row
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from acker_redis.sync.source import Source
from tests.conftest import MakeAcker
from tests.servers.test_errors_change_nothing import spoil
from tests.support import FAIL, TRACK, columns, drain, dump, rotate, send, tick

A = 0x1234_5678_9ABC


class Killed(BaseException):
    """Raised to simulate the death of the client that drops."""


def populate(acker: Acker, shards: int, blocks: int = 3) -> None:
    """Create all kinds of keys in each shard: buckets, fences, verdicts, blocks, bitmaps."""
    run = acker.connection.run
    for shard in range(shards):
        keys = ShardKeys(acker.namespace, shard)
        for turn in range(3):
            first = 1000 * shards * turn + shards + shard
            fenced = Fence(f"p{turn}", 1, "ab"), Fence(f"@lane{turn}", 1, "ab")
            rows = [(first + shards * n, A, TRACK) for n in range(5)]
            send(acker, columns(rows, f"t{turn}", ["s"] * 5), fenced[0], shard)
            send(acker, columns([(first, A, 0)]), fenced[1], shard)
            send(acker, columns([(first + shards, 0, FAIL)], "", ["why"]), shard=shard)
            for n in range(blocks):
                number = first + shards * n
                present = [0, 1] if n else None
                parts = [pack_track(number, "t0", f"b{number}", [A, A, 0], present=present)]
                run(commands.apply_blocks(keys, parts, None))
                run(commands.apply_blocks(keys, [pack_deltas(number, {}, {1: "why"})], None))
            run(commands.rotate(keys, force=True))
        run(commands.report(keys, "t0", ()))
        # A producer that lacks a right may leave these.
        acker.connection.client.set(f"{keys.prefix}:scratch", "x")
        acker.connection.client.set(f"{keys.prefix}:scratch:{first:013x}", "x")


def filled(acker: Acker, blocks: int = 3) -> Acker:
    populate(acker, acker.config.shards, blocks)
    held = {key.decode().split("}:")[-1].split(":")[0] for key in dump(acker)}
    assert held >= {"meta", "pending", "fence", "expiring", "outcomes"}
    assert held >= {"reports", "block", "blocks", "blocks_expiring", "failed"}
    assert "present" in held or blocks < 2
    return acker


def of(name: str, held: dict[bytes, Any]) -> dict[bytes, Any]:
    """Return the keys of a namespace."""
    return {
        key: value for key, value in held.items() if key.startswith(f"acker:{{{name}:".encode())
    }


def others(name: str, held: dict[bytes, Any]) -> dict[bytes, Any]:
    """Return all other keys, and the set of namespaces without this one."""
    rest = {key: value for key, value in held.items() if key not in of(name, held)}
    rest[NAMESPACES.encode()] = rest.get(NAMESPACES.encode(), set()) - {name.encode()}
    return rest


def neighbours(acker: Acker) -> None:
    """Create namespaces whose names are a prefix of this one, or begin with it."""
    for name in (acker.namespace[:-1], f"{acker.namespace}0", f"{acker.namespace}.0"):
        other = Acker(acker.connection.client, name)
        other.create(AckerConfig(tick_ms=3_600_000))
        populate(other, 1, blocks=1)


def call(acker: Acker, blocks: int, last: bool = False, shard: int = 0) -> list[int]:
    return list(
        acker.connection.run(commands.drop(ShardKeys(acker.namespace, shard), blocks, last))
    )


def test_drop_deletes_all_keys_of_the_namespace_and_no_others(make_acker: MakeAcker) -> None:
    acker = make_acker(shards=4)
    neighbours(acker)
    filled(acker)
    before = others(acker.namespace, dump(acker))
    acker.drop()
    after = dump(acker)
    assert of(acker.namespace, after) == {}
    assert others(acker.namespace, after) == before
    assert acker.namespace.encode() not in after[NAMESPACES.encode()]
    with pytest.raises(NamespaceNotFoundError, match=f"{acker.namespace} does not exist"):
        acker.drop()
    acker.create(AckerConfig(shards=2, tick_ms=3_600_000))
    assert acker.status().counters["tracked"] == 0


def url_of(acker: Acker, user: str) -> str:
    place = acker.connection.client.connection_pool.connection_kwargs
    return f"redis://{user}:@{place['host']}:{place['port']}/0"


def killing(acker: Acker, monkeypatch: pytest.MonkeyPatch, after: int) -> Callable[[], int]:
    """Die after this many calls of scripts or commands; return a function that counts the calls."""
    calls = 0
    run, command = acker.connection.run, acker.connection.command

    def counted(do: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any) -> Any:
            nonlocal calls
            result = do(*args)
            calls += 1
            if calls == after:
                raise Killed
            return result

        return done

    monkeypatch.setattr(acker.connection, "run", counted(run))
    monkeypatch.setattr(acker.connection, "command", counted(command))
    return lambda: calls


def test_drop_killed_after_any_call_completes_when_repeated(
    make_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the drop has completed, no client can use or create the namespace."""
    acker = make_acker(shards=2)
    neighbours(acker)
    before = others(acker.namespace, dump(acker))
    monkeypatch.setattr(flows, "DROP_BLOCKS", 1)
    config, call_count = acker.config, 0
    for after in range(2, 1000):  # the first call only checks the right
        filled(acker, blocks=2)
        with monkeypatch.context() as patched:
            calls = killing(acker, patched, after)
            try:
                acker.drop()
            except Killed:
                done = False
            else:
                done, call_count = True, calls()
        held = dump(acker)
        assert others(acker.namespace, held) == before
        if done:
            break
        if of(acker.namespace, held):
            with pytest.raises(NamespaceNotFoundError):
                acker.status()
            with pytest.raises(NamespaceExistsError, match="being dropped"):
                acker.create(config)
            acker.drop()
        assert of(acker.namespace, dump(acker)) == {}
        assert not acker.connection.client.sismember(NAMESPACES, acker.namespace)
        acker.create(config)
    assert of(acker.namespace, dump(acker)) == {}
    assert call_count > 12, "otherwise the calls were too large"


def test_drop_killed_repeatedly_completes(
    make_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run continues where the last one stopped, though it calls all shards again."""
    acker = filled(make_acker(shards=2))
    monkeypatch.setattr(flows, "DROP_BLOCKS", 1)
    deaths = 0
    while deaths < 100:
        with monkeypatch.context() as patched:
            killing(acker, patched, 9)
            try:
                acker.drop()
            except Killed:
                deaths += 1
            except NamespaceNotFoundError:
                break  # the last client died after its last call
    assert 2 < deaths < 100
    assert dump(acker) == {}


def test_drop_without_a_needed_right_changes_nothing(make_acker: MakeAcker) -> None:
    acker = filled(make_acker(shards=2))
    client = acker.connection.client
    client.execute_command("ACL", "SETUSER", "almost", "on", "nopass", "~*", "&*", "+@all", "-srem")
    before = dump(acker)
    try:
        with (
            Acker.from_url(url_of(acker, "almost"), acker.namespace, timeout=60) as almost,
            pytest.raises(RedisRefusedError, match="acker-redis acl"),
        ):
            almost.drop()
        assert dump(acker) == before
    finally:
        client.execute_command("ACL", "DELUSER", "almost")


def test_running_clients_get_an_error_after_a_drop(make_acker: MakeAcker) -> None:
    """From the first call on, no client writes, and each one gets an error."""
    acker = make_acker(shards=2)
    given_up: list[tuple[AckerError, list[Row]]] = []
    source = Source(acker, "shop", lambda record, ids: None)
    producer = Producer(acker, linger=0, on_given_up=lambda *told: given_up.append(told))
    with producer:
        for number in range(4):
            source.emit(f"order-{number}")
        source.step()
        producer.ack(1, 2)
        producer.flush()
        tracked = Batch("shop")
        tracked.track(7, "order-7", [])
        acker.apply(tracked)
        entries = acker.outcomes("shop").read()
        for shard in (0, 1):
            assert call(acker, 0, shard=shard)[0] > 0
        before = dump(acker)
        later = Batch("shop")
        later.track(8, "order-8", [A])
        assert entries
        with pytest.raises(NamespaceNotFoundError):
            acker.apply(later)
        with pytest.raises(NamespaceNotFoundError):
            acker.outcomes("shop")
        with pytest.raises(NamespaceNotFoundError):
            source.emit("order-5")
            source.step()
        producer.ack(1, 2)
        with pytest.raises(NamespaceNotFoundError):
            producer.flush()
        assert dump(acker) == before
        acker.drop()
    assert [type(error) for error, _ in given_up] == [NamespaceNotFoundError]
    assert source.pending == 5, "it replays them when the namespace exists again"
    assert dump(acker) == {}


def test_drop_works_at_maxmemory(make_acker: MakeAcker) -> None:
    acker = filled(make_acker(shards=2))
    client = acker.connection.client
    client.config_set("maxmemory", 1)
    try:
        acker.drop()
        assert set(dump(acker)) == set()
    finally:
        client.config_set("maxmemory", 0)


def test_drop_removes_blocks_in_bounded_calls(acker: Acker) -> None:
    """A call removes as many blocks as requested, at most 500; with 0 it only closes."""
    track_blocks(acker, 600)
    tick(acker)
    parts = [pack_track(number, "t", "b", [A]) for number in range(600, 664)]
    acker.connection.run(commands.apply_blocks(ShardKeys(acker.namespace, 0), parts, None))
    assert call(acker, 0) == call(acker, 0) == [665, 1]
    left = [665, call(acker, 7)[0]]
    while left[-1]:
        left.append(call(acker, 1000)[0])
    assert left[0] - left[1] <= 7
    assert all(before - after <= 501 for before, after in pairwise(left))
    assert len(left) > 3, "some call was stopped"
    keys = ShardKeys(acker.namespace, 0)
    assert set(dump(acker)) == {keys.dropping.encode(), NAMESPACES.encode()}
    assert call(acker, 1000) == [0, 1], "the configuration is deleted last"
    assert call(acker, 1, last=True) == [0, 1]
    assert call(acker, 1, last=True) == call(acker, 0) == [0, 0]
    assert set(dump(acker)) == {NAMESPACES.encode()}


def test_drop_of_a_thousand_streams(acker: Acker) -> None:
    """The maximum of streams: more keys than one command takes."""
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    pipe = client.pipeline()
    for number in range(1000):
        pipe.hset(keys.meta, f"backlog:t{number}", 1)
        pipe.xadd(keys.outcomes(f"t{number}"), {"n": 1})
    pipe.execute()
    acker.drop()
    assert dump(acker) == {}


def test_drop_removes_a_leftover_name(acker: Acker) -> None:
    client = acker.connection.client
    client.delete(ShardKeys(acker.namespace, 0).meta)
    acker.drop()
    assert dump(acker) == {}
    with pytest.raises(NamespaceNotFoundError):
        acker.drop()


def test_drop_after_an_incomplete_create(make_acker: MakeAcker) -> None:
    acker = filled(make_acker(shards=4))
    client = acker.connection.client
    for shard in (1, 3):
        for key in client.scan_iter(f"acker:{{{acker.namespace}:{shard}}}:*"):
            client.delete(key)
    acker.drop()
    assert dump(acker) == {}


def test_drop_during_a_reshard_to_more_shards(make_acker: MakeAcker) -> None:
    """Shards of both numbers may exist, also when an interrupted drop has closed shard 0."""
    for stopped in (False, True):
        acker = filled(make_acker(shards=2))
        client = acker.connection.client
        for shard in (2, 3):
            keys = ShardKeys(acker.namespace, shard)
            acker.connection.run(commands.create(keys, AckerConfig(shards=4), "0" * 32))
        client.hset(ShardKeys(acker.namespace, 0).meta, "reshard", "2:4:switch")
        if stopped:
            assert call(acker, 0)[1] == 4
        acker.drop()
        assert of(acker.namespace, dump(acker)) == {}


def test_late_drop_call_does_not_remove_a_recreated_namespace(acker: Acker) -> None:
    """One of two clients that drop is delayed until the namespace was dropped and created again."""
    filled(acker)
    before = dump(acker)
    for last in (False, True):
        with pytest.raises(NamespaceExistsError, match="created again"):
            call(acker, 100, last)
    assert dump(acker) == before


def test_drop_for_a_reshard_removes_only_shards_of_that_reshard(make_acker: MakeAcker) -> None:
    """A shard that is open, closed, or removed by another reshard is not changed."""
    acker = make_acker(shards=2)
    keys, client = ShardKeys(acker.namespace, 1), acker.connection.client
    drop_it = commands.drop(keys, 0, last=False, reshard=Reshard(2, 1, "switch"))

    def end() -> list[int]:
        return list(acker.connection.run(drop_it))

    for reshard, shards in [
        ("", 2),
        ("2:1", 2),
        ("2:1", 1),
        ("2:1:switch", 2),
        ("4:1:switch", 1),
        ("2:4:switch", 1),
    ]:
        client.hset(keys.meta, mapping={"reshard": reshard, "shards": shards})
        before = dump(acker)
        with pytest.raises(ReshardError, match="is not to be removed by the reshard 2:1"):
            end()
        assert dump(acker) == before
    client.hset(keys.meta, mapping={"reshard": "2:1:switch", "shards": 1})
    assert end()[0] > 0
    assert end()[0] > 0, "again"
    assert call(acker, 100, last=True, shard=1)[0] == 0
    assert end() == [0, 0]
    for wrong in ("", "2", "2:1:switch", "x:1"):
        with pytest.raises(InvalidBatchError, match="reshard must be <from>:<to>"):
            acker.connection.run(Call("drop", keys.both, ("0", "0", wrong)))


def calls_to_the_end(acker: Acker, blocks: int, between: Callable[[], object]) -> int:
    for calls in range(1, 2000):
        between()
        if not call(acker, blocks, last=True)[0]:
            return calls
    raise AssertionError("the drop does not complete")


def track_blocks(acker: Acker, count: int) -> None:
    for start in range(0, count, 50):
        parts = [pack_track(number, "t", "b", [A]) for number in range(start, start + 50)]
        acker.connection.run(commands.apply_blocks(ShardKeys(acker.namespace, 0), parts, None))


def test_drop_completes_with_an_invalid_cursor(acker: Acker) -> None:
    """A restart changes the order of the tables. A bucket is finished when it is empty."""
    track_blocks(acker, 300)
    call(acker, 0)
    client, key = acker.connection.client, ShardKeys(acker.namespace, 0).dropping
    chance = random.Random(1)

    def bend() -> None:
        client.hset(key, "drop_cursor", chance.choice(["17", "x", "-1", "9" * 30, "255"]))

    assert calls_to_the_end(acker, 50, bend) < 500
    assert set(dump(acker)) == {NAMESPACES.encode()}


def test_drop_passes_empty_scan_pages(acker: Acker) -> None:
    """Some pages of the scan are empty, and the next call continues after them all the same."""
    track_blocks(acker, 500)
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    for number in range(70, 500):
        client.hdel(keys.blocks(0), number.to_bytes(8, "big"))
        client.delete(keys.block(number))
    call(acker, 0)
    assert calls_to_the_end(acker, 1, lambda: None) < 1000
    assert set(dump(acker)) == {NAMESPACES.encode()}


def spoil_meta(acker: Acker, kind: str) -> None:
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    if kind == "string":
        client.set(keys.meta, "x")
    elif kind == "stream":
        client.delete(keys.meta)
        client.xadd(keys.meta, {"a": 1})
    elif kind == "dropping too":
        client.hset(keys.dropping, "schema", 2)
    elif kind == "dropping a list":
        client.delete(keys.meta)
        client.rpush(keys.dropping, "x")
    elif kind == "no schema":
        client.hdel(keys.meta, "schema")
    elif kind == "no shards":
        client.hdel(keys.meta, "shards")
    else:
        field, _, value = kind.partition(" ")
        client.hset(keys.meta, field, value)


DAMAGE = (
    *("string", "stream", "dropping too", "dropping a list", "no schema", "no shards"),
    *("schema four", "schema 2.0", "shards x", "shards 0", "shards 1025", "shards 1e3"),
    *("shards -1", "reshard 2:99999"),
)


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("killed", [False, True])
def test_drop_removes_a_damaged_shard(make_acker: MakeAcker, kind: str, killed: bool) -> None:
    acker = filled(make_acker(shards=2))
    streams = list(acker.connection.client.scan_iter("*:outcomes:*"))
    assert streams
    spoil_meta(acker, kind)
    if killed:
        call(acker, 0)
        call(acker, 1)
    acker.drop()
    left = {key for key in dump(acker) if b":outcomes:" not in key}
    assert left == set()
    if kind not in ("string", "stream", "dropping a list"):  # no key is left that names streams
        assert dump(acker) == {}
    with pytest.raises(NamespaceNotFoundError):
        acker.drop()


def test_drop_removes_the_other_shards_of_a_lost_first_shard(make_acker: MakeAcker) -> None:
    acker = filled(make_acker(shards=4))
    client = acker.connection.client
    for key in client.scan_iter(f"acker:{{{acker.namespace}:0}}:*"):
        client.delete(key)
    acker.drop()
    assert dump(acker) == {}


def test_drop_of_another_schema_is_refused(acker: Acker) -> None:
    filled(acker)
    spoil_meta(acker, "schema 1")
    before = dump(acker)
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    for _ in range(2):
        for blocks in (0, 100):
            with pytest.raises(SchemaError, match="use the version"):
                call(acker, blocks)
        with pytest.raises(SchemaError):
            acker.drop()
        assert dump(acker) == before
        client.rename(keys.meta, keys.dropping) if client.exists(keys.meta) else None
        before = dump(acker)


def test_drop_deletes_keys_of_any_type(acker: Acker) -> None:
    """They belong to the namespace, regardless of their type."""
    filled(acker)
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    for number, key in enumerate(of(acker.namespace, dump(acker))):
        if key != keys.meta.encode():
            client.delete(key)
            (client.set if number % 2 else client.rpush)(key, "x")
    client.delete(keys.blocks(0))
    # A field that is not a block number has no keys.
    client.hset(keys.blocks(0), mapping={b"": b"x", b"123456789": b"x", b"1": b"x"})
    acker.drop()
    left = {key.decode().removeprefix(keys.prefix)[:-13] for key in dump(acker)}
    kinds = {":block:", ":failed:", ":present:", ":scratch:"}
    assert left <= kinds, "no bucket lists them any longer"


@pytest.mark.parametrize("blocks", ["", "-1", "1001", "01", "1.5", "x", "0 ", "00"])
def test_invalid_arguments_of_drop_are_refused(acker: Acker, blocks: str) -> None:
    keys = ShardKeys(acker.namespace, 0)
    with pytest.raises(InvalidBatchError, match="blocks must be 0 to 1000"):
        acker.connection.run(Call("drop", keys.both, (blocks, "0")))
    for last in ("", "2", "yes"):
        with pytest.raises(InvalidBatchError, match="last must be 0 or 1"):
            acker.connection.run(Call("drop", keys.both, ("0", last)))


def test_errors_of_drop_change_nothing(make_acker: MakeAcker) -> None:
    """Mutated calls: one that is not refused changes its own shard only."""
    acker, other = make_acker(), make_acker()
    filled(other)
    chance, refused, held = random.Random(7), 0, dump(acker)
    right = commands.drop(ShardKeys(acker.namespace, 0), 3, last=True)
    for _ in range(100):
        names, args = spoil(right, chance)
        error = ""
        try:
            acker.connection.client.eval(scripts.load("drop").source, len(names), *names, *args)
        except redis.ResponseError as caught:
            error = str(caught)
        before, held = held, dump(acker)
        if error:
            assert error.startswith("ACKER ")
            assert held == before
            refused += 1
        assert of(other.namespace, held) == of(other.namespace, before)
    assert refused > 50


def test_asyncio_client_drops_alike(make_acker: MakeAcker, server: EmbeddedRedis) -> None:
    acker = filled(make_acker(shards=2))

    async def drop() -> None:
        async with AsyncAcker.from_url(server.url, acker.namespace, timeout=60) as twin:
            await twin.drop()
            with pytest.raises(NamespaceNotFoundError):
                await twin.drop()

    asyncio.run(drop())
    assert dump(acker) == {}


def test_rotator_gets_an_error_after_a_drop(acker: Acker) -> None:
    """Its next call raises NamespaceNotFoundError and writes nothing."""
    filled(acker)
    call(acker, 0)
    before = dump(acker)
    for each in (rotate, drain):
        with pytest.raises(NamespaceNotFoundError):
            each(acker)
    assert dump(acker) == before
