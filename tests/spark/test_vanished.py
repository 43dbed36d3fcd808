"""Messages that a job does not mention are found where the content of a shard is merged."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.errors import DuplicateMessageError, InvalidBatchError
from acker_redis.protocol.ids import SLOTS, block_anchor, shard_of
from acker_redis.spark.fold.content import Sealed
from acker_redis.spark.fold.terms import Kind
from acker_redis.spark.fold.vanished import Unmentioned
from tests.spark.conftest import Term, packed, parts_of, said, seal

WHY = "vanished in batch 3 of query price"
POLICIES: list[Unmentioned] = ["fail", "leave", "ack"]


class Job:
    """A random batch, and what it must do, computed with sets."""

    def __init__(self, seed: int, trees: int) -> None:
        chance = random.Random(seed)
        self.terms: list[Term] = []
        self.lost: dict[int, int] = {}
        """XOR of the unmentioned messages, by anchor, of trees without a failure."""
        self.acks: dict[str, dict[int, int]] = {"fail": {}, "leave": {}, "ack": {}}
        self.failed: dict[int, str] = {}
        for number in range(trees):
            slot = block_anchor(chance.randrange(3), number)
            anchor = chance.choice([1 + number, slot, chance.getrandbits(61) + 2**60])
            self._tree(anchor, chance)
        chance.shuffle(self.terms)

    def _tree(self, anchor: int, chance: random.Random) -> None:
        mentioned, lost, children = 0, 0, 0
        for _ in range(chance.choice([1, 1, 2, 3, 7])):
            id_ = chance.getrandbits(63) | 1
            self.terms.append((Kind.INPUT, anchor, id_, ""))
            # A message may be acked, and emitted from several times: by keys, or on two edges.
            times = chance.choice([0, 1, 1, 1, 1, 2, 3])
            self.terms += [(Kind.MENTION, anchor, id_, "")] * times
            mentioned, lost = (mentioned ^ id_, lost) if times else (mentioned, lost ^ id_)
            for _ in range(times and chance.randrange(3)):
                child = chance.getrandbits(63) | 1
                children ^= child
                self.terms.append((Kind.CHILD, anchor, child, ""))
                # The job emits from rows that it has just emitted.
                self.terms += [(Kind.MENTION, anchor, child, "")] * chance.choice([0, 0, 1, 2])
        fails = chance.random() < 0.1
        if fails:
            self.terms.append((Kind.FAIL, anchor, 0, "no"))
            self.failed[anchor] = "no"
        elif lost:
            self.lost[anchor] = lost
        self.acks["fail"][anchor] = self.acks["ack"][anchor] = mentioned ^ lost ^ children
        self.acks["leave"][anchor] = mentioned ^ (lost if fails else 0) ^ children


def sealed(
    terms: list[Term], shards: int, unmentioned: Unmentioned, seed: int = 0, partitions: int = 2
) -> dict[int, Sealed]:
    rows = packed(terms, shards, random.Random(seed), partitions)
    more: dict[str, Any] = {"unmentioned": unmentioned, "why_vanished": WHY}
    return seal(rows, shards, **more)


@given(
    st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([1, 4]), st.sampled_from(POLICIES)
)
def test_exactly_the_trees_with_an_unmentioned_message_fail(
    seed: int, trees: int, shards: int, unmentioned: Unmentioned
) -> None:
    """With several messages of a tree, keys, two edges, failures, and emits of emitted rows."""
    job = Job(seed, trees)
    found = sealed(job.terms, shards, unmentioned, seed)
    lost = {} if unmentioned == "ack" else job.lost
    meaning = said(parts_of(found))
    vanished = dict.fromkeys(lost, WHY) if unmentioned == "fail" else {}
    assert meaning.failed == job.failed | vanished
    acks = job.acks[unmentioned]
    assert meaning.deltas == {anchor: delta for anchor, delta in acks.items() if delta}
    for shard, each in found.items():
        mine = sorted(anchor for anchor in lost if shard_of(anchor, shards) == shard)
        assert each.vanished == len(mine)
        assert each.examples == tuple(f"{anchor}:{lost[anchor]}" for anchor in mine[:3])
    again = sealed(job.terms, shards, unmentioned, seed + 1, partitions=3)
    assert again == found, "a batch that runs again has the same digest"


@pytest.mark.parametrize("anchor", [7, block_anchor(1, 9)])
def test_each_lost_message_of_a_pair_is_named(anchor: int) -> None:
    """Its siblings of the same tree are emitted from."""
    ids = [40, 41, 42]
    inputs: list[Term] = [(Kind.INPUT, anchor, id_, "") for id_ in ids]
    for lost in ids:
        mentions: list[Term] = [(Kind.MENTION, anchor, id_, "") for id_ in ids if id_ != lost]
        (found,) = sealed([*inputs, *mentions], 1, "fail").values()
        assert found.examples == (f"{anchor}:{lost}",)
        assert said(found.parts).failed == {anchor: WHY}
        (left,) = sealed([*inputs, *mentions], 1, "leave").values()
        assert said(left.parts).deltas == {anchor: 40 ^ 41 ^ 42 ^ lost}
        assert left.digest != found.digest


def test_equal_ids_in_two_trees_are_two_messages() -> None:
    terms: list[Term] = [(Kind.INPUT, anchor, 40, "") for anchor in (7, 8)]
    (found,) = sealed([*terms, (Kind.MENTION, 7, 40, "")], 1, "fail").values()
    assert said(found.parts).failed == {8: WHY}


def test_many_trees_in_blocks() -> None:
    """Each tree is mentioned twice, so each needs the closer look; one message is not mentioned."""
    chance = random.Random(3)
    messages = [
        (block_anchor(number, slot), chance.getrandbits(63))
        for number in (1, 2)
        for slot in range(SLOTS)
        for _ in range(2)
    ]
    terms: list[Term] = [(Kind.INPUT, *message, "") for message in messages]
    mentions: list[Term] = [(Kind.MENTION, *message, "") for message in messages] * 2
    anchor, lost = messages[5001]
    mentions = [term for term in mentions if term[2] != lost]
    (found,) = sealed([*terms, *mentions], 1, "fail").values()
    assert found.examples == (f"{anchor}:{lost}",)
    assert said(found.parts).failed == {anchor: WHY}


@pytest.mark.parametrize("unmentioned", ["fail", "leave"])
def test_mention_of_another_batch_is_refused_or_ignored(unmentioned: Unmentioned) -> None:
    """Refused if its tree has no message in this batch; it never acks anything."""
    inputs: list[Term] = [(Kind.INPUT, 7, 40, ""), (Kind.MENTION, 7, 40, "")]
    with pytest.raises(InvalidBatchError, match="no input of these trees is in this batch"):
        sealed([*inputs, (Kind.MENTION, 8, 41, "")], 1, unmentioned)
    (found,) = sealed([*inputs, (Kind.MENTION, 7, 41, "")], 1, unmentioned).values()
    assert found.vanished == 0
    assert said(found.parts).deltas == {7: 40}


@pytest.mark.parametrize("anchor", [7, block_anchor(1, 9)])
def test_message_that_is_delivered_twice_has_not_vanished(anchor: int) -> None:
    """Equal inputs cancel. The tree is failed for another reason, or expires: never acked."""
    twice: list[Term] = [(Kind.INPUT, anchor, 40, "")] * 2
    mention: Term = (Kind.MENTION, anchor, 40, "")
    with pytest.raises(DuplicateMessageError, match="an input occurs twice"):
        sealed([*twice, mention], 1, "fail")
    other: list[Term] = [(Kind.INPUT, anchor, 41, ""), (Kind.MENTION, anchor, 41, "")]
    (found,) = sealed([*twice, mention, *other], 1, "fail").values()
    assert (found.vanished, said(found.parts).deltas) == (0, {anchor: 41})


def test_failures_of_all_trees_need_no_mentions() -> None:
    """The batch came back with other content."""
    terms: list[Term] = [
        (Kind.INPUT, 7, 40, ""),
        (Kind.INPUT, 8, 41, ""),
        (Kind.MENTION, 8, 41, ""),
    ]
    rows = packed(terms, 1)
    (found,) = seal(rows, 1, fail_all="other", unmentioned="fail", why_vanished=WHY).values()
    assert said(found.parts).failed == {7: "other", 8: "other"}
    assert found.vanished == 0
