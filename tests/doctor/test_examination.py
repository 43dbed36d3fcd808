"""The doctor on real servers with wrong settings, Redis and Valkey."""

import json
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from acker_redis.batching.batch import Batch
from acker_redis.doctor import Finding, Report, examine, reading_namespaces
from acker_redis.doctor.reading import read_node
from acker_redis.doctor.reading_namespaces import read_namespace
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError
from acker_redis.ops import acl
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from acker_redis.sync.client import Acker
from acker_redis.transport.connect import connect
from tests.cli.support import run
from tests.conftest import binary_of
from tests.open_redis import OpenRedis
from tests.support import dump
from tests.tiers import servers


@pytest.fixture(scope="module", params=servers())
def own(request: pytest.FixtureRequest) -> Iterator[EmbeddedRedis]:
    """Start a server whose settings these tests may change."""
    with OpenRedis(binary=binary_of(request.param)) as running:
        yield running


@pytest.fixture
def admin(own: EmbeddedRedis) -> Iterator[redis.Redis]:
    """Return a client with all rights; restore all settings, users and keys."""
    with connect(own.url, 60.0) as client:
        before = client.config_get("*")
        yield client
        after = client.config_get("*")
        for name, value in before.items():
            if after[name] != value:
                client.config_set(name, value)
        client.flushall()
        for user in client.acl_users():
            if user != "default":
                client.acl_deluser(user)


@pytest.fixture
def orders(own: EmbeddedRedis, admin: redis.Redis) -> Iterator[Acker]:
    """Create a namespace of two shards that ticks only if forced."""
    with Acker.from_url(own.url, "orders", timeout=60) as acker:
        acker.create(AckerConfig(shards=2, tick_ms=3_600_000))
        yield acker


def look(target: Any, *names: str, canaries: bool = False, **more: Any) -> dict[str, Finding]:
    """Return the findings by id; the caller checks that the keyspace is unchanged."""
    found = list(examine(target, names or None, interval=0, canaries=canaries, **more))
    assert all(finding.fix for finding in found if finding.level != "ok")
    return {finding.id: finding for finding in found}


def levels(found: dict[str, Finding], *ids: str) -> list[str]:
    return [found[id_].level for id_ in ids]


def test_a_healthy_server_has_no_findings(
    own: EmbeddedRedis, admin: redis.Redis, orders: Acker
) -> None:
    admin.config_set("maxmemory", 2**30)
    admin.config_set("appendonly", "yes")
    before = dump(orders)
    report = Report(tuple(examine(own.url, interval=0)))
    # The speed of this machine is not part of the test.
    of_speed = ("latency", "slow-scripts", "stalls")
    wrong = [each for each in report.findings if each.level != "ok" and each.id not in of_speed]
    assert not wrong
    assert dump(orders) == before
    said = {finding.id for finding in report.findings}
    assert said >= {"version", "rights", "canary", "pubsub", "latency", "namespace", "clock"}
    assert "reachable" in said
    assert own.description.split()[1] in next(
        f.detail for f in report.findings if f.id == "version"
    )


SETTINGS = [
    ({"maxmemory-policy": "allkeys-lru"}, "eviction", "error"),
    ({"maxmemory-policy": "volatile-ttl"}, "eviction", "warning"),
    ({"hash-max-ziplist-entries": 1024}, "listpack", "warning"),
    ({"hash-max-ziplist-value": 2048}, "listpack", "error"),
    ({"save": "3600 1"}, "persistence", "warning"),
    ({"appendonly": "yes", "appendfsync": "no"}, "persistence", "warning"),
    ({"maxmemory": 1}, "memory", "error"),
    ({"min-replicas-to-write": 1}, "replicas", "error"),
    ({"maxclients": 1}, "clients", "warning"),
]


@pytest.mark.parametrize(("settings", "id_", "level"), SETTINGS)
def test_wrong_server_settings_are_found(
    own: EmbeddedRedis, admin: redis.Redis, settings: dict[str, Any], id_: str, level: str
) -> None:
    with connect(own.url, 60.0) as client:
        client.ping()  # connected before maxclients is lowered
        for name, value in settings.items():
            admin.config_set(name, value)
        assert look(client)[id_].level == level


def test_the_fix_of_a_setting_resolves_the_finding(own: EmbeddedRedis, admin: redis.Redis) -> None:
    admin.config_set("hash-max-ziplist-entries", 1024)
    admin.config_set("maxmemory-policy", "allkeys-lfu")
    for id_ in ("listpack", "eviction"):
        fix = look(own.url)[id_].fix
        host, port = own.url.removeprefix("redis://").split("/")[0].split(":")
        assert fix.startswith(f"redis-cli -h {host} -p {port} CONFIG SET ")
        name, value = fix.replace(",", "").split()[7:9]
        admin.config_set(name, value)
    assert levels(look(own.url), "listpack", "eviction") == ["ok", "ok"]


def test_the_slow_log_is_read_by_script(
    own: EmbeddedRedis, admin: redis.Redis, orders: Acker
) -> None:
    admin.config_set("slowlog-log-slower-than", 0)
    orders.status()
    read: Any = read_node(f"127.0.0.1:{own.port}", admin)
    assert {call.script for call in read.slow} >= {"status"}


def test_checks_are_skipped_for_a_user_without_rights(
    own: EmbeddedRedis, admin: redis.Redis
) -> None:
    admin.execute_command("ACL", "SETUSER", "eve", "on", ">pw", "+ping", "+time")
    found = look(f"redis://eve:pw@127.0.0.1:{own.port}/0", "orders", canaries=True)
    skipped = {id_ for id_, finding in found.items() if finding.level == "skipped"}
    assert skipped >= {"version", "listpack", "clients", "password", "namespace", "canary"}
    assert "+config|get" in found["listpack"].fix
    assert found["rights"].level == "warning"
    assert "eve" not in found["rights"].detail  # it may not run ACL WHOAMI
    assert not admin.keys()


def test_a_user_who_cannot_list_namespaces_is_asked_for_names(
    own: EmbeddedRedis, admin: redis.Redis
) -> None:
    admin.execute_command("ACL", "SETUSER", "eve", "on", ">pw", "+ping", "+time")
    found = look(f"redis://eve:pw@127.0.0.1:{own.port}/0")
    assert "acker-redis doctor NAMESPACE" in found["namespace"].fix


def login(admin: redis.Redis, role: str, namespace: str | None = "orders") -> str:
    """Create a user with a role; return its URL. Its name is that of the role."""
    admin.execute_command("ACL", "SETUSER", *acl.rule(role, namespace, password="pw").split()[1:])
    port = admin.connection_pool.connection_kwargs["port"]
    return f"redis://{role}:pw@127.0.0.1:{port}/0"


@pytest.mark.parametrize("role", acl.roles())
def test_each_role_has_its_rights(admin: redis.Redis, orders: Acker, role: str) -> None:
    url, before = login(admin, role), dump(orders)
    found = look(url, "orders", role=role, canaries=True)
    assert (found["rights"].level, found["namespace"].level) == ("ok", "ok"), found["rights"]
    assert role in look(url, "orders")["rights"].detail
    assert levels(found, "canary", "latency") == ["skipped", "skipped"]
    assert dump(orders) == before
    other = {"producer": "source", "source": "rotator", "rotator": "viewer", "viewer": "producer"}
    if role in other:
        assert look(url, "orders", role=other[role])["rights"].level == "error"


def test_an_admin_of_all_namespaces_can_run_the_canary(admin: redis.Redis, orders: Acker) -> None:
    url, before = login(admin, "admin", None), dump(orders)
    found = look(url, "orders", role="admin", canaries=True)
    assert levels(found, "rights", "canary", "pubsub") == ["ok"] * 3
    assert "apply of 100 rows" in found["latency"].detail
    assert dump(orders) == before


@pytest.mark.parametrize("lost", ["hset", "evalsha", "bitop"])
def test_a_missing_right_is_found_and_fixed(admin: redis.Redis, orders: Acker, lost: str) -> None:
    url = login(admin, "producer")
    admin.execute_command("ACL", "SETUSER", "producer", f"-{lost}")
    found = look(url, "orders", role="producer")["rights"]
    assert found.level == "error"
    assert lost.upper() in found.detail
    # The fix resolves the finding.
    admin.execute_command(*found.fix.replace("<user>", "producer").split()[5:])
    assert look(url, "orders", role="producer")["rights"].level == "ok"


def test_a_right_missing_inside_a_script_skips_the_namespace(
    admin: redis.Redis, orders: Acker
) -> None:
    url = login(admin, "viewer")
    admin.execute_command("ACL", "SETUSER", "viewer", "-hgetall")
    assert look(url, "orders")["namespace"].level == "skipped"


def test_missing_key_patterns_are_in_the_fix(admin: redis.Redis, orders: Acker) -> None:
    url = login(admin, "producer", "other")
    found = look(url, "orders", role="producer")["rights"]
    assert found.level == "error"
    assert "'~acker:{orders:*}*'" in found.fix


def test_a_user_without_publish_gets_a_warning(
    own: EmbeddedRedis, admin: redis.Redis, orders: Acker
) -> None:
    url = login(admin, "producer")
    admin.execute_command("ACL", "SETUSER", "producer", "-publish")
    found = look(url, "orders", role="producer")["rights"]
    if "6.2" in own.description:
        assert "not tried: PUBLISH" in found.detail
    else:
        assert found.level == "warning"


def test_passwords_of_the_default_user_and_of_the_client(
    own: EmbeddedRedis, admin: redis.Redis
) -> None:
    admin.acl_setuser("alice", enabled=True, passwords=["+p%w"], categories=["+@all"], keys=["*"])
    url = f"redis://alice:p%25w@127.0.0.1:{own.port}/0"
    assert "none is needed" in look(url)["password"].detail
    try:
        admin.execute_command("ACL", "SETUSER", "default", "resetpass", ">sesame")
        assert "has a password" in look(url)["password"].detail
        for wrong in (own.url, f"redis://alice:nope@127.0.0.1:{own.port}/0"):
            report = Report(tuple(examine(wrong)))
            assert [finding.id for finding in report.findings] == ["reachable"]
            assert report.exit_code == 2
    finally:
        with connect(url, 60.0) as client:
            client.execute_command("ACL", "SETUSER", "default", "nopass", "resetpass", "nopass")


def test_an_unreachable_redis_is_the_only_finding() -> None:
    with OpenRedis() as server:
        url = server.url
    for each in (url, url.replace("redis://", "redis+cluster://")):
        report = Report(tuple(examine(each, ["orders"])))
        assert [(found.id, found.level) for found in report.findings] == [("reachable", "error")]
        assert report.exit_code == 2


def test_a_unix_socket_is_examined(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    with OpenRedis(extra_args=("--unixsocket", str(socket), "--unixsocketperm", "700")):
        found = look(f"unix://{socket}?db=0")
    assert found["reachable"].where == str(socket)
    assert found["transport"].detail == "a Unix socket"
    assert found["password"].level == "ok"


def test_the_canary_of_a_running_doctor_is_not_a_leftover(own: EmbeddedRedis, admin: Any) -> None:
    with Acker.from_url(own.url, "acker-doctor-at-work", timeout=60) as acker:
        acker.create()
        found = look(own.url)
        assert found["canaries"].level == "ok"
        assert "namespace" not in found  # canaries are not examined
        acker.connection.command(
            "HINCRBY", ShardKeys(acker.namespace, 0).meta, "ticked_ms", -700_000
        )
        assert look(own.url)["canaries"].level == "warning"
        acker.connection.command(
            "RENAME", ShardKeys(acker.namespace, 0).meta, ShardKeys(acker.namespace, 0).dropping
        )
        assert look(own.url)["canaries"].level == "warning"


def test_an_unknown_role_is_rejected(own: EmbeddedRedis) -> None:
    with pytest.raises(ConfigError, match="unknown role"):
        list(examine(own.url, role="boss"))


class Given:
    """A stand-in for Settings, with the parts that the doctor uses."""

    retry_for = 30.0

    def __init__(self, url: str) -> None:
        self.url = url
        self.made: Any = None

    def connect(self) -> Any:
        self.made = connect(self.url, 60.0)
        return self.made


def test_settings_provide_the_client_and_its_retry_time(
    own: EmbeddedRedis, admin: redis.Redis
) -> None:
    with Acker.from_url(own.url, "quick", timeout=60) as acker:
        acker.create(AckerConfig(tick_ms=10_000))
    given = Given(own.url)
    found = look(given, "quick")
    assert "30.0 s" in found["tick"].detail
    assert found["tick"].level == "warning"
    # The doctor closes the client that it has created.
    assert not given.made.connection_pool._available_connections or all(
        not each.is_connected for each in given.made.connection_pool._available_connections
    )
    assert look(own.url, "quick")["tick"].level == "ok"
    assert look(own.url, "quick", retry_for=21)["tick"].level == "warning"


def test_a_client_with_its_own_retries_gets_a_warning(
    own: EmbeddedRedis, admin: redis.Redis
) -> None:
    with redis.Redis(port=own.port) as default:
        assert look(default)["retries"].level == "warning"
        assert default.ping()
    assert look(own.url)["retries"].level == "ok"


def _meta(shard: int) -> str:
    return ShardKeys("orders", shard).meta


def _stall(acker: Acker) -> None:
    acker.connection.command("HINCRBY", _meta(1), "ticked_ms", -8_000_000)


def _clock_back(acker: Acker) -> None:
    acker.connection.command("HINCRBY", _meta(1), "ticked_ms", 8_000_000)


def _acked(acker: Acker) -> None:
    batch = Batch("shop")
    batch.track(2, "order-1", [])
    acker.apply(batch)


def _unread(acker: Acker) -> None:
    _acked(acker)
    # Stream ids only grow, so the stream is replaced by one with an old entry.
    key = ShardKeys("orders", 0).outcomes("shop")
    acker.connection.command("DEL", key)
    acker.connection.command("XADD", key, "1-1", "n", "1")


def _full(acker: Acker) -> None:
    _acked(acker)
    for shard in (0, 1):
        acker.connection.command("HSET", _meta(shard), "outcomes_limit", 2)


def _over(acker: Acker) -> None:
    for shard in (0, 1):
        acker.connection.command("HSET", _meta(shard), "high_water", 2)
    batch = Batch("shop")
    for anchor in (2, 4):
        batch.track(anchor, "order", [7])
    acker.apply(batch)


def _run(*args: str | int) -> Callable[[Acker], Any]:
    return lambda acker: acker.connection.command(*args)


WRONG: dict[str, tuple[Callable[[Acker], Any], str, str, str]] = {
    "stalled": (_stall, "rotator", "error", "sources are not notified of lost messages"),
    "clock": (_clock_back, "rotator", "warning", "in the future"),
    "unread": (_unread, "outcomes", "warning", "shop (1, the oldest for"),
    "full": (_full, "outcomes", "error", "shop (1)"),
    "over": (_over, "high-water", "error", "2 trees pending"),
    "missing": (_run("DEL", _meta(1)), "namespace", "error", "1 of 2 shards do not exist: 1"),
    "gone": (_run("DEL", _meta(0), _meta(1)), "namespace", "error", "is listed but"),
    "differs": (_run("HSET", _meta(1), "tick_ms", 5), "namespace", "error", "tick_ms is 3600000"),
    "edges": (
        _run("HSET", _meta(1), "edges", "mill"),
        "namespace",
        "error",
        "edges is none (shards 0), mill (shards 1)",
    ),
    "deadline": (
        _run("HSET", _meta(0), "refresh", "update", "deadline_ms", 10_800_000),
        "namespace",
        "error",
        "deadline_ms is 10800000 (shards 0), 0 (shards 1)",
    ),
    "salt": (
        _run("HSET", _meta(1), "salt", "ab" * 16),
        "namespace",
        "error",
        "salt is one value on shards 0 and one value on shards 1",
    ),
    "unlisted": (
        _run("SREM", NAMESPACES, "orders"),
        "namespace",
        "warning",
        "rotator --all skips it",
    ),
    "schema": (_run("HSET", _meta(0), "schema", 9), "namespace", "error", "schema is 9"),
    "damaged": (
        _run("HSET", _meta(1), "acked", "x"),
        "namespace",
        "error",
        "shards are damaged: 1",
    ),
    "reshard": (_run("HSET", _meta(0), "reshard", "2:8"), "namespace", "warning", "from 2 to 8"),
    "dropping": (
        _run("RENAME", _meta(1), ShardKeys("orders", 1).dropping),
        "namespace",
        "warning",
        "being dropped",
    ),
    "expiring": (
        _run("HSET", ShardKeys("orders", 0).expiring, "12345678", "x"),
        "drain",
        "ok",
        "1 records",
    ),
    "stale": (_run("SADD", NAMESPACES, "acker-doctor-1"), "canaries", "warning", "acker-doctor-1"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_problems_of_a_namespace_are_found(orders: Acker, wrong: str) -> None:
    harm, id_, level, says = WRONG[wrong]
    assert look(orders.connection.client, "orders")[id_].level == "ok"
    harm(orders)
    before = dump(orders)
    found = look(orders.connection.client, "orders")[id_]
    assert found.level == level
    assert says in found.detail
    assert dump(orders) == before


def test_a_namespace_that_does_not_exist_is_an_error(
    own: EmbeddedRedis, admin: redis.Redis
) -> None:
    found = look(own.url, "absent")["namespace"]
    assert (found.level, found.fix) == ("error", "acker-redis create absent")


def test_the_fix_for_a_missing_shard_creates_it(orders: Acker) -> None:
    orders.connection.command("DEL", _meta(1))
    fix = look(orders.connection.client, "orders")["namespace"].fix
    assert "acker-redis create orders --shards 2 --buckets 3 --tick-ms 3600000" in fix
    orders.create(orders.config)
    assert look(orders.connection.client, "orders")["namespace"].level == "ok"


def test_the_fix_for_a_missing_shard_has_its_edges_and_deadline(
    own: EmbeddedRedis, admin: redis.Redis
) -> None:
    with Acker.from_url(own.url, "orders", timeout=60) as acker:
        config = AckerConfig(2, refresh="update", deadline_ms=600_000, edges=("mill", "shop"))
        acker.create(config)
        healthy = look(own.url, "orders")["namespace"]
        assert "trees live up to 630.0 s (3 buckets of 30.0 s, deadline 600.0 s)" in healthy.detail
        acker.connection.command("DEL", _meta(1))
        command = look(own.url, "orders")["namespace"].fix.partition("acker-redis ")[2]
        ran = run(*shlex.split(command), "--url", own.url)
        assert (ran.code, ran.out.splitlines()[0]) == (0, "orders: created")
        assert look(own.url, "orders")["namespace"] == healthy


def test_the_doctor_never_shows_a_salt(orders: Acker) -> None:
    other = "ab" * 16
    orders.connection.command("HSET", _meta(1), "salt", other)
    facts = read_namespace(orders.connection, "orders")
    found = list(examine(orders.connection.client, ["orders"], interval=0, canaries=False))
    assert "salt" in look(orders.connection.client, "orders")["namespace"].detail
    for salt in (orders.ids.salt, other):
        assert len(salt) == 32
        assert salt not in repr(facts) + repr(found)
        assert salt not in json.dumps([each.to_dict() for each in found])


def test_the_number_of_examined_streams_is_bounded(
    orders: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, source in enumerate(("a", "b", "c")):
        batch = Batch(source)
        for anchor in range(4 * number, 4 * number + number + 1):
            batch.track(2 * anchor + 2, "order", [])
        orders.apply(batch)
    monkeypatch.setattr(reading_namespaces, "STREAMS_AT_ONCE", 1)
    read: Any = reading_namespaces.read_namespace(orders.connection, "orders")
    assert [(each.source, each.verdicts) for each in read.waiting] == [("c", 3), ("b", 2), ("a", 1)]
    assert all(0 <= each.oldest_ms < 600_000 for each in read.waiting)
    monkeypatch.setattr(reading_namespaces, "MAX_STREAMS", 1)
    found = look(orders.connection.client, "orders")["outcomes"]
    assert found.detail == "6 verdicts waiting, none for too long; 2 streams were not examined"


def test_growth_between_two_readings_is_reported(
    orders: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        orders.connection.command("HINCRBY", _meta(1), "orphaned", 3)

    # Only for this module, because other threads sleep, too.
    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr("acker_redis.doctor.examination.time", clock)
    client = orders.connection.client
    found = {each.id: each for each in examine(client, interval=500, canaries=False)}
    assert found["counters"].level == "warning"
    assert "orphaned +3" in found["counters"].detail
    assert 400 < slept[0] <= 500
