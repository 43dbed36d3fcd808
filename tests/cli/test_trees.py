"""A shell as source and bolt: the output of one command is the input of the next."""

import json
from _thread import LockType
from collections import Counter

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.batching.sent import Applied
from acker_redis.cli.trees import large_batches
from acker_redis.errors import RedisUnavailableError
from acker_redis.flows.lane import Lane
from acker_redis.protocol.ids import block_anchor, format_tuple, split_anchor
from acker_redis.protocol.rows import Row
from acker_redis.sync.client import Acker
from acker_redis.trees.message_id import MessageId
from tests.cli.support import Ran, Shell
from tests.conftest import MakeAcker


def words(ran: Ran, err: str = "") -> list[list[str]]:
    """Check that the command succeeded and wrote this to stderr; return the fields of each line."""
    assert (ran.code, ran.err[: len(err) or None]) == (0, err)
    return [line.split("\t") for line in ran.out.splitlines()]


def test_a_tree_from_the_source_to_its_verdict(make_any_acker: MakeAcker, shell: Shell) -> None:
    ns = make_any_acker().namespace
    [[source_id, first, second]] = words(shell("track", ns, "shop", "order-1", "--messages", "2"))
    assert source_id == "order-1"
    [[child, other]] = words(shell("ack", ns, first, "--emit", "2"))
    assert words(shell("ack", ns, second)) == []
    assert words(shell("ack", ns, child)) == []
    assert words(shell("outcomes", ns, "shop")) == []
    assert words(shell("ack", ns, other)) == []
    [[verdict, reason, name, anchor, _, why, _]] = words(shell("outcomes", ns, "shop"))
    assert (verdict, reason, name, why) == ("ack", "completed", "order-1", "")
    assert anchor == first.split(":")[0]


def test_lines_of_stdin(make_any_acker: MakeAcker, shell: Shell) -> None:
    ns = make_any_acker().namespace
    ids = "".join(f"record {n}\n" for n in range(600))
    tracked = words(shell("track", ns, "shop", "-", stdin=ids))
    assert [source_id for source_id, _ in tracked] == ids.splitlines()
    messages = "\n".join(message for _, message in tracked)  # the last line has no end
    children = words(shell("ack", ns, "-", "--emit", "2", stdin=messages))
    assert {len(line) for line in children} == {2}
    assert words(shell("outcomes", ns, "shop")) == []
    all_of_them = "\r\n".join(child for line in children for child in line)
    done = shell("ack", ns, "-", "--json", stdin=all_of_them)
    assert sum(json.loads(line)["acked"] for line in done.out.splitlines()) == 600
    verdicts = words(shell("outcomes", ns, "shop", "--take"))
    assert {fields[2] for fields in verdicts} == set(ids.splitlines())
    assert words(shell("outcomes", ns, "shop")) == []


def test_a_join_belongs_to_the_trees_of_all_its_inputs(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    ns = make_any_acker(shards=2).namespace
    [[_, one]], [[_, two]] = (words(shell("track", ns, "shop", name)) for name in "ab")
    [[child]] = words(shell("ack", ns, one, two, "--emit", "1"))
    assert set(MessageId.parse(child)) == {int(each.split(":")[0]) for each in (one, two)}
    assert words(shell("outcomes", ns, "shop")) == []
    shell("ack", ns, child)
    assert {fields[2] for fields in words(shell("outcomes", ns, "shop"))} == {"a", "b"}


def test_named_children_have_the_same_ids_after_reprocessing(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    ns = make_any_acker().namespace
    [[_, message]] = words(shell("track", ns, "shop", "a"))
    first = words(shell("ack", ns, message, "--child", "mill", "--child", "shop"))
    again = words(shell("ack", ns, message, "--child", "mill", "--child", "shop"))
    assert first == again


def test_fail_and_touch(make_any_acker: MakeAcker, shell: Shell) -> None:
    ns = make_any_acker().namespace
    [[_, message]] = words(shell("track", ns, "shop", "a"))
    words(shell("touch", ns, message))
    words(shell("fail", ns, message, "--why", "no such address"))
    lines = shell("outcomes", ns, "shop", "--json").out.splitlines()
    verdicts = [json.loads(each) for each in lines]
    assert [(o["verdict"], o["reason"], o["why"]) for o in verdicts] == [
        ("touch", "reset", ""),
        ("nack", "failed", "no such address"),
    ]
    assert verdicts[1]["anchor"] == message.split(":")[0]
    assert verdicts[1]["source_id"] == "a"


@pytest.mark.parametrize("command", ["ack", "fail", "touch"])
def test_message_of_a_tree_that_is_not_pending_is_reported(
    make_any_acker: MakeAcker, shell: Shell, command: str
) -> None:
    acker = make_any_acker()
    ns, anchors = acker.namespace, acker.track_block("shop", "page", [40, 41])
    [[_, message]] = words(shell("track", ns, "shop", "a"))
    ran = shell(command, ns, f"{message},7:8", f"{anchors[0]}:50")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == (f"acker-redis: not pending in {ns} (ended, or not tracked yet): 7\n")
    assert shell(command, ns, "7:9").err == ran.err  # a row without a tree waits


def test_rejected_trees_have_no_line_and_exit_code_3(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    ns = make_any_acker(high_water=2).namespace
    ran = shell("track", ns, "shop", "a", "b", "c", "d", "e", "f")
    assert ran.code == 3
    assert [line.split("\t")[0] for line in ran.out.splitlines()] == ["a", "b", "c", "d"]
    assert "rejected, too many trees are pending: e\n" in ran.err
    assert "rejected, too many trees are pending: f\n" in ran.err
    lines = shell("outcomes", ns, "shop").out.splitlines()
    assert [line.split("\t")[:3] for line in lines] == [["nack", "overflow", x] for x in "ef"]


@pytest.mark.parametrize("command", ["ack", "fail", "touch"])
@pytest.mark.parametrize("text", ["7", "7:0", "0:7", "x:y", "7:40\n7:40\n", "7:40\nhm\n"])
def test_an_invalid_message_id_changes_nothing(
    make_any_acker: MakeAcker, shell: Shell, command: str, text: str
) -> None:
    acker = make_any_acker()
    ran = shell(command, acker.namespace, "-", stdin=text)
    assert ran.code == 1
    assert ran.err.startswith("acker-redis: ")
    assert ran.out == ""
    assert acker.status().pending == 0


def test_a_line_that_is_not_utf_8_is_reported_with_its_number(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    ran = shell("track", acker.namespace, "shop", "-", stdin=b"a\n\xff\n")
    assert (ran.code, ran.out) == (1, "")
    assert "line 2 of stdin is not UTF-8" in ran.err
    assert acker.status().pending == 0


def test_lines_before_an_invalid_line_of_a_batch_are_not_applied(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    ran = shell("ack", acker.namespace, "-", stdin=f"{format_tuple(7, 40)}\n9:x\n")
    assert ran.code == 1
    assert acker.status().pending == 0


TREES = 1638
"""Maximum number of trees in a message id; a batch has up to 1024 rows."""


def large_message(acker: Acker, in_blocks: bool) -> str:
    """Return the id of the only message of these trees."""
    if in_blocks:
        anchors = [block_anchor(number, slot) for number in range(1, 100) for slot in range(17)][
            :TREES
        ]
        for start in range(0, 99, 33):
            batch = Batch("shop")
            for number in range(start + 1, start + 34):
                trees = [anchor for anchor in anchors if split_anchor(anchor)[0] == number]  # type: ignore[index]
                if trees:
                    batch.track_block(f"b{number}", [40] * len(trees), number)
            acker.apply(batch)
    else:
        anchors = [*range(1, TREES + 1)]
        for start in range(0, TREES, 819):
            batch = Batch("shop")
            for anchor in anchors[start : start + 819]:
                batch.track(anchor, f"s{anchor}", [40])
            acker.apply(batch)
    return str(MessageId(dict.fromkeys(anchors, 40)))


def verdict_counts(acker: Acker) -> Counter[str]:
    """Return the number of verdicts of the source, by kind."""
    return Counter(each.verdict for each in acker.outcomes("shop"))


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("shards", [1, 4])
def test_a_message_of_1638_trees_is_acked(
    make_any_acker: MakeAcker, shell: Shell, in_blocks: bool, shards: int
) -> None:
    acker = make_any_acker(shards=shards)
    message = large_message(acker, in_blocks)
    assert words(shell("ack", acker.namespace, message)) == []
    assert verdict_counts(acker) == {"ack": TREES}
    assert acker.status().pending == 0


@pytest.mark.parametrize("stdin", [False, True])
@pytest.mark.parametrize("in_blocks", [False, True])
def test_a_message_of_1638_trees_is_touched_and_failed(
    make_any_acker: MakeAcker, shell: Shell, in_blocks: bool, stdin: bool
) -> None:
    acker = make_any_acker(shards=2)
    message = large_message(acker, in_blocks)
    given, lines = ("-", message) if stdin else (message, "")
    for _ in range(2):
        words(shell("touch", acker.namespace, given, stdin=lines))
        # A block is touched as a whole, and twice if its rows are in two batches.
        touches = verdict_counts(acker)
        assert set(touches) == {"touch"}
        assert TREES <= touches["touch"] <= TREES + 17 * in_blocks
    words(shell("fail", acker.namespace, given, "--why", "x" * 255, stdin=lines))
    assert verdict_counts(acker) == {"nack": TREES}


def test_a_child_of_1638_trees(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=2)
    message = large_message(acker, False)
    [[child]] = words(shell("ack", acker.namespace, message, "--emit", "1"))
    assert verdict_counts(acker) == {}
    shell("ack", acker.namespace, "-", stdin=child)
    assert verdict_counts(acker) == {"ack": TREES}


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("children", [(), ("--child", "mill")])
def test_a_partially_applied_ack_of_1638_trees_can_be_retried(
    make_any_acker: MakeAcker,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    in_blocks: bool,
    children: tuple[str, ...],
) -> None:
    """The second batch is not sent. Rows that were applied twice would cancel."""
    acker = make_any_acker(shards=2)
    message, batches, apply = large_message(acker, in_blocks), list[Batch](), Acker.apply

    def dies(acker: Acker, batch: Batch, lane: Lane[LockType] | None = None) -> Applied:
        batches.append(batch)
        if len(batches) == 2:
            raise RedisUnavailableError("Redis is away")
        return apply(acker, batch, lane)

    with monkeypatch.context() as patch:
        patch.setattr(Acker, "apply", dies)
        ran = shell("ack", acker.namespace, message, *children)
    assert (ran.code, ran.out) == (1, "")
    assert "1 of 2 batches of this message were applied" in ran.err
    # Without children, the trees of the applied batch have ended.
    err = "" if children else "acker-redis: not pending"
    lines = words(shell("ack", acker.namespace, message, *children), err)
    assert words(shell("ack", acker.namespace, message, *children), err) == lines
    for child in (each for line in lines for each in line):
        shell("ack", acker.namespace, child)
    assert verdict_counts(acker) == {"ack": TREES}


def test_each_large_batch_has_one_part_per_shard() -> None:
    """A lane named by the hash of its content has one number per shard."""
    anchors = [*range(1, 1100), *(block_anchor(n, s) for n in range(1, 130) for s in range(9))]
    rows = [Row(anchor, 40) for anchor in reversed(anchors)]
    batches = large_batches(rows)
    assert sorted(row for batch in batches for row in batch.rows()) == sorted(rows)
    for batch in batches:
        shards = [part.shard for part in batch.parts(4)]
        assert len(shards) == len(set(shards))
