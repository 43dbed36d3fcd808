"""The exact limits of a call of apply_blocks, and invalid calls."""

from dataclasses import replace

import pytest
import redis

from acker_redis.errors import FenceFullError, InvalidBatchError
from acker_redis.protocol import commands, scripts
from acker_redis.protocol.blocks import (
    MAX_BLOCKS,
    MAX_CALL,
    MAX_NAMED,
    BlockPart,
    pack_deltas,
    pack_track,
)
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.ids import SLOTS
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.rows import MAX_TEXTS
from acker_redis.sync.client import Acker
from tests.support import dump

LABEL = "l"


@pytest.fixture
def keys(acker: Acker) -> ShardKeys:
    return ShardKeys(acker.namespace, 0)


def send(acker: Acker, *parts: BlockPart, fence: Fence | None = None) -> None:
    acker.connection.run(commands.apply_blocks(ShardKeys(acker.namespace, 0), parts, fence))


def refused(acker: Acker, *parts: BlockPart) -> None:
    before = dump(acker)
    with pytest.raises(InvalidBatchError, match="at most"):
        send(acker, *parts)
    assert dump(acker) == before


def tracked(block: int, label: str = LABEL) -> BlockPart:
    return pack_track(block, "t", label, [1, 2, 3])


def test_limit_of_blocks_in_a_call(acker: Acker) -> None:
    parts = [tracked(block) for block in range(MAX_BLOCKS + 1)]
    refused(acker, *parts)
    send(acker, *parts[:-1])


def test_limit_of_bytes_in_a_call(acker: Acker) -> None:
    parts = [pack_deltas(block, dict.fromkeys(range(SLOTS), 1), dense=True) for block in range(31)]
    room = MAX_CALL - sum(map(len, parts)) - 9
    slots = (room - 100) // 8
    last = pack_deltas(31, dict.fromkeys(range(slots), 1), dense=True)
    left = room - 8 * slots - 3
    fits = BlockPart(31, deltas=last.deltas, failed=b"\0\0" + bytes([left]) + b"x" * left)
    over = BlockPart(31, deltas=last.deltas, failed=b"\0\0" + bytes([left + 1]) + b"x" * (left + 1))
    assert sum(map(len, [*parts, fits])) == MAX_CALL
    refused(acker, *parts, over)
    send(acker, *parts, fits)


def test_limit_of_texts_in_a_call(acker: Acker) -> None:
    """The limit counts labels and whys together."""
    labels = [tracked(block, "x" * 255) for block in range(10)]
    left = MAX_TEXTS - 10 * 255
    whys = dict.fromkeys(range(left // 255), "x" * 255)
    whys[SLOTS - 1] = "x" * (left % 255)
    send(acker, *labels, pack_deltas(20, {}, whys))
    refused(acker, *labels, pack_deltas(20, {}, {**whys, SLOTS - 2: "x"}))


def test_limit_of_named_slots(acker: Acker) -> None:
    """The limit counts the slots of sparse columns and of failures, and not of dense columns."""
    half = MAX_NAMED // 2
    dense = pack_deltas(1, dict.fromkeys(range(SLOTS), 1), dense=True)
    sparse = pack_deltas(2, dict.fromkeys(range(half), 1), dense=False)
    send(acker, dense, sparse, pack_deltas(3, {}, dict.fromkeys(range(half), "")))
    refused(acker, dense, sparse, pack_deltas(3, {}, dict.fromkeys(range(half + 1), "")))


def partial(block: int, absent: int) -> BlockPart:
    """Return a block with a tree in its last slot only."""
    return pack_track(block, "t", LABEL, [0] * absent + [1], present=[absent])


def test_limit_of_absent_slots(acker: Acker) -> None:
    """The limit counts absent slots, too, together with those of sparse columns and failures."""
    half, third = MAX_NAMED // 2, MAX_NAMED // 3
    send(acker, partial(1, half), partial(2, half), tracked(3))
    refused(acker, partial(4, half), partial(5, half + 1))
    sparse = pack_deltas(1, dict.fromkeys(range(third), 0), dense=False)
    failed = dict.fromkeys(range(MAX_NAMED - 2 * third), "")
    send(acker, sparse, pack_deltas(2, {}, failed), partial(6, third))
    refused(acker, sparse, pack_deltas(2, {}, failed), partial(7, third + 1))
    assert acker.status().counters["tracked"] == 6


@pytest.mark.parametrize("slots", [1, 8, 4094, SLOTS])
def test_the_emptiest_block_fits_into_a_call(acker: Acker, slots: int) -> None:
    """Its only tree may fail in the same call."""
    part = pack_track(1, "t", LABEL, [0] * slots, {slots - 1: "no"}, present=[slots - 1])
    send(acker, part)
    assert acker.status().counters["failed"] == 1


def test_absent_slots_of_a_call_over_the_limit_are_not_checked_one_by_one(acker: Acker) -> None:
    """A call that is refused takes no longer than one that is applied."""
    wrong = replace(partial(2, SLOTS - 1), deltas=bytes(7) + b"\1" + bytes(8 * (SLOTS - 1)))
    refused(acker, partial(1, 100), wrong)
    with pytest.raises(InvalidBatchError, match="without a tree"):
        send(acker, partial(1, 2), wrong)


def test_tasks(acker: Acker) -> None:
    for start in range(0, 1000, 50):
        some = range(start, start + 50)
        send(acker, *(pack_track(block, f"task{block}", LABEL, [1]) for block in some))
    refused(acker, pack_track(2000, "one-too-many", LABEL, [1]))
    send(acker, pack_track(2001, "task999", LABEL, [1]))


def test_two_blocks_of_a_new_task_count_once(acker: Acker, keys: ShardKeys) -> None:
    send(acker, pack_track(1, "first", LABEL, [1]))
    acker.connection.client.hset(keys.meta, "tasks", 999)
    send(acker, *(pack_track(block, "last", LABEL, [1]) for block in (2, 3)))
    refused(acker, pack_track(4, "one-too-many", LABEL, [1]))


def test_rows_of_a_block_of_a_forgotten_task_are_applied(acker: Acker, keys: ShardKeys) -> None:
    """Only a TRACK can exceed the limit of tasks: refusing other rows would expire their trees."""
    send(acker, pack_track(1, "older", LABEL, [1]))
    acker.connection.client.hdel(keys.meta, "backlog:older", "used:older")
    acker.connection.client.hset(keys.meta, "tasks", 1000)
    send(acker, pack_deltas(1, {0: 1}))
    assert acker.status().backlog == {"older": 1}


def test_fences(acker: Acker, keys: ShardKeys) -> None:
    for start in range(0, 99_999, 11_111):
        mapping = {f"p{i}": "1:" for i in range(start, start + 11_111)}
        acker.connection.client.hset(keys.fence(0), mapping=mapping)
    send(acker, tracked(1), fence=Fence("last", 1))
    with pytest.raises(FenceFullError, match="100000 fences"):
        send(acker, tracked(2), fence=Fence("one too many", 1))
    send(acker, tracked(2), fence=Fence("last", 2))


@pytest.mark.parametrize("name", ["apply_blocks", "expire_blocks", "show"])
def test_invalid_keys_and_argument_counts_are_refused(
    acker: Acker, keys: ShardKeys, name: str
) -> None:
    """Each single error is enough for a refusal."""
    client, script = acker.connection.client, scripts.load(name)
    right: list[str | bytes] = {
        "apply_blocks": ["", "", *tracked(1).arguments()],
        "expire_blocks": ["4"],
        "show": [bytes(7) + b"\1"],
    }[name]
    prefix, meta = keys.both
    # A read-only script accepts any key name.
    words = "ACKER (ARGS|NAMESPACE)" if name == "show" else "ACKER ARGS needs two keys"
    for names, args in (
        ([prefix], right),
        ([prefix, meta, "more"], right),
        ([prefix, meta], right[:2] if len(right) > 2 else []),
        ([prefix, meta], []),
        ([prefix, meta], right[:-1]),
        ([prefix, meta], [*right, b""]),
        ([prefix, f"{prefix}:other"], right),
        (["shard", "shard:meta"], right),
        (["acker:{a b:0}", "acker:{a b:0}:meta"], right),
        ([f"{prefix}x", f"{prefix}x:meta"], right),
    ):
        before = dump(acker)
        with pytest.raises(redis.ResponseError, match=words):
            client.eval(script.source, len(names), *names, *args)
        assert dump(acker) == before
    client.eval(script.source, 2, prefix, meta, *right)
