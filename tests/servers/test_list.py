"""list.lua: pagination over pending trees, also while buckets tick, grow and expire."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
import redis

from acker_redis.batching.batch import Batch
from acker_redis.errors import InvalidBatchError, NamespaceNotFoundError, SchemaError
from acker_redis.flows.browse import BlockEntry, PageCursor, following
from acker_redis.protocol import commands, scripts
from acker_redis.protocol.commands import Kind, Listed
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.tree import TreeState
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import (
    TRACK,
    columns,
    drain,
    dump,
    fail,
    rotate,
    row,
    send,
    tick,
    touch,
    touch_block,
    track,
    track_block,
)

A = 0x1234_5678_9ABC


def ask(
    acker: Acker,
    kind: Kind = "pending",
    bucket: int = 0,
    cursor: int = 0,
    count: int = 1000,
    text: str = "",
    task: str = "",
) -> Listed:
    keys = ShardKeys(acker.namespace, 0)
    call = commands.list_page(keys, kind, bucket, cursor, count, text, task)
    return commands.parse_list(acker.connection.run(call), keys)


def walk(
    acker: Acker, kind: Kind = "pending", count: int = 10, between: Callable[[], None] | None = None
) -> dict[int, int]:
    """Page over a shard, and return the last seen bucket age of each anchor or block."""
    seen: dict[int, int] = {}
    at: PageCursor | None = PageCursor(0, kind)
    while at and at.kind == kind:
        listed = ask(acker, kind, at.bucket, at.at, count)
        assert listed.looked == len(listed.page)
        seen.update((int.from_bytes(name, "big"), listed.age) for name, _ in listed.page)
        at = following(at, listed)
        if between:
            between()
    return seen


def fill(acker: Acker, anchors: range, task: str = "t") -> None:
    rows = [(anchor, A, TRACK) for anchor in anchors]
    send(acker, columns(rows, task, [f"s{anchor}" for anchor in anchors]))


def test_pages_start_with_the_oldest_bucket(acker: Acker) -> None:
    """The expiring bucket comes first, and empty buckets are skipped."""
    fill(acker, range(1, 101))
    for block in (1, 2):
        track_block(acker, block, [A])
    tick(acker, 2)
    fill(acker, range(101, 601))
    track_block(acker, 3, [A])
    rotate(acker)
    seen = walk(acker)
    assert seen == dict.fromkeys(range(1, 101), 3) | dict.fromkeys(range(101, 601), 1)
    assert list(seen.values()) == sorted(seen.values(), reverse=True)
    assert walk(acker, "blocks") == {1: 3, 2: 3, 3: 1}
    drain(acker)
    assert set(walk(acker)) == set(range(101, 601))
    assert set(walk(acker, "blocks")) == {3}


def test_page_of_an_empty_shard(acker: Acker) -> None:
    for kind in ("pending", "blocks"):
        listed = ask(acker, kind)
        assert (listed.shards, listed.age, listed.cursor, listed.looked) == (1, 0, 0, 0)


@pytest.mark.parametrize("count", [290, 1000])
@pytest.mark.parametrize("ticks", [False, True])
def test_ticks_between_pages_skip_nothing_and_repeat_nothing(
    acker: Acker, ticks: bool, count: int
) -> None:
    """Pagination by bucket ages, which change with each tick, would skip or repeat buckets.

    The test drains the expiring bucket only after it was returned. So no record is missing.
    """
    tick(acker, 2)
    for bucket in range(3):
        fill(acker, range(1000 * bucket + 1, 1000 * bucket + 301))
        if bucket < 2:
            tick(acker)
    counted: list[int] = []
    at: PageCursor | None = PageCursor()
    while at and at.kind == "pending":
        listed = ask(acker, "pending", at.bucket, at.at, count)
        counted += [int.from_bytes(name, "big") for name, _ in listed.page]
        at = following(at, listed)
        if ticks and len(counted) in range(250, 900):
            rotate(acker)  # ticks only while nothing expires: at most 2, one before each bucket
            if not ask(acker, "pending", 0).looked:
                drain(acker)
    assert len(counted) == len(set(counted)) == 900


def test_cursor_stays_valid_when_its_bucket_starts_to_expire(acker: Acker) -> None:
    """Its key changes, but its cursor stays valid."""
    fill(acker, range(1, 801))
    tick(acker, 2)
    first = ask(acker, count=200)
    assert (first.age, first.cursor > 0) == (2, True)
    rotate(acker)
    fill(acker, range(1001, 1101))  # under the key that the bucket had
    second = ask(acker, bucket=first.bucket, cursor=first.cursor)
    assert (second.bucket, second.age) == (first.bucket, 3)
    names = [int.from_bytes(name, "big") for name, _ in (*first.page, *second.page)]
    assert sorted(names) == list(range(1, 801))
    drain(acker)
    gone = ask(acker, bucket=first.bucket, cursor=first.cursor)
    assert (gone.bucket, gone.age, gone.cursor) == (first.bucket + 3, 0, 0)
    assert sorted(int.from_bytes(name, "big") for name, _ in gone.page) == list(range(1001, 1101))


@pytest.mark.parametrize("away", [-3, 4, 10**9])
def test_unknown_bucket_number_means_the_oldest_bucket(acker: Acker, away: int) -> None:
    """The cursor is old, or the namespace was created again."""
    tick(acker)
    fill(acker, range(1, 701))
    for _ in range(3):
        rotate(acker)
    fill(acker, range(701, 801))
    listed = ask(acker)
    assert (listed.bucket, listed.age) == (1 + 3, 3), "the number of earlier ticks, plus N"
    assert (listed.looked, listed.cursor) == (700, 0)
    assert ask(acker, bucket=listed.bucket + 3).looked == 100
    there = ask(acker, bucket=listed.bucket + away, cursor=77)
    assert (there.bucket, there.age, there.looked) == (listed.bucket, 3, 700)


@pytest.mark.parametrize("refresh", ["never", "update"])
def test_pagination_returns_every_record_that_stays_pending(
    make_acker: MakeAcker, refresh: str
) -> None:
    """Ticks, drains, touches, acks, and enough new trees to grow and shrink the hash tables."""
    happened: Counter[str] = Counter()
    for seed in range(10):
        play(make_acker(refresh=refresh, high_water=10**6), random.Random(seed), happened)
    assert happened["ticks"] > 10, happened
    assert min(happened["pending stayed"], happened["blocks stayed"]) > 10, happened


def play(acker: Acker, chance: random.Random, happened: "Counter[str]") -> None:
    refresh = acker.config.refresh
    pending: set[int] = set()
    blocks: set[int] = set()
    fresh = iter(range(1, 10**9))

    def more(count: int) -> None:
        numbers = [next(fresh) for _ in range(count)]
        send(acker, columns([(n, A, TRACK) for n in numbers], "t", ["s"] * count))
        pending.update(numbers)
        block = next(fresh)
        track_block(acker, block, [A])
        blocks.add(block)

    def held(place: str) -> set[int]:
        client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
        names = [f"{keys.prefix}:{place}:{bucket}" for bucket in range(3)]
        names.append(keys.expiring if place == "pending" else keys.blocks_expiring)
        return {int.from_bytes(name, "big") for key in names for name in client.hkeys(key)}

    def something() -> None:
        what = chance.randrange(20)
        if what < 4:
            more(chance.choice([5, 50, 400]))
        elif what < 8 and pending:
            some = chance.sample(sorted(pending), min(len(pending), 60))
            send(acker, columns([(anchor, A, 0) for anchor in some]))
            pending.difference_update(some)
        elif what in (8, 9):
            happened["ticks"] += rotate(acker)
        elif what in (10, 11):
            drain(acker)
        else:
            for anchor in chance.sample(sorted(pending), min(len(pending), 5)):
                touch(acker, anchor) if refresh == "never" else row(acker, anchor, 0)
            for block in chance.sample(sorted(blocks), min(len(blocks), 2)):
                touch_block(acker, block)

    for _ in range(2):
        more(500)
        tick(acker)
    kinds: list[tuple[Kind, int]] = [("pending", 100), ("blocks", 1)]
    for kind, count in kinds:
        before = held(kind)
        seen = walk(acker, kind, count, something)
        stayed = before & held(kind)
        assert stayed <= set(seen)
        happened[f"{kind} stayed"] += len(stayed)


def test_page_stops_at_128_kib(acker: Acker) -> None:
    for start in range(1, 1001, 250):
        ids = range(start, start + 250)
        send(acker, columns([(i, A, TRACK) for i in ids], "t" * 64, [f"{i:0255d}" for i in ids]))
    listed = ask(acker)
    size = sum(len(record) for _, record in listed.page)
    assert 128 * 1024 <= size < 170 * 1024
    assert listed.cursor > 0
    assert len(walk(acker, count=1000)) == 1000
    assert ask(acker, text=f"{1:0255d}").looked < 1000, (
        "also with a filter that matches few records"
    )


def test_by_source_id_label_and_task(acker: Acker) -> None:
    for anchor, source_id, task in ((1, "s", "t"), (2, "s", "tt"), (3, "ts", "t"), (4, "s-1", "t")):
        track(acker, anchor, A, source_id, task)
    fail(acker, 5, "s")  # the why of an untracked record is not a source id
    row(acker, 6, A)
    track_block(acker, 7, [A], "s", "t")
    track_block(acker, 8, [A], "s2", "t")

    def found(kind: Kind, text: str, task: str) -> set[int]:
        listed = ask(acker, kind, text=text, task=task)
        assert listed.looked == {"pending": 6, "blocks": 2}[kind]
        return {int.from_bytes(name, "big") for name, _ in listed.page}

    assert found("pending", "", "") == {1, 2, 3, 4, 5, 6}
    assert found("pending", "s", "") == {1, 2}
    assert found("pending", "ts", "") == {3}, "task and source id are matched separately"
    assert found("pending", "s", "t") == {1}
    assert found("pending", "", "t") == {1, 3, 4}
    assert found("pending", "S", "") == set()
    assert found("blocks", "s", "") == found("blocks", "s", "t") == {7}
    assert found("blocks", "s", "tt") == set()
    assert found("blocks", "", "t") == {7, 8}


def test_foreign_fields_do_not_stop_the_pagination(acker: Acker) -> None:
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    track(acker, 1, A)
    wrong = {b"": b"x", b"12345678": b"", b"87654321": b"x" * 15 + b"\5t"}
    client.hset(keys.pending(0), mapping=wrong)
    client.hset(keys.blocks(0), mapping={b"": b"y" * 9, b"\xff" * 8: b"y" * 40})
    track_block(acker, 2, [A])
    listed = ask(acker)
    assert (listed.looked, len(listed.page)) == (4, 4)
    assert len(ask(acker, text="s").page) == 1
    page = acker.page()
    assert ([tree.anchor for tree in page.trees], page.looked, page.unreadable) == ([1], 7, 5)
    assert [block.block for block in page.blocks] == [2]


def test_list_changes_nothing(acker: Acker) -> None:
    fill(acker, range(1, 30))
    before = dump(acker)
    walk(acker)
    walk(acker, "blocks")
    ask(acker, text="s1", task="t")
    assert dump(acker) == before


RIGHT = ("pending", "0", "0", "1", "", "")
"""The seventh argument, how the text matches, is optional."""


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        *((0, kind) for kind in ("", "expiring", "Pending", "block")),
        *((1, text) for text in ("", "-1", "1.5", "x", "1" * 16, "0\n")),
        *((2, text) for text in ("", "-1", "1e3", "1" * 20, " 0")),
        *((3, text) for text in ("", "0", "1001", "01", "-5", "1.5")),
        (4, "x" * 256),
        (5, "x" * 65),
        *((6, text) for text in ("x", "PREFIX", "suffix")),
    ],
)
def test_invalid_arguments_of_list_are_refused(acker: Acker, at: int, wrong: str) -> None:
    keys = ShardKeys(acker.namespace, 0)
    acker.connection.run(commands.Call("list", keys.both, RIGHT))
    args = [*RIGHT[:at], wrong, *RIGHT[at + 1 :]]
    with pytest.raises(InvalidBatchError):
        acker.connection.run(commands.Call("list", keys.both, tuple(args)))


def test_invalid_keys_and_argument_counts_are_refused(acker: Acker) -> None:
    client, script = acker.connection.client, scripts.load("list").source
    prefix, meta = ShardKeys(acker.namespace, 0).both
    for names, args in (
        ([prefix], RIGHT),
        ([prefix, meta, "more"], RIGHT),
        ([prefix, f"{prefix}:other"], RIGHT),
        ([prefix, meta], RIGHT[:-1]),
        ([prefix, meta], [*RIGHT, "", ""]),
    ):
        with pytest.raises(redis.ResponseError, match="ACKER ARGS needs two keys"):
            client.eval(script, len(names), *names, *args)


def test_no_namespace_and_another_schema(acker: Acker) -> None:
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    client.hset(keys.meta, "schema", 9)
    with pytest.raises(SchemaError):
        ask(acker)
    client.delete(keys.meta)
    with pytest.raises(NamespaceNotFoundError):
        ask(acker)


def test_pages_show_trees_and_blocks_as_tracked(make_acker: MakeAcker) -> None:
    """With the client, over four shards."""
    acker = make_acker(shards=4)
    batch = Batch("t")
    for anchor in range(1, 401):
        batch.track(anchor, f"s{anchor}", [A])
    acker.apply(batch)
    labels = [f"page {number}" for number in range(8)]
    for number, label in enumerate(labels):
        acker.track_block("t", label, [A, 0, 0], number)
    trees: dict[int, TreeState] = {}
    blocks: dict[int, BlockEntry] = {}
    page = acker.page(count=50)
    while True:
        assert len(page.trees) + len(page.blocks) < 150
        trees.update((tree.anchor, tree) for tree in page.trees)
        blocks.update((block.block, block) for block in page.blocks)
        if page.next is None:
            break
        page = acker.page(PageCursor.parse(str(page.next)), 50)
    assert sorted(trees) == list(range(1, 401))
    shown = acker.show(77)
    assert shown
    assert (trees[77].source_id, trees[77].source, trees[77].checksum) == ("s77", "t", A)
    assert (trees[77].bucket, trees[77].failed) == (shown.bucket, shown.failed)
    assert [blocks[number].label for number in range(8)] == labels
    assert {(block.slots, block.source, block.bucket) for block in blocks.values()} == {(3, "t", 0)}
    assert list(blocks[3].anchors) == [1 << 62 | 3 << 12 | slot for slot in range(3)]
    ages = [tree.age_ms for tree in trees.values()] + [block.age_ms for block in blocks.values()]
    assert all(0 <= age < 600_000 for age in ages)
