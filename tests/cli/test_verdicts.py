"""A shell reads verdicts, and takes those that it has handled."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.cli import verdicts
from acker_redis.embedded import EmbeddedRedis
from acker_redis.ops.reshard import reshard
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.cli.support import PATIENT, Ran, Shell
from tests.conftest import MakeAcker
from tests.support import tick, track, track_block
from tests.waiting import LIMIT


def acked(acker: Acker, first: int, last: int) -> None:
    """Track trees that are complete at once: one verdict each, one entry per shard."""
    batch = Batch("t")
    for anchor in range(first, last + 1):
        batch.track(anchor, f"record {anchor}", [])
    acker.apply(batch)


def test_source_that_does_not_exist_is_reported(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker()
    ns = acker.namespace
    assert shell("outcomes", ns, "t").err == (
        f"acker-redis: {ns} has had no source t lately; its sources: none\n"
    )
    track(acker, 7, 40, "a")
    ran = shell("outcomes", ns, "T")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.endswith("no source T lately; its sources: t\n")
    assert shell("outcomes", ns, "t") == Ran(0, "", "")


def test_limit(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker()
    for anchor in range(1, 6):
        track(acker, anchor, 0, f"record {anchor}")
    assert len(shell("outcomes", acker.namespace, "t", "--limit", "2").out.splitlines()) == 2
    assert len(shell("outcomes", acker.namespace, "t", "--follow", "-n", "5").out.splitlines()) == 5


def test_limit_within_an_entry(make_any_acker: MakeAcker, shell: Shell) -> None:
    """An entry holds up to 256 verdicts and is taken as a whole, so --take prints all of it."""
    acker = make_any_acker()
    acked(acker, 1, 9)
    lines = shell("outcomes", acker.namespace, "t").out.splitlines()
    assert shell("outcomes", acker.namespace, "t", "--limit", "1").out.splitlines() == lines[:1]
    taken = shell("outcomes", acker.namespace, "t", "--limit", "1", "--take").out.splitlines()
    assert taken == lines
    assert not acker.outcomes("t").read()


def test_verdicts_of_a_block_are_printed_one_per_tree(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    acker.track_block("t", "page/1", [0, 0, 0])
    lines = shell("outcomes", acker.namespace, "t").out.splitlines()
    assert [line.split("\t")[2] for line in lines] == ["page/1#0", "page/1#1", "page/1#2"]


def test_absent_slots_of_a_block_have_no_verdict(make_any_acker: MakeAcker, shell: Shell) -> None:
    """Slot 1 has failed, slot 3 expires, slot 4 is acked; slots 0, 2 and 5 hold no tree."""
    acker = make_any_acker()
    anchors = acker.track_block("t", "page", [0, 5, 0, 6, 0, 0], present=[1, 3, 4])
    batch = Batch()
    batch.fail(anchors[1], "torn")
    acker.apply(batch)
    tick(acker, 4)
    lines = [line.split("\t") for line in shell("outcomes", acker.namespace, "t").out.splitlines()]
    assert [(line[0], line[1], line[2]) for line in lines] == [
        ("nack", "failed", "page#1"), ("nack", "expired", "page#3"), ("ack", "completed", "page#4"),
    ]  # fmt: skip
    assert lines[0][5] == "torn"
    taken = shell("take", acker.namespace, "t", "-", stdin="\n".join(line[-1] for line in lines))
    assert taken.out == "3 verdicts taken\n"
    assert acker.status().backlog == {"t": 0}


def test_damaged_verdict_of_a_block_is_an_error_and_never_an_ack(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    acker.track_block("t", "page", [5, 0, 0])
    tick(acker, 4)
    client, stream = acker.connection.client, ShardKeys(acker.namespace, 0).outcomes("t")
    ((id_, fields),) = client.xrange(stream)
    client.delete(stream)
    client.xadd(stream, {**fields, b"nacked": b""}, id=id_)
    ran = shell("outcomes", acker.namespace, "t")
    assert (ran.code, ran.out) == (1, "")
    assert f"entry 0:{id_.decode()} of the outcomes has been tampered with" in ran.err


def test_an_entry_is_taken_once_all_its_verdicts_were_handled(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    acked(acker, 1, 3)
    acked(acker, 4, 5)
    ns = acker.namespace
    lines = shell("outcomes", ns, "t").out.splitlines(keepends=True)
    some = shell("take", ns, "t", "-", stdin="".join(lines[:4]))
    assert some.out == "3 verdicts taken\n"
    assert "1 entries were handled partially" in some.err
    left = shell("outcomes", ns, "t").out.splitlines(keepends=True)
    assert left == lines[3:]
    # The last field is enough; verdicts handled twice, and deleted entries, are ignored.
    fields = [line.split("\t")[-1] for line in lines]
    rest = json.loads(shell("take", ns, "t", "-", "--json", stdin="".join(fields)).out)
    assert rest == {"verdicts": 2, "unfinished_entries": 0}
    assert acker.status().backlog == {"t": 0}


def test_take_accepts_entries_as_arguments(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=2)
    acked(acker, 1, 4)
    ns = acker.namespace
    entries = {line.split("\t")[-1] for line in shell("outcomes", ns, "t").out.splitlines()}
    assert len(entries) == 2
    assert shell("take", ns, "t", *entries, "9:1-0").out == "4 verdicts taken\n"
    assert shell("outcomes", ns, "t").out == ""


@pytest.mark.parametrize("text", ["x", "0", "0:", ":1-0", "0:a-b", "-1:1-0"])
def test_an_invalid_entry_is_rejected(make_any_acker: MakeAcker, shell: Shell, text: str) -> None:
    acker = make_any_acker()
    acked(acker, 1, 2)
    ran = shell("take", acker.namespace, "t", "-", stdin=f"{text}\n")
    assert (ran.code, ran.out) == (1, "")
    assert "line 1 of stdin: an entry is SHARD:MS-N" in ran.err
    assert acker.status().backlog == {"t": 2}


def test_a_handler_that_dies_loses_nothing(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    """Verdicts that were in the pipe are printed again."""
    acker = make_any_acker()
    for anchor in range(1, 301):
        track(acker, anchor, 0, f"record {anchor} {'x' * 200}")
    command = f"{sys.executable} -m acker_redis"
    pipe = (
        f"{command} outcomes {acker.namespace} t | head -1 | {command} take {acker.namespace} t -"
    )
    done = subprocess.run(
        ["sh", "-c", pipe],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={"ACKER_REDIS_URL": any_server.url, "PATH": "/usr/bin:/bin", **PATIENT},
    )
    assert done.stdout == "1 verdict taken\n"
    assert done.stderr == ""
    assert acker.status().backlog == {"t": 299}


class Clock:
    """Clock for --follow; each sleep runs the next step."""

    def __init__(self, *steps: object) -> None:
        self.now = 0.0
        self._steps: Iterator[object] = iter(steps)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > 10 * verdicts.SWEPT:
            raise KeyboardInterrupt
        for step in self._steps:
            step()  # type: ignore[operator]
            break


def test_follow_sees_added_shards_and_smaller_ids(
    make_any_acker: MakeAcker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker()
    client, stream = acker.connection.client, ShardKeys(acker.namespace, 0).outcomes("t")

    def reshard_to_4() -> None:
        for entries in iter(lambda: acker.outcomes("t").read(), []):
            acker.outcomes("t").take(entries)
        reshard(acker, 4)

    def go_back() -> None:
        """Replace the stream as by a promoted replica with a slower clock."""
        [(_, fields)] = client.xrange(stream)[-1:]
        client.delete(stream)
        client.xadd(stream, {**fields, b"rows": b'[["1","an older one",0,""]]'}, id="5-0")

    clock = Clock(
        lambda: acked(acker, 1, 2),
        reshard_to_4,
        lambda: acked(acker, 3, 6),
        lambda: acked(acker, 8, 8),
        go_back,
    )
    monkeypatch.setattr(verdicts, "time", clock)
    ran = shell("outcomes", acker.namespace, "t", "--follow")
    assert ran.code == 130
    names = [line.split("\t")[2] for line in ran.out.splitlines()]
    assert sorted(names) == sorted(
        ["an older one", *(f"record {n}" for n in (1, 2, 3, 4, 5, 6, 8))]
    )


def test_take_accepts_entries_of_added_shards(make_any_acker: MakeAcker, shell: Shell) -> None:
    """In a pipe with --follow, take was started before the namespace was resharded."""
    acker = make_any_acker()
    taker = verdicts._Taker(acker, "t")
    reshard(acker, 4)
    acked(Acker(acker.connection.client, acker.namespace), 1, 4)
    lines = shell("outcomes", acker.namespace, "t").out.splitlines()
    for line in lines:
        taker.handled(verdicts._place(line, "a line"))
    assert (taker.taken, len(taker.waiting)) == (4, 0)


def test_a_tree_in_a_block_has_the_source_id_that_spark_gives_it(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    acker.track_block("t", "page 5", [0])
    track_block(acker, 9, [0, 0], label="orders/3@1000")
    lines = shell("outcomes", acker.namespace, "t").out.splitlines()
    names = [line.split("\t")[2] for line in lines]
    assert names == ["page 5#0", "orders/3/1000", "orders/3/1001"]
