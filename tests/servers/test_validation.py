"""Invalid input: a clear error, and the keyspace is unchanged byte for byte."""

from typing import Any

import pytest
import redis

from acker_redis.batching.batch import Columns
from acker_redis.errors import (
    AckerError,
    InvalidBatchError,
    NamespaceNotFoundError,
    RedisRefusedError,
    SchemaError,
    WrongShardError,
)
from acker_redis.protocol import commands, scripts
from acker_redis.protocol.commands import Call, Fence
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import FAIL, TRACK, columns, dump, send, tick, track, verdicts

A = 0x1234
GOOD = [(1, A, TRACK), (2, A, 0), (3, 0, FAIL)]


def good(**changed: Any) -> Columns:
    part = columns(GOOD, "t", ["s1", "why"])
    values = {name: getattr(part, name) for name in part.__slots__}
    return Columns(**{**values, **changed})


def refused(acker: Acker, part: Columns, fence: Fence | None = None) -> str:
    """Send invalid columns, check that nothing changed, and return the text of the error."""
    before = dump(acker)
    with pytest.raises(InvalidBatchError) as caught:
        send(acker, part, fence)
    assert dump(acker) == before
    return str(caught.value)


@pytest.fixture(autouse=True)
def some_state(acker: Acker) -> None:
    track(acker, 99, A, "pending")
    track(acker, 98, 0, "done")


@pytest.mark.parametrize("fence", [None, Fence("p", 1)])
def test_valid_batch_is_applied(acker: Acker, fence: Fence | None) -> None:
    assert send(acker, good(), fence).tracked == 1


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(0, A, 0)], "anchor of row 0"),
        ([(1, A, 0), (2**62, A, 0)], "anchor of row 1"),
        ([(2**63, A, 0)], "anchor of row 0"),
        ([(2**64 - 1, A, 0)], "anchor of row 0"),
        ([(5, A, 0), (6, A, 0), (5, A, 0)], "row 2 is given twice"),
        ([(5, 2**63, 0)], "delta of row 0"),
        ([(5, A, 8)], "unknown flag"),
        ([(5, A, 255)], "unknown flag"),
        ([], "1 to 1024 rows, this one has 0"),
        ([(i, A, 0) for i in range(1, 1026)], "1 to 1024 rows, this one has 1025"),
    ],
)
def test_invalid_rows_are_refused(
    acker: Acker, rows: list[tuple[int, int, int]], words: str
) -> None:
    assert words in refused(acker, columns(rows))


def test_bad_last_row_of_a_full_batch(acker: Acker) -> None:
    rows = [(i, A, TRACK) for i in range(100, 1123)] + [(2**62, A, TRACK)]
    part = columns(rows, "t", [f"s{i}" for i in range(1024)])
    assert "anchor of row 1023" in refused(acker, part, Fence("p", 1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"anchors": b"\0" * 23}, "8 bytes for each"),
        ({"deltas": b"\0" * 25}, "8 bytes for each"),
        ({"flags": b"\1\0"}, "8 bytes for each"),
        ({"texts": (b"s1",)}, "one text each"),
        ({"texts": (b"s1", b"why", b"more")}, "one text each"),
        ({"task": ""}, "a task must be given with TRACK"),
        ({"task": "x" * 65}, "a task must be 1 to 64"),
        ({"task": "a b"}, "a task must be 1 to 64"),
        ({"task": "a:b"}, "a task must be 1 to 64"),
        ({"task": "é"}, "a task must be 1 to 64"),
        ({"task": "a\n"}, "a task must be 1 to 64"),
        ({"texts": (b"", b"why")}, "1 to 255 bytes"),
        ({"texts": (b"x" * 256, b"why")}, "text 0 has 256"),
        ({"texts": (b"s1", b"x" * 256)}, "text 1 has 256"),
    ],
)
def test_malformed_columns_are_refused(acker: Acker, change: dict[str, Any], words: str) -> None:
    assert words in refused(acker, good(**change))


def test_longest_names_are_accepted(acker: Acker) -> None:
    part = good(task="x" * 64)
    assert send(acker, part, Fence("p" * 128, 999_999_999_999_999, "f" * 32)).tracked == 1


def test_task_without_track(acker: Acker) -> None:
    assert "a task must be given with TRACK" in refused(acker, columns([(5, A, 0)], "t"))


def test_texts_of_more_than_64_kib(acker: Acker) -> None:
    whys = ["x" * 255] * 257 + ["y"]
    rows = [(i, A, FAIL) for i in range(100, 358)]
    assert send(acker, columns(rows, "", whys)).pending == 259
    assert "at most 65536 bytes" in refused(acker, columns(rows, "", [*whys[:-1], "yy"]))


BAD_TEXTS = [
    *(bytes([c]) for c in (*range(0x20), 0x7F)),
    b"\x80",
    b"\xff",
    b"\xc0\xaf",  # overlong
    b"\xc1\xbf",
    b"\xe0\x80\xaf",
    b"\xf0\x80\x80\xaf",
    b"\xed\xa0\x80",  # a surrogate
    b"\xf4\x90\x80\x80",  # above U+10FFFF
    b"\xf5\x80\x80\x80",
    b"\xc3",  # truncated
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\xc3\xa9\xa9",  # one continuation too many
    "é".encode() + b"\n",
]


@pytest.mark.parametrize("text", BAD_TEXTS)
@pytest.mark.parametrize("place", [0, 1])
def test_texts_that_are_not_clean_utf_8_are_refused(acker: Acker, text: bytes, place: int) -> None:
    texts = [b"s1", b"why"]
    texts[place] = b"a" + text + b"z"
    assert f"text {place} is not UTF-8" in refused(acker, good(texts=tuple(texts)))


def test_utf_8_sequence_split_over_two_texts_is_refused(acker: Acker) -> None:
    assert "text 0 is not UTF-8" in refused(acker, good(texts=(b"s\xc3", b"\xa9why")))


@pytest.mark.parametrize(
    "seq",
    ["", "0", "-1", "01", "1.5", "1e3", "inf", "nan", "0x10", " 1", "1 ", "1\n", "1:", ":aa",
     "1:g", "1:aa:", "1" * 16, "9007199254740993", "1:" + "a" * 33],
)  # fmt: skip
def test_sequence_numbers(acker: Acker, seq: str) -> None:
    part = columns([(5, A, 0)])
    call = commands.apply(ShardKeys(acker.namespace, 0), part, None)
    before = dump(acker)
    with pytest.raises(InvalidBatchError, match="fence"):
        acker.connection.run(Call("apply", call.keys, ("p", seq, *call.args[2:])))
    assert dump(acker) == before


def test_producer_of_129_bytes(acker: Acker) -> None:
    assert "up to 128 bytes" in refused(acker, columns([(5, A, 0)]), Fence("x" * 129, 1))
    assert send(acker, columns([(5, A, 0)]), Fence("x" * 128, 1)).highest is None


def test_fence_without_producer(acker: Acker) -> None:
    call = commands.apply(ShardKeys(acker.namespace, 0), columns([(5, A, 0)]), None)
    with pytest.raises(InvalidBatchError, match="a fence needs a producer"):
        acker.connection.run(Call("apply", call.keys, ("", "1", *call.args[2:])))


def test_anchor_of_another_shard(make_acker: MakeAcker) -> None:
    acker = make_acker(shards=4)
    before = dump(acker)
    with pytest.raises(WrongShardError, match="row 1 does not belong to shard 2 of 4"):
        send(acker, columns([(6, A, 0), (7, A, 0)]), shard=2)
    assert dump(acker) == before


@pytest.mark.parametrize("shards", [1, 2, 256, 1024])
def test_every_anchor_fits_its_own_shard(make_acker: MakeAcker, shards: int) -> None:
    acker = make_acker(shards=shards)
    for anchor in (1, 255, 256, 1023, 1024, 2**32 + 77, 2**61 + 511, 2**62 - 1):
        assert send(acker, columns([(anchor, A, 0)]), shard=anchor % shards).pending >= 1


CALLS = {
    "apply": ("", "", b"\0", b"\0" * 7 + b"\5", b"\0" * 8, ""),
    "rotate": ("1",),
    "apply_blocks": ("", "", b"\0", b"\0" * 8, b"", b"", b"", b"\0" * 8, b""),
    "expire_blocks": ("4",),
    "expire": ("10",),
    "take": ("t", "1-0"),
    "status": (),
}


@pytest.mark.parametrize("script", CALLS)
def test_unknown_namespace(acker: Acker, script: str) -> None:
    before = dump(acker)
    keys = ShardKeys("never-created", 0)
    with pytest.raises(NamespaceNotFoundError, match="not created.*acker-redis create"):
        acker.connection.run(Call(script, keys.both, CALLS[script]))
    assert dump(acker) == before


@pytest.mark.parametrize("script", CALLS)
def test_another_schema(acker: Acker, script: str) -> None:
    keys = ShardKeys(acker.namespace, 0)
    acker.connection.client.hset(keys.meta, "schema", 9)
    before = dump(acker)
    with pytest.raises(SchemaError):
        acker.connection.run(Call(script, keys.both, CALLS[script]))
    assert dump(acker) == before


LOOPING: dict[str, tuple[str | bytes, ...]] = {
    **{name: CALLS[name] for name in ("apply", "apply_blocks", "rotate", "status")},
    "show": (b"\0" * 7 + b"\1",),
    "list": ("pending", "0", "0", "10", "", ""),
    "configure": ("tick_ms", "5"),
}
"""Calls of the scripts that loop over the buckets."""


@pytest.mark.parametrize("script", LOOPING)
def test_ring_that_no_script_writes_is_refused_at_once(acker: Acker, script: str) -> None:
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    right = client.hgetall(keys.meta)
    for field in ("buckets", "current"):
        for value in ("1000000000", "-1", "2.5", "nan", "inf", "1e300", "x", "", "17"):
            client.hset(keys.meta, mapping={**right, field: value})
            before = dump(acker)
            with pytest.raises(SchemaError, match="has been tampered with"):
                acker.connection.run(Call(script, keys.both, LOOPING[script]))
            assert dump(acker) == before


@pytest.mark.parametrize(
    ("tick_ms", "accepted"), [("0.5", False), ("1", True), ("1e12", True), ("1000000000001", False)]
)
def test_tick_accepts_the_limits_of_its_length(acker: Acker, tick_ms: str, accepted: bool) -> None:
    keys = ShardKeys(acker.namespace, 0)
    acker.connection.client.hset(keys.meta, "tick_ms", tick_ms)
    if accepted:
        assert acker.connection.run(Call("rotate", keys.both, ("1",)))[0] == 1
    else:
        with pytest.raises(SchemaError, match="tick_ms"):
            acker.connection.run(Call("rotate", keys.both, ("1",)))


@pytest.mark.parametrize("script", ["status", "rotate", "configure"])
def test_meta_with_too_many_fields_is_not_read(acker: Acker, script: str) -> None:
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    call = Call(script, keys.both, LOOPING[script])
    room = 10_000 - client.hlen(keys.meta)
    client.hset(keys.meta, mapping={f"used:{number}": 1 for number in range(room)})
    acker.connection.run(call)
    client.hset(keys.meta, mapping={"used:more": 1, "used:most": 1})
    before = dump(acker)
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        acker.connection.run(call)
    assert dump(acker) == before


@pytest.mark.parametrize("script", CALLS)
@pytest.mark.parametrize("keys", [("a", "b"), ("acker:{x:0}", "acker:{y:0}:meta")])
def test_wrong_keys(acker: Acker, script: str, keys: tuple[str, str]) -> None:
    before = dump(acker)
    with pytest.raises(InvalidBatchError, match="two keys"):
        acker.connection.run(Call(script, keys, CALLS[script]))
    assert dump(acker) == before


@pytest.mark.parametrize("script", CALLS)
def test_three_keys(acker: Acker, script: str) -> None:
    before = dump(acker)
    keys = ShardKeys(acker.namespace, 0)
    source = scripts.load(script).source
    with pytest.raises(redis.exceptions.ResponseError, match="ACKER ARGS needs two keys"):
        acker.connection.client.eval(source, 3, *keys.both, keys.expiring, *CALLS[script])
    assert dump(acker) == before


@pytest.mark.parametrize(
    ("script", "args"),
    [
        ("rotate", ("1", "1")),
        ("expire", ("10", "10")),
        ("rotate", ()),
        ("rotate", ("2",)),
        ("rotate", ("yes",)),
        ("expire", ()),
        ("expire", ("0",)),
        ("expire", ("1001",)),
        ("expire", ("1e2",)),
        ("expire", ("-1",)),
        ("take", ("t",)),
        ("take", ("t", *["1-0"] * 65)),
        ("take", ("a b", "1-0")),
        ("take", ("", "1-0")),
        ("take", ("t", "-")),
        ("take", ("t", "(1-0")),
        ("take", ("t", "1")),
        ("take", ("t", "1-0", "x-0")),
        ("take", ("t", "9" * 16 + "-0")),
        ("take", ("t", "0-" + "9" * 16)),
        ("take", ("t" * 65, "1-0")),
        ("status", ("x",)),
        ("apply", ("",) * 5),
    ],
)
def test_arguments_of_the_other_scripts(acker: Acker, script: str, args: tuple[str, ...]) -> None:
    before = dump(acker)
    with pytest.raises(InvalidBatchError):
        acker.connection.run(Call(script, ShardKeys(acker.namespace, 0).both, args))
    assert dump(acker) == before


@pytest.mark.parametrize("name", ["outcomes:t", "pending:0", "pending:2", "fence:1"])
def test_a_key_of_another_type_changes_nothing(acker: Acker, name: str) -> None:
    """A tampered key causes an error before the first write, never a partial batch."""
    client = acker.connection.client
    key = f"{ShardKeys(acker.namespace, 0).prefix}:{name}"
    client.delete(key)
    client.set(key, "tampered")
    before = dump(acker)
    part = columns([(1, A, TRACK), (2, 0, TRACK), (98, A, 0)], "t", ["s1", "s2"])
    with pytest.raises((SchemaError, RedisRefusedError)):
        send(acker, part, Fence("p", 1))
    assert dump(acker) == before


def test_batch_with_one_tampered_task_changes_nothing(acker: Acker) -> None:
    track(acker, 1, A, "s1", "good")
    track(acker, 2, A, "s2", "bad")
    acker.connection.client.set(ShardKeys(acker.namespace, 0).outcomes("bad"), "tampered")
    before = dump(acker)
    with pytest.raises(SchemaError):
        send(acker, columns([(1, A, 0), (2, A, 0)]), Fence("p", 1))
    assert dump(acker) == before


def test_backlog_that_is_not_a_number_is_refused(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    acker.connection.client.hset(keys.meta, "backlog:t", "x1")
    before = dump(acker)
    for call in (
        lambda: send(acker, columns([(99, A, 0)]), Fence("p", 1)),
        lambda: acker.connection.run(Call("take", keys.both, ("t", "1-0"))),
    ):
        with pytest.raises(AckerError):
            call()
        assert dump(acker) == before


@pytest.mark.parametrize(
    ("field", "record"), [("", " " * 1024), ("x", "y"), ("12345678", ""), ("12345678", "short")]
)
def test_invalid_record_does_not_stop_the_drain(acker: Acker, field: str, record: str) -> None:
    verdicts(acker)
    acker.connection.client.hset(ShardKeys(acker.namespace, 0).pending(0), field, record)
    tick(acker, 6)
    assert [v[3] for v in verdicts(acker)] == ["pending"]
    assert acker.status().expiring == acker.status().pending == 0


def test_durable_fences_of_another_type_stop_the_tick_before_it_writes(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    acker.connection.client.set(keys.durable_fences, "tampered")
    before = dump(acker)
    with pytest.raises(AckerError):
        acker.connection.run(commands.rotate(keys, force=True))
    assert dump(acker) == before


def test_take_accepts_its_limits(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    for args in (("t" * 64, "1-0"), ("t", "9" * 15 + "-" + "9" * 15)):
        assert acker.connection.run(Call("take", keys.both, args))[0] == 0


@pytest.mark.parametrize("what", ["stream", "backlog"])
def test_expire_with_tampered_keys_changes_nothing(acker: Acker, what: str) -> None:
    keys = ShardKeys(acker.namespace, 0)
    tick(acker, 2)
    acker.connection.run(commands.rotate(keys, force=True))
    if what == "stream":
        acker.connection.client.delete(keys.outcomes("t"))
        acker.connection.client.set(keys.outcomes("t"), "tampered")
    else:
        acker.connection.client.hset(keys.meta, "backlog:t", "x1")
    before = dump(acker)
    with pytest.raises(AckerError):
        acker.connection.run(commands.expire(keys, 10))
    assert dump(acker) == before
