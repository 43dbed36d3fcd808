"""``alive``: for which time a shard's memory is whole. proof/cases has which trees are pending."""

import random

import pytest
import redis

from acker_redis import Acker, Batch, InvalidBatchError, SchemaError, WrongShardError
from acker_redis.flows.alive import ask_alive
from acker_redis.ops.reshard import reshard
from acker_redis.protocol.alive import MAX_ROWS, MAX_SKEW_MS, Alive, alive, parse_alive
from acker_redis.protocol.ids import SLOTS, block_anchor
from acker_redis.protocol.keys import ShardKeys, feed_tag
from proof.reference.blocks import BlockRow
from tests.conftest import MakeAcker
from tests.support import partial_block, send_blocks, tick, tracked_block


def ask(acker: Acker, *anchors: int) -> dict[int, tuple[bool, Alive]]:
    return acker.connection.drive(ask_alive(acker.flows, anchors))


def memory(acker: Acker, anchor: int = 1) -> Alive:
    return ask(acker, anchor)[anchor][1]


def whole(acker: Acker, shard: int = 0) -> str:
    found = acker.connection.client.hget(ShardKeys(acker.namespace, shard).meta, "whole")
    return found.decode() if found else ""


def test_memory_is_whole_from_the_first_tick_to_the_last(acker: Acker) -> None:
    first = memory(acker)
    assert (first.since_ms, first.until_ms) == (0, 0)
    assert first.of == feed_tag(acker.ids.salt)
    tick(acker)
    began = memory(acker)
    assert first.now_ms <= began.since_ms == began.until_ms <= began.now_ms
    tick(acker)
    later = memory(acker)
    assert began.since_ms == later.since_ms <= later.until_ms <= later.now_ms


def test_tick_in_another_run_begins_again_and_leaves_room_for_another_clock(acker: Acker) -> None:
    tick(acker)
    since, until, run = whole(acker).split(":")
    meta = ShardKeys(acker.namespace, 0).meta
    acker.connection.client.hset(meta, "whole", f"{since}:{until}:{'0' * len(run)}")
    tick(acker)
    after = memory(acker)
    assert after.since_ms == after.until_ms + MAX_SKEW_MS
    assert after.until_ms >= int(until)
    assert whole(acker).endswith(run)


def test_tick_after_a_long_time_begins_again(make_acker: MakeAcker) -> None:
    """Keys may have been restored from a backup: they name this run, and are old."""
    acker = make_acker(tick_ms=60_000)
    tick(acker)
    meta, (since, until, run) = ShardKeys(acker.namespace, 0).meta, whole(acker).split(":")
    for ago, stays in ((170_000, True), (181_000, False)):
        old = f"{int(since) - 10**6}:{int(until) - ago}:{run}"
        acker.connection.client.hset(meta, "whole", old)
        tick(acker)
        found = memory(acker)
        assert found.since_ms == (int(since) - 10**6 if stays else found.until_ms)


@pytest.mark.parametrize("forged", ["", "1:2", "x:1:ab", "1:" + "9" * 16 + ":ab", "-1:5:ab"])
def test_forged_memory_is_none(acker: Acker, forged: str) -> None:
    meta = ShardKeys(acker.namespace, 0).meta
    acker.connection.client.hset(meta, "whole", forged)
    assert (memory(acker).since_ms, memory(acker).until_ms) == (0, 0)


def test_rotator_that_may_not_ask_for_the_run_notes_nothing(acker: Acker) -> None:
    client = acker.connection.client
    rule = "narrow reset on nopass ~* +@all -info"
    client.execute_command("ACL", "SETUSER", *rule.split())
    port = client.connection_pool.connection_kwargs["port"]
    with redis.Redis(port=port, username="narrow", password="x") as narrow:
        tick(Acker(narrow, acker.namespace))
        assert whole(acker) == ""
        tick(acker)
        noted = whole(acker)
        tick(Acker(narrow, acker.namespace))
        assert whole(acker) == noted, "it does not know the trees since then"
    client.acl_deluser("narrow")


def test_reshard_begins_again(make_acker: MakeAcker) -> None:
    acker = make_acker(shards=2)
    tick(acker)
    assert whole(acker, 1)
    reshard(acker, 4)
    assert [whole(acker, shard) for shard in range(4)] == [""] * 4
    tick(acker)
    reshard(acker, 1)
    assert whole(acker) == ""


def test_shard_that_is_closed_remembers_nothing(acker: Acker) -> None:
    tick(acker)
    acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "reshard", "1:2")
    assert memory(acker).until_ms == 0


def test_answer_of_another_namespace_or_number_of_shards_is_an_error(acker: Acker) -> None:
    meta, client = ShardKeys(acker.namespace, 0).meta, acker.connection.client
    memory(acker)
    for field, value in (("shards", "2"), ("salt", "0" * 32)):
        before = client.hget(meta, field)
        client.hset(meta, field, value)
        with pytest.raises(WrongShardError, match="open it again"):
            memory(acker, 2)
        client.hset(meta, field, before)
        memory(acker, 2)


def test_more_anchors_than_a_call_has(make_acker: MakeAcker) -> None:
    acker = make_acker(shards=2)
    batch = Batch("t")
    for anchor in (4, 5, 4 * MAX_ROWS):
        batch.track(anchor, "s", [9])
    batch.track_block("b", [9, 9], 3)
    acker.apply(batch)
    anchors = [*range(1, 4 * MAX_ROWS + 1), 4, block_anchor(3, 1), block_anchor(3, 2)]
    found = ask(acker, *anchors)
    pending = {anchor for anchor, (is_pending, _) in found.items() if is_pending}
    assert pending == {4, 5, 4 * MAX_ROWS, block_anchor(3, 1)}
    assert len(found) == len({*anchors})


def test_each_slot_of_large_blocks(acker: Acker) -> None:
    """Numbers of 50 bits, slots of two bytes, absent and failed ones at all places of a byte."""
    chance = random.Random(1)
    pending: set[int] = set()
    asked: list[int] = []
    for block in (2**50 - 3, 2**49 + 2**33 + 7, 4097 << 20):
        slots = {slot for slot in range(600) if chance.random() < 0.7} | {599}
        send_blocks(acker, partial_block(block, 600, dict.fromkeys(slots, 9)))
        failed = {slot for slot in slots if chance.random() < 0.3}
        send_blocks(acker, BlockRow(block, {}, failed=dict.fromkeys(failed, "no")))
        anchors = [block_anchor(block, slot) for slot in range(1024)]
        pending |= {anchors[slot] for slot in slots - failed}
        asked += [*anchors, block_anchor(block - 1, 0), block_anchor(block, SLOTS - 1)]
    found = ask(acker, *asked)
    assert {anchor for anchor, (is_pending, _) in found.items() if is_pending} == pending


def test_bitmap_of_an_earlier_block_says_nothing(acker: Acker) -> None:
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    send_blocks(acker, tracked_block(5, [9, 9]))
    client.set(keys.failed(5), b"\xff")
    client.set(keys.present(5), b"\x00")
    found = ask(acker, block_anchor(5, 0), block_anchor(5, 1))
    assert [pending for pending, _ in found.values()] == [True, True]


def test_call_has_up_to_1024_anchors(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    assert acker.connection.run(alive(keys, range(1, MAX_ROWS + 1)))[5] == bytes(MAX_ROWS // 8)
    with pytest.raises(InvalidBatchError, match="1 to 1024 anchors"):
        acker.connection.run(alive(keys, range(1, MAX_ROWS + 2)))


@pytest.mark.parametrize("reply", [[], [1, 2, 3, 1, b"of", b""], [1, 2, 3, 1, b"of", 5], None])
def test_reply_of_another_form_is_an_error(reply: list[object]) -> None:
    with pytest.raises(SchemaError, match="alive has replied"):
        parse_alive(reply, 1)
