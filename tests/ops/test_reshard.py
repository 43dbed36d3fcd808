"""Reshard: under load, killed at any call, cancelled, and after a failover."""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from acker_redis import AckerConfig
from acker_redis.aio import AsyncAcker
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    BacklogError,
    ChangedBatchError,
    ConfigError,
    NamespaceNotFoundError,
    RedisRefusedError,
    RedisUnavailableError,
    ReshardError,
    WrongShardError,
)
from acker_redis.ops.reshard import Progress, cancel, reshard
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.reshard import Reshard
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.ops.reshard_load import Load, settled
from tests.support import (
    columns,
    partial_block,
    row,
    send,
    send_blocks,
    tick,
    total,
    track,
    track_block,
)
from tests.waiting import LIMIT

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
def test_reshard_under_load_loses_no_record(
    make_any_acker: MakeAcker, again: MakeClient, kind: str, shards: tuple[int, ...]
) -> None:
    """Clients are not notified; none stops, no record is lost, and none is acked falsely."""
    acker = make_any_acker(tick_ms=120, buckets=2, shards=shards[0])
    with Load(partial(again, acker), kind, seed=1) as load:
        for after in shards[1:]:
            load.wait_for(50)
            assert reshard(acker, after, wait=LIMIT).shards == after
            settled(acker, after)
        load.wait_for(50)
    counted = total(acker)
    assert counted["pending"] == counted["conflict"] == 0
    assert not any(acker.status().backlog.values())


class Killed(BaseException):
    """The process was killed."""


class Line:
    """The calls of scripts of one client; it can kill the client at a call, or lose a reply."""

    def __init__(self, acker: Acker) -> None:
        self._run = acker.connection.run
        acker.connection.run = self.run  # type: ignore[method-assign]
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []
        self.last = -1
        """Number of the call, from 1, after which the process is killed; -1: none."""
        self.lost = -1
        """Number of the call whose reply is lost."""
        self.broken = -1
        """Number of the call from which on Redis is unreachable."""

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
    """Pending trees and waiting verdicts, with a check that each verdict comes once."""

    def __init__(self, acker: Acker, shards: int) -> None:
        self._acker = acker
        self._verdicts: Counter[tuple[str, str]] = Counter()
        batch = Batch("t")
        for shard in range(shards):
            batch.track(shard + 8, f"done-{shard}", [])
            batch.track(shard + 16, f"open-{shard}", [A])
        acker.apply(batch)
        send_blocks(acker, partial_block(0, 3, {0: A, 1: 0}))
        self._wanted = Counter(
            {
                **{("ack", f"done-{shard}"): 1 for shard in range(shards)},
                **{("nack", f"open-{shard}"): 1 for shard in range(shards)},
                ("nack", "b"): 1,
                ("ack", "b"): 1,
            }
        )

    def on_progress(self, progress: Progress) -> None:
        """Expire all trees, and take the verdicts."""
        if progress.step == "drain" and (progress.pending or progress.backlog):
            tick(self._acker, 3)
            self._take()

    def _take(self) -> None:
        for outcome in self._acker.outcomes("t"):
            self._verdicts[outcome.verdict, outcome.source_id] += 1

    def check(self) -> None:
        """Check that each verdict was delivered once."""
        tick(self._acker, 3)
        self._take()
        assert self._verdicts == self._wanted
        counters = self._acker.status().counters
        acked, nacked = (
            sum(self._wanted[each] for each in self._wanted if each[0] == verdict)
            for verdict in ("ack", "nack")
        )
        assert counters["acked"] == acked, "a reshard loses no count, and counts nothing twice"
        assert counters["expired"] == nacked
        assert counters["tracked"] == acked + nacked


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
    """Return the calls of an undisturbed reshard."""
    acker = make(shards=before, buckets=2, slo_target=99.9)
    books, mover = Books(acker, before), again(acker)
    line = Line(mover)
    reshard(mover, after, on_progress=books.on_progress)
    books.check()
    settled(acker, after)
    return line.calls


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a reshard poll without pauses."""
    monkeypatch.setattr("acker_redis.flows.reshard.LONGEST_PAUSE", 0.0)


@pytest.mark.full
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("before", "after"), MOVES)
def test_reshard_killed_after_each_call_is_completed_by_a_retry(
    make_any_acker: MakeAcker, again: MakeClient, before: int, after: int
) -> None:
    calls = calls_of(make_any_acker, again, before, after)
    decided = calls.index(("configure", "0}", ("reshard", f"{before}:{after}:switch"))) + 1
    opened = len(calls) - 1
    assert calls[opened - 1] == ("configure", "0}", ("reshard", ""))
    assert decided < opened
    for number in range(1, len(calls) + 1):
        acker = make_any_acker(shards=before, buckets=2, slo_target=99.9)
        books, mover = Books(acker, before), again(acker)
        Line(mover).last = number
        with pytest.raises(Killed):
            reshard(mover, after, on_progress=books.on_progress)
        closed = number > min(before, after)  # it reads the kept shards before
        if number % 3 == 0:
            # Cancelled, if that is still possible, then started again.
            if decided <= number < opened:
                with pytest.raises(ReshardError, match="decided"):
                    cancel(again(acker))
            elif number < decided:
                assert cancel(again(acker)).shards == before
                settled(again(acker), before)
                closed = False
        state = commands.status(ShardKeys(acker.namespace, 0))
        resharding = b"reshard" in acker.connection.run(state)[-1]
        assert resharding == (closed and number < opened)
        other = again(acker)
        assert reshard(other, after, on_progress=books.on_progress).shards == after
        settled(other, after)
        books.check()
        works(other, after)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_reshard_survives_a_lost_reply(
    make_any_acker: MakeAcker, again: MakeClient, before: int, after: int
) -> None:
    calls = calls_of(make_any_acker, again, before, after)
    for number in range(1, len(calls) + 1):
        acker = make_any_acker(shards=before, buckets=2)
        books, mover = Books(acker, before), again(acker)
        Line(mover).lost = number
        assert reshard(mover, after, on_progress=books.on_progress).shards == after
        settled(mover, after)
        books.check()


def test_reshard_ends_without_a_rotator(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(tick_ms=20, buckets=2)
    track(acker, 1, A)
    track_block(acker, 1, [A])
    row(acker, 2, A)
    heard, steps = list[str](), list[str]()

    def on_progress(progress: Progress) -> None:
        steps.append(progress.step)
        heard.extend(o.verdict for o in acker.outcomes("t"))

    assert reshard(acker, 2, on_progress=on_progress).shards == 2
    assert heard == ["nack", "nack"]
    assert list(dict.fromkeys(steps)) == ["close", "drain", "switch", "open", "done"]
    assert acker.status().counters["orphaned"] == 1


@pytest.mark.usefixtures("at_once")
def test_reshard_timeout_cancels_and_names_sources_with_verdicts(make_any_acker: MakeAcker) -> None:
    """The error names the sources with verdicts on removed shards; the namespace is open again."""
    acker = make_any_acker(shards=2)
    for source, number in [("shop", 3), ("carts", 1)]:
        for anchor in range(1, number + 1):
            send(acker, columns([(2 * anchor + 1, 0, 1)], source, ["s"]), shard=1)
            track(acker, 2 * anchor, 0, task=source)
    with pytest.raises(ReshardError, match="s, 1 verdicts of carts .*, 3 verdicts of shop "):
        reshard(acker, 1, wait=0)
    settled(acker, 2)
    track(acker, 2, A)
    with pytest.raises(ReshardError, match="1 trees and records are pending, 1 verdicts of carts"):
        reshard(acker, 1, wait=0)
    with pytest.raises(ReshardError, match="after 0 s, 1 trees and records are pending; the"):
        reshard(acker, 4, wait=0)
    assert acker.config.shards == 2


@pytest.mark.usefixtures("at_once")
def test_verdicts_on_kept_shards_may_wait_there(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=2)
    for anchor in (2, 4):
        track(acker, anchor, 0)
    for shards in (8, 1):
        assert reshard(acker, shards, wait=0).shards == shards
    assert [o.anchor for o in acker.outcomes("t")] == [2, 4]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_interrupted_reshard_is_cancelled(
    make_any_acker: MakeAcker, error: type[BaseException]
) -> None:
    acker = make_any_acker(shards=2)
    track(acker, 2, A)

    def on_progress(progress: Progress) -> None:
        if progress.step == "drain":
            with pytest.raises(BacklogError, match="resharding to 4 shards"):
                track(acker, 4, A)
            raise error

    with pytest.raises(error) as caught:
        reshard(acker, 4, on_progress=on_progress)
    assert "is open again" in caught.value.__notes__[0]
    settled(acker, 2)
    assert track(acker, 4, A).tracked == 1


@pytest.mark.usefixtures("at_once")
def test_reshard_interrupted_after_the_decision_is_only_completed(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    acker = make_any_acker(shards=2)

    def on_progress(progress: Progress) -> None:
        if progress.step == "switch":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reshard(acker, 1, on_progress=on_progress)
    assert acker.status().reshard == Reshard(2, 1, "switch")
    with pytest.raises(ReshardError, match="decided"):
        cancel(acker)
    # A failover made shard 1 lose its closed state, and it begins a tree.
    acker.connection.client.hdel(ShardKeys(acker.namespace, 1).meta, "reshard")
    send(acker, columns([(5, A, 1)], "t", ["late"]), shard=1)
    with pytest.raises(ReshardError, match="1 trees and records are pending; .* is decided"):
        reshard(again(acker), 1, wait=0)
    tick(acker, 3)
    assert [o.source_id for o in acker.outcomes("t")] == ["late"]
    assert reshard(acker, 1).shards == 1
    settled(acker, 1)


@pytest.mark.usefixtures("at_once")
def test_killed_cancel_is_completed_by_the_next_reshard(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    """The next reshard completes the cancel first, to any number of shards."""
    for number in range(3, 8):  # the first calls only read states
        acker = make_any_acker(shards=2, buckets=2)
        books, mover = Books(acker, 2), again(acker)
        Line(mover).last = 6
        with pytest.raises(Killed):
            reshard(mover, 4, on_progress=books.on_progress)
        assert acker.status().reshard == Reshard(2, 4)
        caller = again(acker)
        line = Line(caller)
        line.last = number
        with contextlib.suppress(Killed):
            cancel(caller)
            assert number == 7 > len(line.calls)
        assert reshard(again(acker), 8, on_progress=books.on_progress).shards == 8
        settled(acker, 8)
        books.check()


Metas = dict[str, dict[bytes, bytes]]


def metas(acker: Acker) -> Metas:
    """Return the ``meta`` of each shard, also of one that is being dropped."""
    client, found = acker.connection.client, Metas()
    for key in client.scan_iter(f"acker:{{{acker.namespace}:*", count=1000):
        if key.endswith((b":meta", b":dropping")):
            found[key.decode()] = client.hgetall(key)
    return found


def put(acker: Acker, state: Metas) -> None:
    """Restore this state."""
    pipe = acker.connection.client.pipeline()
    for key in acker.connection.client.scan_iter(f"acker:{{{acker.namespace}:*", count=1000):
        pipe.unlink(key)
    for key, fields in state.items():
        pipe.hset(key, mapping=fields)
    pipe.execute()
    acker.flows.known = None


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 2), (2, 1), *(pytest.param(*m, marks=pytest.mark.full) for m in ((2, 4), (4, 2), (4, 1)))],
)
def test_retried_reshard_repairs_a_shard_set_back_at_any_moment(
    make_any_acker: MakeAcker, again: MakeClient, before: int, after: int
) -> None:
    """Any one shard is set back to any earlier moment, also to not existing."""
    acker = make_any_acker(shards=before)
    mover, states = again(acker), [metas(acker)]
    run = mover.connection.run

    def watched(call: Call) -> Any:
        reply = run(call)
        if (state := metas(acker)) != states[-1]:
            states.append(state)
        return reply

    mover.connection.run = watched
    reshard(mover, after)
    decided = [f"{before}:{after}:switch".encode() == _of(each, 0)["reshard"] for each in states]
    moved = decided.index(True)
    tried = 0
    for now, state in enumerate(states):
        for shard in range(max(before, after)):
            seen = [_of(state, shard)]
            for earlier in states[:now]:
                if (was := _of(earlier, shard)) in seen:
                    continue
                seen.append(was)
                mixed = {k: v for k, v in state.items() if f":{shard}}}:" not in k}
                mixed |= {k: v for k, v in earlier.items() if f":{shard}}}:" in k}
                put(acker, mixed)
                assert reshard(acker, after).shards == after
                settled(acker, after)
                works(acker, after)
                if now < moved:
                    put(acker, mixed)
                    assert cancel(acker).shards == before
                    settled(acker, before)
                tried += 1
    assert tried >= 5 * max(before, after)


def _of(state: Metas, shard: int) -> dict[str, bytes]:
    """Return the fields of a shard that describe the reshard."""
    found = {"reshard": b"", "shards": b""}
    for key, fields in state.items():
        if f":{shard}}}:" in key:
            found |= {name: fields.get(name.encode(), b"") for name in found}
            found["key"] = key.rpartition(":")[2].encode()
    return found


@pytest.mark.usefixtures("at_once")
def test_verdicts_of_restored_shards_are_delivered_by_kept_shards(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    """Restored shards hold trees and verdicts; the kept shards deliver them."""
    acker = make_any_acker(shards=4, buckets=2)
    for shard in (1, 3):
        send(acker, columns([(shard, A, 1), (shard + 8, 0, 1)], "t", ["a", "b"]), shard=shard)
    client, kept = acker.connection.client, dict[bytes, bytes]()
    for shard in (1, 3):
        for key in client.scan_iter(f"acker:{{{acker.namespace}:{shard}}}:*"):
            kept[key] = client.dump(key)
    tick(acker, 2)
    assert len(list(acker.outcomes("t"))) == 4
    reshard(acker, 2)
    for key, value in kept.items():
        client.restore(key, 0, value, replace=True)
    with pytest.raises(ReshardError, match="2 trees|1 trees .* is decided"):
        reshard(again(acker), 2, wait=0)
    for shard in (1, 3):
        for _ in range(2):
            keys = ShardKeys(acker.namespace, shard)
            acker.connection.run(commands.rotate(keys, force=True))
            acker.connection.run(commands.expire(keys, 100))
    assert reshard(again(acker), 2, wait=LIMIT).shards == 2
    settled(acker, 2)
    assert [(o.verdict, o.anchor) for o in acker.outcomes("t")] == [
        ("ack", 9),
        ("nack", 1),
        ("ack", 11),
        ("nack", 3),
    ]
    works(acker, 2)


@pytest.mark.usefixtures("at_once")
def test_delayed_reshard_drops_no_shard_of_a_later_reshard(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    """It is delayed at any of its last calls, while others complete it and reshard again."""
    calls = calls_of(make_any_acker, again, 4, 2)
    for number in range(len(calls) - 14, len(calls) + 1):
        acker = make_any_acker(shards=4)
        late, others = again(acker), again(acker)
        run, made = late.connection.run, list[Call]()

        def sleeping(
            call: Call, run: Any = run, made: Any = made, others: Any = others, at: int = number
        ) -> Any:
            made.append(call)
            if len(made) == at:
                with contextlib.suppress(ReshardError):
                    reshard(others, 2)
                assert reshard(others, 4).shards == 4
                batch = Batch("t")
                for anchor in range(8):
                    batch.track(anchor + 100, "s", [A])
                assert others.apply(batch).tracked == 8
            return run(call)

        late.connection.run = sleeping
        with contextlib.suppress(ReshardError):
            reshard(late, 2, wait=0)
        if len(made) < number:
            continue
        assert reshard(again(acker), acker.status().config.shards).shards == 4
        settled(acker, 4)
        assert total(acker)["pending"] == 8


@pytest.mark.usefixtures("at_once")
def test_concurrent_reshard_completes_or_raises_reshard_error(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    """At any step it either gets the same result, or raises ReshardError."""
    calls, lost = calls_of(make_any_acker, again, 4, 2), 0
    for number in range(1, len(calls) + 1):
        acker = make_any_acker(shards=4)
        late, winner = again(acker), again(acker)
        run, made = late.connection.run, list[Call]()

        def beaten(
            call: Call, run: Any = run, made: Any = made, winner: Any = winner, at: int = number
        ) -> Any:
            made.append(call)
            if len(made) == at:
                reshard(winner, 2)
            return run(call)

        late.connection.run = beaten
        try:
            assert reshard(late, 2).shards == 2
        except ReshardError:
            lost += 1
        settled(acker, 2)
    assert lost


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2)])
def test_reshard_copies_durable_fences_to_all_shards(
    make_any_acker: MakeAcker, before: int, after: int
) -> None:
    """Each fence has the highest number of any shard; a retried batch is applied on no shard."""
    acker = make_any_acker(shards=before)
    lane = commands.Fence("@spark/app/q", 7, "aa")
    send(acker, columns([(before - 1, A, 0)] if before > 1 else [(4, A, 0)]), lane, before - 1)
    old = commands.Fence("@other", 5, "bb")
    send(acker, columns([(4 * before, A, 0)]), old)
    tick(acker, 3)
    many = {f"@lane-{n}": f"{n + 1}:cc:1700000000000" for n in range(1200)}
    acker.connection.client.hset(ShardKeys(acker.namespace, 0).durable_fences, mapping=many)
    reshard(acker, after)
    assert {each[0] for each in acker.lane("@spark/app/q").values()} == {7}
    for shard in range(after):
        keys = ShardKeys(acker.namespace, shard)
        held = acker.connection.client.hgetall(keys.durable_fences)
        assert len(held) == 1202
        assert held[b"@lane-1199"].startswith(b"1200:")
        part = columns([(shard + 4 * after, A, 0)])
        assert send(acker, part, replace(lane, seq=6), shard).highest == 7
        with pytest.raises(ChangedBatchError):
            send(acker, part, replace(lane, digest="ab"), shard)
        assert send(acker, part, replace(lane, seq=8), shard).highest is None


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("allowed", [True, False])
def test_reshard_waits_for_a_replica_before_irreversible_steps(
    make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    acker = make_any_acker(shards=2)
    line, asked, ask = Line(acker), list[int](), acker.connection.command

    def command(*args: Any) -> Any:
        if args[0] == "WAIT":
            asked.append(len(line.calls))
            if not allowed:
                raise RedisRefusedError("no permissions to run the 'wait' command")
        return {"connected_slaves": 1} if args[0] == "INFO" else ask(*args)

    monkeypatch.setattr(acker.connection, "command", command)
    assert reshard(acker, 1).shards == 1
    dropped = next(n for n, call in enumerate(line.calls) if call[0] == "drop")
    opened = line.calls.index(("configure", "0}", ("reshard", "")))
    moved = line.calls.index(("configure", "0}", ("shards", 1)))
    assert len(asked) == 2
    assert moved < asked[0] <= dropped < asked[1] <= opened


def test_reshard_reports_a_closed_namespace_if_redis_stays_unreachable(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    acker = make_any_acker()
    mover = again(acker, retry_for=0)
    Line(mover).broken = 3
    with pytest.raises(RedisUnavailableError) as caught:
        reshard(mover, 2)
    assert "nothing is tracked until reshard or cancel is run again" in (caught.value.__notes__[0])
    assert acker.status().reshard == Reshard(1, 2)
    assert cancel(acker).shards == 1
    assert cancel(acker).shards == 1  # a no-op for an open namespace
    settled(acker, 1)


@pytest.mark.usefixtures("at_once")
def test_invalid_and_concurrent_reshards_are_refused(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    acker = make_any_acker(shards=2)
    for shards in (0, 3, 2048):
        with pytest.raises(ConfigError, match="shards"):
            reshard(acker, shards)
    for wait in (math.nan, -1.0):
        with pytest.raises(ConfigError, match="wait must be a number of seconds"):
            reshard(acker, 4, wait=wait)
    assert reshard(acker, 2).shards == 2
    row(acker, 2, A)

    def on_progress(progress: Progress) -> None:
        if progress.step == "drain":
            other = again(acker)
            with pytest.raises(ReshardError, match="is resharding to 4 shards"):
                reshard(other, 8)
            with pytest.raises(ReshardError, match="change its settings after the reshard"):
                other.configure(high_water=5)
            assert other.status().reshard == Reshard(2, 4), "other reshards do not cancel it"
            tick(other, 3)

    assert reshard(acker, 4, on_progress=on_progress).shards == 4
    client = acker.connection.client
    client.hset(ShardKeys(acker.namespace, 5).meta, "schema", "2")
    with pytest.raises(ReshardError, match="shard 5 of .* holds keys of an unfinished reshard"):
        reshard(acker, 8)
    assert acker.status().reshard is None
    client.delete(ShardKeys(acker.namespace, 5).meta)
    # A shard of an earlier namespace of this name, as a failover may leave it: no shard with
    # another salt can be completed, so it is found before the reshard is decided.
    old = AckerConfig(shards=8, tick_ms=3_600_000)
    acker.connection.run(commands.create(ShardKeys(acker.namespace, 5), old, "0" * 32))
    with pytest.raises(ReshardError, match="shard 5 of .* holds keys of an unfinished reshard"):
        reshard(acker, 8)
    assert acker.status().reshard is None
    client.delete(ShardKeys(acker.namespace, 5).meta)
    assert reshard(acker, 8).shards == 8


@pytest.mark.usefixtures("at_once")
def test_client_with_the_old_number_of_shards_recovers(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    acker = make_any_acker(shards=1)
    for before, after in [(1, 4), (4, 1)]:
        old = again(acker)
        assert old.config.shards == before
        reshard(acker, after)
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
        assert old.apply(acks).acked == 1, "packed again"
        assert [o.verdict for o in old.outcomes("t")] == ["ack"]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2)])
def test_batch_is_packed_again_only_if_no_part_was_applied(
    make_any_acker: MakeAcker, again: MakeClient, before: int, after: int
) -> None:
    acker = make_any_acker(shards=before)
    old, acks, some = again(acker), Batch(), Batch()
    assert old.config.shards == before
    reshard(acker, after)
    tracked = Batch("t")
    for anchor in range(1, 9):
        tracked.track(anchor, f"s{anchor}", [A])
        # From 2 shards one is another now; from 1 the only one.
        (acks if anchor % 4 in (2, 3) else some).ack(anchor, A)
    acker.apply(tracked)
    assert old.apply(acks).acked == 4
    old.flows.known = AckerConfig(shards=4, tick_ms=3_600_000)
    if after == 2:
        # Anchors 1, 5, 4 and 8 keep their shards; an anchor of shard 3 would not.
        for anchor in (3, 7):
            some.ack(anchor, A)
        for _ in range(2):
            with pytest.raises((WrongShardError, NamespaceNotFoundError), match="Its trees expire"):
                old.apply(some)


def test_batch_during_the_switch_gets_backlog_error(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    """One shard has the new number and shard 0 the old: BACKLOG, not SHARD."""
    acker = make_any_acker(shards=2)
    mover, trial = again(acker), again(make_any_acker(shards=2))
    line = Line(trial)
    reshard(trial, 4)
    Line(mover).last = line.calls.index(("configure", "1}", ("shards", 4))) + 1
    with pytest.raises(Killed):
        reshard(mover, 4)
    batch = Batch("t")
    batch.track(3, "s", [A])
    with pytest.raises(BacklogError, match="is resharding, nothing is tracked"):
        acker.apply(batch)
    reshard(again(acker), 4)
    assert acker.apply(batch).tracked == 1


@pytest.mark.usefixtures("at_once")
def test_outcomes_reader_follows_reshards(make_any_acker: MakeAcker, again: MakeClient) -> None:
    """The reader exists before the reshards, and never raises."""
    acker = make_any_acker(shards=1)
    outcomes = again(acker).outcomes("t")

    async def twin() -> list[str]:
        async with again(acker, aio=True) as other:
            other.flows.known = AckerConfig(shards=4 if acker.config.shards == 1 else 1)
            return [o.source_id async for o in await other.outcomes("t")]

    for after in (4, 1, 2):
        reshard(acker, after)
        for hear in (lambda: [o.source_id for o in outcomes], lambda: asyncio.run(twin())):
            for anchor in range(4, 8):
                send(acker, columns([(anchor, 0, 1)], "t", [str(anchor)]), shard=anchor % after)
            assert sorted(hear()) == ["4", "5", "6", "7"]


def test_batch_in_doubt_is_not_packed_for_other_shards(
    make_any_acker: MakeAcker, again: MakeClient
) -> None:
    """A part applied before the reshard is a repeat or refused; it is never applied again."""
    acker = make_any_acker(shards=1)
    old = again(acker, retry_for=0)
    batch = Batch("t")
    for anchor in range(1, 5):
        batch.track(anchor, f"s{anchor}", [])
    Line(old).lost = 2  # the first call reads the configuration
    with pytest.raises(RedisUnavailableError):
        old.apply(batch)
    assert len(list(acker.outcomes("t"))) == 4
    reshard(acker, 4)
    with pytest.raises(WrongShardError):
        old.apply(batch)
    assert acker.status().counters["tracked"] == 4


def test_status_while_a_reshard_removes_shards(make_any_acker: MakeAcker) -> None:
    """The reshard completes between the reads of shard 0 and shard 3."""
    acker = make_any_acker(shards=4)
    run, moved = acker.connection.run, list[bool]()

    def run_and_move(call: Call) -> Any:
        reply = run(call)
        if not moved:
            moved.append(True)
            acker.connection.run = run  # type: ignore[method-assign]
            reshard(acker, 1)
        return reply

    acker.connection.run = run_and_move  # type: ignore[method-assign]
    assert len(acker.status().shards) == 1
