"""Edges and keys in every language: codes in ids and rows, derived ids, edges in outcomes."""

import contextlib

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import Processing
from tests.conftest import MakeAcker
from tests.languages.driver import Driver, DriverError
from tests.languages.test_rules import look_random
from tests.support import tick

EDGES = ("mill", "shop", "bin")
LOW = 2**55 - 1


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(edges=EDGES)


@pytest.fixture
def begun(driver: Driver, any_server: EmbeddedRedis, acker: Acker) -> Driver:
    """Return the driver with a client of the namespace."""
    driver.connect(any_server.port)
    driver.begin(acker.namespace, retry_ms=120_000)
    return driver


def codes(messages: list[str]) -> list[int]:
    """Return the code of each message, which is the same in all its trees."""
    found = [{id_ >> 55 for id_ in MessageId.parse(text).values()} for text in messages]
    assert all(len(each) == 1 for each in found)
    return [code for (code,) in found]


def low_bits(messages: list[str]) -> list[int]:
    return [id_ & LOW for text in messages for id_ in MessageId.parse(text).values()]


def checksum(acker: Acker, anchor: int) -> int:
    tree = acker.show(anchor)
    assert tree
    return tree.checksum


def two_trees(begun: Driver) -> list[str]:
    """Track two trees; return two inputs: one of the first tree, one of both."""
    first, second = begun.ask("track", task="t", source_id="s1", emit=2)["emitted"]
    (third,) = begun.ask("track", task="t", source_id="s2", emit=1)["emitted"]
    return [first, str(MessageId({**MessageId.parse(second), **MessageId.parse(third)}))]


def test_ids_carry_the_code_of_their_edge(begun: Driver) -> None:
    first = begun.ask("track", task="t", source_id="s", emit=48, edge="mill")["emitted"]
    assert codes(first) == [1] * 48
    children = begun.ask(
        "work", inputs=[first[0]], emit=[[0]] * 48, edges=["", "shop", "bin", "nowhere"] * 12,
        end="none", why="", flush=False,
    )["emitted"]  # fmt: skip
    assert codes(children) == [0, 2, 4, 0] * 12
    assert look_random(low_bits([*first, *children]), 55)


def test_code_of_a_join_is_in_one_row_of_each_tree(begun: Driver, acker: Acker) -> None:
    for _ in range(4):  # either input may have the least id
        inputs = two_trees(begun)
        (joined,) = begun.ask(
            "work", inputs=inputs, emit=[[0, 1]], edges=["shop"], end="ack", why="", flush=True
        )["emitted"]
        assert codes([joined]) == [2]
        for anchor, id_ in MessageId.parse(joined).items():
            assert checksum(acker, anchor) == id_


def test_derived_ids_are_those_of_the_python_client(begun: Driver, acker: Acker) -> None:
    inputs = two_trees(begun)
    said = begun.ask(
        "work", inputs=inputs, emit=[[0, 1], [1], [0]], edges=["bin", "", "mill"],
        keys=["mill №2", "b", None], end="ack", why="", flush=True,
    )["emitted"]  # fmt: skip
    expected = Processing(*inputs, ids=acker.ids)
    assert said[0] == str(expected.emit(key="mill №2", edge="bin"))
    assert said[1] == str(expected.emit([inputs[1]], key="b"))
    outstanding: dict[int, int] = {}
    for text in said:
        for anchor, id_ in MessageId.parse(text).items():
            outstanding[anchor] = outstanding.get(anchor, 0) ^ id_
    assert {anchor: checksum(acker, anchor) for anchor in outstanding} == outstanding


def test_derived_ids_without_edges_have_63_bits(
    driver: Driver, any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    driver.connect(any_server.port)
    driver.begin(acker.namespace, retry_ms=120_000)
    expected = Processing("7:40", ids=acker.ids)
    keys = [f"key {n}" for n in range(40)]
    said = driver.ask(
        "work", inputs=["7:40"], emit=[[0]] * 40, keys=keys, end="none", why="", flush=False
    )["emitted"]
    assert said == [str(expected.emit(key=key)) for key in keys]


@pytest.mark.parametrize("label", ["page 1", "Größe №2 日", '"\\ @7~'])
def test_number_of_a_block_is_that_of_the_python_client(
    begun: Driver, acker: Acker, label: str
) -> None:
    if "blocks" not in begun.client.can:
        pytest.skip("this client tracks no blocks")
    said = begun.ask("track_block", task="t.1", label=label, deltas=["40", "0", str(2**63 - 1)])
    assert said == {"block": str(acker.ids.block("t.1", label))}
    for slot, expected in enumerate([40, 0, 2**63 - 1]):
        tree = acker.show(block_anchor(int(said["block"]), slot))
        assert tree
        assert (tree.source, tree.source_id, tree.checksum) == ("t.1", label, expected)


def test_key_can_be_used_once(begun: Driver) -> None:
    (message,) = begun.ask("track", task="t", source_id="s", emit=1)["emitted"]
    with pytest.raises(DriverError) as refused:
        begun.ask(
            "work", inputs=[message], emit=[[0], [0]], keys=["k", "k"], end="none", why="",
            flush=False,
        )  # fmt: skip
    assert refused.value.code == "REFUSED"


def test_outcome_names_the_edges_of_an_expired_tree(begun: Driver, acker: Acker) -> None:
    (first,) = begun.ask("track", task="t", source_id='a "b" \\', emit=1, edge="shop")["emitted"]
    (other,) = begun.ask("track", task="t", source_id="s2", emit=1)["emitted"]
    (second,) = begun.ask(
        "work", inputs=[other], emit=[[0]], edges=["bin"], end="none", why="", flush=True
    )["emitted"]
    # The child is acked, and its parent, which was on no edge, is not.
    begun.ask("work", inputs=[second], emit=[], end="ack", why="", flush=True)
    tick(acker, 4)
    found = begun.ask("read", task="t")["outcomes"]
    by_source = {outcome[3]: outcome for outcome in found}
    (residual,) = MessageId.parse(first).values()
    said = by_source['a "b" \\']
    assert said[:2] + said[6:8] + said[9:] == [
        "nack", "expired", "idle", f"{residual:016x}", ["shop"],
    ]  # fmt: skip
    assert said[8] >= 0
    assert by_source["s2"][9] == ["bin"]


def test_outcome_names_the_edges_of_an_expired_block(begun: Driver, acker: Acker) -> None:
    begun.ask("flush")
    ids = acker.ids
    (one,) = ids.draw(1)
    batch = Batch("t", ids=ids)
    batch.track_block("page", [one | ids.code("mill"), 0, one | ids.code("bin")])
    acker.apply(batch)
    tick(acker, 4)
    found = begun.ask("read", task="t")["outcomes"]
    assert [[*each[:2], each[6], each[7], each[9]] for each in found] == [
        ["nack", "expired", "idle", f"{one | ids.code('mill'):016x}", ["mill"]],
        ["ack", "completed", "", "", []],
        ["nack", "expired", "idle", f"{one | ids.code('bin'):016x}", ["bin"]],
    ]


def expired_partial_block(acker: Acker) -> list[str]:
    """Let a block of ten slots expire: 0 and 9 are open, 2 failed, 3 is complete, six are absent.

    Return the residuals.
    """
    ids = acker.ids
    first, last = (id_ | ids.code("mill") for id_ in ids.draw(2))
    batch = Batch("t", ids=ids)
    deltas = [first, 0, 40, 0, 0, 0, 0, 0, 0, last]
    anchors = batch.track_block("page", deltas, present=[0, 2, 3, 9])
    batch.fail(anchors[2], "torn")
    acker.apply(batch)
    tick(acker, 4)
    return [f"{first:016x}", f"{last:016x}"]


def test_absent_slots_have_no_outcome(begun: Driver, acker: Acker) -> None:
    residuals = expired_partial_block(acker)
    base = block_anchor(acker.ids.block("t", "page"), 0)
    found = begun.ask("read", task="t")["outcomes"]
    assert [
        [*each[:2], int(each[2]) - base, *each[3:5], *each[6:8], each[9]] for each in found
    ] == [
        ["nack", "failed", 2, "page", "torn", "", "", []],
        ["nack", "expired", 0, "page", "", "idle", residuals[0], ["mill"]],
        ["ack", "completed", 3, "page", "", "", "", []],
        ["nack", "expired", 9, "page", "", "idle", residuals[1], ["mill"]],
    ]


DAMAGED = ["", "90", "904", "90400", "904000", "9g40", "0x40", "90 40", "9041", "[0,3]"]
"""Bitmaps that no block of ten slots has."""


def test_damaged_bitmap_is_an_error_and_never_an_ack(begun: Driver, acker: Acker) -> None:
    expired_partial_block(acker)
    redis, stream = acker.connection.client, ShardKeys(acker.namespace, 0).outcomes("t")
    (_, (_, entry)) = redis.xrange(stream)
    assert {name: entry[name] for name in (b"failed", b"nacked", b"present")} == {
        b"failed": b"2000", b"nacked": b"8040", b"present": b"b040",
    }  # fmt: skip
    wrong: list[tuple[bytes, str | None]] = [
        *((name, bitmap) for name in (b"failed", b"nacked", b"present") for bitmap in DAMAGED),
        *((name, None) for name in (b"failed", b"nacked", b"present", b"residuals", b"n")),
        *((b"residuals", digits) for digits in ("", "00", "0" * 16)),
        # Bitmaps of ten slots, but the verdicts are not as many as n.
        *((b"failed", bitmap) for bitmap in ("0000", "3000")),
        *((b"present", bitmap) for bitmap in ("b000", "b060")),
    ]
    accepted = {}
    for name, value in wrong:
        redis.delete(stream)
        damaged = {**entry, name: value}
        redis.xadd(stream, {name: text for name, text in damaged.items() if text is not None})
        with contextlib.suppress(DriverError):
            accepted[name, value] = begun.ask("read", task="t")["outcomes"]
    assert not accepted
    redis.delete(stream)
    redis.xadd(stream, entry)
    assert len(begun.ask("read", task="t")["outcomes"]) == 3
