"""Some shards do not answer, as those of one master of a cluster: the others go on."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest

from acker_redis import Acker, Backoff, Batch, Record
from acker_redis.aio import AsyncAcker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import BacklogError, RedisRefusedError, RedisUnavailableError
from acker_redis.flows.source import ENTRIES, GRACE
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import AnySource, Clock, MakeSource
from tests.source.masters import Masters
from tests.source.test_timeouts import SILENT, TIMEOUT
from tests.source.twin import Loop
from tests.support import backlog, total
from tests.waiting import wait_until

SHARDS = 4


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=SHARDS)


class Scene:
    """A source on masters that can be cut, and its bolts."""

    def __init__(self, source: AnySource, bolts: Bolts, called: CallbackLog, clock: Clock) -> None:
        self.source, self.bolts, self.called, self.clock = source, bolts, called, clock
        self.masters = Masters(source.acker.connection)

    def emit(self, prefix: str, count: int = 40) -> None:
        for number in range(count):
            self.source.emit(f"{prefix}-{number}")

    def steps(self, count: int = 3, seconds: float = 0.0) -> None:
        for _ in range(count):
            self.source.step()
            self.clock.advance(seconds / count)

    def until(self, condition: Callable[[], object]) -> None:
        """Run steps until the condition holds; probes of shards need real time."""

        def tried() -> object:
            self.clock.advance(1.0)
            self.source.step()
            return condition()

        wait_until(tried)

    def shards(self) -> dict[int, list[str]]:
        """Return the messages that were sent and not processed, by shard."""
        found: dict[int, list[str]] = {shard: [] for shard in range(SHARDS)}
        for record, _, ids in self.bolts.sent:
            found[next(iter(ids[0])) % SHARDS].append(record.source_id)
        return found

    def process(self, *shards: int) -> set[str]:
        """Ack the messages of these shards; return their records."""
        mine = [each for each in self.bolts.sent if next(iter(each[2][0])) % SHARDS in shards]
        rest = [each for each in self.bolts.sent if each not in mine]
        self.bolts.sent = mine
        done = set(self.bolts.ack())
        self.bolts.sent = rest
        return done

    def acked(self) -> set[str]:
        """Return the records that were acked, each at most once, and forget them."""
        words = [word for word in self.called.take() if word.startswith("ack ")]
        assert len(set(words)) == len(words)
        return {word[4:] for word in words}

    def finish(self) -> None:
        """Process all that is left; nothing may remain."""
        self.masters.cut, self.masters.lost = set(), set()
        self.until(lambda: (self.bolts.ack(), self.source.pending)[1] == 0)
        assert backlog(self.bolts.acker) == 0
        assert total(self.bolts.acker)["conflict"] == 0


@pytest.fixture
def scene(
    make_source: MakeSource, acker: Acker, called: CallbackLog, clock: Clock
) -> Callable[..., Scene]:
    """Make a scene whose source has run a step."""

    def make(**options: Any) -> Scene:
        bolts = Bolts(acker)
        source = make_source(acker, bolts.send, retry_for=0, **options)
        made = Scene(source, bolts, called, clock)
        source.step()
        return made

    return make


@pytest.mark.parametrize("cut", [{1}, {0}, {0, 2, 3}])
def test_shards_that_answer_emit_and_report_while_others_do_not(
    scene: Callable[..., Scene], cut: set[int]
) -> None:
    it, live = scene(adaptive=False), set(range(SHARDS)) - cut
    it.emit("before")
    it.steps()
    before = it.shards()
    it.masters.cut = cut
    it.emit("first")  # some are drawn for shards that have not failed yet
    it.steps()
    it.emit("during", 100)
    it.steps()
    during = it.shards()
    assert all(during[shard] == before[shard] for shard in cut)
    sent = {name for names in during.values() for name in names}
    assert {f"during-{number}" for number in range(100)} <= sent
    done = it.process(*live)
    it.steps(10)
    assert it.acked() == done, "their verdicts are heard"
    it.process(*cut)
    it.steps(10)
    assert it.acked() == set(), "these wait in Redis"
    it.finish()
    assert len(it.acked()) == 180 - len(done)
    assert total(it.bolts.acker)["tracked"] == 180


def test_batch_in_doubt_is_applied_once_while_other_shards_go_on(
    scene: Callable[..., Scene],
) -> None:
    it = scene()
    it.masters.lost = {2}
    it.emit("a")
    it.steps()
    doubtful = 40 - len(it.bolts.sent)
    assert doubtful
    assert total(it.bolts.acker)["tracked"] == 40, "it was applied, and its reply lost"
    for number in range(5):
        it.emit(f"more-{number}", 10)
        it.steps()
        assert len(it.process(0, 1, 3)) >= 10
    it.masters.lost = set()

    def back() -> bool:
        it.emit(f"last-{it.clock.now}", 1)  # the shard gets no other batch before that one
        return not it.source._flows._doubts

    it.until(back)
    it.finish()
    counters = total(it.bolts.acker)
    assert (counters["tracked"], counters["repeated"]) == (counters["acked"], 1)
    assert len(it.acked()) == counters["acked"] > 90


@pytest.mark.parametrize("cut", [1, 0])
def test_no_attempt_on_a_shard_that_was_not_read_times_out(
    scene: Callable[..., Scene], cut: int
) -> None:
    """Its verdicts wait in the stream, also right after the shard is back."""
    it = scene()
    it.emit("a")
    it.steps()
    waiting, others = set(it.shards()[cut]), {s: it.shards()[s] for s in range(SHARDS) if s != cut}
    it.process(cut)
    it.masters.cut = {cut}
    it.steps(40, 4 * TIMEOUT)
    words = it.called.take()
    late = {name for names in others.values() for name in names}
    # How long trees live now is read from shard 0.
    assert {w.split()[1] for w in words if SILENT in w} == (late if cut else set())
    it.masters.cut = set()
    it.clock.advance(4 * TIMEOUT)
    it.until(lambda: any(word.startswith("ack ") for word in it.called.words))
    it.steps(10, 10 * GRACE)
    assert it.acked() == waiting
    assert not {w for w in it.called.words if w.split()[1] in waiting}
    it.finish()


def test_attempt_that_was_due_while_its_shard_was_cut_gets_time_after_it_is_back(
    scene: Callable[..., Scene],
) -> None:
    """The bolts, too, could not send their rows to that shard."""
    it = scene()
    it.emit("a")
    it.steps()
    waiting = set(it.shards()[1])
    it.process(0, 2, 3)
    it.masters.cut = {1}
    it.steps(40, 4 * TIMEOUT)
    it.masters.cut = set()
    before = it.source._flows._reach.away
    it.until(lambda: not it.source._flows._reach.away)
    assert before
    it.steps(10, TIMEOUT / 2)
    assert not {word for word in it.called.words if "timeout" in word}
    assert it.process(1) == waiting
    it.finish()


def test_attempt_that_has_timed_out_is_revived_when_its_shard_is_cut(
    scene: Callable[..., Scene], called: CallbackLog
) -> None:
    """Its nack has not counted, because the callback raised; its ack arrives meanwhile."""
    it = scene()
    it.source.emit("a")
    it.steps()
    (shard,) = [shard for shard, names in it.shards().items() if names]
    called.raises = [OSError("disk full")]
    with pytest.raises(OSError, match="disk full"):
        it.steps(40, 4 * TIMEOUT)
    it.process(shard)
    it.masters.cut = {shard}
    it.called.take()
    it.steps(5)
    it.finish()
    assert it.called.take() == ["ack a"]


def test_verdicts_are_heard_once_although_their_take_got_no_reply(
    scene: Callable[..., Scene],
) -> None:
    it = scene()
    it.emit("a", ENTRIES)
    it.steps()
    it.process(*range(SHARDS))
    taken = it.source._flows._outcomes.take_each

    def loses(entries: Any) -> Any:
        it.masters.lost = {1, 2}
        found = yield from taken(entries)
        it.masters.lost = set()
        return found

    it.source._flows._outcomes.take_each = loses
    it.steps(1)
    assert len(it.acked()) == ENTRIES
    it.finish()
    assert it.acked() == set()


def test_trees_that_could_not_be_closed_are_closed_when_their_shard_is_back(
    scene: Callable[..., Scene],
) -> None:
    it = scene()
    send = it.bolts.send

    def cuts(record: Record, tree: Any) -> None:
        send(record, tree)
        it.masters.cut = {3}

    object.__setattr__(it.source._flows.settings, "send", cuts)
    for number in range(40):
        it.source.emit(f"page-{number}", messages=None)
    it.steps()
    it.process(*range(SHARDS))
    it.steps(10)
    assert 0 < len(it.acked()) < 40
    it.finish()
    assert it.source.pending == 0
    assert total(it.bolts.acker)["acked"] == 40


def test_step_fails_only_if_no_shard_is_left(scene: Callable[..., Scene]) -> None:
    it = scene()
    it.masters.cut = {0, 1, 2}
    it.steps(5)
    it.masters.cut = set(range(SHARDS))
    for _ in range(3):
        with pytest.raises(RedisUnavailableError):
            it.source.step()
    it.masters.cut = {0, 1, 2}
    it.source.step()
    it.emit("a")
    it.steps()
    assert len(it.process(3)) == 40
    it.finish()


def test_shard_that_refuses_batches_is_left_out(scene: Callable[..., Scene]) -> None:
    """Its records are tracked on other shards, and the pauses between its calls grow."""
    it = scene()
    it.masters.refused = {1: RedisRefusedError("Redis is at maxmemory")}
    it.emit("a")
    for _ in range(60):
        it.clock.advance(0.05)
        it.source.step()
    assert len(it.process(0, 2, 3)) == 40
    assert it.masters.calls.count((1, "apply")) < 8
    it.masters.refused = {}
    it.finish()
    assert len(it.acked()) == 40


def test_master_that_answers_reads_and_not_writes_is_not_tried_in_each_step(
    scene: Callable[..., Scene],
) -> None:
    """As a demoted one does."""
    it = scene()
    it.masters.refused = {1: RedisUnavailableError("READONLY")}
    it.emit("a")
    for _ in range(60):
        it.clock.advance(0.05)
        it.source.step()
    assert it.masters.calls.count((1, "apply")) < 8
    it.masters.refused = {}
    it.finish()
    assert len(it.acked()) == 40


def test_one_failure_leaves_out_all_shards_of_that_master(scene: Callable[..., Scene]) -> None:
    """Each further call of a master that hangs would cost one more timeout."""
    it = scene()
    it.masters._count = 2
    it.source._flows._reach._places = []
    it.source.step()
    it.masters.cut = {1}
    it.masters.calls.clear()
    it.source.step()
    called = [shard for shard, _ in it.masters.calls if shard in (1, 3)]
    assert sorted(called) == [1, 3], "one pipeline"
    it.emit("a")
    it.steps()
    assert len(it.process(0, 2)) == 40
    it.finish()


def test_many_waiting_verdicts_of_a_shard_are_heard_before_any_attempt_times_out(
    scene: Callable[..., Scene],
) -> None:
    it = scene()
    it.emit("a", 8 * ENTRIES)
    it.steps()
    it.process(1)
    it.masters.cut = {1}
    it.steps()
    it.masters.cut = set()
    it.clock.advance(4 * TIMEOUT)
    it.until(lambda: not it.source._flows._reach.away)
    assert not {word for word in it.called.words if "timeout" in word}
    it.finish()


def test_groups_wait_for_shard_0_and_verdicts_are_heard_meanwhile(
    scene: Callable[..., Scene],
) -> None:
    results: list[Any] = []
    it = scene(on_group=results.append)
    block = it.source._flows.groups.enter("import")
    records = [Record(f"member-{n}", _group=block) for n in range(40)]
    for record in records:
        block.seen.add(record.source_id)
        block.waiting.add(record.source_id)
        it.source._flows.inbox.append((record, None))
    it.source._flows.groups.leave(block, seal=True)
    it.steps()
    it.masters.cut = {0}
    done = it.process(1, 2, 3)
    it.steps(10)
    assert it.acked() == done
    assert backlog(it.bolts.acker) > 0, "no verdict leaves Redis before it is in its group"
    it.source.emit("later")
    it.steps(10)
    assert "later" not in {record.source_id for record, _, _ in it.bolts.sent}
    assert results == []
    it.finish()
    it.until(lambda: results)
    assert [(each.records, each.acked) for each in results] == [(40, 40)]
    assert len(it.acked()) == 41 - len(done)


def test_backlog_that_is_full_makes_room_while_another_shard_is_cut(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    acker = make_any_acker(shards=2, outcomes_limit=8)
    bolts = Bolts(acker)
    it = Scene(make_source(acker, bolts.send, backoff=Backoff(1, 1)), bolts, called, clock)
    it.source.step()
    it.masters.cut = {1}
    it.steps()
    it.emit("a", 8)
    it.steps()
    bolts.fail("no")  # the backlog of shard 0 holds 4
    for _ in range(20):
        clock.advance(2.0)
        with suppress(BacklogError):
            it.source.step()
    assert len(bolts.sent) == 8
    assert {next(iter(ids[0])) % 2 for _, _, ids in bolts.sent} == {0}
    it.finish()


def test_track_draws_its_anchor_for_a_shard_that_answers(scene: Callable[..., Scene]) -> None:
    it = scene()
    it.masters.cut = {0, 1, 3}
    it.steps()
    for number in range(10):
        with it.source.track(f"page-{number}") as tree:
            assert tree.anchor % SHARDS == 2
    it.steps()
    assert len(it.acked()) == 10
    it.masters.cut = set()
    it.until(lambda: not it.source._flows._reach.away)


def test_steered_anchors_are_uniform_over_the_shards_that_answer(
    scene: Callable[..., Scene],
) -> None:
    flows = scene().source._flows
    flows._ready = {1, 3}
    anchors = [flows.anchor() for _ in range(4000)]
    assert len(set(anchors)) == 4000
    on = Counter(anchor % SHARDS for anchor in anchors)
    assert on.keys() == {1, 3}
    assert min(on.values()) > 1600


class Reader:
    """The outcomes of a client, for threads or asyncio, on masters that can be cut."""

    def __init__(self, kind: str, url: str, namespace: str) -> None:
        self.loop = Loop() if kind == "asyncio" else None
        make: Any = AsyncAcker if self.loop else Acker
        self.acker = make.from_url(url, namespace)
        self.masters = Masters(self.acker.connection)
        self.outcomes = self.run(self.acker.outcomes("t"))

    def run(self, result: Any) -> Any:
        return self.loop.call(result) if self.loop else result

    def read(self, count: int = 16) -> list[Any]:
        found: list[Any] = self.run(self.outcomes.read(count))
        return found

    def close(self) -> None:
        self.run(self.acker.close())
        if self.loop:
            self.loop.close()


def test_outcomes_of_shards_that_answer_are_read(
    kind: str, acker: Acker, any_server: EmbeddedRedis
) -> None:
    """An empty list says that no verdict waits on any shard."""
    batch = Batch("t")
    for anchor in range(8, 8 + 5 * SHARDS):
        batch.track(anchor, str(anchor), [])
    acker.apply(batch)
    with closing(Reader(kind, any_server.url, acker.namespace)) as reader:
        reader.masters.cut = {0, 2}
        entries = reader.read()
        assert {entry.shard for entry in entries} == {1, 3}
        assert reader.run(reader.outcomes.take(entries)) == 10
        for _ in range(3):
            with pytest.raises(RedisUnavailableError):
                reader.read()
        reader.masters.cut = set()
        found: dict[int, Any] = {}

        def is_back() -> bool:
            with suppress(RedisUnavailableError):
                found.update((entry.shard, entry) for entry in reader.read(1))
            return found.keys() == {0, 2}

        wait_until(is_back, "the entries of the other shards")
        assert reader.run(reader.outcomes.take(found.values())) == 10
        assert reader.read() == []
