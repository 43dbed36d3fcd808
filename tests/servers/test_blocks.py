"""Blocks on real servers: tracking, completion, expiry, and refused calls."""

import json
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from acker_redis.errors import (
    BacklogError,
    ChangedBatchError,
    InvalidBatchError,
    RedisRefusedError,
    WrongShardError,
)
from acker_redis.protocol import commands
from acker_redis.protocol.blocks import BlockPart, pack_deltas, pack_track
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.ids import SLOTS, block_anchor, split_anchor
from acker_redis.protocol.keys import ShardKeys, feed_tag
from acker_redis.protocol.slots import pack_slots
from acker_redis.sync.client import Acker
from acker_redis.sync.outcomes import BlockOutcome
from tests.conftest import MakeAcker
from tests.support import dump, rotate, tick, total, track, verdicts
from tests.waiting import LIMIT

CHANCE = random.Random(5)
IDS = [CHANCE.getrandbits(63) for _ in range(SLOTS)]


def send(acker: Acker, *parts: BlockPart, fence: Fence | None = None) -> ShardApplied:
    call = commands.apply_blocks(ShardKeys(acker.namespace, 0), parts, fence)
    return commands.parse_apply_blocks(acker.connection.run(call), parts)


def heard(acker: Acker) -> list[BlockOutcome]:
    """Take and return the verdicts on blocks that wait."""
    outcomes = acker.outcomes("t")
    entries = outcomes.read(1000)
    outcomes.take(entries)
    return [entry.block for entry in entries if entry.block]


def tracked(block: int = 7, slots: int = 5, label: str = "kafka/orders/3/1000") -> BlockPart:
    return pack_track(block, "t", label, IDS[:slots])


@pytest.mark.parametrize("slots", [1, 2, 100, SLOTS])
@pytest.mark.parametrize("dense", [True, False])
def test_block_is_tracked_completed_and_deleted(acker: Acker, slots: int, dense: bool) -> None:
    assert send(acker, tracked(slots=slots)).tracked == slots
    assert acker.status().pending == slots
    half = {slot: IDS[slot] for slot in range(slots // 2)}
    rest = {slot: IDS[slot] for slot in range(slots // 2, slots)}
    if half:
        assert send(acker, pack_deltas(7, half, dense=dense)).acked == 0
    assert heard(acker) == []
    reply = send(acker, pack_deltas(7, rest, dense=dense))
    assert (reply.acked, reply.pending) == (slots, 0)
    (outcome,) = heard(acker)
    assert (outcome.verdict, outcome.label, outcome.count) == ("ack", "kafka/orders/3/1000", slots)
    assert [o.anchor for o in outcome.expand()] == [block_anchor(7, s) for s in range(slots)]
    assert list(outcome.acked()) == [(0, slots)]
    left = [key for key in acker.connection.client.keys("*") if b"block" in key or b"scra" in key]
    assert left == []
    assert acker.status().backlog == {"t": 0}


def test_block_anchors_round_trip() -> None:
    for block, slot in ((0, 0), (1, 4094), (2**50 - 1, 17)):
        assert split_anchor(block_anchor(block, slot)) == (block, slot)
    assert split_anchor(2**62 - 1) is None


def test_one_bit_off_is_not_complete(acker: Acker) -> None:
    send(acker, tracked())
    for bit in (0, 31, 32, 62):
        wrong = {slot: IDS[slot] for slot in range(5)} | {3: IDS[3] ^ 1 << bit}
        assert send(acker, pack_deltas(7, wrong)).acked == 0
        send(acker, pack_deltas(7, wrong))
    assert heard(acker) == []


def test_failed_trees_are_nacked_at_once_and_do_not_delay_their_block(acker: Acker) -> None:
    send(acker, tracked())
    reply = send(acker, pack_deltas(7, {1: IDS[1]}, {1: 'say "no"'}))
    assert (reply.failed, reply.acked) == (1, 0)
    assert send(acker, pack_deltas(7, {}, {1: "again"})).failed == 0
    assert send(acker, pack_deltas(7, {s: IDS[s] for s in (0, 2, 3, 4)})).acked == 4
    nacked, acked = heard(acker)
    assert [(o.anchor, o.why) for o in nacked.expand()] == [(block_anchor(7, 1), 'say "no"')]
    assert acked.failed == (1,)
    assert list(acked.acked()) == [(0, 1), (2, 5)]
    assert [o.verdict for o in acked.expand()] == ["ack"] * 4


def test_an_expired_block_acks_complete_slots_and_nacks_the_rest(acker: Acker) -> None:
    send(acker, tracked())
    send(acker, pack_deltas(7, {0: IDS[0], 3: IDS[3]}, {4: "bad"}))
    tick(acker, 3)
    _, outcome = heard(acker)
    assert (outcome.verdict, outcome.reason, outcome.count) == ("mixed", "expired", 4)
    assert (outcome.nacked, outcome.failed) == ((1, 2), (4,))
    found = {o.anchor & 0xFFF: (o.verdict, o.reason) for o in outcome.expand()}
    done, late = ("ack", "completed"), ("nack", "expired")
    assert found == {0: done, 1: late, 2: late, 3: done}
    status = acker.status()
    assert (status.pending, status.expiring) == (0, 0)
    assert {n: c for n, c in status.counters.items() if c} == {
        "tracked": 5,
        "acked": 2,
        "failed": 1,
        "expired": 2,
    }


def test_rows_before_the_track_are_dropped_and_never_ack(acker: Acker) -> None:
    send(acker, pack_deltas(7, {s: IDS[s] for s in range(5)}))
    send(acker, tracked())
    assert heard(acker) == []
    assert acker.status().counters["orphaned"] == 5
    assert not [key for key in acker.connection.client.keys("*") if b":scratch" in key]


@pytest.mark.parametrize("slots", [1, 40, 500, SLOTS])
def test_columns_of_every_shape_are_applied_exactly(acker: Acker, slots: int) -> None:
    """Sparse and dense columns with slots close together, far apart, all slots and one slot."""
    send(acker, tracked(slots=slots))
    prefix = ShardKeys(acker.namespace, 0).prefix
    expected = dict(enumerate(IDS[:slots]))
    chance = random.Random(slots)
    shapes = [range(0, slots, step) for step in (1, 2, 33, 34, 35, 600)]
    shapes += [range(slots // 3, slots // 2 + 1), range(slots - 1, slots)]
    shapes += [chance.sample(range(slots), max(1, slots // part)) for part in (1, 3, 10, 100)]
    for shape in shapes:
        for dense in (False, True):
            deltas = {slot: chance.getrandbits(63) for slot in shape}
            assert send(acker, pack_deltas(7, deltas, dense=dense)).acked == 0
            for slot, delta in deltas.items():
                expected[slot] ^= delta
            held = acker.connection.client.get(f"{prefix}:block:" + "0" * 12 + "7")
            assert held == b"".join(expected[s].to_bytes(8, "big") for s in range(slots))
    assert send(acker, pack_deltas(7, expected, dense=False)).acked == slots
    assert acker.status().counters["orphaned"] == 0


def test_columns_of_one_call_do_not_mix(acker: Acker) -> None:
    """They use one scratch string, one after the other."""
    numbers = range(1, 7)
    send(acker, *(tracked(block, 40) for block in numbers))
    expected = dict.fromkeys(numbers, IDS[:40])
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    for turn in range(3):
        parts = []
        for block in numbers:
            slots = range(block % 3, 40 - 5 * block, block)
            deltas = {slot: IDS[100 * turn + slot] for slot in slots}
            parts.append(pack_deltas(block, deltas, dense=(block + turn) % 3 == 0))
            expected[block] = [d ^ deltas.get(slot, 0) for slot, d in enumerate(expected[block])]
        send(acker, *parts)
        for block in numbers:
            held = client.get(keys.block(block))
            assert held == b"".join(delta.to_bytes(8, "big") for delta in expected[block])


def test_dense_columns_that_are_longer_and_shorter_than_their_blocks(acker: Acker) -> None:
    send(acker, tracked(7, 40), tracked(8, 40))
    longer = pack_deltas(7, {slot: IDS[slot] for slot in range(41)}, dense=True)
    shorter = pack_deltas(8, {slot: IDS[slot] for slot in range(20)}, dense=True)
    assert send(acker, longer, shorter).acked == 40
    assert acker.status().counters["orphaned"] == 1
    rest = pack_deltas(8, {slot: IDS[slot] for slot in range(20, 40)}, dense=False)
    assert send(acker, rest).acked == 40


def test_live_feed_of_blocks_equals_the_stream(acker: Acker) -> None:
    client = acker.connection.client
    with client.pubsub(ignore_subscribe_messages=True) as feed:
        feed.psubscribe(f"acker:{acker.namespace}:*")
        feed.get_message(timeout=5)
        send(acker, tracked(7, 3, 'q"\\é'), tracked(8, 3))
        send(acker, pack_deltas(7, {1: IDS[1]}, {1: 'w"\\'}, touch=True))
        send(acker, pack_deltas(7, {0: IDS[0], 2: IDS[2]}), pack_deltas(8, {0: 1}, {1: "x"}))
        tick(acker, 3)
        client.publish(f"acker:{acker.namespace}:end", "")
        said = []
        while True:
            message = feed.get_message(timeout=LIMIT)
            if message and message["channel"].endswith(b":end"):
                break
            if message:
                said.append((message["channel"].decode(), json.loads(message["data"])))
    stream = client.xrange(ShardKeys(acker.namespace, 0).outcomes("t"))
    expected = []
    for _, fields in stream:
        flat = {name.decode(): value.decode() for name, value in fields.items()}
        plain = {"rows", "n", "age", "idle", "slots"}
        value = {name: json.loads(text) if name in plain else text for name, text in flat.items()}
        value["of"] = feed_tag(acker.status().shards[0].salt.reveal())
        expected.append((f"acker:{acker.namespace}:{flat['verdict']}:t", value))
    assert said == expected
    assert [value["verdict"] for _, value in said] == ["nack", "touch", "ack", "nack", "mixed"]


def test_call_with_blocks_that_have_failed_before(acker: Acker) -> None:
    send(acker, *(tracked(block) for block in (7, 8, 9)))
    send(acker, pack_deltas(8, {}, {1: "bad"}))
    done = {s: IDS[s] for s in range(5)}
    reply = send(
        acker,
        pack_deltas(7, done, {4: "bad"}),
        pack_deltas(8, done, {1: "again", 3: "bad", 0: "bad"}),
        pack_deltas(9, done),
    )
    assert (reply.acked, reply.failed) == (4 + 2 + 5, 3)
    acked = {o.block: o.failed for o in heard(acker) if o.verdict == "ack"}
    assert acked == {7: (4,), 8: (0, 1, 3), 9: ()}
    assert total(acker)["pending"] == 0


def test_new_bucket_of_blocks_is_a_hashtable(acker: Acker) -> None:
    client, prefix = acker.connection.client, ShardKeys(acker.namespace, 0).prefix
    for _ in range(2):
        send(acker, tracked(7), tracked(8))
        (bucket,) = client.keys(f"{prefix.replace('{', '[{]')}:blocks:*")
        assert client.object("encoding", bucket) == b"hashtable"
        assert client.hlen(bucket) == 2
        done = {s: IDS[s] for s in range(5)}
        send(acker, pack_deltas(7, done), pack_deltas(8, done))
        assert not client.exists(bucket)


def test_slots_beyond_the_block_are_dropped(acker: Acker) -> None:
    send(acker, tracked())
    send(acker, pack_deltas(7, {4: IDS[4], 5: 9, 4094: 9}, {4000: "no"}, dense=False))
    send(acker, pack_deltas(7, {s: IDS[s] for s in range(100)}, dense=True))
    assert acker.status().counters["orphaned"] == 3 + 95
    length = acker.connection.client.strlen(
        f"{ShardKeys(acker.namespace, 0).prefix}:block:" + "0" * 12 + "7"
    )
    assert length == 40


def test_repeated_track_is_a_no_op_and_other_content_a_conflict(acker: Acker) -> None:
    send(acker, tracked())
    send(acker, pack_deltas(7, {0: IDS[0]}))
    reply = send(acker, tracked())
    assert (reply.tracked, reply.rejected) == (0, ())
    for other in (
        pack_track(7, "t", "kafka/orders/3/1000", [*IDS[:4], 5]),
        tracked(slots=4),
        tracked(label="another"),
        pack_track(7, "u", "kafka/orders/3/1000", IDS[:5]),
    ):
        before = dump(acker)
        with pytest.raises(ChangedBatchError, match="block 0000000000007 came back"):
            send(acker, other)
        assert dump(acker) == before
    assert send(acker, pack_deltas(7, {s: IDS[s] for s in range(1, 5)})).acked == 5


def test_track_of_an_expiring_block_is_nacked(acker: Acker) -> None:
    """The key of the checksums is still used by the expiring block."""
    send(acker, tracked())
    send(acker, pack_deltas(7, {0: IDS[0]}))
    for _ in range(3):
        rotate(acker)
    assert send(acker, tracked()).rejected == (7,)
    assert not rotate(acker), "nothing rotates before the drain is complete"
    tick(acker)
    conflict, mixed = heard(acker)
    assert (conflict.verdict, conflict.reason, conflict.count) == ("nack", "conflict", 5)
    assert (mixed.verdict, mixed.nacked) == ("mixed", (1, 2, 3, 4))
    assert send(acker, tracked()).tracked == 5


def test_repeated_call_of_blocks_is_not_applied(acker: Acker) -> None:
    send(acker, tracked(), fence=Fence("p", 1))
    part = pack_deltas(7, {0: IDS[0]})
    for expected in (None, 2, 2):
        assert send(acker, part, fence=Fence("p", 2)).highest == expected
    rest = pack_deltas(7, {s: IDS[s] for s in range(1, 5)})
    assert send(acker, rest, fence=Fence("p", 3)).acked == 5


def test_touch_and_refresh(make_acker: MakeAcker) -> None:
    acker = make_acker()
    send(acker, tracked())
    tick(acker, 2)
    send(acker, pack_deltas(7, {}, touch=True))
    tick(acker, 2)
    assert [o.verdict for o in heard(acker)] == ["touch"]
    tick(acker)
    assert [o.verdict for o in heard(acker)] == ["mixed"]
    acker = make_acker(refresh="update")
    send(acker, tracked())
    for slot in range(4):
        tick(acker, 2)
        send(acker, pack_deltas(7, {slot: IDS[slot]}))
    assert heard(acker) == []
    assert send(acker, pack_deltas(7, {4: IDS[4]})).acked == 5


def test_admission_counts_trees_of_blocks_and_loose_ones(make_acker: MakeAcker) -> None:
    acker = make_acker(high_water=5)
    send(acker, tracked(slots=5))
    reply = send(acker, tracked(8, slots=6), tracked(9, slots=5))
    assert (reply.rejected, reply.pending) == ((8,), 10)
    assert track(acker, 1, 5).rejected == (1,)
    (overflow,) = heard(acker)
    assert (overflow.reason, overflow.block, overflow.count) == ("overflow", 8, 6)


def test_touches_are_dropped_when_the_backlog_is_full(make_acker: MakeAcker) -> None:
    acker = make_acker(outcomes_limit=2)
    send(acker, tracked(8))
    send(acker, pack_track(1, "t", "l", [0]))
    send(acker, pack_deltas(8, {}, touch=True))
    assert [o.verdict for o in heard(acker)] == ["ack", "touch"]
    send(acker, pack_track(1, "t", "l", [0, 0]))
    send(acker, pack_deltas(8, {}, touch=True))
    assert [o.verdict for o in heard(acker)] == ["ack"]


def test_full_backlog_refuses_a_batch_with_tracks_whole(make_acker: MakeAcker) -> None:
    acker = make_acker(outcomes_limit=3)
    send(acker, pack_track(1, "t", "l", [0, 0, 0]))
    before = dump(acker)
    with pytest.raises(BacklogError):
        send(acker, tracked())
    assert dump(acker) == before


def test_at_maxmemory_blocks_end_but_none_is_tracked(acker: Acker) -> None:
    send(acker, tracked())
    client = acker.connection.client
    client.config_set("maxmemory", 1)
    try:
        before = dump(acker)
        with pytest.raises(RedisRefusedError, match="maxmemory"):
            send(acker, tracked(8), pack_deltas(7, {0: IDS[0]}))
        assert dump(acker) == before
        assert send(acker, pack_deltas(7, {s: IDS[s] for s in range(4)})).acked == 0
        tick(acker, 3)
        assert [o.nacked for o in heard(acker)] == [(4,)]
    finally:
        client.config_set("maxmemory", 0)


def raw(**changed: bytes) -> BlockPart:
    values = {"flags": 0, "header": b"", "slots": b"", "deltas": b"\1" * 8, "failed": b""}
    return BlockPart(7, **{**values, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (lambda: raw(flags=2), "unknown flag"),
        (lambda: raw(flags=8), "unknown flag"),
        (lambda: BlockPart(2**50, deltas=b"\1" * 8), "not in 0..2"),
        (lambda: raw(header=b"\0\1\1tl"), "with TRACK only"),
        (lambda: raw(flags=1), "needs a header"),
        (lambda: raw(flags=1, header=b"\0\0\1tl"), "needs a header"),
        (lambda: raw(flags=1, header=b"\x10\0\1tl"), "needs a header"),
        (lambda: raw(flags=1, header=b"\0\1\1t"), "needs a header"),
        (lambda: raw(flags=1, header=b"\0\1\1 l"), "needs a header"),
        (lambda: raw(flags=1, header=b"\0\1\1t\n"), "label"),
        (lambda: raw(flags=1, header=b"\0\1\1t" + b"x" * 256), "label"),
        (lambda: raw(flags=1, header=b"\0\2\1tl"), "8 bytes of deltas"),
        (lambda: raw(flags=1, header=b"\0\1\1tl", slots=b"\0\0"), "8 bytes of deltas"),
        (lambda: raw(deltas=b"\1" * 7), "8 bytes of deltas"),
        (lambda: raw(deltas=b"\1" * 8 * 4096), "up to 4095"),
        (lambda: raw(slots=b"\0\1\0\2"), "8 bytes of deltas"),
        (lambda: raw(slots=b"\0\2\0\1", deltas=b"\1" * 16), "ascend"),
        (lambda: raw(slots=b"\0\1\0\1", deltas=b"\1" * 16), "ascend"),
        (lambda: raw(slots=b"\x0f\xff"), "above 4094"),
        (lambda: raw(failed=b"\0"), "failures"),
        (lambda: raw(failed=b"\0\1\2x"), "failures"),
        (lambda: raw(failed=b"\0\1\1\n"), "failures"),
        (lambda: raw(failed=b"\0\1\1\xff"), "failures"),
        (lambda: raw(failed=b"\0\1\1x\0\1\1y"), "failures"),
        (lambda: raw(failed=b"\x0f\xff\1x"), "failures"),
    ],
)
def test_invalid_blocks_are_refused(
    acker: Acker, part: Callable[[], BlockPart], words: str
) -> None:
    send(acker, tracked())
    before = dump(acker)
    with pytest.raises(InvalidBatchError, match=words):
        send(acker, part(), fence=Fence("p", 1))
    assert dump(acker) == before


def test_limits_of_a_call(make_acker: MakeAcker) -> None:
    acker = make_acker(shards=2)
    many = [pack_deltas(2 * block, {0: 1}) for block in range(65)]
    assert send(acker, *many[:64]).highest is None
    named = [raw(slots=b"".join(s.to_bytes(2, "big") for s in range(4000)), deltas=b"\1" * 32_000)]
    for parts, words in (
        (many, "at most 64 blocks"),
        ([many[0], many[0]], "given twice"),
        ([pack_track(2 * b, "t", "l", IDS) for b in range(33)], "at most 64 blocks and 1048576"),
        ([replace(part, block=2 * k) for k in range(2) for part in named], "named"),
    ):
        before = dump(acker)
        with pytest.raises(InvalidBatchError, match=words):
            send(acker, *parts)
        assert dump(acker) == before
    with pytest.raises(WrongShardError):
        send(acker, pack_deltas(3, {0: 1}))


@pytest.mark.parametrize("change", ["short", "gone", "type", "failed", "stream"])
def test_call_with_tampered_keys_changes_nothing(acker: Acker, change: str) -> None:
    send(acker, tracked())
    client, prefix = acker.connection.client, ShardKeys(acker.namespace, 0).prefix
    name = "0000000000007"
    if change == "short":
        client.set(f"{prefix}:block:{name}", b"short")
    elif change == "gone":
        client.delete(f"{prefix}:block:{name}")
    elif change == "type":
        client.delete(f"{prefix}:block:{name}")
        client.rpush(f"{prefix}:block:{name}", "x")
    elif change == "failed":
        client.set(f"{prefix}:failed:{name}", b"\0\0")
    else:
        client.set(f"{prefix}:outcomes:t", "x")
    before = dump(acker)
    with pytest.raises(Exception, match="tampered|WRONGTYPE"):
        send(acker, pack_deltas(7, {0: IDS[0]}, {1: "x"}), fence=Fence("p", 1))
    assert dump(acker) == before


def test_failures_without_a_block_are_removed(acker: Acker) -> None:
    """Failures without a block are stale: a new block of this number does not get them."""
    client, prefix = acker.connection.client, ShardKeys(acker.namespace, 0).prefix
    client.set(f"{prefix}:failed:0000000000007", pack_slots([0, 3], 5))
    send(acker, tracked())
    assert send(acker, pack_deltas(7, {}, {0: "new"})).failed == 1
    assert send(acker, pack_deltas(7, dict(enumerate(IDS[:5])))).acked == 4
    assert [(o.rows, o.failed) for o in heard(acker)] == [(((0, "new"),), ()), ((), (0,))]
    assert not client.exists(f"{prefix}:failed:0000000000007")
    client.set(f"{prefix}:failed:0000000000007", pack_slots([0], 2))
    assert send(acker, pack_track(7, "t", "done at once", [0, 0])).acked == 2
    assert not client.exists(f"{prefix}:failed:0000000000007")


@pytest.mark.parametrize("change", ["short", "gone", "type", "failed", "slots"])
def test_a_block_that_has_lost_its_checksums_is_nacked(acker: Acker, change: str) -> None:
    """In doubt its trees are nacked, and the other blocks expire as usual."""
    send(acker, tracked(7), tracked(8, 2))
    send(acker, pack_deltas(7, {0: IDS[0]}), pack_deltas(8, {0: IDS[0]}))
    client, prefix = acker.connection.client, ShardKeys(acker.namespace, 0).prefix
    block, failed = f"{prefix}:block:0000000000007", f"{prefix}:failed:0000000000007"
    if change == "short":
        client.set(block, b"short")
    elif change == "failed":
        client.set(failed, b"\0\0")
    elif change == "slots":
        client.append(block, bytes(8))
    else:
        client.delete(block)
        if change == "type":
            client.rpush(block, "x")
    for _ in range(3):
        rotate(acker)
    while commands_left(acker):
        pass
    nacked = {o.block: o.nacked for o in heard(acker)}
    assert nacked == {7: (0, 1, 2, 3, 4), 8: (1,)}
    assert not client.exists(block, failed)


@pytest.mark.parametrize("field", [b"", b"x", bytes(8), bytes(9)], ids=len)
@pytest.mark.parametrize("header", [b"", b"x" * 16, bytes(40), b"x" * 16 + b"\x05task"], ids=len)
def test_invalid_header_does_not_stop_the_drain(acker: Acker, field: bytes, header: bytes) -> None:
    send(acker, tracked(7))
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    client.hset(f"{keys.prefix}:blocks:0", field, header)
    for _ in range(3):
        rotate(acker)
    while commands_left(acker):
        pass
    assert [o.block for o in heard(acker)] == [7]
    assert not client.exists(keys.blocks_expiring)


def commands_left(acker: Acker) -> int:
    """Drain some blocks, and return the number left."""
    call = commands.expire_blocks(ShardKeys(acker.namespace, 0), 16)
    return int(acker.connection.run(call)[2])


def test_many_blocks_expire_in_bounded_calls(acker: Acker) -> None:
    for start in range(0, 300, 50):
        send(acker, *(tracked(block, 20) for block in range(start, start + 50)))
    for _ in range(3):
        rotate(acker)
    call = commands.expire_blocks(ShardKeys(acker.namespace, 0), 16)
    left, calls = 300, 0
    while left:
        acked, nacked, now = acker.connection.run(call)
        assert acked == 0
        assert nacked == 20 * (left - now) <= 320
        left, calls = now, calls + 1
        assert calls < 200
    assert sum(outcome.count for outcome in heard(acker)) == 6000
    assert total(acker)["pending"] == 0
    assert verdicts(acker) == []


@pytest.mark.parametrize("slots", [4095, 4094, 2729, 2048])
def test_drain_of_open_blocks_takes_at_most_8192_trees(acker: Acker, slots: int) -> None:
    for number in range(8):
        send(acker, pack_track(number, "t", "page", range(1, slots + 1)))
    for _ in range(3):
        rotate(acker)
    call = commands.expire_blocks(ShardKeys(acker.namespace, 0), 16)
    nacked: list[int] = []
    while sum(nacked) < 8 * slots:
        nacked.append(acker.connection.run(call)[1])
    assert max(nacked) == 8192 // slots * slots
