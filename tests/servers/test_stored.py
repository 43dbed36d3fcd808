"""The keys that a call writes, where no reply and no verdict shows a difference."""

from collections.abc import Callable

import pytest

from acker_redis.errors import RedisRefusedError
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.support import (
    TRACK,
    block_row,
    columns,
    fail,
    fail_slot,
    row,
    send,
    tick,
    touch,
    touch_block,
    track,
    track_block,
)

A, B = 0x1111_2222, 0x3333_0000_4444


def meta_of(acker: Acker) -> dict[bytes, bytes]:
    found = acker.connection.client.hgetall(ShardKeys(acker.namespace, 0).meta)
    return dict(found)


def test_calls_without_an_effect_add_no_field(acker: Acker) -> None:
    track(acker, 1, A)
    tick(acker)
    before = meta_of(acker)
    row(acker, 1, B)
    touch(acker, 2)
    touch_block(acker, 9)
    tick(acker)
    assert meta_of(acker).keys() == before.keys()
    assert not {name for name in before if name.startswith((b"slow", b"unfinished:"))}


def test_end_of_a_tree_is_no_use_of_its_source(acker: Acker) -> None:
    track(acker, 1, A)
    track(acker, 2, A)
    track_block(acker, 3, [A, B])
    before = meta_of(acker)
    tick(acker)
    row(acker, 1, A)
    fail(acker, 2)
    fail_slot(acker, 3, 0, "no", A)
    block_row(acker, 3, {1: B})
    after = meta_of(acker)
    assert (before[b"used:t"], after[b"used:t"], after[b"ticks"]) == (b"0", b"0", b"1")


def test_block_that_ends_at_once_is_a_use_of_its_source(acker: Acker) -> None:
    track_block(acker, 1, [0])
    assert meta_of(acker)[b"used:t"] == b"0"


def test_last_row_of_a_new_record_is_its_first(acker: Acker) -> None:
    track(acker, 1, A)
    row(acker, 2, A)
    records = acker.connection.client.hvals(ShardKeys(acker.namespace, 0).pending(0))
    assert [record[15:19] for record in records] == [bytes(4)] * 2


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_rows_find_their_records_in_large_buckets(acker: Acker, order: tuple[int, ...]) -> None:
    """A few rows look up their records one by one, the newest bucket first."""
    for bucket in range(3):
        tick(acker, bool(bucket))
        trees = [(100 * bucket + k, A, TRACK) for k in range(1, 41)]
        send(acker, columns(trees, "t", ["s"] * 40))
    reply = send(acker, columns([(100 * bucket + 1, A, 0) for bucket in order]))
    assert (reply.acked, reply.pending) == (3, 117)


@pytest.mark.parametrize("slots", [1, 1024])
def test_header_announces_the_first_failure(acker: Acker, slots: int) -> None:
    """Otherwise a lost bitmap of failures would not show. The flags stand before the slots."""
    track_block(acker, 1, [A] * slots)
    fail_slot(acker, 1, 0, "no")
    (header,) = acker.connection.client.hvals(ShardKeys(acker.namespace, 0).blocks(0))
    assert header[10] == 4


@pytest.fixture(params=["apply", "apply_blocks"])
def begun(acker: Acker, request: pytest.FixtureRequest) -> tuple[Callable[[int], object], str]:
    """Begin a tree or a block of this number; the key of its bucket."""
    keys = ShardKeys(acker.namespace, 0)
    if request.param == "apply":
        return lambda number: track(acker, number, A), keys.pending(0)
    return lambda number: track_block(acker, number, [A]), keys.blocks(0)


def test_new_bucket_is_a_table(acker: Acker, begun: tuple[Callable[[int], object], str]) -> None:
    begin, bucket = begun
    begin(1)
    begin(2)
    client = acker.connection.client
    assert (client.object("encoding", bucket), client.hlen(bucket)) == (b"hashtable", 2)


def test_user_without_hdel_leaves_no_long_value_in_a_bucket(
    acker: Acker, begun: tuple[Callable[[int], object], str]
) -> None:
    begin, bucket = begun
    client = acker.connection.client
    client.execute_command("ACL", "SETUSER", "default", "-hdel")
    try:
        with pytest.raises(RedisRefusedError):
            begin(1)
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+hdel")
    assert not client.exists(bucket)
