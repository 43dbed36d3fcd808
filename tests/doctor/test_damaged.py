"""A shard that a failover or another program has damaged: the doctor's command repairs it."""

import shlex

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.doctor import examine
from acker_redis.doctor.finding import Finding
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import SchemaError
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.cli.support import Shell
from tests.conftest import MakeAcker

DAMAGE = {
    # What a replica has that was flushed, and went on to replicate.
    "no schema": ("HDEL", "schema", "salt", "shards", "buckets", "tick_ms"),
    "another field": ("HSET", "buckets", "many"),
    "no hash": None,
    "gone": (),
    "another schema": ("HSET", "schema", "7"),
}
"""How a shard is damaged. A namespace whose shard 0 has another schema is not damaged."""
CASES = [
    (how, shards)
    for how in DAMAGE
    for shards in ((0,), (2,), (0, 1, 2, 3), (1, 3))
    if how != "another schema" or 0 not in shards
]


def look(server: EmbeddedRedis, name: str) -> Finding:
    found = examine(server.url, [name], interval=0, canaries=False)
    return next(each for each in found if each.id == "namespace")


def work(acker: Acker, anchors: range, messages: list[int]) -> None:
    batch = Batch("shop")
    for anchor in anchors:
        batch.track(anchor, f"order-{anchor}", messages)
    acker.apply(batch)


def damage(acker: Acker, shard: int, how: tuple[str, ...] | None) -> None:
    client, meta = acker.connection.client, ShardKeys(acker.namespace, shard).meta
    if how:
        client.execute_command(how[0], meta, *how[1:])
    else:
        client.delete(meta)
    if how is None:
        client.set(meta, "x")


@pytest.mark.parametrize(("how", "shards"), CASES, ids=str)
def test_command_of_the_doctor_repairs_a_damaged_namespace(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, how: str, shards: tuple[int, ...]
) -> None:
    acker = make_any_acker(shards=4, edges=("mill", "saw"), high_water=7000, tick_ms=50_000)
    work(acker, range(1, 9), [40])
    for shard in shards:
        damage(acker, shard, DAMAGE[how])
    if how == "no schema":
        with pytest.raises(SchemaError, match="damaged.*drop the namespace, then create it again"):
            acker.create(acker.config)
    said = look(any_server, acker.namespace)
    assert said.level == "error"
    fix = said.fix.split("; or ")[0]
    shell = Shell(any_server)
    for command in fix[fix.index("acker-redis ") :].split(" && "):
        ran = shell(*shlex.split(command)[1:])
        assert ran.code == 0, ran.err
    assert look(any_server, acker.namespace).level == "ok"
    again = Acker.from_url(any_server.url, acker.namespace)
    if len(shards) < 4:
        assert again.config == acker.config, "it has the settings of the other shards"
    work(again, range(101, 109), [])
    assert again.status().counters["acked"] == 8
    again.close()


def test_index_of_groups_of_another_type_does_not_stop_a_drop(make_any_acker: MakeAcker) -> None:
    """The drop ended with an error, and so did each that was to complete it."""
    acker = make_any_acker()
    acker.connection.client.set(ShardKeys(acker.namespace, 0).groups, "x")
    acker.drop()
    assert acker.create(), "nothing is left"
