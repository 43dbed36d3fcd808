"""Completion groups: one callback when every record has its verdict, also after a restart."""

import contextlib
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from acker_redis import Acker, Backoff, GroupResult, Record, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ClosedError, ConfigError, InvalidBatchError, RedisUnavailableError
from acker_redis.flows.groups import forget_group, read_groups, read_members
from acker_redis.flows.source import ENTRIES
from acker_redis.flows.steps import Begin, Run, Send, Tell
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import MakeSource
from tests.support import backlog, tick
from tests.waiting import LIMIT, wait_until

STORE = {name: Record(name, "again") for name in "abcdefgh"}


class Results:
    """An ``on_group`` that keeps its results, and raises on demand."""

    def __init__(self) -> None:
        self.all: list[GroupResult] = []
        self.raises: list[Exception] = []

    def __call__(self, result: GroupResult) -> None:
        self.all.append(result)
        if self.raises:
            raise self.raises.pop(0)

    def take(self) -> list[tuple[int, int, dict[str, str]]]:
        found, self.all = self.all, []
        return [(each.acked, each.failed, dict(each.failures)) for each in found]


@pytest.fixture
def results() -> Results:
    return Results()


def states(acker: Acker) -> list[tuple[str, str, int]]:
    found = acker.connection.drive(read_groups(acker.flows))
    return [(each.name, each.state, each.records) for each in found]


def emit_group(source: Any, name: str, ids: str) -> None:
    with source.group(name) as group:
        for id_ in ids:
            group.emit(id_, "new")


def fail_only(bolts: Bolts, id_: str) -> None:
    """Fail the message of one record and ack the others."""
    sent, bolts.sent = bolts.sent, [each for each in bolts.sent if each[0].source_id == id_]
    bolts.fail("no")
    bolts.sent = [each for each in sent if each[0].source_id != id_]
    bolts.ack()


def test_callback_comes_once_when_every_record_has_its_verdict(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results, attempts=1)
    emit_group(source, "import", "abc")
    source.step()
    assert results.take() == []
    fail_only(bolts, "b")
    assert source.join(LIMIT)
    source.step()
    assert results.take() == [(2, 1, {"b": "failed: no"})]
    source.step()
    assert results.take() == []
    assert states(acker) == [("import", "reported", 3)]


def test_replayed_record_counts_once_with_its_last_verdict(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results)
    emit_group(source, "import", "ab")
    source.step()
    bolts.fail("no")
    source.step()
    assert results.take() == [], "a nack before a replay is not the last verdict"
    source.step()
    bolts.ack()
    assert source.join(LIMIT)
    source.step()
    assert results.take() == [(2, 0, {})]


def test_ack_of_another_groups_record_does_not_replace_a_failure(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results, attempts=1)
    emit_group(source, "november", "ab")
    source.step()
    fail_only_one, bolts.sent = bolts.sent[1:], bolts.sent[:1]
    bolts.fail("no")
    source.step()
    emit_group(source, "december", "a")
    source.step()
    bolts.sent += fail_only_one
    bolts.ack()
    assert source.join(LIMIT)
    source.step()
    found = {each.name: (each.acked, each.failed, each.failures) for each in results.all}
    assert found == {"november": (1, 1, {"a": "failed: no"}), "december": (1, 0, {})}


@pytest.mark.parametrize("reply_is_lost", [False, True])
@pytest.mark.parametrize("first", ["november", "december"])
def test_record_that_is_open_in_two_groups_is_acked_in_neither(
    acker: Acker, bolts: Bolts, results: Results, first: str, reply_is_lost: bool
) -> None:
    """One of the two fails; its verdict, or the other one, comes first. Command 1, 2, .. fails."""
    take, commands = acker.connection.take, 0

    def losing(step: Any) -> Any:
        nonlocal commands
        commands += not isinstance(step, Send | Tell)  # these call the program
        if commands == lost and not isinstance(step, Send | Tell):
            if reply_is_lost:
                take(step)
            raise RedisUnavailableError("lost")
        return take(step)

    for lost in itertools.count():
        source = Source(acker, f"t{lost}", bolts.send, attempts=1, on_group=results)
        emit_group(source, "november", "ab")
        source.step()
        emit_group(source, "december", "a")
        commands, acker.connection.take = 0, losing  # type: ignore[method-assign]
        stepped(source)
        acker.connection.take = take  # type: ignore[method-assign]
        if lost > commands:
            break
        while len(bolts.sent) < 3:
            stepped(source)
        assert not results.all, "each record of a reported group has its verdict"
        november, b, december = bolts.sent
        one, other = (november, december) if first == "november" else (december, november)
        bolts.sent = [one]
        bolts.fail("no")
        source.step()
        bolts.sent = [other, b]
        bolts.ack()
        assert source.join(LIMIT)
        source.step()
        found = {each.name: (each.acked, each.failed) for each in results.all}
        assert found == {"november": (1, 1), "december": (0, 1)}
        assert all("is also in group" in each.failures["a"] for each in results.all)
        results.all.clear()
    assert lost > 15, "the test reaches the commands of groups"


@pytest.mark.parametrize("reply_is_lost", [False, True])
def test_group_of_a_program_that_dies_takes_no_ack_of_another_groups_record(
    acker: Acker, bolts: Bolts, results: Results, reply_is_lost: bool
) -> None:
    """It dies at command 1, 2, .. with which the second group is opened, sealed and tracked."""
    take, commands = acker.connection.take, 0

    def dying(step: Any) -> Any:
        nonlocal commands
        commands += 1
        if commands == last:
            if reply_is_lost:
                take(step)
            raise Killed
        return take(step)

    for last in itertools.count(1):
        name = f"t{last}"
        source = Source(acker, name, bolts.send, attempts=1, on_group=results)
        emit_group(source, "november", "ab")
        source.step()
        november = list(bolts.sent)
        emit_group(source, "december", "a")
        commands, acker.connection.take = 0, dying  # type: ignore[method-assign]
        with contextlib.suppress(Killed):
            source.step()
        acker.connection.take = take  # type: ignore[method-assign]
        if last > commands:
            break
        bolts.sent = november
        bolts.ack()
        again = Source(acker, name, bolts.send, attempts=1, on_group=results)
        for _ in range(3):
            again.step()
        found = {each.name: each.acked for each in results.all}
        assert found.pop("november", 1) >= 1
        assert not found.get("december"), f"december's record was not processed, command {last}"
        results.all.clear()
        bolts.sent.clear()
    assert last > 15, "the test reaches the commands of groups"


def test_group_without_records_completes_at_once(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results)
    emit_group(source, "import", "")
    source.step()
    assert results.take() == [(0, 0, {})]


def test_group_whose_block_raised_never_completes(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results)
    with pytest.raises(OSError, match="no input"), source.group("import") as group:
        group.emit("a")
        raise OSError("no input")
    source.step()
    bolts.ack()
    assert source.join(LIMIT)
    source.step()
    assert (results.take(), states(acker)) == ([], [("import", "open", 0)])
    # The block runs again, with the records that are not done.
    emit_group(source, "import", "b")
    source.step()
    bolts.ack()
    source.step()
    assert results.take() == [(2, 0, {})]


def test_group_survives_a_restart_at_any_point(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    first = make_source(acker, bolts.send, on_group=results)
    emit_group(first, "import", "abc")
    first.step()
    sent, bolts.sent = bolts.sent, bolts.sent[:1]
    bolts.ack()
    first.step()
    bolts.sent = sent[1:]
    bolts.ack()  # during the downtime
    again = make_source(acker, bolts.send, on_group=results)
    again.step()
    assert results.take() == [(3, 0, {})]


def test_record_that_was_never_tracked_keeps_the_group_open(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    """The program dies while sealed records are still in its queue."""
    first = make_source(acker, bolts.send, on_group=results, on_ack=None, on_fail=None,
                        dead_letter=None)  # fmt: skip
    emit_group(first, "import", "ab")
    first._flows.pending.next = lambda now: None  # nothing is tracked any more
    first.step()
    again = make_source(acker, bolts.send, on_group=results)
    again.step()
    assert (results.take(), states(acker)) == ([], [("import", "sealed", 2)])
    again.emit("a")
    again.emit("b")
    again.step()
    bolts.ack()
    again.step()
    assert results.take() == [(2, 0, {})]


def test_callback_is_called_again_until_it_returns_also_after_a_restart(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    results.raises = [OSError("offline")] * 2
    source = make_source(acker, bolts.send, on_group=results)
    emit_group(source, "import", "a")
    source.step()
    bolts.ack()
    for _ in range(2):
        with pytest.raises(OSError, match="offline"):
            source.step()
    again = make_source(acker, bolts.send, on_group=results)
    again.step()
    again.step()
    assert len(results.all) == 3
    assert len({each.key for each in results.all}) == 1, "one idempotency key"


def test_nack_counted_before_a_crash_is_open_again_when_it_is_replayed(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    """The last nack was counted, but its entry not taken: the next program replays the record."""
    first = make_source(acker, bolts.send, on_group=results, attempts=1)
    emit_group(first, "import", "ab")
    first.step()
    sent, bolts.sent = bolts.sent, bolts.sent[:1]
    bolts.fail("no")
    first._flows._outcomes.take_each = dies
    with pytest.raises(RuntimeError):
        first.step()
    bolts.sent = sent[1:]
    bolts.ack()
    again = make_source(acker, bolts.send, on_group=results, reload=STORE.get)
    again.step()
    assert results.take() == []
    again.step()
    bolts.ack()
    again.step()
    assert results.take() == [(2, 0, {})]


def dies(entries: Any) -> Iterator[Any]:
    raise RuntimeError("killed")
    yield


def test_failed_record_that_is_emitted_again_is_open_until_its_new_verdict(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results, attempts=1)
    with contextlib.suppress(OSError), source.group("import") as group:
        group.emit("a")
        raise OSError
    source.step()
    bolts.fail("no")
    source.step()
    emit_group(source, "import", "a")
    assert results.take() == []
    source.step()
    bolts.ack()
    source.step()
    assert results.take() == [(1, 0, {})]


def test_failed_record_that_waits_in_the_queue_keeps_the_group_open(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results, attempts=1)
    emit_group(source, "import", "a")
    source.step()
    bolts.fail("no")
    source.step()
    assert results.take() == [(0, 1, {"a": "failed: no"})]
    tracks, source._flows.pending.next = source._flows.pending.next, lambda now: None
    emit_group(source, "import", "a")
    source.step()
    assert (results.take(), states(acker)) == ([], [("import", "sealed", 1)])
    source._flows.pending.next = tracks
    source.step()
    bolts.ack()
    source.step()
    assert results.take() == [(1, 0, {})]


def test_group_is_reported_only_after_all_waiting_verdicts_were_read(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    """A nack that was counted, and whose entry was not taken, waits after many other entries."""
    first = make_source(acker, bolts.send, on_group=results)
    for number in range(2 * ENTRIES):
        first.emit(f"other-{number}")
    first.step()
    bolts.ack()
    first._flows._after[0] = "9999999999999-0"  # reads none of them
    emit_group(first, "import", "a")
    first.step()
    bolts.fail("no")
    acker.connection.command("HSET", acker_key(acker, "group:t:import"), "a", "ffailed: no")
    again = make_source(acker, bolts.send, on_group=results, reload=STORE.get)
    for _ in range(4):
        again.step()
    assert results.take() == []
    bolts.ack()
    again.step()
    assert results.take() == [(1, 0, {})]


def test_reported_group_that_gets_records_again_is_reported_again_with_another_key(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results)
    for ids in ("ab", "", "c"):
        emit_group(source, "import", ids)
        source.step()
        bolts.ack()
        source.step()
    assert [each.records for each in results.all] == [2, 3], "not for an empty block"
    assert results.all[0].key != results.all[1].key


def test_empty_group_is_reported_once_while_redis_keeps_it(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    for _ in range(2):  # and again after a restart
        source = make_source(acker, bolts.send, on_group=results)
        emit_group(source, "import", "")
        source.step()
    assert results.take() == [(0, 0, {})]
    assert states(acker) == [("import", "reported", 0)]
    members = acker.connection.drive(read_members(acker.flows, "t", "import", 10))
    assert (members.ids, members.open) == (set(), [])
    assert acker.connection.command("TTL", acker_key(acker, "group:t:import")) > 0
    emit_group(source, "import", "ab")
    source.step()
    bolts.ack()
    source.step()
    assert results.take() == [(2, 0, {})]
    assert states(acker) == [("import", "reported", 2)]
    acker.connection.command("UNLINK", acker_key(acker, "group:t:import"))  # as if it had expired
    emit_group(source, "other", "")
    source.step()
    assert states(acker) == [("other", "reported", 0)]


def test_lost_member_keeps_the_group_incomplete(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results)
    emit_group(source, "import", "ab")
    source.step()
    acker.connection.command("HDEL", acker_key(acker, "group:t:import"), "a")
    bolts.ack()
    source.step()
    source.step()
    make_source(acker, bolts.send, on_group=results).step()  # scans the members
    assert (results.take(), states(acker)) == ([], [("import", "sealed", 2)])


def acker_key(acker: Acker, rest: str) -> str:
    return f"acker:{{{acker.namespace}:0}}:{rest}"


def test_forgotten_group_is_not_written_again(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results)
    emit_group(source, "import", "ab")
    source.step()
    assert acker.connection.drive(forget_group(acker.flows, "t", "import"))
    bolts.ack()
    source.step()
    source.step()
    assert (results.take(), states(acker)) == ([], [])
    with pytest.raises(ClosedError, match="not sealed"), source.group("import") as group:
        group.emit("c")
        source.step()
        acker.connection.drive(forget_group(acker.flows, "t", "import"))
        source._flows.groups.refresh()


def test_drop_removes_the_groups(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results)
    emit_group(source, "import", "ab")
    source.step()
    acker.drop()
    assert acker.connection.command("KEYS", f"acker:{{{acker.namespace}:*") == []


def test_members_of_a_reported_group_expire_and_then_leave_the_index(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    source = make_source(acker, bolts.send, on_group=results)
    emit_group(source, "import", "a")
    source.step()
    bolts.ack()
    source.step()
    key = acker_key(acker, "group:t:import")
    assert 0 < acker.connection.command("TTL", key) <= 7 * 86_400
    acker.connection.command("DEL", key)
    emit_group(source, "next", "b")
    assert [name for name, _, _ in states(acker)] == ["next"]


def test_invalid_use_is_refused(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    with pytest.raises(ConfigError, match="on_group"), make_source(acker, bolts.send).group("x"):
        pass
    source = make_source(acker, bolts.send, on_group=results)
    with pytest.raises(ConfigError, match="a group is 1 to 64"), source.group("a b"):
        pass
    with source.group("import") as group:
        group.emit("a")
        with pytest.raises(InvalidBatchError, match="already"):
            group.emit("a")
        with pytest.raises(ConfigError, match="another block"), source.group("import"):
            pass
    with pytest.raises(ClosedError, match="has ended"):
        group.emit("b")


def test_source_with_its_own_thread_reports(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    def send(record: Record, ids: Any) -> None:
        bolts.send(record, ids)
        bolts.ack()

    source = make_source(acker, send, on_group=results, poll=0.001)
    source.start()
    emit_group(source, "import", "abc")
    wait_until(lambda: bool(results.all))
    source.stop()
    assert results.take() == [(3, 0, {})]


def test_large_group_is_scanned_page_by_page(
    make_source: MakeSource, make_any_acker: MakeAcker, results: Results
) -> None:
    acker = make_any_acker(shards=2)
    bolts = Bolts(acker)
    source = make_source(
        acker,
        bolts.send,
        on_group=results,
        attempts=1,
        max_pending=5000,
        adaptive=False,
    )
    with source.group("import") as group:
        for number in range(1200):
            group.emit(f"record-{number}")
    source.step()
    bolts.fail("no")
    assert source.join(LIMIT)
    source.step()
    assert [(each.failed, len(each.failures)) for each in results.all] == [(1200, 1000)]
    found = acker.connection.drive(read_members(acker.flows, "t", "import", 2000))
    assert len(found.failures) == 1200, "Redis keeps all names"


class Killed(BaseException):
    """The program ends before or after a command."""


class World:
    """One group of records, the programs that emit it, and a plain model of them."""

    def __init__(self, acker: Acker, url: str, name: str, chance: random.Random) -> None:
        self.acker, self.url, self.name, self.chance = acker, url, name, chance
        self.ids = [f"{name}-{number}" for number in range(6)]
        self.acked: set[str] = set()
        self.dead: set[str] = set()
        self.again: set[str] = set()
        """Done records that were emitted again: the tree of a dead program may expire, and that is
        the last verdict then."""
        self.ended = False
        """Whether a program has reached the end of the block."""
        self.reports: list[GroupResult] = []
        self.deaths = 0

    def on_group(self, result: GroupResult) -> None:
        if result.name != self.name:
            return
        assert self.ended, "no report before the block has ended"
        assert self.acked | self.dead >= set(self.ids), "each record has its verdict"
        assert result.records == result.acked + result.failed == len(self.ids)
        assert set(self.ids) - self.acked <= set(result.failures)
        assert set(result.failures) <= self.dead | self.again
        self.reports.append(result)

    def run(self, steps: int, reply_is_lost: bool) -> bool:
        """Run a program that dies at its ``steps``-th command; return whether it lived on."""
        own, bolts = Acker.from_url(self.url, self.acker.namespace), Bolts(self.acker)
        take, left = own.connection.take, steps

        def dying(step: Any) -> Any:
            nonlocal left
            if isinstance(step, Begin) or (isinstance(step, Run) and step.call.script == "report"):
                return take(step)  # a thread beside the program
            left -= 1
            if left == 0:
                if reply_is_lost:
                    take(step)
                raise Killed
            return take(step)

        own.connection.take = dying  # type: ignore[method-assign]
        source = Source(
            own, "t", bolts.send, attempts=2, backoff=Backoff(0, 0), on_group=self.on_group,
            on_ack=lambda record: self.acked.add(record.source_id),
            dead_letter=lambda record, *_: self.dead.add(record.source_id),
        )  # fmt: skip
        try:
            if self.ended:
                for id_ in self.ids:
                    if id_ not in self.acked | self.dead:
                        source.emit(id_)
            else:
                with source.group(self.name) as group:
                    for id_ in self.ids:
                        self.again.update({id_} & (self.acked | self.dead))
                        group.emit(id_)
                    self.ended = True
            for _ in range(8):
                source.step()
                self._work(bolts)
        except Killed:
            self.ended = self.ended and self._is_sealed()
            self._work(bolts)
            self.deaths += 1
            return False
        finally:
            own.connection.close()
        return True

    def _work(self, bolts: Bolts) -> None:
        """Process the sent messages; some fail."""
        sent, bolts.sent = bolts.sent, []
        for each in sent:
            bolts.sent = [each]
            _ = bolts.fail("no") if self.chance.random() < 0.3 else bolts.ack()

    def _is_sealed(self) -> bool:
        return any(name == self.name and state != "open" for name, state, _ in states(self.acker))


@pytest.mark.parametrize("reply_is_lost", [False, True])
def test_program_that_dies_at_any_command_reports_neither_early_nor_never(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, reply_is_lost: bool
) -> None:
    """The first program dies at command 1, 2, .. until it lives; the second at a random one."""
    acker, chance = make_any_acker(shards=2), random.Random()
    for steps in itertools.count(1):
        world = World(acker, any_server.url, f"import-{steps}", chance)
        lived = world.run(steps, reply_is_lost)
        if not lived:
            world.run(chance.randint(1, 60), reply_is_lost)
        for _ in range(4):
            if world.reports:
                break
            tick(acker, 3)  # trees whose messages died with the program
            world.run(100_000, False)
        assert world.reports, f"no report after a death at command {steps}"
        acker.connection.drive(forget_group(acker.flows, "t", world.name))
        if lived:
            break
    assert steps > 30, "the test reaches the commands of groups"


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.nightly)])
def test_random_deaths_report_neither_early_nor_never(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, rounds: int
) -> None:
    acker, chance = make_any_acker(shards=2), random.Random()
    for number in range(rounds):
        world = World(acker, any_server.url, f"import-{number}", chance)
        for _ in range(25):
            world.run(chance.randint(1, 45), chance.random() < 0.5)
            if chance.random() < 0.5:
                tick(acker, 3)
        for _ in range(4):
            tick(acker, 3)
            world.run(100_000, False)
        assert world.reports
        assert world.deaths


def test_unavailable_redis_loses_no_count(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results, proxy: Any
) -> None:
    source = make_source(acker, bolts.send, on_group=results, url=proxy.url, retry_for=0.05)
    emit_group(source, "import", "abc")
    source.step()
    bolts.ack()
    proxy.cut = 1000
    with pytest.raises(RedisUnavailableError):
        source.step()
    proxy.cut = 0
    wait_until(lambda: stepped(source) and bool(results.all))
    assert results.take() == [(3, 0, {})]
    assert backlog(acker) == 0


def stepped(source: Any) -> bool:
    with contextlib.suppress(RedisUnavailableError):
        source.step()
    return True


def test_callback_log_is_unchanged_by_groups(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send, on_group=results)
    emit_group(source, "import", "a")
    source.step()
    bolts.ack()
    source.step()
    assert called.take() == ["ack a"]


def test_expired_tree_of_a_dead_program_replaces_no_ack(
    make_source: MakeSource, acker: Acker, bolts: Bolts, results: Results
) -> None:
    first = make_source(acker, bolts.send, on_group=results)
    emit_group(first, "import", "ab")
    first.step()
    bolts.sent.clear()
    second = make_source(acker, bolts.send, on_group=results)
    second.emit("a")
    second.step()
    bolts.ack()
    second.step()
    tick(acker, 3)  # the trees of the first program
    third = make_source(acker, bolts.send, on_group=results)
    third.emit("b")
    third.step()
    bolts.ack()
    third.step()
    assert results.take() == [(2, 0, {})]
