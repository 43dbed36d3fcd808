"""``track()``: a record whose messages the caller sends."""

import threading
from typing import Any

import pytest

from acker_redis import Acker, Batch, OpenTree
from acker_redis.errors import AckerError, RedisUnavailableError, RejectedError
from acker_redis.trees.record import Record
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import AnySource, Clock, MakeSource
from tests.support import tick, total
from tests.transport.proxy import Proxy
from tests.waiting import LIMIT


def send_two(bolts: Bolts, tree: OpenTree, value: Any = None) -> None:
    bolts.send(Record("by hand", value), tree)


def test_tracked_block_is_acked_when_its_messages_are_processed(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker)
    with source.track("page", "its text") as tree:
        send_two(bolts, tree)
        bolts.ack()
        source.step()
        assert called.take() == [], "the block holds the tree open"
        send_two(bolts, tree)
    source.step()
    assert (called.take(), source.pending) == ([], 1)
    bolts.ack()
    source.step()
    assert (called.take(), source.pending) == (["ack page"], 0)
    assert called.records[0].value == "its text"


def test_exception_in_the_block_fails_the_tree_and_propagates(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker)
    with pytest.raises(ValueError, match="unreadable"), source.track("page") as tree:
        send_two(bolts, tree)
        raise ValueError("unreadable")
    source.step()
    words = "page failed ValueError: unreadable"
    assert called.take() == [f"fail {words}", f"dead {words}"], "without send= it is not replayed"
    assert source.pending == 0


def test_failed_tracked_record_is_replayed_by_send(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    with pytest.raises(ValueError, match="no"), source.track("page", "its text"):
        raise ValueError("no")
    source.step()
    ((record, attempt, _),) = bolts.sent
    assert (record.value, attempt) == ("its text", 2)
    bolts.ack()
    assert source.join(LIMIT)
    assert called.take() == ["fail page failed ValueError: no", "ack page"]


def test_rejected_track_does_not_enter_the_block(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    acker = make_any_acker(high_water=1)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send)
    for name in ("a", "b"):
        with source.track(name) as tree:
            send_two(bolts, tree)
    with pytest.raises(RejectedError, match="too much is pending"), source.track("c"):
        raise AssertionError("entered")
    source.step()
    assert (called.take(), source.pending) == (["fail c overflow"], 3)
    bolts.ack()
    clock.advance(60)
    source.step()
    clock.advance(60)
    source.step()
    assert bolts.attempts == [("c", 1)], "it is replayed, and the rejection was no attempt"


def test_record_that_cannot_be_tracked_is_unknown(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    source.step()
    acker.connection.client.flushall()
    with pytest.raises(AckerError), source.track("a"):
        raise AssertionError("entered")
    acker.create(acker.config)
    source.step()
    assert (source.pending, called.take(), bolts.sent) == (0, [], [])


def test_track_without_reply_is_unknown_although_it_expires(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, proxy: Proxy
) -> None:
    source = make_source(acker, bolts.send, url=proxy.url, retry_for=0)
    source.step()
    proxy.swallow = 1
    with pytest.raises(RedisUnavailableError), source.track("a"):
        raise AssertionError("entered")
    assert total(acker)["tracked"] == 1
    tick(acker, 3)
    source.step()
    source.step()
    assert (source.pending, called.take(), bolts.sent) == (0, [], [])
    assert acker.status().backlog["t"] == 0


def test_rejected_track_with_a_lost_reply_does_not_enter_the_block(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, proxy: Proxy
) -> None:
    acker = make_any_acker(high_water=1)
    fill(acker, 2)
    source = make_source(acker, url=proxy.url)
    source.step()
    proxy.swallow = 1
    with pytest.raises(RejectedError), source.track("c"):
        raise AssertionError("entered")
    source.step()
    assert called.take() == ["fail c overflow", "dead c overflow"]


def fill(acker: Acker, trees: int) -> None:
    """Track trees of other sources."""
    batch = Batch("others")
    for anchor in range(1, trees + 1):
        batch.track(anchor, "s", [anchor])
    acker.apply(batch)


def test_verdict_that_arrives_during_a_step_finds_its_record(
    make_source: MakeSource,
    acker: Acker,
    bolts: Bolts,
    called: CallbackLog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow step reads verdicts of records that were added after its start."""
    source = make_source(acker, bolts.send)
    source.step()
    read = source._flows._outcomes.read_each
    tracked: list[str] = []

    def slow_to_read(*args: Any) -> Any:
        if not tracked:
            tracked.append("page")
            run_in_a_thread(lambda: track_and_ack(source, bolts))
        return (yield from read(*args))

    if hasattr(source, "source"):
        # The loop is blocked here, so the test runs the caller's part up to the reply.
        def in_the_loop(*args: Any) -> Any:
            if not tracked:
                tracked.append("page")
                tree, opening = OpenTree("page"), Batch("t")
                opening.add(tree.opening)
                source._flows.inbox.append((Record("page", "its text", None), tree.anchor))
                acker.apply(opening)
                send_two(bolts, tree)
                closing = Batch()
                for row in tree.close():
                    closing.add(row)
                acker.apply(closing)
                bolts.ack()
            return (yield from read(*args))

        monkeypatch.setattr(source._flows._outcomes, "read_each", in_the_loop)
    else:
        monkeypatch.setattr(source._flows._outcomes, "read_each", slow_to_read)
    source.step()
    assert (called.take(), source.pending) == (["ack page"], 0)
    assert called.records[0].value == "its text"


def track_and_ack(source: AnySource, bolts: Bolts) -> None:
    with source.track("page", "its text") as tree:
        send_two(bolts, tree)
    bolts.ack()


def run_in_a_thread(what: Any) -> None:
    thread = threading.Thread(target=what)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive()
