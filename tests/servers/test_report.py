"""``report`` is bounded, the oldest makes room, and a reader leaves out damaged reports."""

import json
from typing import Any

import pytest

from acker_redis import Acker, SourceEdge
from acker_redis.doctor.examination import examine
from acker_redis.errors import InvalidBatchError, NamespaceNotFoundError
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.reports import MAX_REPORT, REPORT_MS, parse_reports, text_of, told

EDGE = SourceEdge("parts", 10, 3, 1, None)
DOWN = SourceEdge("", None, 1, 500, 90.0)
SIZE = 64


def report(acker: Acker, program: str = "shop", *edges: SourceEdge) -> int:
    keys = ShardKeys(acker.namespace, 0)
    return int(acker.connection.run(commands.report(keys, program, edges or (EDGE,))))


def key(acker: Acker) -> str:
    return ShardKeys(acker.namespace, 0).reports


def age(acker: Acker, program: str, ms: int) -> None:
    """Make a report older."""
    client = acker.connection.client
    at, _, text = client.hget(key(acker), program).decode().partition(":")
    client.hset(key(acker), program, f"{int(at) - ms}:{text}")


def test_status_has_the_last_report_of_each_program(acker: Acker) -> None:
    assert acker.status().reports == {}
    assert [report(acker), report(acker, "shop", EDGE, DOWN), report(acker, "b.2")] == [1, 1, 1]
    found = acker.status().reports
    assert {name: each.windows for name, each in found.items()} == {
        "b.2": (EDGE,),
        "shop": (EDGE, DOWN),
    }
    shop = found["shop"]
    assert 0 <= shop.age_ms < REPORT_MS
    assert (shop.down_ms(EDGE), shop.down_ms(DOWN)) == (None, 90_000 + shop.age_ms)


def test_report_that_is_not_renewed_is_gone(acker: Acker) -> None:
    report(acker)
    age(acker, "shop", REPORT_MS)
    assert acker.status().reports == {}
    report(acker)
    age(acker, "shop", -3_600_000)  # the clock went back
    assert acker.status().reports == {}


def test_oldest_report_makes_room_only_when_it_is_gone(acker: Acker) -> None:
    names = [f"p{number}" for number in range(SIZE)]
    assert {report(acker, name) for name in names} == {1}
    assert (report(acker, "more"), report(acker, "p7")) == (0, 1)
    assert sorted(acker.status().reports) == sorted(names)
    for name, ms in (("p3", REPORT_MS), ("p5", 2 * REPORT_MS)):
        age(acker, name, ms)
    assert report(acker, "more") == 1
    held = acker.connection.client.hkeys(key(acker))
    assert sorted(held) == sorted(name.encode() for name in {*names, "more"} - {"p5"})


@pytest.mark.parametrize(
    ("program", "text"),
    [("", "{}"), ("a b", "{}"), ("x" * 65, "{}"), ("a\n", "{}"), ("a", ""), ("a", "x" * 4097)],
)
def test_invalid_report_is_refused(acker: Acker, program: str, text: str) -> None:
    with pytest.raises(InvalidBatchError):
        acker.connection.run(Call("report", ShardKeys(acker.namespace, 0).both, (program, text)))


def test_namespace_that_is_gone_gets_no_report(acker: Acker) -> None:
    report(acker)
    acker.drop()
    with pytest.raises(NamespaceNotFoundError):
        report(acker)
    assert not acker.connection.client.exists(key(acker))


def _entry(**fields: Any) -> str:
    good = json.loads(text_of([EDGE]))["windows"][0]
    return json.dumps({"windows": [good | fields]})


@pytest.mark.parametrize(
    "text",
    [
        "", "no JSON", "[" * 4000, "[]", "7", '{"windows": 5}', '{"windows": [5]}',
        '{"windows":[{}]}',
        _entry(edge="<b>"), _entry(edge=7), _entry(window=-1), _entry(window=1.5),
        _entry(in_flight=True), _entry(waiting="9"), _entry(down_ms=10**16), _entry(in_flight=None),
        text_of([EDGE, EDGE]), text_of([SourceEdge(f"e{n}", 1, 1, 1, None) for n in range(9)]),
        _entry(edge="parts") + " " * MAX_REPORT,
    ],
)  # fmt: skip
def test_report_that_is_not_understood_is_left_out(text: str) -> None:
    assert parse_reports([b"a", f"5:{text}".encode(), b"b", b"5:{}"], 9).keys() == {"b"}


@pytest.mark.parametrize(
    "flat", [[b"a"], [b"a b", b"5:{}"], [b"a", b"x:{}"], [b"a", b"{}"], [b"a", b"\xff:\xff"]]
)
def test_field_that_no_script_writes_is_left_out(flat: list[bytes]) -> None:
    assert parse_reports(flat, 9) == {}


def test_key_that_is_no_hash_or_too_large_costs_only_the_reports(acker: Acker) -> None:
    client = acker.connection.client
    client.set(key(acker), "x")
    assert acker.status().reports == {}
    client.delete(key(acker))
    client.hset(key(acker), mapping={str(number): "x" for number in range(SIZE + 1)})
    assert acker.status().reports == {}


def test_members_of_other_figures_are_skipped() -> None:
    text = json.dumps(json.loads(text_of([EDGE])) | {"rates": {"a": 1}})
    assert parse_reports([b"shop", f"5:{text}".encode()], 9)["shop"].windows == (EDGE,)


def test_report_has_the_edges_with_most_to_say() -> None:
    many = [SourceEdge(f"e{number}", 9, number, 0, None) for number in range(9)]
    shown = told([*many, DOWN])
    assert [each.edge for each in shown] == ["", *(f"e{number}" for number in range(8, 1, -1))]
    longest = [SourceEdge("x" * 63 + str(n), 10**15, 10**15, 10**15, 1e9) for n in range(8)]
    assert len(text_of(longest)) < MAX_REPORT


def test_doctor_names_the_edge_that_gets_no_answer(acker: Acker) -> None:
    report(acker, "shop", EDGE, SourceEdge("paint", 1, 1, 70, 200.0))
    looked = examine(acker.connection.client, [acker.namespace], interval=0, canaries=False)
    (found,) = (each for each in looked if each.id == "window")
    assert found.level == "warning"
    assert found.headline.startswith("Source shop has got no answer on edge paint for 3 min 20 s")
