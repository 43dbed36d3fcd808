"""The doctor on a cluster of three masters."""

from collections.abc import Iterator
from itertools import count

import pytest

from acker_redis.doctor import Finding, canary, examine, reading_namespaces
from acker_redis.embedded.binary import find_server
from acker_redis.ops import acl
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.cluster.servers import Cluster, slot_of, spread
from tests.conftest import missing
from tests.support import dump


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """Start three masters without replicas."""
    binary = find_server()
    if binary is None:
        missing("redis-server")
    with Cluster(binary) as running:
        yield running


def made(cluster: Cluster, name: str, shards: int) -> Acker:
    acker = Acker(cluster.client(), name)
    acker.create(AckerConfig(shards=shards, tick_ms=3_600_000))
    return acker


def look(acker: Acker, canaries: bool = False) -> dict[str, Finding]:
    names = [acker.namespace]
    found = examine(acker.connection.client, names, interval=0, canaries=canaries)
    return {finding.id: finding for finding in found}


def test_findings_on_a_cluster_of_three_masters(three: Cluster) -> None:
    with made(three, spread(three, 4), 4) as acker:
        before, hosts = dump(acker), [f"127.0.0.1:{node.server.port}" for node in three.nodes]
        found = look(acker, canaries=True)
        assert dump(acker) == before
        acker.drop()
    assert found["reachable"].detail == "3 of 3 servers answer"
    assert set(found["version"].where.split(", ")) == set(hosts)
    good = ("cluster-state", "cluster-slots", "cluster-spread", "canary", "pubsub", "rights")
    assert {found[id_].level for id_ in good} == {"ok"}
    assert f"on {canary.MAX_SHARDS} shards" in found["canary"].detail
    assert found["cluster-replicas"].level == "warning"
    assert all(host in found["cluster-spread"].detail for host in hosts)
    # The finding names the only server with a problem.
    three.nodes[1].redis.config_set("maxmemory-policy", "allkeys-lru")
    with Acker(three.client(), "absent") as client:
        evicting = [
            (each.level, each.where)
            for each in examine(client.connection.client, ["absent"], interval=0, canaries=False)
            if each.id == "eviction"
        ]
    three.nodes[1].redis.config_set("maxmemory-policy", "noeviction")
    assert ("error", hosts[1]) in evicting
    assert len(evicting) == 2


def test_shards_on_a_single_master_are_a_warning(three: Cluster) -> None:
    name = next(
        name
        for name in map("heap-{}".format, count())
        if len({three.owner(slot_of(ShardKeys(name, shard))).id for shard in (0, 1)}) == 1
    )
    with made(three, name, 2) as acker:
        found = look(acker)["cluster-spread"]
        acker.drop()
    assert found.level == "warning"
    assert f"acker-redis reshard {name} --shards 16" in found.fix


def test_a_migrating_slot_is_a_warning(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_namespaces, "_RETRY_FOR", 0.05)
    with made(three, "moved", 1) as acker:
        slot = slot_of(ShardKeys("moved", 0))
        source = three.owner(slot)
        three.begin_move(slot, three.others(source)[0])
        try:
            found = look(acker)
        finally:
            three.end_move(slot, source, source)
            for node in three.nodes:
                node.run("CLUSTER", "SETSLOT", slot, "STABLE")
        # No script of this shard runs until the slot has migrated.
        assert found["namespace"].level == "error"
        assert found["cluster-slots"].level == "warning"
        assert str(slot) in found["cluster-slots"].detail
        assert look(acker)["cluster-slots"].level == "ok"
        acker.drop()


def test_checks_without_rights_are_skipped_for_a_viewer(three: Cluster) -> None:
    rule = acl.rule("viewer", None, "vera", "pw").split()[1:]
    for node in three.nodes:
        node.run("ACL", "SETUSER", *rule)
    with made(three, "seen", 1) as acker:
        port = three.nodes[0].server.port
        url = f"redis+cluster://vera:pw@127.0.0.1:{port}"
        before = dump(acker)
        found = {each.id: each for each in examine(url, ["seen"], role="viewer", interval=0)}
        assert dump(acker) == before
        acker.drop()
    assert {found[id_].level for id_ in ("rights", "namespace", "cluster-slots")} == {"ok"}
    assert {found[id_].level for id_ in ("cluster-state", "canary", "version")} == {"skipped"}
    assert "+cluster|info" in found["cluster-state"].fix
