"""The program ends or is killed, and starts again: unfinished records come again."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from acker_redis import Acker, Backoff, Record
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import Clock, MakeSource
from tests.support import backlog, tick
from tests.tiers import budget
from tests.waiting import LIMIT

STORE = {"a": Record("a", "a hat"), "b": Record("b", "a coat")}
"""The records of an earlier program."""


def test_unreplayed_nack_is_delivered_again_after_a_restart(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    first = make_source(acker, bolts.send, backoff=Backoff(3600, 3600))
    first.emit("a", "a hat")
    first.step()
    bolts.fail("no")
    first.step()
    first.step()
    assert called.take() == ["fail a failed no"]
    del first

    again = make_source(acker, bolts.send, reload=STORE.get)
    again.step()
    assert called.take() == ["fail a failed no"]
    assert (called.records[-1].value, again.pending) == ("a hat", 1)
    again.step()
    assert bolts.attempts == [("a", 1)]
    assert backlog(acker) == 0, "the entry is taken now"
    bolts.ack()
    again.step()
    assert (called.take(), again.pending) == (["ack a"], 0)


def test_record_expired_after_a_restart_is_replayed_by_reload(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    first = make_source(acker, bolts.send)
    for name, value in STORE.items():
        first.emit(name, value)
    first.step()
    bolts.sent.clear()
    again = make_source(acker, bolts.send, reload=STORE.get)
    tick(acker, 3)
    again.step()
    assert sorted(called.take()) == ["fail a expired no ack", "fail b expired no ack"]
    assert called.attempts == [0, 0]
    again.step()
    expected = [STORE[record.source_id].value for record, _, _ in bolts.sent]
    assert [record.value for record, _, _ in bolts.sent] == expected
    bolts.ack()
    assert again.join(LIMIT)


def test_ack_during_the_downtime_is_delivered_after_a_restart(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    make_source(acker, bolts.send).emit("never stepped")
    first = make_source(acker, bolts.send)
    first.emit("a")
    first.step()
    bolts.ack()
    again = make_source(acker, bolts.send)
    again.step()
    assert (called.take(), called.records[0].attempt, again.pending) == (["ack a"], 0, 0)


@pytest.mark.parametrize("reloads", [False, True])
def test_nack_of_a_record_that_reload_does_not_know_is_no_dead_letter(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, reloads: bool
) -> None:
    """The record is done, or will be emitted again: the source has not given it up."""
    first = make_source(acker, bolts.send)
    first.emit("unknown")
    first.step()
    bolts.fail("no")
    again = make_source(acker, bolts.send, reload=STORE.get if reloads else None)
    for _ in range(3):
        again.step()
    assert called.take() == ["fail unknown failed no"]
    assert (again.pending, bolts.sent, backlog(acker)) == (0, [], 0)


def test_verdict_of_an_earlier_attempt_is_ignored_while_a_new_one_is_pending(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    first = make_source(acker, bolts.send)
    first.emit("a")
    first.step()
    again = make_source(acker, bolts.send, reload=STORE.get)
    again.emit("a", "a hat")
    again.step()
    old, new = bolts.sent
    bolts.sent = [old]
    bolts.fail("no")
    again.step()
    assert (called.take(), again.pending, bolts.sent) == ([], 1, [])
    bolts.sent = [new]
    bolts.ack()
    again.step()
    assert called.take() == ["ack a"]


def test_reload_that_raises_is_called_again(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    first = make_source(acker, bolts.send)
    first.emit("a")
    first.step()
    bolts.fail("no")
    raises = [OSError("the store is offline")]

    def reload(source_id: str) -> Record:
        if raises:
            raise raises.pop()
        return STORE[source_id]

    again = make_source(acker, bolts.send, reload=reload)
    with pytest.raises(OSError, match="the store is offline"):
        again.step()
    again.step()
    again.step()
    assert called.take() == ["fail a failed no"]
    assert bolts.attempts == [("a", 1)]


def test_outage_right_after_a_restart_loses_no_nack(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    acker = make_any_acker(shards=4)
    bolts = Bolts(acker)
    names = [f"record-{number}" for number in range(40)]
    store = {name: Record(name, "its value") for name in names}
    first = make_source(acker, bolts.send)
    for name in names:
        first.emit(name)
    first.step()
    bolts.fail("no")
    for _ in range(5):
        # Each is stopped while it reads verdicts.
        again = make_source(acker, bolts.send, reload=store.get, backoff=Backoff(60, 60))
        verdicts = again.verdicts()
        for _ in range(7):
            next(verdicts)
        verdicts.close()
    last = make_source(acker, bolts.send, reload=store.get)
    for _ in range(200):
        last.step()
        bolts.ack()
        if len([word for word in called.words if word.startswith("ack")]) == len(names):
            break
    assert {w for w in called.words if w.startswith("ack")} == {f"ack {name}" for name in names}
    assert sum(acker.status().backlog.values()) == 0


def test_repeatedly_killed_program_processes_every_record(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, tmp_path: Path
) -> None:
    """A program with a file as its store is killed at random moments; see ``killed.py``."""
    acker = make_any_acker(shards=2)
    chance = random.Random()
    store = tmp_path / "done"
    store.touch()
    records, kills = 300, 0
    while True:
        program = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.source.killed"),
                *(any_server.url, acker.namespace, str(store), str(records)),
            ],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )
        assert program.stdout
        if kills == budget().kills // 4:
            break
        # Kill it after its start, once it has written this many lines.
        for _ in range(chance.randint(1, 120)):
            if not program.stdout.readline():
                break
        program.kill()
        program.communicate()
        kills += 1
        if chance.random() < 0.5:
            tick(acker)
    tick(acker, 3)
    out, _ = program.communicate(timeout=LIMIT)
    assert program.returncode == 0
    processed, done = read(store.with_suffix(".processed")), read(store)
    assert set(done) == {str(number) for number in range(records)}
    assert set(done) <= set(processed), "every finished record was processed"
    assert b"all is done" in out


def read(store: Path) -> list[str]:
    return store.read_text().split()


def test_reloaded_record_keeps_its_number_of_messages(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    """If it were replayed as a record of one message, the first of three would ack it."""
    first = make_source(acker, bolts.send)
    first.emit("a", messages=3)
    first.step()
    bolts.fail("no")
    again = make_source(acker, bolts.send, reload=lambda name: Record(name, "three", 3))
    again.step()
    again.step()
    assert called.take() == ["fail a failed no"]
    ((_, _, ids),) = bolts.sent
    assert len(ids) == 3


def test_reload_must_return_a_record(make_source: MakeSource, acker: Acker, bolts: Bolts) -> None:
    first = make_source(acker, bolts.send)
    first.emit("a", messages=3)
    first.step()
    bolts.fail("no")
    again = make_source(acker, bolts.send, reload=lambda name: ["hat", "coat", "lamp"])
    with pytest.raises(ConfigError, match="reload must return Record"):
        again.step()
