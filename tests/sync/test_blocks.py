"""Blocks through the client: one call for loose anchors and anchors of blocks."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from acker_redis.aio import AsyncAcker
from acker_redis.batching.batch import Batch
from acker_redis.batching.column_batch import ColumnBatch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    BacklogError,
    ChangedBatchError,
    InvalidBatchError,
    NamespaceNotFoundError,
    RedisUnavailableError,
    RejectedError,
)
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.ids import (
    SLOTS,
    block_anchor,
    new_anchor,
    new_tuple_id,
    split_anchor,
    xor_ids,
)
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import tick, total
from tests.transport.proxy import Proxy, proxied
from tests.waiting import LIMIT


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=4)


@pytest.fixture
def proxy(any_server: EmbeddedRedis) -> Iterator[Proxy]:
    with proxied(any_server.url) as running:
        yield running


def ids(count: int) -> list[int]:
    return [new_tuple_id() for _ in range(count)]


def verdicts(acker: Acker) -> dict[int, tuple[str, str, str]]:
    """Map each anchor to verdict, source id or label, and reason; fail if a verdict comes twice."""
    found = [(o.anchor, (o.verdict, o.source_id, o.why)) for o in acker.outcomes("t")]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_one_batch_carries_loose_rows_and_block_rows(acker: Acker) -> None:
    """A message of a loose tree and of a tree in a block is one call with two rows."""
    first, second = ids(2)
    source = Batch("t")
    loose = new_anchor()
    source.track(loose, "loose", [first])
    anchors = source.track_block("page/1", [first, second, 0], 7)
    assert acker.apply(source).tracked == 4
    work = Batch()
    for anchor in (loose, anchors[0]):
        work.ack(anchor, first)
    work.ack(anchors[1], second)
    applied = acker.apply(work)
    assert (applied.acked, applied.pending) == (4, 0)
    assert verdicts(acker) == {
        loose: ("ack", "loose", ""),
        **dict.fromkeys(anchors, ("ack", "page/1", "")),
    }


def test_tree_of_a_block_fails_alone_and_a_touch_is_of_the_whole_block(acker: Acker) -> None:
    messages = ids(4)
    anchors = acker.track_block("t", "page", messages)
    work = Batch()
    work.fail(anchors[1], "no", messages[1])
    work.touch(anchors[2])
    work.ack(anchors[0], messages[0])
    assert acker.apply(work).failed == 1
    tick(acker, 2)
    tick(acker)
    told = [(o.verdict, o.reason, split_anchor(o.anchor), o.why) for o in acker.outcomes("t")]
    block = acker.ids.block("t", "page")
    # A touch applies to the whole block.
    assert sorted(told) == sorted(
        [
            ("nack", "failed", (block, 1), "no"),
            *(("touch", "reset", (block, slot), "") for slot in range(4)),
            ("ack", "completed", (block, 0), ""),
            ("nack", "expired", (block, 2), ""),
            ("nack", "expired", (block, 3), ""),
        ]
    )


def test_batch_may_hold_a_block_and_rows_of_that_block(acker: Acker) -> None:
    messages = ids(3)
    batch = Batch("t", ids=acker.ids)
    anchors = batch.track_block("page", messages)
    batch.ack(anchors[0], messages[0])
    batch.fail(anchors[2], "no", messages[2])
    assert acker.apply(batch).failed == 1
    last = Batch()
    last.ack(anchors[1], messages[1])
    assert acker.apply(last).acked == 2


def test_row_of_a_slot_beyond_the_block_is_refused() -> None:
    """The rows are refused at once, in any order; otherwise the batch could never be sent."""
    batch = Batch("t")
    anchor = batch.track_block("other", ids(3), 7)[0] + 3
    for row in (
        lambda: batch.ack(anchor, 5),
        lambda: batch.fail(anchor),
        lambda: batch.touch(anchor),
    ):
        with pytest.raises(InvalidBatchError, match="has only 3 slots, so no slot 3"):
            row()
    late = Batch("t")
    late.fail(anchor, "no")
    with pytest.raises(InvalidBatchError, match="slot 3, but block 'other' has only 3 slots"):
        late.track_block("other", ids(3), 7)
    assert late.track_block("other", ids(4), 7).stop == anchor + 1


def test_batch_that_cannot_be_packed_stays_unsealed(acker: Acker) -> None:
    batch = Batch("t")
    batch.track(7, "s", [])
    packs = batch.parts
    batch.parts = lambda shards: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(ZeroDivisionError):
        acker.apply(batch)
    batch.parts = packs  # type: ignore[method-assign]
    assert acker.apply(batch).acked == 1


def test_retry_by_another_process_tracks_the_block_once(
    acker: Acker, any_server: EmbeddedRedis
) -> None:
    """Another process with another lane tracks the same content: the block is tracked once."""
    messages = ids(5)
    first = acker.track_block("t", "query/7/0", messages)
    work = Batch()
    work.ack(first[0], messages[0])
    acker.apply(work)
    with Acker.from_url(any_server.url, acker.namespace) as again:
        assert again.track_block("t", "query/7/0", messages) == first
        with pytest.raises(ChangedBatchError):
            again.track_block("t", "query/7/0", messages[::-1])
    assert total(acker)["tracked"] == 5
    rest = Batch()
    for anchor, message in list(zip(first, messages, strict=True))[1:]:
        rest.ack(anchor, message)
    assert acker.apply(rest).acked == 5


def test_rejected_block_raises_and_tracks_nothing(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(high_water=5)
    batch = Batch("t", ids=acker.ids)
    fits, over = (batch.track_block(label, ids(6)) for label in ("fits", "over"))
    assert acker.apply(batch).rejected_blocks == (over,)
    with pytest.raises(RejectedError, match="'more' of t was nacked"):
        acker.track_block("t", "more", ids(10))
    with pytest.raises(InvalidBatchError, match="11 trees never fits"):
        acker.track_block("t", "never", ids(11))
    told = verdicts(acker)
    assert {v for a, v in told.items() if a in over} == {("nack", "over", "")}
    assert len(told) == 16
    assert not any(anchor in told for anchor in fits)


def test_full_backlog_refuses_new_blocks(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(outcomes_limit=2)
    acker.track_block("t", "done at once", [0, 0])
    with pytest.raises(BacklogError):
        acker.track_block("t", "next", ids(2))


@pytest.mark.parametrize(
    ("label", "deltas", "block", "words"),
    [
        ("", [1], None, "1 to 255"),
        ("x\n", [1], None, "control"),
        ("x", [], None, "1 to 4095 trees, not 0"),
        ("x", [1] * 4096, None, "1 to 4095 trees, not 4096"),
        ("x", [-1], None, "0 to 2"),
        ("x", [2**63], None, "0 to 2"),
        ("x", b"1234567", None, "8 bytes"),
        ("x", b"\x80" + bytes(7), None, "0 to 2"),
        ("x", np.array([-1]), None, "0 to 2"),
        ("x", np.array([1.5]), None, "integers"),
        ("x", np.array([1], dtype=np.uint8), None, "integers"),
        ("x", np.ma.array([1, 2], mask=[0, 1]), None, "masked"),
        ("x", {1: 2}, None, "sequence"),
        ("x", {1, 2}, None, "sequence"),
        ("x", [True], None, "bool"),
        ("x", bytearray(7), None, "8 bytes"),
        ("\ud800", [1], None, "UTF-8"),
        ("page@5", [1], None, "Spark"),
        ("x", [1], -1, "2.50-1"),
        ("x", [1], 2**50, "2.50-1"),
    ],
)
def test_invalid_block_arguments_are_refused(
    label: str, deltas: object, block: int, words: str
) -> None:
    batch = Batch("t", ids=IdMaker(salt="0" * 32))
    with pytest.raises(InvalidBatchError, match=words):
        batch.track_block(label, deltas, block)  # type: ignore[arg-type]
    assert batch.parts() == []


def test_batch_refuses_invalid_block_rows() -> None:
    batch = Batch("t", ids=IdMaker(salt="0" * 32))
    anchors = batch.track_block("x", [1])
    with pytest.raises(InvalidBatchError, match="tracked twice"):
        batch.track_block("x", [2])
    with pytest.raises(InvalidBatchError, match="track the whole block"):
        batch.track(anchors[0], "s", [1])
    with pytest.raises(InvalidBatchError, match="needs a source"):
        Batch().track_block("x", [1])
    for k in range(63):
        batch.track_block(f"x{k}", [1])
    with pytest.raises(InvalidBatchError, match="at most 64 blocks"):
        batch.track_block("y", [1])


def test_columns_of_every_kind_are_tracked(acker: Acker) -> None:
    def raw(messages: list[int]) -> bytes:
        return np.array(messages, dtype=">u8").tobytes()

    def view(messages: list[int]) -> memoryview:
        return memoryview(raw(messages))

    for kind in (
        list,
        tuple,
        iter,
        np.array,
        lambda x: np.array(x, dtype=np.uint64),
        pa.array,
        raw,
        view,
    ):
        messages = ids(3)
        anchors = acker.track_block("t", f"{messages}", kind(messages))
        assert acker.apply(ColumnBatch(list(anchors), messages)).acked == 3


def test_rows_of_many_blocks_are_split_over_calls(acker: Acker) -> None:
    rows = [(block_anchor(block, 0), new_tuple_id()) for block in range(1000)]
    work = Batch()
    for anchor, message in rows:
        work.ack(anchor, message)
    acker.apply(work)
    assert total(acker)["orphaned"] == 1000


def chains(acker: Acker, trees: int, length: int) -> tuple[list[int], list[list[int]]]:
    """Trees in blocks of all sizes and loose ones, and rows that complete them, by step."""
    chance = random.Random(trees)
    anchors: list[int] = []
    firsts: list[int] = []
    while len(anchors) < trees:
        count = min(chance.choice([1, 10, 300, SLOTS]), trees - len(anchors))
        messages = ids(count)
        if count == 10:
            source = Batch("t")
            for message in messages:
                anchors.append(new_anchor())
                source.track(anchors[-1], "loose", [message])
            acker.apply(source)
        else:
            anchors += acker.track_block("t", f"at {len(anchors)}", messages)
        firsts += messages
    steps = [firsts, *(ids(trees) for _ in range(length - 1)), [0] * trees]
    return anchors, [
        [own ^ child for own, child in zip(one, next_, strict=True)]
        for one, next_ in pairwise(steps)
    ]


@pytest.mark.parametrize("through_arrays", [True, False])
def test_shuffled_chains_in_two_columns_are_acked_exactly_when_complete(
    make_any_acker: MakeAcker, through_arrays: bool
) -> None:
    """Rows of thousands of chains, shuffled over several calls: all are acked, none too early."""
    acker = make_any_acker(shards=4)
    anchors, steps = chains(acker, 12_000, 4)
    rows = [(a, d) for step in steps for a, d in zip(anchors, step, strict=True)]
    random.Random(1).shuffle(rows)
    for call in range(5):
        some = rows[call::5]
        columns = [[a for a, _ in some], [d for _, d in some]]
        batch = ColumnBatch(*(map(np.array, columns) if through_arrays else columns))
        acker.apply(batch)
        if call < 4:
            assert total(acker)["acked"] < 12_000
    assert set(verdicts(acker)) == set(anchors)
    assert total(acker)["acked"] == 12_000
    assert total(acker)["pending"] == 0


def test_failures_of_a_block_tracked_again_between_two_parts(make_any_acker: MakeAcker) -> None:
    """Failures fill two parts, and the source tracks the block again between them."""
    source = make_any_acker()
    bolt = Acker.from_url(source_url(source), source.namespace)
    messages = ids(2000)
    anchors = source.track_block("t", "page", messages)
    tick(source, 3)
    assert {v for v, _, _ in verdicts(source).values()} == {"nack"}
    assert bolt.config
    run, calls = bolt.connection.run, []

    def restarts_in_between(call: Call) -> object:
        calls.append(call)
        if len(calls) == 2:
            source.track_block("t", "page", messages)
        return run(call)

    bolt.connection.run = restarts_in_between  # type: ignore[method-assign]
    bolt.apply(ColumnBatch(list(anchors), messages, dict.fromkeys(anchors, "bad")))
    assert len(calls) == 2
    tick(source, 3)
    assert {v for v, _, _ in verdicts(source).values()} == {"nack"}
    bolt.close()


def source_url(acker: Acker) -> str:
    options = acker.connection.client.connection_pool.connection_kwargs
    return f"redis://{options['host']}:{options['port']}/0"


def test_rejection_is_found_after_a_lost_reply(make_any_acker: MakeAcker, proxy: Proxy) -> None:
    direct = make_any_acker(high_water=2)
    direct.track_block("t", "first", ids(3))
    with Acker.from_url(proxy.url, direct.namespace, retry_for=LIMIT) as acker:
        assert acker.config
        proxy.swallow = 1
        with pytest.raises(RejectedError):
            acker.track_block("t", "second", ids(3))
        proxy.swallow = 1
        assert len(acker.track_block("t", "complete at once", [0])) == 1
    assert proxy.lost == 2


def test_batch_with_only_blocks_is_not_empty() -> None:
    batch = Batch("t")
    assert not batch
    for k in range(64):
        assert not batch.full
        batch.track_block(f"x{k}", [1], k)
    assert batch
    assert batch.full


def test_batch_takes_no_rows_while_it_is_being_sent(acker: Acker) -> None:
    batch = Batch("t")
    batch.track(7, "s", [5])
    parts = batch.parts

    def late(shards: int) -> object:
        found = parts(shards)
        with pytest.raises(InvalidBatchError, match="already sent"):
            batch.fail(8, "too late")
        return found

    batch.parts = late  # type: ignore[assignment, method-assign]
    assert acker.apply(batch).tracked == 1


def test_refused_batch_can_be_changed_and_applied(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(high_water=1)
    batch = Batch("t")
    batch.track_block("too large", ids(3), 7)
    with pytest.raises(InvalidBatchError, match="never fits"):
        acker.apply(batch)
    assert batch.sent is None


def test_lost_replies_and_cut_requests_neither_lose_nor_double_rows(
    make_any_acker: MakeAcker, proxy: Proxy
) -> None:
    """Replies are lost and requests cut at random, between parts of loose rows and of blocks."""
    direct = make_any_acker(shards=2)
    chance = random.Random(7)
    with Acker.from_url(proxy.url, direct.namespace, retry_for=LIMIT) as acker:
        assert acker.config
        anchors, steps = chains(direct, 6_000, 5)
        rows = [(a, d) for step in steps for a, d in zip(anchors, step, strict=True)]
        chance.shuffle(rows)
        for call in range(20):
            some = rows[call::20]
            proxy.swallow, proxy.cut = chance.choice([0, 1, 3]), chance.choice([0, 1])
            failed = {some[0][0]: "no"}
            acker.apply(ColumnBatch([a for a, _ in some], [d for _, d in some], failed))
    assert proxy.lost > 20
    counters = total(direct)
    assert counters["acked"] + counters["failed"] == counters["tracked"] == 6_000
    assert counters["repeated"] > 5
    told = Counter(o.anchor for o in direct.outcomes("t"))
    assert set(told) == set(anchors)
    assert set(told.values()) == {1}


def test_interrupted_batch_continues_and_applies_no_part_twice(
    make_any_acker: MakeAcker, proxy: Proxy
) -> None:
    """The loose rows are applied and the reply of the blocks is lost: neither is applied twice."""
    direct = make_any_acker()
    one, two = ids(2)
    with Acker.from_url(proxy.url, direct.namespace, retry_for=0) as acker:
        anchors = acker.track_block("t", "page", [one, two])
        source = Batch("t")
        source.track(7, "s", [one])
        acker.apply(source)
        work = Batch()
        work.ack(7, one, [two])
        work.ack(anchors[0], one)
        run, calls = acker.connection.run, []

        def lose_the_second(call: Call) -> object:
            calls.append(call.script)
            if len(calls) == 2:
                proxy.swallow = 1
            return run(call)

        acker.connection.run = lose_the_second  # type: ignore[method-assign]
        with pytest.raises(RedisUnavailableError):
            acker.apply(work)
        assert acker.apply(work).repeated
        # The client reads again how long the fence holds.
        assert calls == ["apply", "apply_blocks", "status", "apply_blocks"]
        last = Batch()
        last.ack(7, two)
        last.ack(anchors[1], two)
        assert acker.apply(last).acked == 3


def test_status_counts_trees_in_blocks(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=2, high_water=20)
    for label in ("one", "two", "three"):
        acker.track_block("t", label, ids(5))
    source = Batch("t")
    source.track(7, "s", ids(1))
    acker.apply(source)
    for shard in range(2):
        acker.connection.run(commands.rotate(ShardKeys(acker.namespace, shard), force=True))
    acker.track_block("t", "four", ids(3))
    state = acker.status()
    assert (state.pending, state.in_blocks, state.pending_by_bucket) == (19, 18, (3, 16, 0))
    assert state.high_water == "high"
    tick(acker, 3)
    assert (acker.status().pending, acker.status().in_blocks) == (0, 0)


def test_verdict_of_a_block_names_the_slot(acker: Acker) -> None:
    anchors = acker.track_block("t", "page", [0, 0])
    source = Batch("t")
    source.track(7, "s", [])
    acker.apply(source)
    found = {o.anchor: (o.source_id, o.slot) for o in acker.outcomes("t")}
    assert found == {anchors[0]: ("page", 0), anchors[1]: ("page", 1), 7: ("s", None)}


def test_block_holds_trees_in_the_present_slots_only(acker: Acker) -> None:
    one, two = ids(2)
    anchors = acker.track_block("t", "page", [0, one, 0, two, 0], present=[1, 3, 4])
    assert len(anchors) == 5
    assert total(acker)["tracked"] == 3
    tree = acker.show(anchors[3])
    assert tree
    assert tree.block
    assert (tree.block.slots, tree.block.open, tree.block.absent) == (5, (1, 3), (0, 2))
    assert list(tree.block.done()) == [(4, 5)]
    assert acker.show(anchors[0]) is None, "no tree is in this slot"
    work = Batch()
    work.ack(anchors[1], one)
    work.ack(anchors[3], two)
    assert acker.apply(work).acked == 3
    assert verdicts(acker) == dict.fromkeys(
        (anchors[1], anchors[3], anchors[4]), ("ack", "page", "")
    )


def test_batch_may_hold_a_partial_block_and_rows_of_that_block(acker: Acker) -> None:
    """The slots that were absent stay absent: they have no verdict."""
    messages = ids(2)
    batch = Batch("t", ids=acker.ids)
    anchors = batch.track_block("page", [0, *messages, 0], present=[1, 2])
    batch.ack(anchors[1], messages[0])
    batch.fail(anchors[2], "no", messages[1])
    applied = acker.apply(batch)
    assert (applied.tracked, applied.acked, applied.failed) == (2, 1, 1)
    assert verdicts(acker) == {
        anchors[1]: ("ack", "page", ""),
        anchors[2]: ("nack", "page", "no"),
    }


def test_retry_with_the_same_present_slots_tracks_the_block_once(acker: Acker) -> None:
    column = [*ids(2), 0, 0]
    first = acker.track_block("t", "page", column, present=[0, 1, 2])
    assert acker.track_block("t", "page", column, present=iter([2, 1, 0])) == first
    for present in (None, [0, 1], [0, 1, 3], [0, 1, 2, 3]):
        with pytest.raises(ChangedBatchError, match="other content"):
            acker.track_block("t", "page", column, present=present)
    assert total(acker)["tracked"] == 3


@pytest.mark.parametrize("present", [[], [0, 4], [1, 2, 3], [True, False, False, False], "0"])
def test_invalid_present_slots_are_refused_before_the_call(acker: Acker, present: object) -> None:
    with pytest.raises(InvalidBatchError):
        acker.track_block("t", "page", [5, 0, 0, 0], present=present)  # type: ignore[arg-type]
    assert total(acker)["tracked"] == 0
    assert len(acker.track_block("t", "page", [5, 0, 0, 0], present=[0])) == 4


def test_rejection_of_a_partial_block_is_found_after_a_lost_reply(
    make_any_acker: MakeAcker, proxy: Proxy
) -> None:
    """The client looks up a slot that holds a tree: the first slot may be absent."""
    direct = make_any_acker(high_water=3)
    with Acker.from_url(proxy.url, direct.namespace, retry_for=LIMIT) as acker:
        assert acker.config
        proxy.swallow = 1
        column = [0, 0, *ids(1)]
        assert len(acker.track_block("t", "first", column, present=[1, 2])) == 3
        proxy.swallow = 1
        with pytest.raises(RejectedError):
            acker.track_block("t", "second", [*column, 0], present=[1, 2])
    assert proxy.lost == 2
    assert total(direct)["overflow"] == 2


def test_number_of_a_block_differs_between_namespaces(make_any_acker: MakeAcker) -> None:
    """It is derived from the salt of the namespace, so no author of labels can choose it."""
    one, other = make_any_acker(), make_any_acker()
    first = one.track_block("t", "page", [5])
    assert first == one.track_block("t", "page", [5])
    assert first != other.track_block("t", "page", [5])
    assert first[0] == block_anchor(one.ids.block("t", "page"), 0)


def test_client_without_a_salt_reads_it_before_it_tracks(
    acker: Acker, any_server: EmbeddedRedis
) -> None:
    with Acker.from_url(any_server.url, acker.namespace) as fresh:
        assert fresh.track_block("t", "page", [5]) == acker.track_block("t", "page", [5])
    with (
        Acker.from_url(any_server.url, "none-such") as missing,
        pytest.raises(NamespaceNotFoundError),
    ):
        missing.track_block("t", "page", [5])


def test_asyncio_client_tracks_partial_blocks(acker: Acker, any_server: EmbeddedRedis) -> None:
    async def run() -> range:
        async with AsyncAcker.from_url(any_server.url, acker.namespace) as twin:
            anchors = await twin.track_block("t", "page", [0, 5, 0], present=[1, 2])
            assert anchors == await twin.track_block("t", "page", [0, 5, 0], present=[1, 2])
            return anchors

    anchors = asyncio.run(run())
    assert acker.track_block("t", "page", [0, 5, 0], present=[1, 2]) == anchors
    work = Batch()
    work.ack(anchors[1], 5)
    assert acker.apply(work).acked == 2
    assert set(verdicts(acker)) == {anchors[1], anchors[2]}


def test_xor_of_the_first_messages_of_a_tree() -> None:
    one, two, three = ids(3)
    batch = Batch("t")
    batch.track_block("fan-out", [xor_ids([one, two, three])], 7)
    (part,) = batch.parts()
    assert int.from_bytes(part.rows.parts[0].deltas, "big") == one ^ two ^ three  # type: ignore[union-attr]
