"""The limits on fences, and the expiry of durable lanes."""

import pytest

from acker_redis.errors import FenceFullError
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.support import columns, send, tick

A, B = 0x0F0F_0F0F_0F0F, 0x3333_CCCC_3333


def test_fences_are_capped(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    client = acker.connection.client
    for start in range(0, 100_000, 20_000):
        full = {f"p{i}": "1:" for i in range(start, start + 20_000)}
        client.hset(keys.fence(start // 20_000 % 3), mapping=full)
    with pytest.raises(FenceFullError, match="100000 fences"):
        send(acker, columns([(1, A, 0)]), Fence("one-more", 1))
    assert send(acker, columns([(1, A, 0)]), Fence("p7", 2)).highest is None
    assert send(acker, columns([(1, A, 0)])).highest is None


def test_durable_fences_are_capped(acker: Acker) -> None:
    key = ShardKeys(acker.namespace, 0).durable_fences
    now = 10**13
    for start in range(0, 100_000, 20_000):
        full = {f"@{i}": f"1::{now}" for i in range(start, start + 20_000)}
        acker.connection.client.hset(key, mapping=full)
    with pytest.raises(FenceFullError):
        send(acker, columns([(1, A, 0)]), Fence("@one-more", 1))
    assert send(acker, columns([(1, A, 0)]), Fence("@7", 2)).highest is None


def test_all_old_durable_lanes_expire(acker: Acker) -> None:
    """Each tick checks the next page of them."""
    key = ShardKeys(acker.namespace, 0).durable_fences
    acker.connection.client.hset(key, mapping={f"@{i}": "1::1" for i in range(1000)})
    for _ in range(200):
        tick(acker)
        if not acker.status().shards[0].fences:
            break
    assert acker.status().shards[0].fences == 0
