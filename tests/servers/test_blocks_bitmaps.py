"""Bitmaps of present and failed slots on real servers: as arguments, as keys and in verdicts."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import redis

from acker_redis.errors import ChangedBatchError, InvalidBatchError, RedisRefusedError, SchemaError
from acker_redis.protocol import commands
from acker_redis.protocol.blocks import BlockPart, pack_deltas, pack_track
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import ShardKeys, feed_tag
from acker_redis.protocol.slots import pack_slots
from acker_redis.sync.client import Acker
from acker_redis.sync.outcomes import BlockOutcome
from tests.support import dump, rotate, tick, total
from tests.waiting import LIMIT

A, B, C = 0x1234_5678_9ABC, 0x2345_6789_ABCD, 0x3456_789A_BCDE
NUMBER = 7


@pytest.fixture
def keys(acker: Acker) -> ShardKeys:
    return ShardKeys(acker.namespace, 0)


@pytest.fixture
def client(acker: Acker) -> Any:
    return acker.connection.client


def send(acker: Acker, *parts: BlockPart, fence: Fence | None = None) -> ShardApplied:
    call = commands.apply_blocks(ShardKeys(acker.namespace, 0), parts, fence)
    return commands.parse_apply_blocks(acker.connection.run(call), parts)


def partial(ids: Mapping[int, int], slots: int = 11, block: int = NUMBER, **more: Any) -> BlockPart:
    """Return the TRACK of a block with trees in some of its slots."""
    column = [ids.get(slot, 0) for slot in range(slots)]
    return pack_track(block, "t", f"b{block}", column, present=list(ids), **more)


def heard(acker: Acker) -> list[BlockOutcome]:
    """Take and return the verdicts on blocks that wait."""
    outcomes = acker.outcomes("t")
    entries = outcomes.read(1000)
    outcomes.take(entries)
    return [entry.block for entry in entries if entry.block]


def reasons(outcome: BlockOutcome) -> dict[int, str]:
    """Return the reason of each single verdict, by slot."""
    return {o.anchor - block_anchor(outcome.block, 0): o.reason for o in outcome.expand()}


def entries(acker: Acker) -> Iterator[dict[str, str]]:
    """Yield the fields of the entries that wait."""
    stream = ShardKeys(acker.namespace, 0).outcomes("t")
    for _, fields in acker.connection.client.xrange(stream):
        yield {name.decode(): value.decode() for name, value in fields.items()}


def expire(acker: Acker) -> None:
    """Let all blocks expire. The counters do not add up if a key was lost."""
    for _ in range(3):
        rotate(acker)
    call = commands.expire_blocks(ShardKeys(acker.namespace, 0), 16)
    while acker.connection.run(call)[2]:
        pass


# As arguments.


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (replace(partial({0: A, 9: B}), present=b""), None),
        (replace(partial({0: A, 9: B}), present=b"\x80"), "a bit for each slot"),
        (replace(partial({0: A, 9: B}), present=b"\x80\x40\0"), "a bit for each slot"),
        (replace(partial({0: A, 9: B}), present=b"\0\0"), "one of them set"),
        (replace(partial({0: A, 9: B}), present=b"\x80\x50"), "after its last slot"),
        (replace(partial({0: A, 9: B}), present=b"\x80\x41"), "after its last slot"),
        (replace(partial({0: A, 9: B}), present=b"\0\x10"), "after its last slot"),
        (replace(partial({0: A, 9: B}), present=b"\x80\0"), "a slot without a tree"),
        (replace(partial({0: A, 9: B}), present=b"\0\x40"), "a slot without a tree"),
        (replace(partial({0: A, 9: B}), present=b"\x7f\xff"), "after its last slot"),
        (replace(partial({0: A, 9: B}), present=b"\x7f\xe0"), "a slot without a tree"),
        (replace(partial({0: A, 10: 1}), present=b"\xff\xc0"), "a slot without a tree"),
        (replace(partial({0: A}, slots=8), present=b"\x80\0"), "a bit for each slot"),
        (replace(pack_deltas(NUMBER, {0: A}), present=b"\x80"), "with TRACK only"),
        (replace(pack_deltas(NUMBER, {}, {0: "no"}), present=b"\x80"), "with TRACK only"),
        (replace(pack_deltas(NUMBER, {}, touch=True), present=b"\0"), "with TRACK only"),
    ],
)
def test_invalid_bitmap_of_present_slots_is_refused(
    acker: Acker, part: BlockPart, words: str | None
) -> None:
    send(acker, partial({1: A}, block=8))
    before = dump(acker)
    if words is None:
        assert send(acker, part).tracked == 11
        return
    with pytest.raises(InvalidBatchError, match=words):
        send(acker, pack_deltas(8, {1: A}), part, fence=Fence("p", 1))
    assert dump(acker) == before


@pytest.mark.parametrize("slots", [1, 7, 8, 9, 24])
@pytest.mark.parametrize("first", [b"", "full"])
def test_bitmap_of_all_slots_is_the_same_block_as_none(
    acker: Acker, client: Any, keys: ShardKeys, slots: int, first: bytes | str
) -> None:
    plain = pack_track(NUMBER, "t", "b", [A] * slots)
    full = replace(plain, present=pack_slots(range(slots), slots))
    one, other = (full, plain) if first else (plain, full)
    assert send(acker, one).tracked == slots
    assert not client.exists(keys.present(NUMBER))
    reply = send(acker, other)
    assert (reply.tracked, reply.rejected, reply.pending) == (0, (), slots)
    send(acker, pack_deltas(NUMBER, {}, touch=True))
    assert send(acker, pack_deltas(NUMBER, dict.fromkeys(range(slots), A))).acked == slots
    assert not any("present" in fields for fields in entries(acker))


def test_content_of_a_block_includes_its_bitmap(acker: Acker) -> None:
    """The digest tells apart what the deltas cannot: a tree without messages, and no tree."""
    send(acker, partial({0: A, 9: B}))
    for present in (b"", b"\xff\xe0", b"\xc0\x40", b"\x80\x60"):
        other = replace(partial({0: A, 9: B}), present=present)
        with pytest.raises(ChangedBatchError, match="other content"):
            send(acker, other)
    assert send(acker, partial({0: A, 9: B})).rejected == ()


# As keys.


def test_keys_of_a_partial_block_end_with_it(acker: Acker, client: Any, keys: ShardKeys) -> None:
    for ends in (lambda: send(acker, pack_deltas(NUMBER, {0: A, 9: B})), lambda: tick(acker, 3)):
        send(acker, partial({0: A, 9: B}))
        assert client.get(keys.present(NUMBER)) == b"\x80\x40"
        assert not client.exists(keys.failed(NUMBER))
        send(acker, pack_deltas(NUMBER, {}, {9: "no"}))
        assert client.get(keys.failed(NUMBER)) == b"\0\x40"
        ends()
        assert not client.exists(keys.block(NUMBER), keys.present(NUMBER), keys.failed(NUMBER))
    assert send(acker, partial({0: 0, 9: 0})).acked == 2
    assert not client.exists(keys.present(NUMBER))
    assert total(acker)["pending"] == 0


@pytest.mark.parametrize("failed_before", [(), (3,), (0, 10)])
def test_failures_are_added_to_the_bitmap(
    acker: Acker, client: Any, keys: ShardKeys, failed_before: tuple[int, ...]
) -> None:
    every = dict.fromkeys(range(11), A)
    send(acker, partial(every, failed=dict.fromkeys(failed_before, "first")))
    for slots in ((3, 4), (0, 7, 8), (10,), (3,)):
        send(acker, pack_deltas(NUMBER, {}, dict.fromkeys(slots, "no")))
    assert client.get(keys.failed(NUMBER)) == pack_slots({0, 3, 4, 7, 8, 10}, 11)
    assert send(acker, pack_deltas(NUMBER, every)).acked == 5
    assert heard(acker)[-1].failed == (0, 3, 4, 7, 8, 10)


@pytest.mark.parametrize("what", ["failed", "present"])
@pytest.mark.parametrize("ids", [{0: A, 9: B}, dict.fromkeys(range(11), A)], ids=["some", "all"])
@pytest.mark.parametrize("at_once", [False, True])
def test_stale_bitmap_of_an_ended_block_is_removed_by_track(
    acker: Acker, client: Any, keys: ShardKeys, what: str, ids: dict[int, int], at_once: bool
) -> None:
    """A script that was refused half-way may leave one. The new block does not get it."""
    stale = getattr(keys, what)(NUMBER)
    client.set(stale, pack_slots([0, 3], 11))
    ids = dict.fromkeys(ids, 0) if at_once else ids
    assert send(acker, partial(ids)).tracked == len(ids)
    left = pack_slots(ids, 11) if what == "present" and len(ids) < 11 and not at_once else None
    assert client.get(stale) == left
    if not at_once:
        assert send(acker, pack_deltas(NUMBER, ids)).acked == len(ids)
    (ack,) = heard(acker)
    assert (ack.failed, reasons(ack)) == ((), dict.fromkeys(ids, "completed"))
    assert not client.exists(stale)
    total(acker)


def test_stale_bitmap_of_another_type_is_removed_by_track(
    acker: Acker, client: Any, keys: ShardKeys
) -> None:
    client.rpush(keys.present(NUMBER), "x")
    assert send(acker, partial({0: A, 9: B})).tracked == 2
    assert client.get(keys.present(NUMBER)) == b"\x80\x40"


def test_rejected_track_leaves_the_bitmaps_of_the_block_that_expires(
    acker: Acker, client: Any, keys: ShardKeys
) -> None:
    send(acker, partial({0: A, 9: B}))
    send(acker, pack_deltas(NUMBER, {}, {9: "no"}))
    for _ in range(3):
        rotate(acker)
    assert send(acker, partial({1: A, 2: B}, failed={1: "no"})).rejected == (NUMBER,)
    assert client.mget(keys.present(NUMBER), keys.failed(NUMBER)) == [b"\x80\x40", b"\0\x40"]
    tick(acker)
    assert [reasons(o) for o in heard(acker)] == [
        {9: "failed"},
        {1: "conflict", 2: "conflict"},
        {0: "expired"},
    ]


def spoil(client: Any, key: str, how: str) -> None:
    """Damage a key."""
    if how == "short":
        client.set(key, b"\x80")
    elif how == "long":
        client.append(key, b"\0")
    elif how == "empty":
        client.set(key, b"")
    elif how == "zero":
        client.set(key, b"\0\0")
    elif how == "after the last slot":
        client.setbit(key, 11, 1)
    elif how == "the last bit":
        client.setbit(key, 15, 1)
    elif how == "absent slot":
        client.setbit(key, 1, 1)
    else:
        client.delete(key)
        if how == "type":
            client.rpush(key, "x")


LOST = ["gone", "short", "long", "empty", "type"]
DAMAGED = [*LOST, "zero", "after the last slot", "the last bit"]


@pytest.mark.parametrize("how", DAMAGED)
def test_block_that_has_lost_its_present_slots_is_nacked_whole(
    acker: Acker, client: Any, keys: ShardKeys, how: str
) -> None:
    """In doubt each slot is nacked, except those that have failed; other blocks are as usual."""
    send(acker, partial({0: A, 3: B, 9: C}), partial({1: A, 2: B}, block=8))
    send(acker, pack_deltas(NUMBER, {0: A}, {3: "no"}), pack_deltas(8, {1: A}))
    assert len(heard(acker)) == 1
    spoil(client, keys.present(NUMBER), how)
    expire(acker)
    found = {o.block: o for o in heard(acker)}
    whole = found[NUMBER]
    assert (whole.failed, whole.absent) == ((3,), ())
    assert whole.nacked == tuple(slot for slot in range(11) if slot != 3)
    assert set(whole.residuals) == {0}
    assert reasons(found[8]) == {1: "completed", 2: "expired"}
    assert not client.exists(keys.block(NUMBER), keys.present(NUMBER), keys.failed(NUMBER))
    assert acker.status().backlog == {"t": 0}


@pytest.mark.parametrize("how", LOST)
def test_block_that_has_lost_its_checksums_has_no_verdict_for_an_absent_slot(
    acker: Acker, client: Any, keys: ShardKeys, how: str
) -> None:
    send(acker, partial({0: A, 3: B, 9: C}))
    send(acker, pack_deltas(NUMBER, {0: A}, {3: "no"}))
    heard(acker)
    spoil(client, keys.block(NUMBER), how)
    expire(acker)
    (mixed,) = heard(acker)
    assert (mixed.nacked, mixed.failed, mixed.residuals) == ((0, 9), (3,), (0, 0))
    assert reasons(mixed) == {0: "expired", 9: "expired"}


@pytest.mark.parametrize("how", [*DAMAGED, "absent slot"])
def test_block_with_lost_or_damaged_failures_is_nacked(
    acker: Acker, client: Any, keys: ShardKeys, how: str
) -> None:
    """It is unknown which trees have failed, so no tree is acked."""
    send(acker, partial({0: A, 3: B, 9: C}))
    send(acker, pack_deltas(NUMBER, {0: A}, {3: "no"}))
    heard(acker)
    spoil(client, keys.failed(NUMBER), how)
    expire(acker)
    (mixed,) = heard(acker)
    assert (mixed.nacked, mixed.failed, mixed.absent) == ((0, 3, 9), (), (1, 2, 4, 5, 6, 7, 8, 10))
    assert not client.exists(keys.block(NUMBER), keys.present(NUMBER), keys.failed(NUMBER))


@pytest.mark.parametrize(
    ("what", "how"),
    [
        *(("present", how) for how in DAMAGED),
        *(("failed", how) for how in [*DAMAGED, "absent slot"]),
    ],
)
@pytest.mark.parametrize(
    "part",
    [
        lambda: pack_deltas(NUMBER, {0: A}),
        lambda: pack_deltas(NUMBER, {}, {0: "no"}),
        lambda: pack_deltas(NUMBER, {}, touch=True),
        lambda: partial({0: A, 3: B, 9: C}),
    ],
    ids=["delta", "failure", "touch", "track"],
)
def test_call_for_a_block_with_a_damaged_bitmap_changes_nothing(
    acker: Acker,
    client: Any,
    keys: ShardKeys,
    what: str,
    how: str,
    part: Callable[[], BlockPart],
) -> None:
    send(acker, partial({0: A, 3: B, 9: C}))
    send(acker, pack_deltas(NUMBER, {}, {3: "no"}))
    spoil(client, getattr(keys, what)(NUMBER), how)
    before = dump(acker)
    with pytest.raises((SchemaError, RedisRefusedError), match="tampered|WRONGTYPE"):
        send(acker, part(), fence=Fence("p", 1))
    assert dump(acker) == before


@pytest.mark.parametrize("slots", [1, 8, 11, 64, 65, 4095])
@pytest.mark.parametrize("some", [False, True], ids=["all", "some"])
def test_a_bitmap_that_was_written_by_a_call_is_never_called_damaged(
    acker: Acker, slots: int, some: bool
) -> None:
    """The last word of a bitmap, and its highest bit, are the corners of the check."""
    ids = {slot: A for slot in range(slots) if not some or slot % 3 != 1}
    send(acker, partial(ids, slots=slots))
    for failed in ({0: "no"}, {max(ids): "no"}, dict.fromkeys(ids, "no")):
        send(acker, pack_deltas(NUMBER, {}, failed))
    send(acker, pack_deltas(NUMBER, {}, touch=True))
    tick(acker, 3)
    assert [o.verdict for o in heard(acker)] == ["nack"] * (1 + (len(ids) > 1) + (len(ids) > 2)) + [
        "touch"
    ]
    assert total(acker)["failed"] == len(ids)


def test_bitmap_of_a_block_without_absent_slots_is_ignored(
    acker: Acker, client: Any, keys: ShardKeys
) -> None:
    """The header says whether a block has absent slots."""
    send(acker, partial(dict.fromkeys(range(11), A)))
    client.set(keys.present(NUMBER), pack_slots([0], 11))
    send(acker, pack_deltas(NUMBER, {0: A}, {4: "no"}))
    tick(acker, 3)
    mixed = heard(acker)[-1]
    assert (mixed.absent, mixed.failed, mixed.count) == ((), (4,), 10)
    assert not client.exists(keys.present(NUMBER))


def test_partial_block_is_not_tracked_at_maxmemory(acker: Acker, client: Any) -> None:
    send(acker, partial({0: A, 9: B}, block=8))
    client.config_set("maxmemory", 1)
    try:
        before = dump(acker)
        with pytest.raises(RedisRefusedError, match="maxmemory"):
            send(acker, partial({0: A, 9: B}))
        assert dump(acker) == before
        assert send(acker, pack_deltas(8, {0: A}, {9: "no"})).failed == 1
        assert send(acker, pack_deltas(8, {9: B})).acked == 1
    finally:
        client.config_set("maxmemory", 0)


# In verdicts.


def test_bitmaps_of_verdicts_are_hex(acker: Acker) -> None:
    send(acker, partial({0: A, 3: B, 9: C}))
    send(acker, pack_deltas(NUMBER, {}, {3: "no"}, touch=True))
    send(acker, pack_deltas(NUMBER, {0: A, 3: B, 9: C}))
    send(acker, partial({0: A, 9: B}, block=8), partial(dict.fromkeys(range(11), A), block=9))
    send(acker, pack_deltas(8, {0: A}), pack_deltas(9, {10: A}, {8: "no"}))
    for _ in range(3):
        rotate(acker)
    send(acker, partial({1: A}, block=8))
    expire(acker)
    bitmaps = ("slots", "failed", "nacked", "present")
    found = [
        (fields["block"][-1], fields["reason"], *(fields.get(name) for name in bitmaps))
        for fields in entries(acker)
    ]
    assert sorted(found, key=str) == sorted(
        [
            ("7", "failed", None, None, None, None),
            ("7", "reset", "11", None, None, "9040"),
            ("7", "completed", "11", "1000", None, "9040"),
            ("9", "failed", None, None, None, None),
            ("8", "conflict", "11", None, None, "4000"),
            ("8", "expired", "11", "", "0040", "8040"),
            ("9", "expired", "11", "0080", "ff40", None),
        ],
        key=str,
    )


def test_live_feed_has_the_same_bitmaps_as_the_stream(acker: Acker, client: redis.Redis) -> None:
    with client.pubsub(ignore_subscribe_messages=True) as feed:
        feed.psubscribe(f"acker:{acker.namespace}:*")
        feed.get_message(timeout=5)
        send(acker, partial({0: A, 3: B, 9: C}), partial({0: A, 9: B}, block=8))
        send(acker, pack_deltas(NUMBER, {}, {3: "no"}, touch=True))
        send(acker, pack_deltas(NUMBER, {0: A, 3: B, 9: C}), pack_deltas(8, {0: A}))
        tick(acker, 3)
        client.publish(f"acker:{acker.namespace}:end", "")
        said = []
        while True:
            message = feed.get_message(timeout=LIMIT)
            if message and message["channel"].endswith(b":end"):
                break
            if message:
                said.append(json.loads(message["data"]))
    plain = {"rows", "n", "age", "idle", "slots"}
    tag = {"of": feed_tag(acker.status().shards[0].salt.reveal())}
    assert said == [
        {name: json.loads(text) if name in plain else text for name, text in fields.items()} | tag
        for fields in entries(acker)
    ]
    assert [value.get("present") for value in said] == [None, "9040", "9040", "8040"]


def test_show_has_the_bitmaps_as_bytes(acker: Acker, keys: ShardKeys) -> None:
    send(acker, partial({0: A, 3: B, 9: C}), partial(dict.fromkeys(range(11), A), block=8))
    send(acker, pack_deltas(NUMBER, {}, {3: "no"}))
    run = acker.connection.run
    for slot in (0, 1, 9):
        reply = run(commands.show(keys, block_anchor(NUMBER, slot)))
        assert reply[4:] == [b"\x10\0", b"\x90\x40"]
    assert run(commands.show(keys, block_anchor(8, 0)))[4:] == [b"", b""]
