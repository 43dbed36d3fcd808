"""A namespace moves to another number of shards: under load, killed anywhere, called off."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from acker_redis import AckerConfig, commands
from acker_redis.aio import AsyncAcker
from acker_redis.batch import Batch
from acker_redis.client import Acker
from acker_redis.commands import Call
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    BacklogError,
    ConfigError,
    MovingError,
    NamespaceNotFoundError,
    RedisUnavailableError,
    WrongShardError,
)
from acker_redis.keys import ShardKeys
from acker_redis.migrate import Progress, cancel, migrate
from acker_redis.move import Move
from tests.client.moving_load import Load, settled
from tests.conftest import MakeAcker
from tests.support import columns, row, send, tick, total, track, track_block

A = 0x7777_1111_7777
MOVES = [(1, 4), (4, 1), (2, 8)]


MakeClient = Callable[..., Any]


@pytest.fixture
def again(any_server: EmbeddedRedis) -> Iterator[MakeClient]:
    """Make other clients of a namespace."""
    with contextlib.ExitStack() as stack:

        def make(acker: Acker, aio: bool = False, **more: Any) -> Any:
            if aio:
                return AsyncAcker.from_url(any_server.url, acker.namespace, **more)
            return stack.enter_context(Acker.from_url(any_server.url, acker.namespace, **more))

        yield make


@pytest.mark.parametrize(("kind", "shards"), [("sync", (1, 4, 1)), ("asyncio", (2, 8, 2))])
def test_under_load(
    make_any_acker: MakeAcker, again: MakeClient, kind: str, shards: tuple[int, ...]
) -> None:
    """Nobody is told of it; none of them stops, and no record is lost or acked in vain."""
    acker = make_any_acker(tick_ms=120, buckets=2, shards=shards[0])
    with Load(partial(again, acker), kind, seed=1) as load:
        for after in shards[1:]:
            load.wait_for(50)
            assert migrate(acker, after, wait=60).shards == after
            settled(acker, after)
        load.wait_for(50)
    counted = total(acker)
    assert counted["pending"] == counted["conflict"] == 0
    assert not any(acker.status().backlog.values())


class Killed(BaseException):
    """The process is no more."""


class Line:
    """Calls of scripts; from some call on none is made any more, or one reply is lost."""

    def __init__(self, acker: Acker) -> None:
        self._run = acker.connection.run
        acker.connection.run = self.run  # type: ignore[method-assign]
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []
        self.last = -1
        """Number of the call, from 1, after which the process is killed; -1: of none."""
        self.lost = -1
        """Number of the call whose reply is lost."""
        self.broken = -1
        """Number of the call from which on Redis is away."""

    def run(self, call: Call) -> Any:
        number = len(self.calls) + 1
        if number > self.last >= 0:
            raise Killed
        if number >= self.broken >= 0:
            raise RedisUnavailableError("away")
        reply = self._run(call)
        self.calls.append((call.script, call.keys[0].rpartition(":")[2], call.args))
        if number == self.last:
            raise Killed
        if number == self.lost:
            raise RedisUnavailableError("the reply was lost")
        return reply


class Books:
    """Some trees that are pending, and verdicts that wait; what became of them."""

    def __init__(self, acker: Acker, shards: int) -> None:
        self._acker = acker
        self._verdicts: Counter[tuple[str, str]] = Counter()
        batch = Batch("t")
        for shard in range(shards):
            batch.track(shard + 8, f"done-{shard}", [])
            batch.track(shard + 16, f"open-{shard}", [A])
        acker.apply(batch)
        track_block(acker, 0, [A, 0])
        self._wanted = Counter(
            {
                **{("ack", f"done-{shard}"): 1 for shard in range(shards)},
                **{("nack", f"open-{shard}"): 1 for shard in range(shards)},
                ("nack", "b"): 1,
                ("ack", "b"): 1,
            }
        )

    def on_progress(self, progress: Progress) -> None:
        """Let all expire, and take the verdicts."""
        if progress.step == "drain" and (progress.pending or progress.backlog):
            tick(self._acker, 3)
            self._take()

    def _take(self) -> None:
        for outcome in self._acker.outcomes("t"):
            self._verdicts[outcome.verdict, outcome.source_id] += 1

    def check(self) -> None:
        """Each verdict was told, once."""
        tick(self._acker, 3)
        self._take()
        assert self._verdicts == self._wanted


def works(acker: Acker, shards: int) -> None:
    """Check that trees are tracked and acked on every shard."""
    batch, bolt = Batch("t"), Batch()
    for anchor in range(1, 2 * shards + 1):
        batch.track(anchor, f"s{anchor}", [A])
        bolt.ack(anchor, A)
    assert acker.apply(batch).tracked == 2 * shards
    assert acker.apply(bolt).acked == 2 * shards
    outcomes = acker.outcomes("t")
    assert sorted(o.anchor for o in outcomes) == list(range(1, 2 * shards + 1))


def calls_of(make: MakeAcker, again: MakeClient, before: int, after: int) -> list[Any]:
    """The calls of a move that nobody disturbs."""
    acker = make(shards=before, buckets=2)
    books, mover = Books(acker, before), again(acker)
    line = Line(mover)
    migrate(mover, after, on_progress=books.on_progress)
    books.check()
    settled(acker, after)
    return line.calls


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move looks again at once: nothing takes time in these tests."""
    monkeypatch.setattr("acker_redis.migrate.LONGEST_PAUSE", 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("before", "after"), MOVES)
def test_killed_after_each_call_and_run_again(
    make_any_acker: MakeAcker, again: MakeClient, before: int, after: int
) -> None:
    calls = calls_of(make_any_acker, again, before, after)
    decided = calls.index(("configure", "0}", ("moving", f"{before}:{after}:switch"))) + 1
    opened = len(calls) - 1
    assert calls[opened - 1] == ("configure", "0}", ("moving", ""))
    assert decided < opened
    for number in range(1, len(calls) + 1):
        acker = make_any_acker(shards=before, buckets=2)
        books, mover = Books(acker, before), again(acker)
        Line(mover).last = number
        with pytest.raises(Killed):
            migrate(mover, after, on_progress=books.on_progress)
        closed = number > 1
        if number % 3 == 0:
            # Called off, if that is still possible, and from there all over again.
            if decided <= number < opened:
                with pytest.raises(MovingError, match="decided"):
                    cancel(again(acker))
            elif number < decided:
                assert cancel(again(acker)).shards == before
                settled(again(acker), before)
                closed = False
        state = commands.status(ShardKeys(acker.namespace, 0))
        moving = b"moving" in acker.connection.run(state)[-1]
        assert moving == (closed and number < opened)
        anew = again(acker)
        assert migrate(anew, after, on_progress=books.on_progress).shards == after
        settled(anew, after)
        books.check()
        works(anew, after)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_a_reply_that_is_lost_does_not_stop_it(
    make_any_acker: MakeAcker, again: MakeClient, before: int, after: int
) -> None:
    calls = calls_of(make_any_acker, again, before, after)
    for number in range(1, len(calls) + 1):
        acker = make_any_acker(shards=before, buckets=2)
        books, mover = Books(acker, before), again(acker)
        Line(mover).lost = number
        assert migrate(mover, after, on_progress=books.on_progress).shards == after
        settled(mover, after)
        books.check()


def test_it_ends_without_a_rotator(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(tick_ms=20, buckets=2)
    track(acker, 1, A)
    track_block(acker, 1, [A])
    row(acker, 2, A)
    heard, steps = list[str](), list[str]()

    def on_progress(progress: Progress) -> None:
        steps.append(progress.step)
        heard.extend(o.verdict for o in acker.outcomes("t"))

    assert migrate(acker, 2, on_progress=on_progress).shards == 2
    assert heard == ["nack", "nack"]
    assert list(dict.fromkeys(steps)) == ["close", "drain", "switch", "open", "done"]
    assert acker.status().counters["orphaned"] == 1


@pytest.mark.usefixtures("at_once")
def test_in_time_or_not_at_all(make_any_acker: MakeAcker) -> None:
    """It says who has left verdicts, and is open again."""
    acker = make_any_acker(shards=2)
    for task, number in [("shop", 3), ("carts", 1)]:
        for anchor in range(1, number + 1):
            track(acker, 2 * anchor, 0, task=task)
    with pytest.raises(MovingError, match="after 0 s 1 verdicts of carts .*, 3 verdicts of shop "):
        migrate(acker, 4, wait=0)
    settled(acker, 2)
    track(acker, 2, A)
    with pytest.raises(MovingError, match="1 trees and records are pending, 1 verdicts of carts"):
        migrate(acker, 1, wait=0)
    assert acker.config.shards == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_interrupted_it_is_open_again(
    make_any_acker: MakeAcker, error: type[BaseException]
) -> None:
    acker = make_any_acker(shards=2)
    track(acker, 2, A)

    def on_progress(progress: Progress) -> None:
        if progress.step == "drain":
            with pytest.raises(BacklogError, match="moves to 4 shards"):
                track(acker, 4, A)
            raise error

    with pytest.raises(error) as caught:
        migrate(acker, 4, on_progress=on_progress)
    assert "is open again" in caught.value.__notes__[0]
    settled(acker, 2)
    assert track(acker, 4, A).tracked == 1


@pytest.mark.usefixtures("at_once")
def test_interrupted_when_it_is_decided_it_goes_on(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    acker = make_any_acker(shards=2)

    def on_progress(progress: Progress) -> None:
        if progress.step == "switch":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(acker, 1, on_progress=on_progress)
    assert acker.status().moving == Move(2, 1, "switch")
    with pytest.raises(MovingError, match="decided"):
        cancel(acker)
    # Shard 1 has lost in a failover that it is closed, and begins a tree.
    acker.connection.client.hdel(ShardKeys(acker.namespace, 1).meta, "moving")
    send(acker, columns([(5, A, 1)], "t", ["late"]), shard=1)
    with pytest.raises(MovingError, match="1 trees and records are pending; it is decided"):
        migrate(again(acker), 1, wait=0)
    tick(acker, 3)
    assert [o.source_id for o in acker.outcomes("t")] == ["late"]
    assert migrate(acker, 1).shards == 1
    settled(acker, 1)


@pytest.mark.usefixtures("at_once")
def test_killed_while_it_is_called_off(make_any_acker: MakeAcker, again: MakeClient) -> None:
    """Whoever comes next completes that first, whatever was wanted."""
    for number in range(2, 7):  # the first call looks how far it is
        acker = make_any_acker(shards=2, buckets=2)
        books, mover = Books(acker, 2), again(acker)
        Line(mover).last = 5
        with pytest.raises(Killed):
            migrate(mover, 4, on_progress=books.on_progress)
        assert acker.status().moving == Move(2, 4)
        caller = again(acker)
        line = Line(caller)
        line.last = number
        with contextlib.suppress(Killed):
            cancel(caller)
            assert number == 6 > len(line.calls)
        assert migrate(again(acker), 8, on_progress=books.on_progress).shards == 8
        settled(acker, 8)
        books.check()


def test_when_redis_stays_away_it_says_that_it_is_closed(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    acker = make_any_acker()
    mover = again(acker, retry_for=0)
    Line(mover).broken = 3
    with pytest.raises(RedisUnavailableError) as caught:
        migrate(mover, 2)
    assert (
        "nothing is tracked until migrate is run once more, or cancel"
        in (caught.value.__notes__[0])
    )
    assert acker.status().moving == Move(1, 2)
    assert cancel(acker).shards == 1
    assert cancel(acker).shards == 1  # there is nothing to call off
    settled(acker, 1)


@pytest.mark.usefixtures("at_once")
def test_what_is_refused(make_any_acker: MakeAcker, again: MakeClient) -> None:
    acker = make_any_acker(shards=2)
    for shards in (0, 3, 2048):
        with pytest.raises(ConfigError, match="shards"):
            migrate(acker, shards)
    assert migrate(acker, 2).shards == 2
    track(acker, 2, 0)

    def on_progress(progress: Progress) -> None:
        if progress.step == "drain":
            other = again(acker)
            with pytest.raises(MovingError, match="moves to 4 shards already"):
                migrate(other, 8)
            with pytest.raises(MovingError, match="change its settings when it has"):
                other.configure(high_water=5)
            assert other.status().moving == Move(2, 4), "nobody else calls it off"
            list(other.outcomes("t"))

    assert migrate(acker, 4, on_progress=on_progress).shards == 4
    client = acker.connection.client
    client.hset(ShardKeys(acker.namespace, 5).meta, "schema", "1")
    with pytest.raises(MovingError, match="something at shard 5"):
        migrate(acker, 8)
    assert acker.status().moving is None
    client.delete(ShardKeys(acker.namespace, 5).meta)
    assert migrate(acker, 8).shards == 8


@pytest.mark.usefixtures("at_once")
def test_a_client_that_knew_the_old_number(make_any_acker: MakeAcker, again: MakeClient) -> None:
    acker = make_any_acker(shards=1)
    for before, after in [(1, 4), (4, 1)]:
        old = again(acker)
        assert old.config.shards == before
        migrate(acker, after)
        works(acker, after)
        batch = Batch("t")
        batch.track(6, "s6", [A])
        acker.apply(batch)
        shown = old.show(6)
        assert shown is not None
        assert shown.source_id == "s6"
        assert old.config.shards == after
        old.flows.known = AckerConfig(shards=before, tick_ms=3_600_000)
        acks = Batch()
        acks.ack(6, A)
        with pytest.raises((WrongShardError, NamespaceNotFoundError)):
            old.apply(acks)
        acks = Batch()
        acks.ack(6, A)
        assert old.apply(acks).acked == 1
        assert [o.verdict for o in old.outcomes("t")] == ["ack"]


def test_a_batch_in_doubt_is_not_packed_for_other_shards(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    """What was applied before the move is a repeat, or is refused; never applied once more."""
    acker = make_any_acker(shards=1)
    old = again(acker, retry_for=0)
    batch = Batch("t")
    for anchor in range(1, 5):
        batch.track(anchor, f"s{anchor}", [])
    Line(old).lost = 2  # the first asks for the configuration
    with pytest.raises(RedisUnavailableError):
        old.apply(batch)
    assert len(list(acker.outcomes("t"))) == 4
    migrate(acker, 4)
    with pytest.raises(WrongShardError):
        old.apply(batch)
    assert acker.status().counters["tracked"] == 4


def test_status_while_shards_go(make_any_acker: MakeAcker) -> None:
    """Between the look at shard 0 and that at shard 3 it has moved."""
    acker = make_any_acker(shards=4)
    run, moved = acker.connection.run, list[bool]()

    def run_and_move(call: Call) -> Any:
        reply = run(call)
        if not moved:
            moved.append(True)
            acker.connection.run = run  # type: ignore[method-assign]
            migrate(acker, 1)
        return reply

    acker.connection.run = run_and_move  # type: ignore[method-assign]
    assert len(acker.status().shards) == 1
