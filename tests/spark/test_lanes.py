"""Lanes: a batch is applied once or refused, for any number of senders and retries."""

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from acker_redis.batching.sent import Part
from acker_redis.errors import (
    AckerError,
    ChangedBatchError,
    ConfigError,
    InvalidBatchError,
    LaneError,
    RedisUnavailableError,
)
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.ids import block_anchor
from acker_redis.spark.fold import lanes
from acker_redis.spark.fold.apply import Done, Job, OnChanged, in_driver
from acker_redis.spark.fold.content import Sealed
from acker_redis.spark.fold.lanes import (
    CHUNKS,
    GENERATIONS,
    MAX_BATCH_ID,
    AppliedContent,
    LaneTurn,
    applied_content,
    digest_of,
    lane_of,
    send,
)
from acker_redis.spark.fold.target import Target
from acker_redis.spark.fold.terms import Kind
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.spark.conftest import Term, packed, sealed, url_of
from tests.support import rotate, tick, total, verdicts

LANE = lane_of("app", "query")
LABELS = dict(enumerate("abcd", 10**12))


def loose(count: int, base: int = 0) -> list[Term]:
    return [(Kind.TRACK, 1 + a, 5 + a, f"s{a}") for a in range(base, base + count)]


def in_blocks(slots: int = 3) -> list[Term]:
    return [
        (Kind.TRACK, block_anchor(number, slot), 5 + slot, "")
        for number in LABELS
        for slot in range(slots)
    ]


class Dying(Acker):
    """A client that loses its connection before a given call."""

    calls_left = -1

    def apply_part(self, part: Part, fence: Fence) -> Any:
        self.calls_left -= 1
        if self.calls_left == -1:
            raise RedisUnavailableError("the driver was killed")
        return super().apply_part(part, fence)


class Driver:
    """A driver that applies batches of one query."""

    def __init__(self, acker: Acker, on_changed: OnChanged = "raise") -> None:
        self.target = Target(acker.namespace, url_of(acker), timeout=60)
        self.client = Dying(acker.connection.client, acker.namespace)
        self.on_changed = on_changed
        self.shards = acker.config.shards

    def apply(self, batch_id: int, terms: list[Term], dies_before: int = -1) -> Done:
        """Apply terms in random order; die before this call, counted from 0 (-1: never)."""
        self.client.calls_left = dies_before
        job = Job(
            self.target, self.shards, LANE, batch_id, self.on_changed, source="t", labels=LABELS
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Target, "client", lambda target: self.client)
            chance = random.Random(batch_id)
            return in_driver(job, packed(terms, self.shards, chance, 2))


def numbers(done: Done, name: str) -> int:
    return sum(getattr(each, name) for each in done.shards)


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(high_water=100_000)


def one(terms: list[Term]) -> Sealed:
    (found,) = sealed(terms, source="t", labels=LABELS).values()
    return found


def turn(content: Sealed, batch_id: int = 0, generation: int = 0) -> LaneTurn:
    return LaneTurn(LANE, batch_id, generation, digest_of([(0, content.digest)]))


def test_names_of_lanes() -> None:
    assert LANE == "@spark/app/query"
    for app, query in (("a b", "q"), ("app", ""), ("app", "q" * 65), ("a/b", "q")):
        with pytest.raises(ConfigError):
            lane_of(app, query)


def test_the_longest_name_of_a_lane(acker: Acker) -> None:
    content = one(loose(1))
    lane = lane_of("a" * 64, "q" * 56)
    assert send(acker, replace(turn(content), lane=lane), content).tracked == 1
    with pytest.raises(ConfigError, match="120 characters together"):
        lane_of("a" * 64, "q" * 57)


def test_applied_content_returns_the_applied_content(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=2)
    driver = Driver(acker)
    assert applied_content(acker, LANE, 5) is None
    done = driver.apply(5, loose(2))
    digest = digest_of((s, each.digest) for s, each in sealed(loose(2), 2, source="t").items())
    assert numbers(done, "tracked") == 2
    assert applied_content(acker, LANE, 5) == AppliedContent(0, digest)
    assert applied_content(acker, LANE, 6) is None
    with pytest.raises(LaneError, match="batch 4 runs although batch 5"):
        applied_content(acker, LANE, 4)
    assert applied_content(acker, lane_of("app", "another"), 0) is None


def test_two_contents_in_one_generation_match_no_retry(make_any_acker: MakeAcker) -> None:
    """Two concurrent drivers, each of which was first on one shard."""
    acker = make_any_acker(shards=2)
    even, odd = loose(1, 1), loose(1, 2)
    (zero,), (other,) = sealed(even, 2, source="t").values(), sealed(odd, 2, source="t").values()
    assert (zero.shard, other.shard) == (0, 1)
    for content in (zero, other):
        send(acker, LaneTurn(LANE, 0, 0, digest_of([(content.shard, content.digest)])), content)
    assert applied_content(acker, LANE, 0) == AppliedContent(0, "")
    for terms in (even, odd, even + odd):
        with pytest.raises(ChangedBatchError):
            Driver(acker).apply(0, terms)


@pytest.mark.parametrize("batch_id", [0, MAX_BATCH_ID])
def test_batch_ids_at_the_limits(acker: Acker, batch_id: int) -> None:
    """The scripts accept the numbers of all calls of all generations."""
    content = one(loose(3000))
    last = turn(content, batch_id, GENERATIONS - 1)
    assert send(acker, last, content).tracked == 3000
    assert applied_content(acker, LANE, batch_id) == AppliedContent(GENERATIONS - 1, last.digest)
    assert (MAX_BATCH_ID * GENERATIONS + GENERATIONS) * CHUNKS < 10**15


@pytest.mark.parametrize("batch_id", [-1, MAX_BATCH_ID + 1])
def test_batch_ids_beyond_the_limits_are_refused(acker: Acker, batch_id: int) -> None:
    with pytest.raises(InvalidBatchError, match="a batch id must be 0 to"):
        applied_content(acker, LANE, batch_id)
    with pytest.raises(InvalidBatchError, match="a batch id must be 0 to"):
        Driver(acker).apply(batch_id, loose(1))


def test_batch_with_too_many_calls_is_refused(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "CHUNKS", 2)
    with pytest.raises(InvalidBatchError, match="3 calls for shard 0, more than 2"):
        Driver(acker).apply(0, loose(3000))
    assert total(acker)["tracked"] == 0


def test_batch_digest_depends_on_shards_and_contents() -> None:
    a, b = "a" * 32, "b" * 32
    found = [[], [(0, a)], [(1, a)], [(0, b)], [(0, a), (1, b)], [(0, b), (1, a)], [(0, a), (2, b)]]
    digests = {digest_of(shards) for shards in found}
    assert len(digests) == len(found)
    assert all(len(digest) == 32 for digest in digests)
    assert digest_of([(10, a), (2, b)]) == digest_of([(2, b), (10, a)])


# Retries


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("terms", [loose(5000), in_blocks()], ids=["loose", "blocks"])
def test_resent_batch_is_a_no_op(make_any_acker: MakeAcker, shards: int, terms: list[Term]) -> None:
    acker = make_any_acker(shards=shards, high_water=100_000)
    driver = Driver(acker)
    done = driver.apply(0, terms)
    counters = total(acker)
    calls = numbers(done, "calls")
    assert counters["tracked"] == numbers(done, "tracked") == len(terms)
    assert numbers(done, "repeated") == 0
    for _ in range(2):
        again = driver.apply(0, terms)
        assert (numbers(again, "repeated"), numbers(again, "calls")) == (calls, calls)
        assert (numbers(again, "tracked"), again.changed) == (0, False)
        counters["repeated"] += calls
        assert total(acker) == counters


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("dies_before", [0, 1, 3])
def test_retry_after_a_crashed_driver_applies_each_call_once(
    make_any_acker: MakeAcker, shards: int, dies_before: int
) -> None:
    acker = make_any_acker(shards=shards, high_water=100_000)
    driver = Driver(acker)
    with pytest.raises(RedisUnavailableError, match="killed"):
        driver.apply(7, loose(9000), dies_before)
    assert (total(acker)["tracked"] > 0) == (dies_before > 0)
    assert total(acker)["tracked"] < 9000
    done = driver.apply(7, loose(9000))
    counters = total(acker)
    assert (counters["tracked"], counters["pending"], counters["conflict"]) == (9000, 9000, 0)
    assert numbers(done, "repeated") == dies_before


def test_batch_of_an_older_checkpoint_is_refused(acker: Acker) -> None:
    driver = Driver(acker)
    for batch_id in (0, 1):
        driver.apply(batch_id, loose(2, 10 * batch_id))
    with pytest.raises(LaneError, match="checkpoint was set back"):
        driver.apply(0, loose(2))
    assert total(acker)["repeated"] == 0


def test_batch_overtaken_by_a_second_driver_is_refused(acker: Acker) -> None:
    """The second driver applies a later batch after this driver has read the lane."""
    early, late = one(loose(1)), one(loose(1, 10))
    send(acker, turn(late, 1), late)
    with pytest.raises(LaneError, match="second driver"):
        send(acker, turn(early, 0), early)
    send(acker, turn(late, 2, 1), late)
    with pytest.raises(LaneError, match="second driver"):
        send(acker, turn(late, 2, 0), late)


@pytest.mark.parametrize(
    "again", [loose(4), loose(2), loose(3, 1), [], [*loose(2), (Kind.TRACK, 3, 9, "s2")]]
)
@pytest.mark.parametrize("shards", [1, 2])
def test_other_content_is_refused(
    make_any_acker: MakeAcker, shards: int, again: list[Term]
) -> None:
    acker = make_any_acker(shards=shards)
    driver = Driver(acker)
    driver.apply(0, loose(3))
    counters = total(acker)
    with pytest.raises(ChangedBatchError, match=r"came back with other content.*fail_trees"):
        driver.apply(0, again)
    assert total(acker) == counters


def test_other_content_on_other_shards_is_refused(make_any_acker: MakeAcker) -> None:
    """A shard knows only its own part, so the driver reads all shards before it sends."""
    acker = make_any_acker(shards=4)
    driver = Driver(acker)
    driver.apply(0, loose(1, 0))
    for again in (loose(1, 1), loose(2, 0), loose(2, 1)):
        with pytest.raises(ChangedBatchError):
            driver.apply(0, again)
    driver.apply(1, loose(1, 2))
    with pytest.raises(LaneError):
        driver.apply(0, loose(1, 3))
    assert total(acker)["tracked"] == 2


def test_skipped_calls_of_other_content_are_detected(acker: Acker) -> None:
    """A second driver read the lane before the first one sent: its calls are no repeats."""
    many, few = one(loose(3000)), one(loose(3))
    send(acker, turn(many), many)
    with pytest.raises(ChangedBatchError):
        send(acker, turn(few), few)
    with pytest.raises(ChangedBatchError):
        send(acker, replace(turn(many), digest="0" * 32), many)
    assert send(acker, turn(many), many).repeated == 3


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run functions concurrently; return their results or errors."""
    found: list[Any] = [None] * len(works)
    barrier = threading.Barrier(len(works))

    def run(place: int) -> None:
        barrier.wait()
        try:
            found[place] = works[place]()
        except AckerError as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_concurrent_drivers_with_equal_content_apply_it_once(acker: Acker) -> None:
    content = one(loose(20_000))
    works = [lambda: send(acker, turn(content), content)] * 3
    found = together(*works)
    assert sum(report.tracked for report in found) == 20_000
    assert sum(report.repeated for report in found) == 2 * len(content.parts)
    counters = total(acker)
    assert (counters["tracked"], counters["conflict"], counters["failed"]) == (20_000, 0, 0)


@pytest.mark.parametrize("counts", [(9000, 9000), (9000, 3000), (9000, 1), (1, 1)])
def test_concurrent_drivers_with_different_content_are_detected(
    acker: Acker, counts: tuple[int, int]
) -> None:
    """The later driver raises, because it must not write messages that it did not apply."""
    contents = [one(loose(count, 20_000 * k)) for k, count in enumerate(counts)]
    found = together(*[
        lambda content=content: send(acker, turn(content), content) for content in contents
    ])  # fmt: skip
    refused = [isinstance(each, ChangedBatchError) for each in found]
    assert any(refused)
    for content, each in zip(contents, found, strict=True):
        if not isinstance(each, ChangedBatchError):
            assert each.tracked == content.trees


# Generations


def nacked(acker: Acker) -> dict[str, list[str]]:
    """Return the verdicts by source id."""
    found: dict[str, list[str]] = {}
    for verdict, reason, _, name, _ in verdicts(acker):
        found.setdefault(name, []).append(f"{verdict} {reason}")
    return found


@pytest.mark.parametrize("shards", [1, 4])
def test_changed_batch_fails_its_trees(make_any_acker: MakeAcker, shards: int) -> None:
    acker = make_any_acker(shards=shards)
    driver = Driver(acker, "fail_trees")
    driver.apply(0, [*loose(4), *in_blocks(2)])
    done = driver.apply(0, [*loose(4, 2), *in_blocks(3)])
    assert done.changed
    found = nacked(acker)
    # Records of both contents conflict with the trees of the first content.
    assert found["s2"] == found["s3"] == ["nack conflict"]
    assert found["s4"] == found["s5"] == ["nack failed"]
    assert {label: found[label] for label in "abcd"} == dict.fromkeys("abcd", ["nack failed"] * 3)
    assert not found.keys() & {"s0", "s1"}, "they stay pending until they expire"
    generation = applied_content(acker, LANE, 0)
    assert generation
    assert generation.generation == 1
    counters = total(acker)
    again = driver.apply(0, [*loose(4, 2), *in_blocks(3)])
    assert again.changed
    assert numbers(again, "repeated") == numbers(again, "calls") == numbers(done, "calls")
    assert total(acker) == {**counters, "repeated": numbers(again, "calls")}
    assert driver.apply(1, loose(1, 50)).changed is False, "the query continues"
    tick(acker, 3)
    found = nacked(acker)
    assert (found["s0"], found["s1"], found["s50"]) == (["nack expired"],) * 3
    assert total(acker)["acked"] == 0


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.full), 4])
@pytest.mark.parametrize(
    "dies_before", [2, *(pytest.param(n, marks=pytest.mark.full) for n in (0, 1))]
)
def test_retry_after_a_crash_while_trees_are_failed(
    make_any_acker: MakeAcker, shards: int, dies_before: int
) -> None:
    acker = make_any_acker(shards=shards, high_water=100_000)
    driver = Driver(acker, "fail_trees")
    driver.apply(0, loose(3000))
    changed = loose(5000, 2000)
    with pytest.raises(RedisUnavailableError):
        driver.apply(0, changed, dies_before)
    assert driver.apply(0, changed).changed
    assert driver.apply(0, changed).changed
    state = applied_content(acker, LANE, 0)
    assert state
    assert state.generation == 1
    found = nacked(acker)
    assert found.keys() == {f"s{a}" for a in range(2000, 7000)}
    assert all(len(each) == 1 for each in found.values())


def test_first_content_after_another_content_is_changed_too(acker: Acker) -> None:
    """Some of its trees have failed since, so it is a third content, and fails, too."""
    driver = Driver(acker, "fail_trees")
    driver.apply(0, loose(3))
    assert driver.apply(0, loose(3, 1)).changed
    assert driver.apply(0, loose(3)).changed
    state = applied_content(acker, LANE, 0)
    assert state
    assert state.generation == 2
    assert nacked(acker).keys() == {"s0", "s1", "s2", "s3"}
    with pytest.raises(ChangedBatchError):
        Driver(acker, "raise").apply(0, loose(3))


def test_batch_that_comes_back_empty_is_changed(acker: Acker) -> None:
    """The trees of its first content expire, and the query continues."""
    driver = Driver(acker, "fail_trees")
    driver.apply(0, loose(3))
    done = driver.apply(0, [])
    assert (done.changed, done.shards) == (True, ())
    assert total(acker)["pending"] == 3


def test_eleventh_content_of_a_batch_is_refused(acker: Acker) -> None:
    driver = Driver(acker, "fail_trees")
    for turn_ in range(GENERATIONS):
        assert driver.apply(0, loose(2, 10 * turn_)).changed == (turn_ > 0)
    with pytest.raises(ChangedBatchError, match="other content 10 times"):
        driver.apply(0, loose(2, 1000))
    assert driver.apply(0, loose(2, 10 * GENERATIONS - 10)).changed, "the tenth, again"
    assert driver.apply(1, loose(2, 1000)).changed is False


def test_a_bolt_fails_the_trees_of_its_inputs(acker: Acker) -> None:
    driver = Driver(acker, "fail_trees")
    driver.apply(0, loose(3))
    inputs: list[Term] = [(Kind.INPUT, 1 + a, 5 + a, "") for a in range(3)]
    driver.apply(1, [*inputs, (Kind.CHILD, 1, 99, "")])
    assert {v[3] for v in verdicts(acker)} == {"s1", "s2"}
    assert driver.apply(1, [*inputs, (Kind.CHILD, 1, 98, "")]).changed
    assert nacked(acker) == {"s0": ["nack failed"]}
    lost: list[Term] = [(Kind.CHILD, 77, 98, "")]
    with pytest.raises(InvalidBatchError, match="no input"):
        driver.apply(1, [*inputs, *lost])


# Rejected trees


@pytest.mark.parametrize("shards", [1, 2])
def test_retry_reports_the_same_rejected_trees(make_any_acker: MakeAcker, shards: int) -> None:
    """The retry must not write their messages, either."""
    acker = make_any_acker(shards=shards, high_water=10)
    driver = Driver(acker)
    done = driver.apply(0, loose(25))
    rejected = {anchor for each in done.shards for anchor in each.rejected}
    assert len(rejected) == 25 - 20
    again = driver.apply(0, loose(25))
    assert {anchor for each in again.shards for anchor in each.rejected} == rejected
    assert all(each.rejected_blocks == () for each in (*done.shards, *again.shards))


def test_retry_reports_the_same_rejected_blocks(acker: Acker, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(high_water=4)
    driver = Driver(acker)
    done = driver.apply(0, in_blocks(3))
    (report,) = done.shards
    assert len(report.rejected_blocks) == 2
    assert (report.rejected, report.tracked) == ((), 12)
    (again,) = driver.apply(0, in_blocks(3)).shards
    assert again.repeated == 1
    assert again.rejected_blocks == report.rejected_blocks


def test_block_that_is_still_expiring_is_rejected_again(acker: Acker) -> None:
    driver = Driver(acker)
    driver.apply(0, in_blocks(3))
    for _ in range(acker.config.buckets):
        rotate(acker)
    (report,) = driver.apply(1, in_blocks(3)).shards
    assert set(report.rejected_blocks) == set(LABELS)
    (again,) = driver.apply(1, in_blocks(3)).shards
    assert again.repeated == 1
    assert set(again.rejected_blocks) == set(LABELS)


def test_retry_without_overflow_reports_no_rejected_trees(acker: Acker) -> None:
    """The driver does not search for trees that have ended since: their messages were written."""
    driver = Driver(acker)
    driver.apply(0, loose(3))
    acks: list[Term] = [(Kind.INPUT, 1 + a, 5 + a, "") for a in range(3)]
    content = one(acks)
    send(acker, replace(turn(content), lane=lane_of("app", "bolt")), content)
    (again,) = driver.apply(0, loose(3)).shards
    assert (again.repeated, again.rejected) == (1, ())
