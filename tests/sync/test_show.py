"""The state of one tree, by ``show``."""

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.errors import InvalidBatchError, SchemaError
from acker_redis.protocol import commands
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.tree import TreeState, parse_show
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import rotate, tick


@pytest.fixture
def acker(make_acker: MakeAcker) -> Acker:
    return make_acker(shards=4)


def shown(acker: Acker, anchor: int) -> TreeState:
    tree = acker.show(anchor)
    assert tree
    assert tree.anchor == anchor
    assert 0 <= tree.age_ms < 600_000
    return tree


def test_show_loose_tree(acker: Acker) -> None:
    batch = Batch("t")
    batch.track(2**62 - 1, "a record", [5])
    batch.ack(6, 9)
    acker.apply(batch)
    tree = shown(acker, 2**62 - 1)
    assert (tree.checksum, tree.source, tree.source_id) == (5, "t", "a record")
    assert (tree.failed, tree.why, tree.bucket, tree.block) == (False, "", 0, None)
    tick(acker)
    assert shown(acker, 6).bucket == 1
    assert shown(acker, 6).source == ""


def test_show_failure_before_its_track(acker: Acker) -> None:
    batch = Batch()
    batch.fail(6, "it's broken")
    acker.apply(batch)
    tree = shown(acker, 6)
    assert (tree.failed, tree.why, tree.source) == (True, "it's broken", "")


def test_show_tree_in_a_block_with_open_slots(acker: Acker) -> None:
    anchors = acker.track_block("t", "page/1", [10, 0, 12, 13, 14, 15])
    batch = Batch()
    batch.ack(anchors[0], 10)
    batch.fail(anchors[3], "no", 13)
    batch.fail(anchors[4], "never")
    acker.apply(batch)
    tree = shown(acker, anchors[4])
    assert (tree.checksum, tree.failed, tree.why) == (14, True, ""), "its verdict has the why"
    assert (tree.source, tree.source_id) == ("t", "page/1")
    assert tree.block
    assert (tree.block.slots, tree.block.open, tree.block.failed) == (6, (2, 4, 5), (3, 4))
    assert list(tree.block.done()) == [(0, 2)]
    assert not shown(acker, anchors[0]).failed
    assert shown(acker, anchors[0]).checksum == 0
    assert acker.show(anchors[5] + 1) is None, "a slot beyond the block"


@pytest.mark.parametrize("block", [0, 1, 2**32 - 1, 2**32, 2**50 - 1])
def test_show_finds_blocks_of_extreme_numbers(acker: Acker, block: int) -> None:
    batch = Batch("t")
    anchors = batch.track_block("b", [3] * 4095, block)
    acker.apply(batch)
    assert anchors[4094] == block_anchor(block, 4094)
    tree = shown(acker, anchors[4094])
    assert tree.block
    assert tree.block.block == block
    assert len(tree.block.open) == 4095


def test_show_expiring_trees(acker: Acker) -> None:
    anchors = acker.track_block("t", "b", [3])
    batch = Batch("t")
    batch.track(6, "s", [3])
    acker.apply(batch)
    for _ in range(3):
        for shard in range(4):
            acker.connection.run(commands.rotate(ShardKeys(acker.namespace, shard), force=True))
    assert shown(acker, anchors[0]).bucket == shown(acker, 6).bucket == 3
    tick(acker)
    assert acker.show(anchors[0]) is acker.show(6) is None


def test_show_changes_nothing(acker: Acker) -> None:
    acker.track_block("t", "b", [3])
    client = acker.connection.client
    before = {key: client.dump(key) for key in client.keys("*")}
    acker.show(block_anchor(5, 0))
    acker.show(7)
    assert {key: client.dump(key) for key in client.keys("*")} == before
    assert not rotate(acker, force=False)


@pytest.mark.parametrize("anchor", [0, -1, 2**62 | 4095, 2**63, "x", None])
def test_show_refuses_invalid_anchors(acker: Acker, anchor: int) -> None:
    with pytest.raises(InvalidBatchError):
        acker.show(anchor)


@pytest.mark.parametrize(
    "argument",
    [b"", bytes(7), bytes(9), bytes(8), b"\x80" + bytes(7), (2**62 | 4095).to_bytes(8, "big")],
)
def test_show_script_refuses_invalid_anchors(acker: Acker, argument: bytes) -> None:
    call = commands.Call("show", ShardKeys(acker.namespace, 0).both, (argument,))
    with pytest.raises(InvalidBatchError):
        acker.connection.run(call)


def test_show_refuses_tampered_records(acker: Acker) -> None:
    for reply in ([1, 0, b""], [1, 0, b"x" * 15 + b"\xff\xfe"], [1, 0, b"", b"1234", [], b""]):
        with pytest.raises(SchemaError, match="tampered"):
            parse_show(reply, block_anchor(1, 0))
