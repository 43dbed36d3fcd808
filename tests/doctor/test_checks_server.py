"""Checks of a server: tables of facts and findings."""

from typing import Any

import pytest

from acker_redis.doctor import checks_server, checks_stalls
from acker_redis.doctor.facts import SlowCall
from tests.doctor.made import DENIED, NOW, UNKNOWN, node

VERSIONS = [
    ({}, "ok"),
    ({"redis_version": "6.2.0"}, "ok"),
    ({"redis_version": "6.0.20"}, "error"),
    ({"redis_version": "5.0"}, "error"),
    ({"redis_version": ""}, "error"),
    # Every version of Valkey also reports Redis 7.2.4.
    ({"redis_version": "7.2.4", "valkey_version": "8.1.0"}, "ok"),
    ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, "ok"),
    ({"redis_version": "7.2.4", "valkey_version": "7.1.0"}, "error"),
    ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.2"}, "warning"),
]


def test_valkey_is_named_with_its_own_version_and_mode() -> None:
    """Valkey reports server_mode, and Redis redis_mode."""
    mode = {"redis_mode": None, "server_mode": "cluster"}
    info = {"redis_version": "7.2.4", "valkey_version": "9.1.2", **mode}
    assert checks_server.version(node(info)).detail == "Valkey 9.1.2, cluster"


@pytest.mark.parametrize(("info", "level"), VERSIONS)
def test_version(info: dict[str, Any], level: str) -> None:
    found = checks_server.version(node(info))
    assert found.level == level
    assert bool(found.fix) == (level != "ok")


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({}, "ok"),
        ({"addresses": ("127.0.0.1", "::1")}, "ok"),
        ({"addresses": ("10.0.0.7",)}, "ok"),
        ({"addresses": ("8.8.8.8",)}, "warning"),
        ({"addresses": ("10.0.0.7", "2001:4860:4860::8888")}, "warning"),
        ({"addresses": ("8.8.8.8",), "tls": True}, "ok"),
        ({"addresses": (), "socket": True}, "ok"),
    ],
)
def test_transport(facts: dict[str, Any], level: str) -> None:
    assert checks_server.transport(node(**facts)).level == level


OPEN = {"protected-mode": "no", "bind": "0.0.0.0"}


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({}, "ok"),
        ({"addresses": ("10.0.0.7",)}, "warning"),
        ({"addresses": ("10.0.0.7",), "nopass": False}, "ok"),
        ({"addresses": (), "socket": True}, "ok"),
        ({"addresses": ()}, "warning"),  # the location is unknown
        ({"config": OPEN}, "warning"),
        ({"config": {**OPEN, "bind": ""}}, "warning"),
        ({"config": {**OPEN, "bind": "* -::*"}}, "warning"),
        ({"config": {**OPEN, "bind": "127.0.0.1 -::1"}}, "ok"),
        ({"config": {**OPEN, "protected-mode": "yes"}}, "ok"),
        ({"config": OPEN, "nopass": False}, "ok"),
        ({"nopass": DENIED}, "skipped"),
    ],
)
def test_password(facts: dict[str, Any], level: str) -> None:
    assert checks_server.password(node(**facts)).level == level


@pytest.mark.parametrize(
    ("policy", "level"),
    [
        ("noeviction", "ok"),
        ("volatile-lru", "warning"),
        ("volatile-ttl", "warning"),
        ("allkeys-lru", "error"),
        ("allkeys-random", "error"),
        ("", "error"),
    ],
)
def test_eviction(policy: str, level: str) -> None:
    assert checks_server.eviction(node({"maxmemory_policy": policy})).level == level


@pytest.mark.parametrize(
    ("used", "limit", "level"),
    [
        (500, 1000, "ok"),
        (800, 1000, "ok"),
        (801, 1000, "warning"),
        (1000, 1000, "error"),
        (500, 0, "warning"),
    ],
)
def test_memory(used: int, limit: int, level: str) -> None:
    assert checks_server.memory(node({"used_memory": used, "maxmemory": limit})).level == level


@pytest.mark.parametrize(
    ("info", "config", "level", "says"),
    [
        ({}, {}, "ok", "AOF, appendfsync everysec"),
        ({}, {"appendfsync": "no"}, "warning", "appendfsync no"),
        ({"aof_enabled": 0}, {}, "warning", "neither"),
        ({"aof_enabled": 0}, {"save": "3600 1"}, "warning", "RDB only"),
        ({"aof_last_write_status": "err"}, {}, "error", "aof_last_write_status is err"),
        ({"aof_last_bgrewrite_status": "err"}, {}, "error", "bgrewrite"),
        ({"rdb_last_bgsave_status": "err"}, {}, "error", "rdb_last_bgsave_status is err"),
        ({"aof_enabled": 0, "aof_last_write_status": "err"}, {}, "warning", "neither"),
        ({"loading": 1}, {}, "error", "loading"),
    ],
)
def test_persistence(info: dict[str, Any], config: dict[str, str], level: str, says: str) -> None:
    found = checks_server.persistence(node(info, config))
    assert found.level == level
    assert says in found.detail


@pytest.mark.parametrize("kind", ["listpack", "ziplist"])
@pytest.mark.parametrize(
    ("entries", "value", "level"),
    [("512", "64", "ok"), ("513", "64", "warning"), ("64", "1024", "error"), ("64", "1023", "ok")],
)
def test_listpack(kind: str, entries: str, value: str, level: str) -> None:
    # 6.2 has only the older names, 7.0 both.
    config = {"hash-max-listpack-entries": None, "hash-max-listpack-value": None}
    config |= {f"hash-max-{kind}-entries": entries, f"hash-max-{kind}-value": value}
    found = checks_server.listpack(node(config=config))
    assert found.level == level
    if level != "ok":
        assert f"CONFIG SET hash-max-{kind}-" in found.fix


@pytest.mark.parametrize(
    "check", [checks_server.listpack, checks_server.eviction, checks_stalls.slow_scripts]
)
def test_a_fact_that_cannot_be_read_is_skipped(check: Any) -> None:
    found = check(node(DENIED, DENIED, slow=DENIED))
    assert found.level == "skipped"
    assert "+config|get" in found.fix
    found = check(node(UNKNOWN, UNKNOWN, slow=UNKNOWN))
    assert found.level == "skipped"
    assert "SETUSER" not in found.fix


def test_equal_findings_of_several_servers_are_merged() -> None:
    nodes = (
        node(name="a:1"),
        node({"maxmemory_policy": "allkeys-lru"}, name="b:1"),
        node(name="c:1"),
    )
    found = [each for each in checks_server.check(nodes) if each.id == "eviction"]
    assert [(each.level, each.where) for each in found] == [("ok", "a:1, c:1"), ("error", "b:1")]


@pytest.mark.parametrize(
    ("facts", "level", "says"),
    [
        ({}, "ok", "0.9 ms"),
        ({"info": {"latest_fork_usec": 700_000}}, "warning", "700 ms"),
        ({"config": {"disable-thp": "no"}}, "warning", "disable-thp"),
        ({"events": {"fork": (NOW - 60, 250.0)}}, "warning", "fork 250 ms"),
        ({"events": {"fork": (NOW - 60, 20.0)}}, "ok", ""),
        ({"events": {"fork": (NOW - 100_000, 250.0)}}, "ok", ""),
        ({"events": DENIED, "config": DENIED}, "ok", ""),
        ({"info": DENIED}, "skipped", ""),
    ],
)
def test_stalls(facts: dict[str, Any], level: str, says: str) -> None:
    found = checks_stalls.stalls(node(**facts))
    assert found.level == level
    assert says in found.detail


def test_slow_scripts() -> None:
    calls = (
        SlowCall("apply", 10.0, NOW - 5),
        SlowCall("apply", 12.0, NOW - 5),
        SlowCall("apply", 31.0, NOW - 6),
        SlowCall("take", 500.0, NOW - 200_000),
    )
    found = checks_stalls.slow_scripts(node(slow=calls))
    assert found.level == "warning"
    assert "2 calls" in found.detail
    assert "apply up to 31 ms" in found.detail
    assert checks_stalls.slow_scripts(node(slow=calls[:1])).level == "ok"
    assert checks_stalls.slow_scripts(node(slow=calls[3:])).level == "ok"
