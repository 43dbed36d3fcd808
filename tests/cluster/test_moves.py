"""A namespace on three masters is resharded under load."""

from typing import Any

from acker_redis.ops.reshard import reshard
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.cluster.servers import Cluster, spread
from tests.ops.reshard_load import Load, settled
from tests.support import total
from tests.waiting import LIMIT


def test_reshard_on_a_cluster_under_load(cluster: Cluster) -> None:
    name, made = spread(cluster, 4), list[Acker]()

    def make(**_: Any) -> Acker:
        made.append(Acker(cluster.client(), name))
        return made[-1]

    acker = make()
    acker.create(AckerConfig(shards=2, tick_ms=120, buckets=2))
    with Load(make, "sync", seed=2) as load:
        for shards in (4, 1):
            load.wait_for(40)
            assert reshard(acker, shards, wait=LIMIT).shards == shards
            settled(acker, shards)
        load.wait_for(40)
    assert total(acker)["pending"] == 0
    for each in made:
        each.close()
