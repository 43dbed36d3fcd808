"""A verdict counts when its callback or consumer has returned; until then it comes again."""

import pytest

from acker_redis import Acker, Backoff, ColumnBatch
from acker_redis.errors import SchemaError
from acker_redis.protocol.keys import ShardKeys
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import MakeSource
from tests.support import backlog
from tests.waiting import LIMIT


def test_each_verdict_is_delivered_once(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send_and_ack)
    for name in "abc":
        source.emit(name)
    found = []
    for verdict in source.verdicts():
        found.append((verdict.verdict, verdict.record.source_id, verdict.final))
        if len(found) == 3:
            source.stop()
    assert sorted(found) == [("ack", "a", True), ("ack", "b", True), ("ack", "c", True)]
    assert called.words == [], "no callback is called"
    assert (source.pending, backlog(acker)) == (0, 0)


def test_verdict_is_delivered_again_if_the_consumer_leaves(
    make_source: MakeSource, acker: Acker, bolts: Bolts
) -> None:
    source = make_source(acker, bolts.send_and_ack)
    for name in "abc":
        source.emit(name)
    found = []
    for leaves_at in (2, 1, 2, 1):
        verdicts = source.verdicts()
        found.append([next(verdicts).record.source_id for _ in range(leaves_at)])
        verdicts.close()
    (a, b), *others = found
    (c,) = {"a", "b", "c"} - {a, b}
    assert others == [[b], [b, c], [c]], "the last one is delivered again"
    assert source.pending == 1
    assert backlog(acker) > 0


def test_nack_is_replayed_once_if_the_consumer_leaves(
    make_source: MakeSource, acker: Acker, bolts: Bolts
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a")
    source.step()
    bolts.fail("no")
    for _ in range(3):
        verdicts = source.verdicts()
        verdict = next(verdicts)
        assert (verdict.verdict, verdict.reason, verdict.why) == ("nack", "failed", "no")
        assert (verdict.record.attempt, verdict.final) == (1, False)
        verdicts.close()
    assert bolts.sent == []
    source.step()
    source.step()
    assert bolts.attempts == [("a", 2)]


@pytest.mark.parametrize("count", [1, 2])
def test_callback_exception_leaves_step_and_the_callback_is_called_again(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, count: int
) -> None:
    source = make_source(acker, bolts.send_and_ack)
    for name in "abc":
        source.emit(name)
    source.step()
    called.raises = [OSError("disk full")] * count
    for _ in range(count):
        with pytest.raises(OSError, match="disk full"):
            source.step()
        assert backlog(acker) > 0
    source.step()
    words = called.take()
    assert sorted(set(words)) == ["ack a", "ack b", "ack c"]
    assert words[:count] == [words[0]] * count
    assert len(words) == 3 + count
    assert (source.pending, backlog(acker)) == (0, 0)


def test_callback_exception_ends_run(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send_and_ack)
    source.emit("a")
    called.raises = [OSError("disk full")]
    with pytest.raises(OSError, match="disk full"):
        source.run()
    assert source.pending == 1
    assert source.join(LIMIT)
    assert called.take() == ["ack a", "ack a"]


def test_dead_letter_that_raises_repeats_on_fail_too(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    letters = [OSError("disk full")]

    def dead_letter(*args: object) -> None:
        if letters:
            raise letters.pop()
        called.words.append("dead")

    source = make_source(acker, bolts.send, attempts=1, dead_letter=dead_letter)
    source.emit("a")
    source.step()
    bolts.fail("no")
    with pytest.raises(OSError, match="disk full"):
        source.step()
    assert source.pending == 1
    source.step()
    assert called.take() == ["fail a failed no", "fail a failed no", "dead"]
    assert (source.pending, backlog(acker)) == (0, 0)


def test_nack_stays_in_the_stream_until_its_record_is_tracked_again(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send, backoff=Backoff(3600, 3600))
    source.emit("a")
    source.step()
    bolts.fail("no")
    for _ in range(3):
        source.step()
    assert called.take() == ["fail a failed no"]
    assert backlog(acker) == 1


def test_verdict_whose_take_failed_is_not_delivered_twice(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    """The callbacks have returned, then Redis is unreachable; the stream still has the entry."""
    source = make_source(acker, bolts.send_and_ack)
    source.emit("a")
    source.step()
    client = acker.connection.client
    key = f"acker:{{{acker.namespace}:0}}:outcomes:t"
    ((_, fields),) = client.xrange(key)
    source.step()
    assert called.take() == ["ack a"]
    for _ in range(2):
        client.xadd(key, fields)  # the same verdict in another entry
    source.step()
    assert (called.take(), client.xlen(key), source.pending) == ([], 0, 0)


def test_late_ack_of_an_earlier_attempt_changes_nothing(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a")
    source.step()
    bolts.fail()
    client = acker.connection.client
    key = f"acker:{{{acker.namespace}:0}}:outcomes:t"
    ((_, fields),) = client.xrange(key)
    source.step()
    client.xadd(key, {**fields, b"verdict": b"ack", b"reason": b"completed"})
    source.step()
    assert (called.take(), source.pending) == (["fail a failed"], 1)
    bolts.ack()
    source.step()
    assert called.take() == ["ack a"]


def test_damaged_verdict_is_an_error_and_no_callback_is_called(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    """Its bitmap of failed trees is lost. The entry stays until an operator deletes it."""
    source = make_source(acker, bolts.send_and_ack)
    anchors = acker.track_block("t", "page", [40, 0, 0])
    acker.apply(ColumnBatch([anchors[0]], [40], failed={anchors[0]: "torn"}))
    client, stream = acker.connection.client, ShardKeys(acker.namespace, 0).outcomes("t")
    id_, fields = client.xrange(stream)[-1]
    assert fields.pop(b"failed") == b"80"
    client.delete(stream)
    client.xadd(stream, fields, id=id_)
    source.emit("a")
    for _ in range(2):
        with pytest.raises(SchemaError, match=f"entry 0:{id_.decode()} .* tampered"):
            source.step()
    assert called.take() == []
    client.xdel(stream, id_)
    for _ in range(2):
        source.step()
    assert called.take() == ["ack a"]
