"""Tampered keys raise an AckerError, not a Python exception."""

import pytest

from acker_redis.errors import SchemaError
from acker_redis.flows.groups import read_groups
from acker_redis.flows.namespace_list import read_names
from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from acker_redis.protocol.outcome import parse_entry
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tick_ms", "soon"),
        ("tick_ms", "0"),
        ("high_water", None),
        ("current", "x"),
        ("acked", ""),
        ("backlog:t", "many"),
        ("reshard", "there"),
    ],
)
def test_tampered_meta_raises_schema_error(
    make_any_acker: MakeAcker, field: str, value: str | None
) -> None:
    acker = make_any_acker()
    client, meta = acker.connection.client, ShardKeys(acker.namespace, 0).meta
    client.hdel(meta, field) if value is None else client.hset(meta, field, value)
    with pytest.raises(SchemaError, match="has been tampered with"):
        acker.status()


def test_invalid_members_of_the_set_are_no_namespaces(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    acker.connection.client.sadd(NAMESPACES, b"\xff\xfe", "two words", "", "x" * 65)
    assert acker.connection.drive(read_names()) == [acker.namespace]


_MIXED = {
    "verdict": "mixed",
    "reason": "expired",
    "n": "8",
    "block": "0000000000005",
    "label": "page",
    "age": "5",
    "cause": "idle",
    "idle": "3",
    "slots": "10",
    "nacked": "4000",
    "failed": "8000",
    "residuals": "0000000000000001",
    "present": "ff80",
}
"""Of ten slots slot 9 is absent, slot 0 has failed, slot 1 has expired; seven are acked."""


def read(acker: Acker, fields: dict[str, str]) -> list[tuple[int | None, str]]:
    """Put an entry into the stream of a source; return the verdicts that the client reads."""
    acker.connection.client.xadd(ShardKeys(acker.namespace, 0).outcomes("t"), fields)
    (entry,) = acker.outcomes("t").read()
    return [(outcome.slot, outcome.verdict) for outcome in entry]


def test_verdict_of_a_block_is_read(make_any_acker: MakeAcker) -> None:
    said = dict(read(make_any_acker(), _MIXED))
    assert said == {1: "nack", **dict.fromkeys(range(2, 9), "ack")}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, None) for name in ("nacked", "failed", "residuals", "slots", "present", "n")),
        *((name, "") for name in ("nacked", "failed", "residuals", "present")),
        *(
            (name, text)
            for name in ("nacked", "failed", "present")
            # Too short, too long, half a byte, no hex, bits after the last slot, the former JSON.
            for text in ("40", "400000", "400", "4 00", "40xx", "4040", "[1]", "0x40", "\u0664000")
        ),
        ("nacked", "0000"),
        ("residuals", "01"),
        ("slots", "17"),
        ("n", "9"),
    ],
)
def test_damaged_verdict_of_a_block_is_an_error_and_never_an_ack(
    make_any_acker: MakeAcker, field: str, value: str | None
) -> None:
    fields = {**_MIXED, field: value}
    with pytest.raises(SchemaError, match="has been tampered with"):
        read(make_any_acker(), {name: text for name, text in fields.items() if text is not None})


@pytest.mark.parametrize("field", ["failed", "present", "slots"])
def test_damaged_ack_of_a_block_is_an_error(make_any_acker: MakeAcker, field: str) -> None:
    fields = {
        name: text
        for name, text in _MIXED.items()
        if name not in ("cause", "idle", "nacked", "residuals", field)
    }
    with pytest.raises(SchemaError, match="has been tampered with"):
        read(make_any_acker(), {**fields, "verdict": "ack", "reason": "completed"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shop:import", "{"),
        ("shop:import", "[" * 900),
        ("shop:import", '{"state": "open", "records": 1e400}'),
        ("shop:import", '{"state": "open", "records": %s}' % ("9" * 400)),
        ("shop:import", '{"state": "gone"}'),
        ("shop:import", '{"state": "open", "name": "x"}'),
        ("shop:im port", '{"state": "open"}'),
        ("n" * 2000, '{"state": "open"}'),
        (b"\xff:import", '{"state": "open"}'),
    ],
)
def test_damaged_group_is_a_schema_error(
    make_any_acker: MakeAcker, field: str | bytes, value: str
) -> None:
    acker = make_any_acker()
    index = ShardKeys(acker.namespace, 0).groups
    acker.connection.client.hset(index, "shop:import", '{"state": "sealed", "records": 2}')
    (group,) = acker.connection.drive(read_groups(acker.flows))
    assert (group.source, group.name, group.records) == ("shop", "import", 2)
    acker.connection.client.hset(index, field, value)
    with pytest.raises(SchemaError, match="tampered with") as refused:
        acker.connection.drive(read_groups(acker.flows))
    assert len(str(refused.value)) < 300


ACK = {b"verdict": b"ack", b"reason": b"completed", b"n": b"1"}
BLOCK = {**ACK, b"block": b"5", b"label": b"page 1", b"age": b"1", b"slots": b"1", b"failed": b""}


@pytest.mark.parametrize(
    "fields",
    [
        {**ACK, b"reason": b"\x1b[2J", b"rows": b"[]"},
        {**ACK, b"rows": b"[" * 200_000},
        {**ACK, b"rows": rb'[["1f","\u001b[2J",5,""]]'},
        {**ACK, b"rows": b'[["1f",{"a":1},5,""]]'},
        {**ACK, b"rows": b'[["1f","order",1e400,""]]'},
        {**ACK, b"rows": b'[["%b","order",5,""]]' % (b"f" * 4000)},
        {**BLOCK, b"label": b"\x1b[2J"},
        {**BLOCK, b"block": b"f" * 4000},
        {**BLOCK, b"slots": b"1%030d" % 0, b"present": b"80"},
        {**BLOCK, b"rows": b'[["1","torn"]]'},
        {**BLOCK, b"rows": b"[[9999,7]]"},
    ],
)
def test_entry_that_no_script_writes_is_refused(fields: dict[bytes, bytes]) -> None:
    """Without a set of as many slots as it says, and before a text of it is shown."""
    assert list(parse_entry(0, b"1-0", BLOCK))
    with pytest.raises(SchemaError, match="has been tampered with"):
        list(parse_entry(0, b"1-0", fields))


@pytest.mark.parametrize("name", [b"s", b"\x1b"])
def test_record_with_control_characters_is_not_shown(
    make_any_acker: MakeAcker, name: bytes
) -> None:
    acker = make_any_acker()
    record = bytes(19) + bytes((len(name),)) + name + (b"order" if name != b"s" else b"\x1b[2J")
    key = ShardKeys(acker.namespace, 0).pending(0)
    acker.connection.client.hset(key, mapping={b"\0" * 7 + b"\1": record})
    with pytest.raises(SchemaError, match="has been tampered with"):
        acker.show(1)
    assert acker.page().unreadable == 1
