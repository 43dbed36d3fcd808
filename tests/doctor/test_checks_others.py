"""Checks of replicas, sentinels, clusters, clocks, clients and rights: tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acker_redis.doctor import (
    checks_clients,
    checks_clock,
    checks_cluster,
    checks_replication,
    checks_rights,
)
from acker_redis.doctor.canary import latency
from acker_redis.doctor.facts import RightsFacts, SentinelFacts
from acker_redis.doctor.finding import Finding, Report, error, ok, skipped, warning
from acker_redis.ops import acl
from tests.doctor.made import (
    DENIED,
    NOW,
    cluster,
    cluster_node,
    namespace,
    node,
    sample,
    status,
)

REPLICA = {"role": "slave", "master_host": "m", "master_port": 1, "master_link_status": "up"}


@pytest.mark.parametrize(
    ("info", "clustered", "level"),
    [
        ({}, False, "ok"),
        (REPLICA, False, "error"),
        (REPLICA, True, "ok"),
        ({**REPLICA, "master_link_status": "down"}, True, "error"),
        ({**REPLICA, "master_last_io_seconds_ago": 11}, True, "warning"),
    ],
)
def test_role(info: dict[str, Any], clustered: bool, level: str) -> None:
    assert checks_replication.role(node(info), clustered).level == level


GOOD = {"ip": "r", "port": 1, "state": "online", "offset": 1, "lag": 0}
TWO = [GOOD, GOOD | {"port": 2}]
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("slaves", "least", "lag", "level", "says"),
    [
        ([], "0", "2", "ok", "none"),
        ([], "1", "2", "error", "NOREPLICAS"),
        ([GOOD], "0", "2", "warning", "min-replicas-to-write is 0"),
        ([GOOD], "1", "0", "warning", "min-replicas-to-write is 0"),
        ([GOOD], "1", "10", "warning", "accepts writes for 10 s more"),
        ([GOOD], "1", "2", "ok", "1 in sync"),
        (TWO, "0", "2", "warning", "2 in sync"),
        (TWO, "1", "2", "ok", "with 1 of its replicas still accepts writes"),
        (TWO, "2", "2", "ok", "2 in sync, min-replicas-to-write 2"),
        ([*TWO, GOOD | {"port": 3}], "2", "2", "ok", "only 3, the number of all replicas"),
        ([GOOD, GOOD | {"port": 2, "lag": 11}], "1", "2", "warning", "r:2 lags by 11 s"),
        ([GOOD | {"state": "wait_bgsave"}], "0", "2", "warning", "wait_bgsave"),
        ([GOOD | {"lag": 11}], "1", "2", "error", "every write is refused"),
    ],
)
def test_replicas(
    slaves: list[dict[str, Any]], least: str, lag: str, level: str, says: str
) -> None:
    info: dict[str, Any] = {f"slave{number}": each for number, each in enumerate(slaves)}
    info["connected_slaves"] = len(slaves)
    config = {"min-replicas-to-write": least, "min-replicas-max-lag": lag}
    found = checks_replication.replicas(node(info, config))
    assert found.level == level
    assert says in found.detail


def test_advice_about_replicas_is_that_of_the_pages() -> None:
    info = {"connected_slaves": 2, "slave0": TWO[0], "slave1": TWO[1]}
    fix = checks_replication.replicas(node(info)).fix
    assert "min-replicas-to-write 1" in fix
    assert "Only 2, the number of all replicas" in fix
    lag = f"min-replicas-max-lag {checks_replication.MAX_LAG}"
    assert lag in fix
    pages = ("explanation/failover", "reference/connecting", "how-to/choose-durability")
    for page in (*pages, "how-to/run-in-production"):
        text = (DOCS / f"{page}.md").read_text()
        assert lag in text.replace("`", "").replace("| ", "").replace("\n", " "), page
        assert "number of all replicas" in text, page


SENTINELS = {"s:1": "m:1", "s:2": "m:1", "s:3": "m:1"}


@pytest.mark.parametrize(
    ("masters", "silent", "quorum", "level"),
    [
        (SENTINELS, {}, "OK", "ok"),
        (SENTINELS, {}, "", "ok"),
        (SENTINELS, {}, "NOQUORUM 1 usable Sentinels", "error"),
        ({**SENTINELS, "s:3": "m:2"}, {}, "OK", "error"),
        (SENTINELS, {"s:4": "refused"}, "OK", "warning"),
        ({"s:1": "m:1"}, {}, "OK", "warning"),
    ],
)
def test_sentinels(masters: Any, silent: Any, quorum: str, level: str) -> None:
    assert (
        checks_replication.sentinels(SentinelFacts("svc", masters, silent, quorum)).level == level
    )


A, B = cluster_node("a:1", (0, 8000)), cluster_node("b:1", (8001, 16383))
REPLICAS = (cluster_node("c:1", of="a:1"), cluster_node("d:1", of="b:1"))
FAILING = cluster_node("c:1", of="a:1", flags=frozenset(("slave", "fail?")))


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (cluster(A, B), "ok"),
        (cluster(A, B, states={"a:1": {"cluster_state": "fail"}}), "error"),
        (cluster(A, B, silent=("b:1",)), "error"),
        (cluster(A, B, FAILING), "error"),
        (cluster(A, B, cluster_node("c:1", of="a:1", connected=False)), "error"),
        (cluster(A, B, states={}, refused=DENIED), "skipped"),
        (cluster(A, B, refused=DENIED), "ok"),  # other nodes may be asked
    ],
)
def test_cluster_state(facts: Any, level: str) -> None:
    assert checks_cluster.state(facts, [node()]).level == level


def test_reads_from_a_partitioned_node_are_a_warning() -> None:
    stale = node(config={"cluster-allow-reads-when-down": "yes"})
    assert checks_cluster.state(cluster(A, B), [stale]).level == "warning"


def test_cluster_slots() -> None:
    assert checks_cluster.slots(cluster(A, B)).level == "ok"
    found = checks_cluster.slots(cluster(A, cluster_node("b:1", (8003, 16383))))
    assert (found.level, found.detail) == ("error", "2 of 16384 slots have no node: 8001, 8002")
    assert checks_cluster.slots(cluster(A, B, moving=(7,))).level == "warning"


def test_cluster_replicas() -> None:
    assert checks_cluster.replicas(cluster(A, B, *REPLICAS)).level == "ok"
    found = checks_cluster.replicas(cluster(A, B, REPLICAS[0]))
    assert found.level == "warning"
    assert "b:1" in found.detail


def test_cluster_spread() -> None:
    four = namespace(*(status(number) for number in range(4)))
    slots = [checks_cluster.shard_slot(each.keys) for each in four.shards]
    low, high = min(slots), max(slots)
    both = cluster(cluster_node("a:1", (0, low)), cluster_node("b:1", (low + 1, 16383)))
    assert checks_cluster.spread(both, four).level == "ok"
    one = cluster(cluster_node("a:1", (0, high)), cluster_node("b:1", (high + 1, 16383)))
    found = checks_cluster.spread(one, four)
    assert found.level == "warning"
    assert "reshard orders --shards 8" in found.fix
    assert checks_cluster.spread(one, namespace(status())).level == "ok"
    assert checks_cluster.spread(cluster(cluster_node("a:1", (0, 16383))), four).level == "ok"


@pytest.mark.parametrize(
    ("samples", "level", "says"),
    [
        ({"a": [sample(), sample(NOW + 5, NOW + 5, 5)]}, "ok", ""),
        ({"a": [sample(), sample(NOW + 65, NOW + 5, 5)]}, "warning", "jumped by 60.0 s ahead"),
        ({"a": [sample(), sample(NOW - 55, NOW + 5, 5)]}, "warning", "jumped by 60.0 s back"),
        # This machine's clock may jump; its monotonic clock does not.
        ({"a": [sample(here=NOW), sample(NOW + 5, NOW + 5, 5)]}, "ok", ""),
        ({"a": [sample(NOW + 3)]}, "warning", "3.0 s ahead"),
        ({"a": [sample(NOW - 3)]}, "warning", "3.0 s behind"),
        ({"a": [sample(NOW + 3, doubt=2.5)]}, "ok", ""),  # a slow connection has a larger error
        ({"a": [sample(NOW + 0.8)], "b": [sample(NOW - 0.8)]}, "warning", "differ by 1.6 s"),
    ],
)
def test_clock(samples: Any, level: str, says: str) -> None:
    found = checks_clock.check(samples)
    assert found.level == level
    assert says in found.detail


ONE = {"addr": "1.2.3.4:5", "flags": "N", "omem": "0", "lib-name": "redis-py", "lib-ver": "8.1"}


@pytest.mark.parametrize(
    ("clients", "level", "says"),
    [
        ((ONE,), "ok", "1 redis-py 8.1"),
        (({**ONE, "lib-name": ""}, {**ONE, "flags": "b"}), "ok", "1 of them blocked"),
        ((ONE,) * 9, "warning", "9 of maxclients 10"),
        ((ONE, {**ONE, "omem": str(5 * 2**20), "name": "api"}), "warning", "1.2.3.4:5 (api) 5 MiB"),
        (DENIED, "skipped", ""),
    ],
)
def test_clients(clients: Any, level: str, says: str) -> None:
    found = checks_clients.clients(node(clients=clients))
    assert found.level == level
    assert says in found.detail


def test_retries() -> None:
    assert [checks_clients.retries(count).level for count in (0, None, 3)] == [
        "ok",
        "ok",
        "warning",
    ]


def rights(refused: dict[str, str], untried: str = "") -> RightsFacts:
    tried = checks_rights.commands(None) - set(untried.split())
    return RightsFacts("alice", "orders", tried, refused)


@pytest.mark.parametrize(
    ("role", "refused", "level", "says"),
    [
        ("producer", {}, "ok", "all rights that a producer needs"),
        ("producer", {"HSET": "command"}, "error", "HSET"),
        ("producer", {"PUBLISH": "command"}, "warning", "PUBLISH"),
        ("rotator", {"INFO": "command"}, "warning", "may not INFO: the history does not show"),
        ("admin", {"INFO": "command"}, "error", "INFO"),
        ("producer", {"XDEL": "command"}, "ok", ""),
        ("source", {"XDEL": "command"}, "error", "XDEL"),
        # A rotator or viewer of one namespace has no right on the list of all.
        ("rotator", {"SMEMBERS": "keys"}, "ok", ""),
        ("rotator", {"SMEMBERS": "command"}, "error", "SMEMBERS"),
        ("admin", {"SMEMBERS": "keys"}, "error", "SMEMBERS"),
        (None, {"XDEL": "command"}, "ok", "need: producer, rotator, viewer"),
        (None, {"EVALSHA": "command"}, "warning", "EVALSHA"),
    ],
)
def test_rights(role: str | None, refused: dict[str, str], level: str, says: str) -> None:
    found = checks_rights.check(rights(refused), role)
    assert found.level == level
    assert says in found.detail


def test_a_viewer_that_calls_functions_needs_no_eval() -> None:
    facts = replace(rights({"EVAL": "command", "EVALSHA": "command"}), functions=True)
    assert checks_rights.check(facts, "viewer").level == "ok"
    assert "roles need: viewer" in checks_rights.check(facts, None).detail
    assert checks_rights.check(facts, "producer").level == "error"
    assert checks_rights.check(replace(facts, functions=False), "viewer").level == "error"


def test_the_fix_of_rights_grants_no_more_than_is_needed() -> None:
    found = checks_rights.check(rights({"HSET": "command", "PUBLISH": "command"}), "producer")
    assert found.fix == "redis-cli ACL SETUSER alice +hset +publish '&acker:orders:*'"
    found = checks_rights.check(rights({"HSET": "keys"}), "producer")
    [pattern] = acl.keys("producer", "orders")
    assert found.fix == f"redis-cli ACL SETUSER alice '~{pattern}'"


def test_untried_commands_are_named() -> None:
    assert "not tried: PUBLISH" in checks_rights.check(rights({}, "PUBLISH"), "producer").detail


@pytest.mark.parametrize(
    ("applied", "pinged", "level", "says"),
    [
        ((1.0, 9.9), (0.1, 0.2), "ok", ""),
        ((1.0, 10.1), (0.1, 0.2), "warning", "SLOWLOG"),
        ((11.0, 12.0), (9.0, 9.5), "warning", "closer"),
    ],
)
def test_latency(applied: Any, pinged: Any, level: str, says: str) -> None:
    found = latency(applied, pinged)
    assert found.level == level
    assert says in found.fix


FINE, SKIPPED = ok("memory", "d"), skipped("memory", "d", "f")
BAD, BROKEN = warning("memory", "d", "f"), error("memory", "d", "f")


@pytest.mark.parametrize(
    ("findings", "code"),
    [((), 0), ((FINE, SKIPPED), 0), ((FINE, BAD), 1), ((BAD, BROKEN, FINE), 2)],
)
def test_exit_code(findings: tuple[Finding, ...], code: int) -> None:
    report = Report(findings)
    assert report.exit_code == code
    said = report.to_dict()
    assert said["exit_code"] == code
    assert said["error"] == findings.count(BROKEN)
    assert [each["id"] for each in said["findings"]] == ["memory"] * len(findings)
    assert all(each["title"] == "Memory" for each in said["findings"])
