"""The client on a cluster of three masters."""

from collections.abc import Iterator

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import new_anchor, new_tuple_id
from acker_redis.sync.client import Acker
from proof.run import play
from proof.simulate import FAULTS
from tests.cluster.servers import Cluster, spread
from tests.support import tick, total, verdicts
from tests.transport.test_bounded import check_bounded

SHARDS = 16


@pytest.fixture
def acker(cluster: Cluster) -> Iterator[Acker]:
    with Acker(cluster.client(), spread(cluster, SHARDS)) as acker:
        assert acker.create(AckerConfig(shards=SHARDS, tick_ms=3_600_000))
        assert not acker.create(AckerConfig(shards=SHARDS, tick_ms=3_600_000))
        yield acker


def test_thousands_of_trees_over_three_masters(cluster: Cluster, acker: Acker) -> None:
    """A third is acked, a third failed, and a third expires; each has one verdict."""
    trees = [new_anchor() for _ in range(6000)]
    expected = {a: ("completed", "failed", "expired")[n % 3] for n, a in enumerate(trees)}
    for start in range(0, len(trees), 1000):
        source, work = Batch("t"), Batch()
        for anchor in trees[start : start + 1000]:
            first, second, child = new_tuple_id(), new_tuple_id(), new_tuple_id()
            source.track(anchor, f"s{anchor}", [first, second])
            work.ack(anchor, first, [child])
            if expected[anchor] == "completed":
                work.ack(anchor, second)
                work.ack(anchor, child)
            elif expected[anchor] == "failed":
                work.fail(anchor, "why", second)
        assert acker.apply(source).tracked == 1000
        acker.apply(work)
    assert all(node.run("DBSIZE") >= 4 for node in cluster.nodes)
    assert total(acker)["pending"] == 2000

    tick(acker, 3)
    found = verdicts(acker)
    assert len(found) == len(trees)
    assert {anchor: reason for _, reason, anchor, _, _ in found} == expected
    assert all(source_id == f"s{anchor}" for _, _, anchor, source_id, _ in found)
    counted = total(acker)
    assert [counted[n] for n in ("acked", "failed", "expired")] == [2000] * 3
    assert counted["pending"] == counted["expiring"] == counted["repeated"] == 0
    assert acker.status().backlog == {"t": 0}


def test_histories_of_faults_agree_with_the_reference(cluster: Cluster) -> None:
    """Their namespaces are on any master."""
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{each.server.port}" for each in cluster.nodes)
    for seed in range(10):
        assert play(seed, 40, tuple(FAULTS), url=url, both=True).violation is None


def test_a_source_reads_and_takes_from_all_masters(acker: Acker) -> None:
    batch = Batch("t")
    for number in range(500):
        batch.track(new_anchor(), f"s{number}", [])
    assert acker.apply(batch).acked == 500
    outcomes = acker.outcomes("t")
    entries = outcomes.read()
    assert {entry.shard for entry in entries} == set(range(SHARDS))
    assert outcomes.read() == entries
    assert outcomes.take(entries) == 500
    assert outcomes.read() == []
    assert outcomes.take(entries) == 0


def test_reply_beyond_the_bound_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_bounded(f"redis+cluster://127.0.0.1:{cluster.nodes[0].server.port}", monkeypatch)
