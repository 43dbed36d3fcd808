"""Outcomes: entries stay in the stream until they are taken, and are published live."""

import json

import pytest

from acker_redis.errors import BacklogError, SchemaError
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call
from acker_redis.protocol.keys import ShardKeys, channel, feed_tag
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import (
    FAIL,
    TRACK,
    columns,
    dump,
    fail,
    row,
    send,
    tick,
    touch,
    track,
    track_block,
)

A = 0xABCDEF


def three(acker: Acker) -> None:
    part = columns([(i, 0, TRACK) for i in (1, 2, 3)], "t", ["a", "b", "c"])
    send(acker, part)


def test_one_entry_per_call_task_verdict_and_reason(acker: Acker) -> None:
    rows = [(1, 0, TRACK), (2, 0, TRACK), (3, 0, TRACK | FAIL)]
    send(acker, columns(rows, "t", ["a", "b", "c", "why"]))
    stream = ShardKeys(acker.namespace, 0).outcomes("t")
    entries = [fields for _, fields in acker.connection.client.xrange(stream)]
    assert [(e[b"verdict"], e[b"reason"], e[b"n"]) for e in entries] == [
        (b"ack", b"completed", b"2"),
        (b"nack", b"failed", b"1"),
    ]
    rows_json = json.loads(entries[0][b"rows"])
    assert [r[:2] for r in rows_json] == [["0" * 15 + "1", "a"], ["0" * 15 + "2", "b"]]
    assert json.loads(entries[1][b"rows"])[0][3] == "why"


def test_every_row_has_four_elements_and_an_expired_one_six(acker: Acker) -> None:
    track(acker, 1, A)
    touch(acker, 1)
    fail(acker, 1)
    track(acker, 2, A)
    tick(acker, 3)
    stream = ShardKeys(acker.namespace, 0).outcomes("t")
    entries = acker.connection.client.xrange(stream)
    assert entries
    for _, fields in entries:
        expected = 6 if fields[b"reason"] == b"expired" else 4
        assert {len(row) for row in json.loads(fields[b"rows"])} == {expected}


def test_read_again_until_taken(acker: Acker) -> None:
    three(acker)
    outcomes = acker.outcomes("t")
    assert outcomes.read() == outcomes.read()
    assert acker.status().backlog == {"t": 3}
    assert outcomes.take(outcomes.read()) == 3
    assert outcomes.read() == []
    assert acker.status().backlog == {"t": 0}


def test_take_is_idempotent(acker: Acker) -> None:
    three(acker)
    track(acker, 9, 0, "d")
    outcomes = acker.outcomes("t")
    (first, second) = outcomes.read()
    assert outcomes.take([first, first]) == 3
    assert outcomes.take([first]) == 0
    assert acker.status().backlog == {"t": 1}
    assert outcomes.read() == [second]


def test_a_stream_that_was_deleted_by_hand_does_not_block_its_task(make_acker: MakeAcker) -> None:
    acker = make_acker(outcomes_limit=3)
    three(acker)
    keys = ShardKeys(acker.namespace, 0)
    acker.connection.client.delete(keys.outcomes("t"))
    assert list(acker.connection.run(Call("take", keys.both, ("t", "1-0")))) == [0, 0, 0, 1]
    track(acker, 9, 0, "d")


def test_taking_for_an_unknown_task_leaves_no_trace(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    before = dump(acker)
    acker.connection.run(Call("take", keys.both, ("never-heard-of", "1-0")))
    assert dump(acker) == before


def test_two_spellings_of_one_id_count_once(acker: Acker) -> None:
    three(acker)
    keys = ShardKeys(acker.namespace, 0)
    (entry,) = acker.outcomes("t").read()
    call = Call("take", keys.both, ("t", entry.id, "0" + entry.id))
    assert list(acker.connection.run(call)) == [1, 3, 0, 2]


def test_taking_many_entries(acker: Acker) -> None:
    for i in range(1, 151):
        track(acker, i, 0, f"s{i}")
    outcomes = acker.outcomes("t")
    assert outcomes.take(outcomes.read(count=1000)) == 150


def test_take_stops_at_512_kib_and_the_client_sends_the_rest_again(acker: Acker) -> None:
    ids = range(1, 1025)
    for start in range(1, 6 * 1024, 256):
        rows = [(i, A, TRACK) for i in range(start, start + 256)]
        send(acker, columns(rows, "t", [f"{i:0255d}" for i, _, _ in rows]))
    for part in range(6):
        send(acker, columns([(i + 1024 * part, A, 0) for i in ids]))
    outcomes, keys = acker.outcomes("t"), ShardKeys(acker.namespace, 0)
    entries = outcomes.read(count=100)
    assert len(entries) == 6
    call = commands.take(keys, "t", [entry.id for entry in entries])
    assert list(acker.connection.run(call)) == [2, 2048, 4096, 2]
    assert outcomes.take(entries) == 4096
    assert outcomes.read() == []


@pytest.mark.parametrize(("size", "looked"), [(512 * 1024 - 1, 2), (512 * 1024, 1)])
def test_take_stops_exactly_at_512_kib(acker: Acker, size: int, looked: int) -> None:
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    ids = [
        client.xadd(keys.outcomes("t"), {"n": "1", "rows": "x" * (size - 1)}),
        client.xadd(keys.outcomes("t"), {"n": "1", "rows": "x"}),
    ]
    call = commands.take(keys, "t", [id_.decode() for id_ in ids])
    assert list(acker.connection.run(call)) == [looked, looked, 0, looked]


def test_an_entry_that_was_tampered_with_is_not_taken(acker: Acker) -> None:
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    id_ = client.xadd(keys.outcomes("t"), {"n": "abc", "rows": "[]"}).decode()
    before = dump(acker)
    with pytest.raises(SchemaError, match="tampered"):
        acker.connection.run(commands.take(keys, "t", [id_]))
    assert dump(acker) == before


def test_iteration_takes_the_verdicts_it_yielded(acker: Acker) -> None:
    for i in range(1, 4):
        track(acker, i, 0, f"s{i}")
    for outcome in acker.outcomes("t"):
        if outcome.source_id == "s2":
            break
    left = [o.source_id for o in acker.outcomes("t")]
    assert left == ["s2", "s3"], "s2 was not finished, so it is delivered again"


def test_outcomes_of_all_shards(make_acker: MakeAcker) -> None:
    acker = make_acker(shards=4)
    for i in range(1, 9):
        send(acker, columns([(i, 0, TRACK)], "t", [f"s{i}"]), shard=i % 4)
    assert {o.source_id for o in acker.outcomes("t")} == {f"s{i}" for i in range(1, 9)}


def test_live_feed_equals_the_stream(acker: Acker) -> None:
    live = acker.connection.client.pubsub(ignore_subscribe_messages=True)
    live.subscribe(*(channel(acker.namespace, v, "t") for v in ("ack", "nack", "touch")))
    assert live.get_message(timeout=5) is None
    track(acker, 1, A, 'say "x"\\')
    touch(acker, 1)
    row(acker, 1, A)
    track(acker, 2, A, "b")
    tick(acker, 3)
    heard = []
    while len(heard) < 3:
        message = live.get_message(timeout=5)
        if message:
            heard.append(json.loads(message["data"]))
    live.close()
    stream = ShardKeys(acker.namespace, 0).outcomes("t")
    written = [f for _, f in acker.connection.client.xrange(stream)]
    assert [h["rows"] for h in heard] == [json.loads(f[b"rows"]) for f in written]
    assert {h["of"] for h in heard} == {feed_tag(acker.status().shards[0].salt.reveal())}
    assert [(h["verdict"], h["reason"], h["n"]) for h in heard] == [
        ("touch", "reset", 1),
        ("ack", "completed", 1),
        ("nack", "expired", 1),
    ]


def test_publish_can_be_off(make_acker: MakeAcker) -> None:
    acker = make_acker(publish=False)
    live = acker.connection.client.pubsub(ignore_subscribe_messages=True)
    live.psubscribe("acker:*")
    three(acker)
    track(acker, 9, A)
    tick(acker, 3)
    client = acker.connection.client
    client.publish("acker:end", "end")
    while (message := live.get_message(timeout=5)) is None:
        pass
    live.close()
    assert message["data"] == b"end"


def test_a_producer_without_the_right_to_publish_loses_nothing(acker: Acker) -> None:
    """Redis refuses PUBLISH in the middle of the script, and the batch is still applied whole."""
    client = acker.connection.client
    client.execute_command(
        "ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "-publish", "resetchannels"
    )
    client.execute_command("AUTH", "mute", "pw")
    try:
        track(acker, 1, A)
        assert row(acker, 1, A).acked == 1
        track(acker, 2, A)
        tick(acker, 3)
        assert [o.verdict for o in acker.outcomes("t")] == ["ack", "nack"]
    finally:
        client.connection_pool.disconnect()
        client.execute_command("ACL", "DELUSER", "mute")


def test_tasks_are_counted_once(acker: Acker) -> None:
    """A task counts once for all its TRACKs, and batches without a TRACK do not count."""
    for anchor in (1, 2, 3):
        track(acker, anchor, A)
        row(acker, anchor + 10, A)
    track(acker, 4, A, "s", "u")
    row(acker, 1, A)
    meta = acker.connection.client.hgetall(ShardKeys(acker.namespace, 0).meta)
    assert meta[b"tasks"] == b"2"
    assert {k for k in meta if k.startswith(b"backlog:")} == {b"backlog:t", b"backlog:u"}


def test_status_reads_only(acker: Acker) -> None:
    three(acker)
    before = dump(acker)
    acker.connection.run(commands.status(ShardKeys(acker.namespace, 0)))
    assert dump(acker) == before


@pytest.mark.parametrize("in_blocks", [False, True])
def test_a_deleted_stream_does_not_close_its_task_for_ever(
    make_acker: MakeAcker, in_blocks: bool
) -> None:
    """After an operator's DEL, the source has nothing to take and may not track."""
    acker = make_acker(outcomes_limit=3)
    three(acker)
    acker.connection.client.delete(ShardKeys(acker.namespace, 0).outcomes("t"))
    with pytest.raises(BacklogError):
        track(acker, 9, 0)
    assert acker.outcomes("t").read() == []
    tick(acker)
    assert acker.status().backlog == {"t": 0}
    if in_blocks:
        track_block(acker, 1, [0])
    else:
        track(acker, 9, 0)
    assert acker.status().backlog == {"t": 1}
    assert len(list(acker.outcomes("t"))) == 1


def test_a_deleted_stream_with_newer_verdicts_loses_none_of_them(make_acker: MakeAcker) -> None:
    """A tick corrects the count of an empty stream, ``take`` the count when it empties one."""
    acker = make_acker(outcomes_limit=3)
    track(acker, 8, A, "later")
    three(acker)
    acker.connection.client.delete(ShardKeys(acker.namespace, 0).outcomes("t"))
    row(acker, 8, A)
    tick(acker)
    assert acker.status().backlog == {"t": 4}
    assert [each.source_id for each in acker.outcomes("t")] == ["later"]
    assert acker.status().backlog == {"t": 0}
    track(acker, 9, 0)


def test_a_thousand_deleted_streams_are_corrected_in_two_ticks(acker: Acker) -> None:
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    for i in range(1, 1001):
        track(acker, i, 0, "s", f"t{i}")
    client.delete(*(keys.outcomes(f"t{i}") for i in range(1, 1001)))
    tick(acker)
    assert sum(acker.status().backlog.values()) == 500
    tick(acker)
    assert sum(acker.status().backlog.values()) == 0


def test_a_rotator_without_the_right_to_xlen_ticks_and_corrects_no_backlog(acker: Acker) -> None:
    three(acker)
    client = acker.connection.client
    client.delete(ShardKeys(acker.namespace, 0).outcomes("t"))
    client.execute_command("ACL", "SETUSER", "default", "-xlen")
    try:
        tick(acker)
        assert acker.status().backlog == {"t": 3}
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+xlen")
    tick(acker)
    assert acker.status().backlog == {"t": 0}
