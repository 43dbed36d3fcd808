"""Events and the ring of events are bounded in size for any input."""

import json
import re
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_api.auth.tokens import ANYBODY
from acker_api.live import verdicts as live_verdicts
from acker_api.live.board import Board, Listener
from acker_api.live.ring import Ring
from acker_api.live.verdicts import Address, Gathering

ACK, NACK = Address("orders", "ack", "t"), Address("orders", "nack", "t")


def message(count: int, why: str = "", **more: Any) -> bytes:
    rows = [[f"{n + 1:x}", f"s{n}", 5, why] for n in range(count)]
    body = {"verdict": "x", "reason": "failed", "n": count, **(more or {"rows": rows})}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def told(gathering: Gathering) -> Any:
    return json.loads(gathering.data(ids=True))


def test_acks_do_not_hide_nacks() -> None:
    gathering = Gathering()
    for _ in range(10):
        assert gathering.add(ACK, message(1024), 0)
    assert gathering.add(NACK, message(90, "no"), 0)
    body = told(gathering)
    verdicts = [each["verdict"] for each in body["outcomes"]]
    assert (verdicts.count("ack"), verdicts.count("nack")) == (100, 90)
    assert body["dropped"] == 10 * 1024 - 100
    gathering.add(NACK, message(20, "no"), 0)
    body = told(gathering)
    assert (len(body["outcomes"]), body["dropped"]) == (200, 10 * 1024 - 100 + 10)


def test_excess_verdicts_are_counted_without_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    gathering = Gathering()
    block = {"block": "1", "label": "p", "age": 5, "slots": 3, "failed": ""}
    for _ in range(60):
        assert gathering.add(ACK, message(3, **block), 0)
    gathering.add(NACK, message(1000), 0)
    assert len(told(gathering)["blocks"]) == 50
    before = told(gathering)["dropped"]
    monkeypatch.setattr(live_verdicts.json, "loads", None)
    assert gathering.add(NACK, message(7), 0)
    monkeypatch.undo()
    assert told(gathering)["dropped"] == before + 7 == 30 + 800 + 7


MIXED = {
    "block": "5",
    "label": "p",
    "age": 5,
    "cause": "idle",
    "idle": 3,
    "slots": 10,
    "nacked": "4000",
    "failed": "8000",
    "residuals": "0" * 15 + "1",
    "present": "ff80",
}
"""Of ten slots slot 9 is absent, slot 0 has failed, slot 1 has expired; seven are acked."""


def test_bitmaps_of_a_block_are_counted() -> None:
    gathering = Gathering()
    assert gathering.add(Address("orders", "mixed", "t"), message(8, **MIXED), 0)
    (block,) = told(gathering)["blocks"]
    assert [block[name] for name in ("count", "acked", "nacked")] == [8, 7, 1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, None) for name in ("nacked", "failed", "residuals", "slots", "present")),
        *((name, "") for name in ("nacked", "failed", "residuals", "present")),
        *(
            (name, value)
            for name in ("nacked", "failed", "present")
            # Too short, too long, half a byte, no hex, bits after the last slot, the former lists.
            for value in ("40", "400000", "400", "4 00", "40xx", "4040", [1], "[1]", 0x4000, None)
        ),
        ("nacked", "ff80"),
        ("slots", "10"),
        ("slots", 17),
        ("slots", 11.5),
    ],
)
def test_message_with_a_damaged_bitmap_is_ignored(name: str, value: Any) -> None:
    """It is never shown as acks."""
    body = {key: each for key, each in {**MIXED, name: value}.items() if each is not None}
    gathering = Gathering()
    assert not gathering.add(Address("orders", "mixed", "t"), message(8, **body), 0)
    assert not gathering
    whole = {key: each for key, each in body.items() if key not in ("nacked", "residuals")}
    if name not in ("nacked", "residuals"):
        assert not gathering.add(ACK, message(8, **whole), 0)
        assert not gathering


def test_texts_of_an_event_are_bounded() -> None:
    gathering = Gathering()
    for _ in range(20):
        gathering.add(NACK, message(20, "😀" * 10_000), 0)
    body = told(gathering)
    assert len(gathering.data(ids=True)) < live_verdicts.MAX_TEXT + 20_000
    assert len(body["outcomes"]) + body["dropped"] == 400


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "rows",
        "block",
        "label",
        "age",
        "nacked",
        "slots",
        "failed",
        "present",
        "cause",
        "idle",
        "residuals",
    ]
)
ROW = st.tuples(
    st.sampled_from(["1f", "x"]), st.text(max_size=3), st.integers(), st.sampled_from(["idle", "x"])
)
END = st.one_of(
    st.tuples(),
    st.tuples(st.sampled_from(["0" * 16, "8" * 16, "ff"]), st.integers() | st.text(max_size=2)),
)
ROWS = st.lists(st.builds(lambda row, end: [*row, *end], ROW, END), max_size=3)
BITMAP = st.sampled_from(["", "80", "40", "c0", "e0", "8000", "ff80"]) | VALUES
BLOCK = st.fixed_dictionaries(
    {"block": st.just("1f"), "label": st.text(max_size=3), "age": st.integers()},
    optional={
        "slots": st.integers(1, 9) | VALUES,
        "nacked": BITMAP,
        "failed": BITMAP,
        "present": BITMAP,
        "residuals": st.just("0" * 16) | st.text("0f8x", max_size=40) | VALUES,
    },
)
BODIES = st.one_of(st.dictionaries(NAMES, VALUES), st.fixed_dictionaries({"rows": ROWS}), BLOCK)


@given(BODIES, st.sampled_from(["ack", "nack", "touch", "mixed"]))
def test_any_published_message_yields_a_valid_event(body: dict[str, Any], verdict: str) -> None:
    text = json.dumps({"verdict": verdict, "reason": "failed", "n": 1, **body})
    gathering = Gathering(("mill", "shop"))
    taken = gathering.add(
        Address("orders", verdict, "t"), text.replace(", ", ",").replace(": ", ":").encode(), 0
    )
    data = gathering.data(ids=True)
    found = json.loads(data)
    assert "\n" not in data
    assert "\r" not in data
    if not taken:
        assert found == {"outcomes": [], "blocks": [], "dropped": 0}
    for each in (*found["outcomes"], *found["blocks"]):
        assert all(type(each[name]) is str for name in ("verdict", "reason", "source"))
        assert type(each["age_ms"]) is int
        assert type(each["idle_ms"]) in (int, type(None))
        assert set(each["edges"]) <= {"mill", "shop"}
    for each in found["blocks"]:
        assert min(each["acked"], each["nacked"]) >= 0
        assert each["acked"] + each["nacked"] == (0 if verdict == "touch" else each["count"])
    for each in found["outcomes"]:
        assert re.fullmatch("[0-9a-f]{16}", each["residual"] or "0" * 16)
        each["residual"] = None
    assert json.loads(gathering.data(ids=False)) == found


def test_ring_is_bounded_in_bytes() -> None:
    ring = Ring(most_bytes=1000)
    for _ in range(50):
        ring.append("outcome", '"' + "x" * 300 + '"')
    assert len(ring._events) == 2
    for _ in range(50):
        ring.append("outcome", '"' + "x" * 200 + '"', '"' + "y" * 200 + '"')
    assert ring.size <= 1000
    assert ring.size == sum(map(len, chain(*ring._events)))
    ring.append("outcome", '"' + "x" * 3000 + '"')
    assert len(ring._events) == 1, "an event that is too large alone is sent nevertheless"


def test_slow_listener_gets_states_and_verdicts_in_turn() -> None:
    """Its state changes at each read."""
    board = Board(Ring(most=3))
    listener = Listener(board, ANYBODY, "")
    found = []
    for number in range(6):
        board.show("state", lambda listener, number=number: b"state %d" % number)  # type: ignore[misc]
        if number in (0, 2):
            board.tell("outcome", f"{number}")
        found.append(listener.take())
    events = [(each or b"").partition(b"\n")[0] for each in found]
    assert events == [
        b"state 0", b"event: outcome", b"state 2", b"event: outcome", b"state 4", b"state 5",
    ]  # fmt: skip
    assert listener.take() is None


def test_missed_events_are_counted_once() -> None:
    board = Board(Ring(most=3))
    listener = Listener(board, ANYBODY, "")
    for number in range(10):
        board.tell("outcome", f"{number}")
    gap = listener.take() or b""
    assert json.loads(gap.split(b"data: ")[1])["missed"] == 10
    assert f"id: {board.ring.id}\n".encode() in gap
    assert listener.take() is None


def test_large_message_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only another program can have published it, and to parse it would delay all streams."""
    gathering, rows = Gathering(), ",".join(['["1","s",0,""]'] * 100)
    message = f'{{"verdict":"nack","reason":"failed","n":100,"rows":[{rows}]}}'.encode()
    monkeypatch.setattr(live_verdicts, "MAX_MESSAGE", len(message) - 1)
    assert not gathering.add(Address("n", "nack", "t"), message, 0)
    assert not gathering
    monkeypatch.setattr(live_verdicts, "MAX_MESSAGE", len(message))
    assert gathering.add(Address("n", "nack", "t"), message, 0)
