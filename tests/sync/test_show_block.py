"""Blocks of which some slots hold no tree, through show, show_block, oldest and waits."""

import asyncio
from dataclasses import replace

import pytest

from acker_redis.aio import AsyncAcker
from acker_redis.batching.batch import Batch
from acker_redis.embedded.server import EmbeddedRedis
from acker_redis.errors import InvalidBatchError, SchemaError
from acker_redis.protocol import commands
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import tick, track

BLOCK = 5


def partial(acker: Acker) -> range:
    """Track a block with trees in slots 2, 3, 5 and 8 of 10; slot 3 fails, slot 5 is complete."""
    deltas = [0, 0, 40, 41, 0, 0, 0, 0, 42, 0]
    anchors = acker.track_block("shop", "page", deltas, BLOCK, present=[2, 3, 5, 8])
    batch = Batch()
    batch.fail(anchors[3], "torn")
    acker.apply(batch)
    return anchors


def test_show_of_an_absent_slot_is_none(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    anchors = partial(acker)
    trees = [acker.show(anchor) for anchor in anchors]
    shown = [slot for slot, tree in enumerate(trees) if tree]
    assert shown == [2, 3, 5, 8]
    assert acker.show(anchors[9] + 1) is None, "a slot beyond the block"


def test_block_of_a_shown_tree_lists_its_absent_slots(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    tree = acker.show(partial(acker)[5])
    assert tree
    assert tree.block
    assert (tree.state, tree.block.slots) == ("complete", 10)
    assert tree.block.absent == (0, 1, 4, 6, 7, 9)
    assert (tree.block.open, tree.block.failed) == ((2, 3, 8), (3,))
    assert tree.block.outstanding == (40, 42)
    assert list(tree.block.done()) == [(5, 6)]


def test_absent_slot_with_a_delta_is_not_open(make_any_acker: MakeAcker) -> None:
    """A bolt made a mistake: the block can no longer complete, but the slot is no tree."""
    acker = make_any_acker()
    batch = Batch()
    batch.ack(partial(acker)[0], 77)
    acker.apply(batch)
    tree = acker.show_block(BLOCK)
    assert tree
    assert tree.block
    assert (tree.block.open, tree.block.outstanding) == ((2, 3, 8), (40, 42))
    assert list(tree.block.done()) == [(5, 6)]


def test_show_block_returns_the_first_tree(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    anchors = partial(acker)
    tree = acker.show_block(BLOCK)
    assert tree
    assert (tree.anchor, tree.source_id, tree.checksum) == (anchors[2], "page", 40)
    assert acker.show_block(BLOCK + 1) is None
    acker.track_block("shop", "whole", [1, 2], BLOCK + 1)
    whole = acker.show_block(BLOCK + 1)
    assert whole
    assert whole.block
    assert (whole.anchor, whole.block.absent) == (block_anchor(BLOCK + 1, 0), ())
    for number in (-1, 2**50, "page"):
        with pytest.raises(InvalidBatchError):
            acker.show_block(number)  # type: ignore[arg-type]


def test_asyncio_client_shows_a_block_alike(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    partial(acker)

    async def ask() -> None:
        async with AsyncAcker.from_url(any_server.url, acker.namespace) as twin:
            theirs, mine = await twin.show_block(BLOCK), acker.show_block(BLOCK)
            assert theirs
            assert mine
            times = {"age_ms": 0, "idle_ms": 0}
            assert replace(theirs, **times) == replace(mine, **times)  # type: ignore[arg-type]

    asyncio.run(ask())


def test_list_says_that_a_block_is_partial(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    anchors = partial(acker)
    acker.track_block("shop", "whole", [1, 2], BLOCK + 1)
    found = {block.label: block for block in acker.page().blocks}
    assert (found["page"].partial, found["page"].anchors) == (True, anchors)
    assert not found["whole"].partial


def test_oldest_finds_a_block_whose_first_slot_is_absent(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=1)
    anchors = partial(acker)
    tick(acker)
    track(acker, 2, 1)
    oldest = acker.oldest()
    assert oldest
    assert (oldest.tree.anchor, oldest.exact) == (anchors[2], True)


def test_waits_sample_a_block_whose_first_slot_is_absent(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=1, edges=("mill", "till"))
    mill, till = (acker.ids.code(edge) for edge in ("mill", "till"))
    acker.track_block("shop", "page", [0, mill | 1, till | 2, 0], BLOCK, present=[1, 2])
    waits = acker.waits()
    assert waits.sampled == 2
    assert {each.edge: each.trees for each in waits.edges} == {"mill": 1, "till": 1}


@pytest.mark.parametrize("key", ["present", "failed"])
@pytest.mark.parametrize("bitmap", [b"", b"\x34", b"\x34\x80\x00", b"\x34\xa0", b"\0\0"])
def test_damaged_bitmap_is_an_error_and_shows_nothing_as_complete(
    make_any_acker: MakeAcker, key: str, bitmap: bytes
) -> None:
    """Slots of another length, with a bit after the last slot, or none."""
    acker = make_any_acker(shards=1)
    anchors = partial(acker)
    keys = ShardKeys(acker.namespace, 0)
    stored = keys.failed(BLOCK) if key == "failed" else keys.present(BLOCK)
    acker.connection.client.set(stored, bitmap)
    with pytest.raises(SchemaError, match="tampered"):
        acker.show(anchors[2])
    with pytest.raises(SchemaError, match="tampered"):
        acker.show_block(BLOCK)


@pytest.mark.parametrize("key", ["present", "failed"])
def test_lost_bitmap_is_an_error(make_any_acker: MakeAcker, key: str) -> None:
    acker = make_any_acker(shards=1)
    partial(acker)
    keys = ShardKeys(acker.namespace, 0)
    acker.connection.client.delete({"present": keys.present, "failed": keys.failed}[key](BLOCK))
    with pytest.raises(SchemaError, match="tampered"):
        acker.show_block(BLOCK)


def test_failure_of_an_absent_slot_is_an_error(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=1)
    partial(acker)
    acker.connection.client.setbit(ShardKeys(acker.namespace, 0).failed(BLOCK), 4, 1)
    with pytest.raises(SchemaError, match="tampered"):
        acker.show_block(BLOCK)


def test_stale_bitmap_of_a_block_without_absent_slots_is_ignored(make_any_acker: MakeAcker) -> None:
    """The header says whether slots are absent, for show as for the scripts that end a block."""
    acker = make_any_acker(shards=1)
    anchors = acker.track_block("shop", "page", [40, 41], BLOCK)
    keys = ShardKeys(acker.namespace, 0)
    acker.connection.client.set(keys.present(BLOCK), b"\x80")
    *_, present = acker.connection.run(commands.show(keys, anchors[1]))
    assert present == b""
    tree = acker.show(anchors[1])
    assert tree
    assert tree.block
    assert (tree.checksum, tree.block.absent) == (41, ())
