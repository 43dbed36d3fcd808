"""The cases are current, the Python client agrees with them, and the runner detects errors."""

import contextlib
import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import AckerError, ConfigError, InvalidBatchError, LaneError, SchemaError
from acker_redis.protocol import commands, scripts
from acker_redis.protocol.blocks import DENSE_LEAST, Blocks
from acker_redis.protocol.commands import Call
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.rows import Columns
from acker_redis.protocol.tree import parse_show
from acker_redis.sync.client import Acker
from acker_redis.sync.connection import Connection
from proof.cases import __main__ as command
from proof.cases import accept, lines
from proof.cases.lines import Json
from proof.cases.run import MismatchError, run
from tests.cases.client import batch_of, calls_of, parts_of, wire

CASES = lines.load()
TOPICS = [*dict.fromkeys(name.partition(":")[0] for name in CASES)]
BATCHES = {
    f"{name}, step {number}": (case, step)
    for name, case in CASES.items()
    for number, step in enumerate(case["steps"])
    if "apply" in (step.get("do") or {})
}
each_topic = pytest.mark.parametrize("topic", TOPICS)
"""One test per file: one test per case would take ten times as long."""


def of(topic: str, names: Iterable[str]) -> list[str]:
    """Return the names of cases or batches that belong to a topic."""
    return [name for name in names if name.startswith(f"{topic}: ")]


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Add the name of the case to an error."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case {name!r}")
        raise


@pytest.fixture
def client(server: EmbeddedRedis) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(server.url) as connected:
        yield connected
        connected.flushall()


def test_lines_are_current() -> None:
    assert accept.stale(accept.accepted()) == []


def test_accepted_results_do_not_depend_on_the_old_ones() -> None:
    for path in lines.HERE.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            assert lines.line(accept.fill(by_hand(json.loads(line)))) == line


def by_hand(case: Json) -> Json:
    """Return a case with the fields that a contributor writes."""
    case.pop("state", None)
    for step in case["steps"]:
        for name in ("outcomes", "checksums"):
            step.pop(name, None)
        if "do" in step and "error" not in step:
            step.pop("calls", None)
        for call in step.get("calls", []):
            played = not accept.PLAYED.isdisjoint(call)
            if played and "error" not in (call["reply"] if is_error(call) else ()):
                del call["reply"]
    return case


def test_readme_names_each_file() -> None:
    rows = re.findall(r"^\| `(\w+)\.jsonl` \|", (lines.HERE / "README.md").read_text(), re.M)
    assert sorted(rows) == TOPICS


def test_command_fills_in_a_case_on_several_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (lines.HERE / "chains.jsonl").read_text().splitlines()[:2]
    file = tmp_path / "chains.jsonl"
    written = json.dumps(by_hand(json.loads(second)), indent=2)
    file.write_text(f"{first}\n\n{written}\n")
    monkeypatch.setattr(lines, "HERE", tmp_path)
    assert command.main(["--check"]) == 1
    assert "chains.jsonl: one message is not current" in capsys.readouterr().out
    assert command.main(["--accept"]) == 0
    assert file.read_text() == f"{first}\n{second}\n"
    assert command.main(["--check"]) == 0
    assert command.main(["chains: one message"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2]) == [CASES["chains: one message"]]
    file.write_text(f"{first}\n{first}\n")
    with pytest.raises(ValueError, match="two cases have the same name"):
        command.main(["--check"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reply": 1}, "a case has no ['reply']"),
        ({"config": {"shard": 4}}, "a config has no ['shard']"),
        ({"steps": [{"call": []}]}, "a step has no ['call']"),
        ({"steps": [{"calls": [{"configure": ["x", "1"], "shard": 1}]}]}, "no shard has the keys"),
    ],
)
def test_mistake_in_a_case_is_refused(change: Json, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        accept.fill({"name": "n", "why": "w", "steps": []} | change)


@each_topic
def test_python_client_makes_the_calls_of_the_cases(topic: str) -> None:
    for name in of(topic, CASES):
        with naming(name):
            _python_client_sends(CASES[name])


def _python_client_sends(case: Json) -> None:
    config = _config(case)
    for step in case["steps"]:
        do = step.get("do")
        if not do:
            continue
        if step.get("refused"):
            with pytest.raises((InvalidBatchError, ConfigError)):
                parts_of(do["apply"], config.shards)
            assert step["calls"] == []
            continue
        calls = calls_of(do, config, case["namespace"])
        made = [(c.script, [*map(wire, c.keys)], [*map(wire, c.args)]) for c in calls]
        sent = [
            (c["script"], c["keys"], [arg for arg in c["argv"] if arg is not None])
            for c in step["calls"]
        ]
        if "take" in do:  # no call goes to a shard without verdicts
            made = [call for call in made if call in sent]
        if ends_early(step):  # nor is one sent after a refusal
            made = made[: len(sent)]
        assert made == sent


@each_topic
def test_python_client_shows_no_damaged_tree(topic: str) -> None:
    """The client raises SCHEMA exactly where the case has it; it shows all other trees."""
    for name in of(topic, CASES):
        for step in CASES[name]["steps"]:
            if "show" not in (step.get("do") or {}):
                continue
            (call,), anchor = step["calls"], int(step["do"]["show"]["anchor"])
            if is_error(call):
                continue
            reply = [_shown(element) for element in call["reply"]]
            reply[0] = 0
            with naming(name):
                if "error" in step:
                    assert step["error"] == "SCHEMA"
                    with pytest.raises(SchemaError):
                        parse_show(reply, anchor)
                else:
                    parse_show(reply, anchor)


def _shown(element: Json) -> Json:
    """Return an element of a reply of show; times are zero."""
    if not isinstance(element, dict):
        return element
    return bytes.fromhex(element["hex"].replace("?", "0"))


class Answers(Connection):
    """A connection that records the calls, and replies as the case says.

    Calls go to one shard after the other, and stop after a refusal.
    """

    def __init__(self, step: Json) -> None:
        super().__init__(redis.Redis())
        self.sent: list[Call] = []
        self._calls = {(c["keys"][0], c["argv"][1]): c["reply"] for c in step["calls"]}

    def run(self, call: Call) -> Json:
        self.sent.append(call)
        found = self._calls[wire(call.keys[0]), wire(call.args[1])]
        if isinstance(found, dict):
            raise commands.parse_error(f"ACKER {found['error']} words") or AssertionError(found)
        return [bytes.fromhex(r["hex"]) if isinstance(r, dict) else r for r in found]

    def _together(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        results = []
        for work in works:
            results.append(work())
            if isinstance(results[-1], Exception):
                raise results[-1]
        return results


FENCED = {
    name: (case, step)
    for name, (case, step) in BATCHES.items()
    if step["do"]["apply"]["producer"] and step["calls"]
}


@each_topic
def test_acker_sends_consecutive_numbers_and_stops_after_a_refusal(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client makes the calls of the case when it uses the case's lane and digest."""
    for name in of(topic, FENCED):
        with naming(name), monkeypatch.context() as patches:
            _acker_sends(*FENCED[name], patches)


def _acker_sends(case: Json, step: Json, patches: pytest.MonkeyPatch) -> None:
    do = step["do"]["apply"]
    # Each client computes its own digests, so use those of the case.
    for kind in (Columns, Blocks):
        patches.setattr(kind, "digest", property(lambda _: do["digest"]))
    acker = Acker.from_url("redis://localhost:1", case["namespace"])
    acker.flows.known = _config(case)
    acker._lane.name, acker._lane.seq = do["producer"], int(do["seq"]) - 1
    acker.connection = answers = Answers(step)
    stops = ends_early(step)
    try:
        acker.apply(batch_of(do))
    except LaneError:
        assert stops
    except AckerError:
        assert is_error(step["calls"][-1])
    else:
        assert not stops
    sent = [(c["script"], c["keys"], c["argv"]) for c in step["calls"]]
    # Here the calls are grouped by shard, so sort them by number.
    made = [(c.script, [*map(wire, c.keys)], [*map(wire, c.args)]) for c in answers.sent]
    assert sorted(made, key=lambda c: int(bytes.fromhex(c[2][1]).split(b":")[0])) == sent


def test_sparse_packing_is_the_only_choice_in_the_cases() -> None:
    """No batch names enough slots of a block that a client may pack it dense."""
    for name, (_, step) in BATCHES.items():
        slots: dict[int, set[int]] = {}
        for row in step["do"]["apply"]["rows"]:
            ((verb, fields),) = row.items()
            anchor = int(fields.get("anchor", 0))
            if verb != "track_block" and anchor >> 62 == 1:
                slots.setdefault(anchor >> 12, set()).add(anchor)
        assert all(len(its) < DENSE_LEAST for its in slots.values()), name


def test_errors_of_the_cases_have_a_class() -> None:
    for name, case in CASES.items():
        for step in case["steps"]:
            for call in filter(is_error, step.get("calls", [])):
                error = commands.parse_error(f"ACKER {call['reply']['error']} words")
                assert error is not None, name
                assert type(error) is not AckerError, name


def test_every_error_code_has_a_case() -> None:
    calls = [c for v in CASES.values() for s in v["steps"] for c in s.get("calls", [])]
    assert {c["reply"]["error"] for c in calls if is_error(c)} == set(commands._KINDS)


def test_json_numbers_are_small() -> None:
    """Many parsers convert JSON numbers to doubles."""

    def numbers(value: Json) -> Iterator[int]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                yield from numbers(item)
        elif isinstance(value, int | float):
            assert not isinstance(value, float)
            yield value

    assert max(map(abs, numbers(CASES))) <= 10**12


# Running checksums, computed by hand and not by code of this project. None: complete.
BY_HAND: dict[str, list[int | None]] = {
    "chains: chain": [0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, None],
    "chains: fan-out": [
        0x2B7E151628AED2A6,
        0x6D60A10D53727AFA,
        0x510E527FADE682D1,
        None,
    ],
    "chains: four bits": [0b0011, 0b0100, 0b0001, 0b1111, None],
    # Complete after the fifth row while two messages 5 are open. Their rows then create a record
    # without a tree.
    "diamonds: diamond, message 5 sent twice": [3, 1, 7, 1, None, 5, 0],
    "diamonds: diamond, an id for each message": [3, 1, 7, 1, 3, 6, None],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_running_checksums_by_hand(name: str) -> None:
    """``tests/conformance/test_cases.py`` compares the servers with the same checksums."""
    found: list[int | None] = []
    for step in CASES[name]["steps"]:
        if "apply" in step["do"]:
            checksums = [int(checksum, 16) for checksum in step["checksums"].values()]
            acked = [outcome[1:3] == ["ack", "completed"] for outcome in step["outcomes"]]
            assert len(checksums) + len(acked) == 1
            found.append(checksums[0] if checksums else None)
    assert found == BY_HAND[name]


# The same for a block, slot by slot. None: not pending.
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1
BLOCKS_BY_HAND: dict[str, list[list[int] | None]] = {
    "blocks: diamond inside a slot": [
        [A, 3], [A, 1], [A, 7], [A, 1], [A, 3], [A, 6], [A, 0], None,
    ],
    "blocks: a join of two slots": [
        [A, B], [C, 0x1F83D9ABFB41BD6B], None,
    ],
    "blocks: a slot that is zero, then open again": [
        [A, B], [0, B], [C, B], [C, 0], None,
    ],
    "blocks: rows before the track": [None, None, [A, B], [A, 0]],
    # Slot 0: A ^ A ^ D; slot 1: B ^ B ^ E; slot 2: C ^ C.
    "blocks_packing: rows of a block that is tracked in the same batch": [
        [0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179, 0], None,
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS_BY_HAND)
def test_running_checksums_of_a_block_by_hand(name: str) -> None:
    """``checksums`` of a step has only the slots of its rows; ``held`` collects all slots."""
    found: list[list[int] | None] = []
    held: dict[str, int] = {}
    for step in CASES[name]["steps"][1:]:
        held |= {anchor: int(checksum, 16) for anchor, checksum in step["checksums"].items()}
        if any(outcome[1:3] == ["ack", "completed"] for outcome in step["outcomes"]):
            assert step["checksums"] == {}
            held = {}
        found.append([held[anchor] for anchor in sorted(held)] or None)
    assert found == BLOCKS_BY_HAND[name]


@pytest.mark.parametrize(
    "topic", ["chains", "folding", "sixty_four_bits", "several_trees", "blocks"]
)
def test_topics_of_correct_clients_break_no_rule(topic: str) -> None:
    assert not any("breaks_rule" in CASES[name] for name in of(topic, CASES))


def test_each_rule_is_broken_by_some_case() -> None:
    assert {v["breaks_rule"] for v in CASES.values() if "breaks_rule" in v} == {1, 2, 3}


def other(text: str) -> str:
    """Return the hex with one bit changed; of no bytes, one byte."""
    return text[:-1] + f"{int(text[-1], 16) ^ 1:x}" if text else "80"


def renamed(found: Json) -> Json:
    return {other(name): value for name, value in found.items()}


def changed(case: Json, path: str, new: Json) -> Json:
    """Return a case with another value at a path, such as ``steps/2/calls/0/reply``.

    ``new`` is the value, or a function of the old one.
    """
    case = copy.deepcopy(case)
    *parts, last = path.split("/")
    at = case
    for part in parts:
        at = at[int(part) if isinstance(at, list) else part]
    key: Any = int(last) if isinstance(at, list) else last
    at[key] = new(at.get(key) if isinstance(at, dict) else at[key]) if callable(new) else new
    return case


ANCHOR, NUMBER = "1f2e3d4c5b6a7988", "1f2e3d4c5b6a7"
TREE = {"checksum": "0" * 16, "failed": False, "task": "t", "text": "s1"}
BLOCK = f"state/0/blocks_expiring/{NUMBER}"
STATE_AND_STEPS: list[tuple[str, Json]] = [
    ("state/0/counters/orphaned", lambda n: n + 1),
    ("state/0/backlog", {"t": 0}),
    ("steps", lambda steps: [*steps[:3], *steps[2:]]),
]
CHANGES: dict[str, list[tuple[str, Json]]] = {
    "chains: chain": [
        *STATE_AND_STEPS,
        ("steps", lambda steps: [*steps[:2], *steps[3:]]),
        ("steps/2/calls/0/argv/2", "04"),
        ("steps/2/calls/0/argv/3", other),
        ("steps/2/calls/0/argv/4", other),
        ("steps/2/calls/0/reply", {"error": "ARGS"}),
        ("steps/2/calls/0/reply/5", lambda pending: pending + 1),
        ("steps/1/calls/0/reply/7", {"hex": "0000"}),
        ("steps/3/outcomes", []),
        ("steps/3/outcomes/0/1", "nack"),
        ("steps/3/outcomes/0/4", "s2"),
        ("steps/1/outcomes", [["t", "touch", "reset", ANCHOR, "s1", "", "", ""]]),
        (f"steps/1/checksums/{ANCHOR}", other),
        (f"state/0/pending/0/{ANCHOR}", TREE),
        ("state/0/fences/0", {"p": "1:"}),
    ],
    # One block in the drain, and slot 1 of it has failed.
    "blocks_expiry: being drained": [
        *STATE_AND_STEPS,
        (f"{BLOCK}/checksums/0", other),
        (f"{BLOCK}/checksums", lambda sums: [*sums, "0" * 16]),
        (f"{BLOCK}/failed", []),
        (f"{BLOCK}/failed", [0]),
        (f"{BLOCK}/absent", [1]),
        (f"{BLOCK}/label", "x"),
        (f"{BLOCK}/task", "u"),
        (f"{BLOCK}/digest", other),
        ("state/0/blocks_expiring", renamed),
        ("state/0/blocks_expiring", {}),
        (
            "state/0",
            lambda s: s | {"blocks": [{}, {}, s["blocks_expiring"]], "blocks_expiring": {}},
        ),
        ("state/0/slots/2", 2),
        (f"steps/1/checksums/5{ANCHOR[1:13]}000", other),
        ("steps/1/checksums", {}),
        ("steps/1/calls/0/argv/4", other),
        ("steps/1/calls/0/argv/7", other),
        ("steps/2/outcomes/0/1", "ack"),
        ("steps/2/outcomes/0/3", other),
        ("steps/2/outcomes/0/5", "yes"),
    ],
    "blocks_expiry: mixed": [
        ("steps/-1/outcomes/0", lambda o: [o[0], "nack", "expired", *o[3:]]),
        ("steps/-1/outcomes/1", lambda o: [o[0], "ack", "completed", *o[3:]]),
        ("steps/-1/outcomes", lambda o: [*o, ["t", "nack", "expired", other(o[2][3]), *o[2][4:]]]),
        ("steps/-1/outcomes", lambda o: o[:-1]),
    ],
    "show: a tree in a block": [
        ("steps/-1/calls/0/reply", lambda reply: reply[1:]),
        ("steps/-1/calls/0/reply/1", lambda age: age + 1),
        *((f"steps/-1/calls/0/reply/{n}/hex", other) for n in range(2, 6)),
    ],
}


@pytest.mark.parametrize(
    ("name", "path", "new"),
    [
        pytest.param(name, *change, id=f"{name}, {change[0]} {number}")
        for name, changes in CHANGES.items()
        for number, change in enumerate(changes)
    ],
)
def test_a_changed_case_fails(client: "redis.Redis", name: str, path: str, new: Json) -> None:
    """One value is wrong in the case: the runner must find it."""
    with pytest.raises(MismatchError):
        run(client, changed(CASES[name], path, new))


@pytest.mark.parametrize(
    "left", ["block:0000000000007", "failed:0000000000007", "present:0000000000007", "scratch"]
)
def test_a_leftover_key_fails(client: "redis.Redis", left: str) -> None:
    case = copy.deepcopy(CASES["blocks_expiry: being drained"])
    run(client, case)
    case["steps"].append({"redis": ["SET", "acker:{vector:0}:" + left, "x"]})
    with pytest.raises(MismatchError, match="keys of blocks"):
        run(client, case)


def test_an_error_that_changes_something_fails(
    client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner compares all keys before and after each refusal."""
    refuse = "return redis.error_reply('ACKER NAMESPACE words')"
    write = f"redis.call('HSET', KEYS[2], 'shard', 1) {refuse}"
    for source, words in ((refuse, None), (write, "keys after an error")):
        digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        script = scripts.Script("apply", source.encode(), digest)
        monkeypatch.setattr(scripts, "load", lambda _, script=script: script)
        case = CASES["refusals: NAMESPACE"]
        if words:
            with pytest.raises(MismatchError, match=words):
                run(client, case)
        else:
            run(client, case)


def is_error(call: Json) -> bool:
    """Return whether a call is refused."""
    return isinstance(call["reply"], dict) and "error" in call["reply"]


def ends_early(step: Json) -> bool:
    """Return whether the client stops after the last call of a step.

    It stops if that call was refused, or was a repeat and its lane is at a higher number.
    """
    if not step["calls"]:
        return False
    last = step["calls"][-1]
    if is_error(last):
        return True
    if "apply" not in step["do"] or last["reply"][0] != 0:
        return False
    return int(last["reply"][1]) > int(bytes.fromhex(last["argv"][1]).split(b":")[0])


def _config(case: Json) -> AckerConfig:
    fields = case["config"]
    return AckerConfig(**fields | {"edges": tuple(fields["edges"])})
