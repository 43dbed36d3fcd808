"""A reshard to fewer shards loses no count: those of the removed shards go on in shard 0."""

import pytest

from acker_redis import AckerConfig
from acker_redis.batching.batch import Batch
from acker_redis.errors import InvalidBatchError
from acker_redis.ops.reshard import reshard
from acker_redis.protocol import commands
from acker_redis.protocol.config import CREATED
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.status import Status
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker

COUNTED = ("counters", "slow", "after_failure", "latency", "odd", "ended", "good")


def work(acker: Acker, shards: int) -> None:
    """End trees of two sources in each way, on every shard, and take the verdicts."""
    for source, begin in (("shop", 1), ("cart", 1000)):
        batch = Batch(source)
        for anchor in range(begin, begin + 4 * shards):
            batch.track(anchor, f"s{anchor}", [1 << 55 | 40] if anchor % 3 else [])
            if anchor % 5 == 0:
                batch.fail(anchor, "no")
        acker.apply(batch)
    late = Batch()
    for anchor in range(5000, 5000 + shards):
        late.ack(anchor, 40)
    acker.apply(late)
    for _ in range(acker.config.buckets):
        Rotator(acker).step(force=True)
    for source in ("shop", "cart"):
        list(acker.outcomes(source))


def counts(status: Status) -> dict[str, object]:
    return {name: getattr(status, name) for name in COUNTED}


def test_counts_of_removed_shards_go_on(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=4, edges=("mill", "saw"), slo_ms=1)
    work(acker, 4)
    before = counts(acker.status())
    assert all(before[name] for name in COUNTED if name not in ("slow", "after_failure")), before
    for shards in (2, 8, 1):
        assert reshard(acker, shards).shards == shards
        assert counts(acker.status()) == before
        assert acker.status().open == 0


def test_switch_that_is_repeated_adds_nothing(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=2)
    run, first, last = acker.connection.run, *(ShardKeys(acker.namespace, n) for n in range(2))
    for keys in (first, last):
        run(commands.configure(keys, {"reshard": "2:1"}))
    for keys in (last, first):
        run(commands.configure(keys, {"reshard": "2:1:switch"}))
    change = {"shards": "1", "add:acked": "5", "add:ended:shop": "3", "add:latency:4": "5"}
    with pytest.raises(InvalidBatchError, match="on shard 0 only"):
        run(commands.configure(last, change))
    run(commands.configure(last, {"shards": "1"}))
    for changed in (1, 0, 0):
        assert run(commands.configure(first, change)) == changed
        assert acker.status().counters["acked"] == 5
        assert acker.status().latency.count == 5
        assert acker.status().ended == {}, "shard 0 does not know that source"


@pytest.mark.parametrize(
    "more",
    [
        *(("add:salt", "5"), ("add:shards", "5"), ("add:backlog:t", "5"), ("acked", "5")),
        *(("add:acked", "-1"), ("add:acked", "1e3"), ("add:acked", "9" * 19), ("add:acked", "")),
        ("add:acked", "1", "add:acked", "1"),
        ("add:acked",),
    ],
)
def test_only_counters_may_follow_the_number_of_shards(
    make_any_acker: MakeAcker, more: tuple[str, ...]
) -> None:
    acker = make_any_acker(shards=2)
    keys = ShardKeys(acker.namespace, 0)
    with pytest.raises(InvalidBatchError):
        acker.connection.run(commands.Call("configure", keys.both, ("shards", "1", *more)))
    assert acker.config == AckerConfig(**{name: getattr(acker.config, name) for name in CREATED})
