"""The client: creating, applying, status, and errors that help."""

import json
import socket
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    AckerError,
    BacklogError,
    ConfigError,
    InvalidBatchError,
    NamespaceExistsError,
    NamespaceNotFoundError,
    RedisRefusedError,
    RedisUnavailableError,
    SchemaError,
)
from acker_redis.flows import known, namespace_list
from acker_redis.protocol import commands, server_version
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import NAMESPACES, RESERVED, ShardKeys
from acker_redis.sync import client as client_module
from acker_redis.sync.bolt import Bolt
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from acker_redis.transport import urls
from tests.conftest import MakeAcker
from tests.open_redis import OpenRedis


def test_create_is_idempotent(any_server: EmbeddedRedis) -> None:
    config = AckerConfig(
        shards=4, buckets=5, tick_ms=7, high_water=9, refresh="update", deadline_ms=35
    )
    with Acker.from_url(any_server.url, "idem") as acker:
        assert acker.create(config)
        assert not acker.create(config)
        assert acker.connection.client.sismember(NAMESPACES, "idem")
    with Acker.from_url(any_server.url, "idem") as other:
        assert other.config == config
        assert other.status().config == config


@pytest.mark.parametrize("field", [{"shards": 2}, {"tick_ms": 1}, {"publish": False}])
def test_create_with_another_configuration(
    make_any_acker: MakeAcker, field: dict[str, object]
) -> None:
    acker = make_any_acker()
    with pytest.raises(NamespaceExistsError, match=f"created with {next(iter(field))}"):
        acker.create(AckerConfig(**{"tick_ms": 3_600_000, **field}))


def test_interrupted_create_is_completed_by_a_retry(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=4)
    acker.connection.client.delete(ShardKeys(acker.namespace, 2).meta)
    assert acker.create(AckerConfig(shards=4, tick_ms=3_600_000))
    assert len(acker.status().shards) == 4


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_lost_shard_gets_the_salt_of_the_others(make_any_acker: MakeAcker, lost: int) -> None:
    """A failover may lose a shard. With another salt, messages processed again get other ids."""
    acker = make_any_acker(shards=4, edges=("mill",))
    salt = acker.ids.salt
    acker.connection.client.delete(ShardKeys(acker.namespace, lost).meta)
    assert acker.create(acker.config)
    assert {shard.salt.reveal() for shard in acker.status().shards} == {salt}
    assert acker.ids.salt == salt


def test_each_namespace_has_its_own_salt_on_all_shards(make_any_acker: MakeAcker) -> None:
    one, other = make_any_acker(shards=2), make_any_acker()
    assert len({shard.salt for shard in one.status().shards}) == 1
    assert one.ids.salt != other.ids.salt
    status = one.status()
    call = commands.create(ShardKeys("a", 0), AckerConfig(), one.ids.salt)
    shown = [one.ids, status, status.shards, asdict(status), call, [*map(asdict, status.shards)]]
    assert one.ids.salt not in repr(shown)
    with pytest.raises(TypeError):
        json.dumps(asdict(status), default=None)


def test_ids_follow_a_namespace_that_is_created_again(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the old salt, two bolts would derive different ids for one message: a false ack."""
    acker = make_any_acker(edges=("mill", "shop"))
    bolt = Bolt(Producer(acker))
    before = bolt.process("7:40").emit(key="k", edge="mill")
    with Acker.from_url(any_server.url, acker.namespace) as other:
        other.drop()
        other.create(AckerConfig(tick_ms=3_600_000, edges=("shop", "mill")))
        fresh = Bolt(Producer(other)).process("7:40").emit(key="k", edge="mill")
    assert fresh != before
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + known.IDS_LAST)
    monkeypatch.setattr(known, "time", clock)
    monkeypatch.setattr(client_module, "time", clock)
    assert bolt.process("7:40").emit(key="k", edge="mill") == fresh


def test_bolt_works_while_redis_is_away() -> None:
    """Ids that are made before the configuration was read have no code; derived ids need it."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"redis://127.0.0.1:{closed.getsockname()[1]}"
        acker = Acker.from_url(address, "away", retry_for=0)
        t = Bolt(Producer(acker)).process("7:40")
        ids = [t.emit(edge="mill")[7] for _ in range(20)]
        assert max(ids) < 1 << 55
        for needs in (lambda: t.emit(key="k"), lambda: acker.config):
            with pytest.raises(RedisUnavailableError):
                needs()


def test_unknown_namespace(any_server: EmbeddedRedis) -> None:
    with Acker.from_url(any_server.url, "absent") as acker:
        with pytest.raises(NamespaceNotFoundError, match="acker-redis create"):
            acker.status()
        batch = Batch()
        batch.touch(1)
        with pytest.raises(NamespaceNotFoundError):
            acker.apply(batch)


def test_error_of_an_unknown_namespace_notes_those_that_exist(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    there = [make_any_acker().namespace for _ in range(namespace_list.MAX_NAMED + 2)]
    client = make_any_acker().connection.client  # the eleventh
    rule = "reset on >pw ~acker:{* +@all"
    client.execute_command("ACL", "SETUSER", "narrow", *rule.split())

    def notes(url: str, name: str) -> list[str]:
        with Acker.from_url(url, name) as acker:
            drop = acker.status if "narrow" in url else acker.drop
            for ask in (acker.status, lambda: acker.config, drop, acker.status):
                with pytest.raises(NamespaceNotFoundError, match="not (created|exist)") as no:
                    ask()
            assert not set(there) - {name} & set(str(no.value).split()), "REST shows the text"
            return getattr(no.value, "__notes__", [])

    client.config_resetstat()
    [note] = notes(any_server.url, there[3][:-1])
    assert note.startswith(f"this database has the namespaces {there[3]}, ")
    assert note.endswith(" and 3 more")
    assert client.info("commandstats")["cmdstat_smembers"]["calls"] == 1, "not at each attempt"
    [note] = notes(any_server.url.removesuffix("/0") + "/3", there[3])
    assert note == (
        "this database has no other namespace: check the host and the database of the URL"
    )
    assert notes(f"redis://narrow:pw@127.0.0.1:{any_server.port}/0", "absent") == []
    # A namespace that was dropped meanwhile is no wrong name.
    with Acker.from_url(any_server.url, there[0]) as acker:
        acker.status()
        acker.drop()
        with pytest.raises(NamespaceNotFoundError) as raised:
            acker.status()
        assert not hasattr(raised.value, "__notes__")


def test_another_schema(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "schema", 99)
    with pytest.raises(SchemaError, match="version"):
        acker.status()


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a:b", "a{b", "é"])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="a namespace is 1 to 64"):
        Acker.from_url("redis://localhost", name)
    if name:
        with pytest.raises(ConfigError, match="a source is 1 to 64"):
            Batch(name)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://localhost",
        "redis://localhost:x/0",
        "redis://[",
        "mysql://x",
        "redis://u:p/secret@h:1",
        "redis:u:secret@h",
    ],
)
def test_invalid_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="redis://HOST:PORT/DB") as caught:
        Acker.from_url(url, "n")
    assert "secret" not in str(caught.value)


def test_unreachable_redis_raises_redis_unavailable_error() -> None:
    # The port is bound, and no process listens.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        acker = Acker.from_url(f"redis://user:secret@127.0.0.1:{port}/0", "n", retry_for=0.2)
        with pytest.raises(RedisUnavailableError, match="running and reachable") as caught:
            acker.status()
    assert "secret" not in str(caught.value)


def test_redis_without_replies_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        acker = Acker.from_url(url, "n", timeout=0.1, retry_for=0)
        with pytest.raises(RedisUnavailableError):
            acker.status()


def test_wrong_password_raises_redis_refused_error(any_server: EmbeddedRedis) -> None:
    url = any_server.url.replace("redis://", "redis://stranger:secret@")
    with pytest.raises(RedisRefusedError, match="user or password") as caught:
        Acker.from_url(url, "n").status()
    assert "secret" not in str(caught.value)


def test_too_old_server_is_refused(
    any_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_version, "OLDEST", {"Redis": (99, 0), "Valkey": (99, 0)})
    with pytest.raises(ConfigError, match="too old; use Redis 6.2 or Valkey 7.2, or later"):
        Acker.from_url(any_server.url, "old").create()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:1/0?password=x", "redis://user:***@host:1/0"),
        ("rediss://:secret@host", "rediss://:***@host"),
        ("redis://host/3", "redis://host/3"),
        ("redis://user:p/secret@host:6379", "(not shown: not a URL)"),
        ("redis://:secr/et@host", "(not shown: not a URL)"),
        ("redis://user:p#secret@host", "(not shown: not a URL)"),
        ("redis://user:p?secret@host", "(not shown: not a URL)"),
        ("redis:user:secret@host", "(not shown: not a URL)"),
        ("unix:///run/redis.sock?password=x", "unix:///run/redis.sock"),
        ("redis://[::1", "(not shown: not a URL)"),
        ("secret", "(not shown: not a URL)"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert urls.redact(url) == shown


@pytest.mark.parametrize("shards", [1, 8])
def test_batch_is_applied_on_all_shards(make_any_acker: MakeAcker, shards: int) -> None:
    acker = make_any_acker(shards=shards)
    batch = Batch("t")
    for anchor in range(1, 1001):
        batch.track(anchor, f"s{anchor}", [anchor + 5000])
    assert acker.apply(batch).tracked == 1000
    assert acker.status().pending == 1000
    done = Batch()
    for anchor in range(1, 1001):
        done.ack(anchor, anchor + 5000)
    assert acker.apply(done).acked == 1000
    assert {o.anchor for o in acker.outcomes("t")} == set(range(1, 1001))


def test_applied_names_the_rejected_trees(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(high_water=2, shards=2)
    batch = Batch("t")
    for anchor in range(1, 9):
        batch.track(anchor, "s", [anchor])
    assert sorted(acker.apply(batch).rejected) == [5, 6, 7, 8]


def test_empty_batch_is_a_no_op(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    assert acker.apply(Batch("t")).tracked == 0


def test_sent_batch_takes_no_more_rows(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    batch = Batch("t")
    batch.track(1, "s", [2])
    acker.apply(batch)
    with pytest.raises(InvalidBatchError, match="already sent"):
        batch.track(2, "s", [2])


def test_applied_batch_is_not_sent_again(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(high_water=1)
    batch = Batch("t")
    for anchor in (1, 2, 3):
        batch.track(anchor, "s", [9])
    first = acker.apply(batch)
    assert first.rejected == (3,)
    assert acker.apply(batch) == first
    assert acker.status().counters["repeated"] == 0


def test_batch_belongs_to_one_namespace(make_any_acker: MakeAcker) -> None:
    batch = Batch()
    batch.ack(1, 2)
    make_any_acker().apply(batch)
    with pytest.raises(InvalidBatchError, match="make another"):
        make_any_acker().apply(batch)


def test_batch_keeps_the_replies_of_shards_that_did_not_refuse(make_any_acker: MakeAcker) -> None:
    """Shard 0 rejects a tree and shard 1 refuses; after a take the retried batch reports both."""
    acker = make_any_acker(shards=2, high_water=2, outcomes_limit=2)
    full = Batch("t")
    full.track(1, "empty", [])
    for anchor in (2, 4):
        full.track(anchor, "pending", [9])
    acker.apply(full)
    batch = Batch("t")
    batch.track(6, "one too many", [9])
    batch.track(3, "no room for its verdict", [9])
    with pytest.raises(BacklogError):
        acker.apply(batch)
    list(acker.outcomes("t"))
    applied = acker.apply(batch)
    assert (applied.tracked, applied.rejected) == (2, (6,))
    assert acker.status().counters["tracked"] == 5


def test_client_with_decode_responses_is_refused(any_server: EmbeddedRedis) -> None:
    client = redis.Redis.from_url(any_server.url, decode_responses=True)
    with pytest.raises(ConfigError, match="decode_responses"):
        Acker(client, "n")


def test_scripts_are_loaded_again_after_script_flush(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    acker.connection.client.script_flush()
    assert acker.status().pending == 0


def test_status_levels(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(high_water=2)
    levels = []
    for anchor in range(1, 5):
        batch = Batch("t")
        batch.track(anchor, "s", [9])
        acker.apply(batch)
        levels.append(acker.status().high_water)
    assert levels == ["ok", "high", "high", "over"]
    assert acker.status().pending_by_bucket == (4, 0, 0)


def test_unix_socket(any_server: EmbeddedRedis, tmp_path: Path) -> None:
    with (
        OpenRedis(extra_args=("--unixsocket", str(tmp_path / "s"))),
        Acker.from_url(f"unix://{tmp_path / 's'}", "n") as acker,
    ):
        assert acker.create()


def test_reserved_namespace_names_are_refused(any_server: EmbeddedRedis) -> None:
    with (
        Acker.from_url(any_server.url, f"{RESERVED}orders") as acker,
        pytest.raises(ConfigError, match="reserved for the admin service; choose another name"),
    ):
        acker.create(AckerConfig())


@pytest.mark.parametrize("name", [".", ".."])
def test_namespace_named_dot_or_dot_dot_is_refused(any_server: EmbeddedRedis, name: str) -> None:
    """Refused by the client, and by the script for other languages. A source may have this name."""
    with Acker.from_url(any_server.url, name) as acker:
        with pytest.raises(ConfigError, match="no URL can contain it; choose another name"):
            acker.create(AckerConfig())
        client = acker.connection.client
        assert not client.sismember(NAMESPACES, name)
        with pytest.raises(AckerError, match="which a URL cannot contain"):
            acker.connection.run(commands.create(ShardKeys(name, 0), AckerConfig(), "0" * 32))
        assert not client.exists(ShardKeys(name, 0).meta)
    with Acker.from_url(any_server.url, "..." + name) as acker:
        assert acker.create(AckerConfig())
    Batch(name)
