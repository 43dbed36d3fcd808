"""A wrong rule in the reference does not become an expected result: the oracle refuses the case."""

import json
from pathlib import Path
from typing import Any

import pytest

from proof.cases import __main__ as command
from proof.cases import accept, lines, shard
from proof.cases.judge import Disagreement
from tests.simulate import test_block_mutants, test_mutants
from tests.simulate.mutants import BLOCKS, LOOSE, mutate, replace_once

LINES = [
    line
    for path in sorted(lines.HERE.glob("*.jsonl"))
    for line in path.read_text(encoding="utf-8").splitlines()
]
MUTANTS = {f"loose: {name}": change for name, change in test_mutants.MUTANTS.items()}
MUTANTS |= {f"blocks: {name}": change for name, change in test_block_mutants.MUTANTS.items()}

MUTANTS |= {
    "loose: another source receives a verdict": (
        "setdefault((record.task, verdict, reason), [])",
        "setdefault((min(self.names, default=record.task), verdict, reason), [])",
    ),
    "loose: the last why wins": (
        "record.why = record.why or row.why",
        "record.why = row.why or record.why",
    ),
    "loose: durable lanes never end": ("self.now_ms - used_ms > DURABLE_MS", "False"),
    "loose: a conflict is told to the first source only": (
        "if (record.task, record.source_id) != (task, row.source_id):",
        "if False:",
    ),
    "loose: a closed shard tracks": ("if tracks and self.reshard:", "if False:"),
    "blocks: another source receives a verdict": (
        "self.block_outcomes.setdefault(block.task, [])",
        "self.block_outcomes.setdefault(min(self.names, default=block.task), [])",
    ),
    "blocks: the first why is lost": (
        "rows=tuple(new.items())",
        "rows=tuple((slot, '') for slot in new)",
    ),
}

SAME_BUG = {
    "zero beats fail": "a zero checksum beats a failure",
    "or": "deltas are combined by or",
    "no fence": "fences are forgotten",
    "fence early": "fences end a tick early",
    "no digest": "other content is accepted",
    "silent conflict": "a conflict writes no verdict",
    "touch ignored": "touch does not reset the timeout",
    "expiry early": "trees expire a tick early",
    "no drain": "expiring trees are dropped without a drain",
    "deadline ignored": "a deadline is ignored",
}
"""Cases of ``model.jsonl``, and the mutants of the reference that break their rules."""


def break_reference(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    old, new = MUTANTS[name]
    source = "blocks" if old in BLOCKS else "loose"
    changed = replace_once(BLOCKS if source == "blocks" else LOOSE, old, new)
    monkeypatch.setattr(shard, "BlockReference", mutate(monkeypatch, **{source: changed}))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.full] * (n % 12 > 0)) for n, name in enumerate(MUTANTS)],
)
def test_wrong_reference_is_refused_by_the_oracle(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_reference(monkeypatch, name)
    with pytest.raises(Disagreement, match="oracle"):
        for line in LINES:
            accept.fill(json.loads(line))


@pytest.mark.parametrize("name", SAME_BUG)
def test_counterexample_of_the_model_is_refused_with_the_same_bug(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = [
        line
        for line in (lines.HERE / "model.jsonl").read_text().splitlines()
        if f'"{name}"' in line
    ]
    break_reference(monkeypatch, f"loose: {SAME_BUG[name]}")
    with pytest.raises(Disagreement, match="oracle"):
        accept.fill(json.loads(line))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("loose: fences are forgotten", "unexpected BacklogError"),
        ("blocks: complete trees are nacked when their block expires", "all messages were"),
    ],
)
def test_accept_shows_both_judges_and_writes_nothing(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    before = {path.name: path.read_bytes() for path in lines.HERE.glob("*.jsonl")}
    for file, text in before.items():
        (tmp_path / file).write_bytes(text)
    monkeypatch.setattr(lines, "HERE", tmp_path)
    break_reference(monkeypatch, name)
    for word in ("--check", "--accept"):
        assert command.main([word]) == 1
        said = capsys.readouterr().err
        assert "the oracle says: " in said
        assert words in said
        assert "the reference replies " in said
        assert "\nin " in said
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")} == before


def test_only_cases_that_break_a_rule_on_purpose_have_a_false_ack() -> None:
    chain = json.loads(next(line for line in LINES if '"name": "chain"' in line))
    with pytest.raises(Disagreement, match="no false ack"):
        accept.fill(chain | {"breaks_rule": 1})
    for line in LINES:
        broken = json.loads(line)
        if broken.pop("breaks_rule", None):
            with pytest.raises(Disagreement, match="false ack|no ack"):
                accept.fill(broken)
