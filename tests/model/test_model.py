"""Spin checks the model: no invariant fails while all rules are kept; each broken rule is found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acker_redis.cli import app
from acker_redis.embedded import EmbeddedRedis
from proof.cases.lines import load as load_cases
from proof.model import spin
from proof.model.history import history
from proof.model.runs import BROKEN, FULL, KEPT, NIGHTLY, Run, runs
from proof.model.spin import Checked
from proof.model.trail import INVARIANTS, sentences
from proof.run import play_history
from proof.simulate.replay import load
from tests import conftest

ROOT = Path(__file__).parents[2]
FOUND: dict[str, Checked] = {}
"""Each broken rule is searched once."""


@pytest.fixture(autouse=True)
def _tools() -> None:
    if tool := spin.missing():
        conftest.missing(tool)


def found(run: Run) -> Checked:
    if run.name not in FOUND:
        FOUND[run.name] = spin.check(run)
    return FOUND[run.name]


def written(run: Run, folder: Path) -> Path:
    file = folder / f"{run.name}.json"
    file.write_text(json.dumps(history(found(run).events, run)))
    return file


def kept(run: Run) -> object:
    marks = () if run.tier == FULL else (pytest.mark.nightly,)
    return pytest.param(run, id=run.name, marks=marks)


def named(name: str) -> Run:
    return next(run for run in BROKEN if run.name == name)


@pytest.mark.parametrize("run", [*map(kept, KEPT)])
def test_no_interleaving_breaks_an_invariant(run: Run) -> None:
    checked = spin.check(run)
    assert not checked.errors, "\n".join([checked.violated, *sentences(checked.events)])
    assert checked.exhaustive
    assert checked.states > 10_000


@pytest.mark.parametrize("run", BROKEN, ids=lambda run: run.name)
def test_each_broken_rule_is_found_with_a_readable_history(run: Run) -> None:
    checked = found(run)
    assert checked.errors, f"not found in {checked.states} states"
    said = sentences(checked.events)
    assert len(said) > 1
    assert checked.violated in INVARIANTS.values()
    assert all(line.endswith(".") and "{" not in line for line in said), said


def test_at_least_fifteen_rules_are_broken() -> None:
    assert len({run.broken for run in BROKEN}) >= 15
    assert len({run.name for run in runs(NIGHTLY)}) == len(runs(NIGHTLY))


def test_each_counterexample_is_a_case() -> None:
    rules = {"split-rows", "shared-ids", "late-firsts", "counted-ids"}  # in broken_rules.jsonl
    names = {run.name for run in BROKEN if run.replayable} - rules
    cases = {name.removeprefix("model: ") for name in load_cases() if name.startswith("model: ")}
    assert {name.replace("-", " ") for name in names} == cases


@pytest.mark.parametrize(
    "run",
    [run for run in KEPT if run.tier == FULL and run.replayable and run.file != "rows.pml"],
    ids=lambda run: run.name,
)
def test_random_histories_of_the_model_are_those_of_reference_and_server(
    run: Run, tmp_path: Path, any_server: EmbeddedRedis
) -> None:
    verdicts: list[str] = []
    for seed in range(1, 13):
        file = tmp_path / "history.json"
        file.write_text(json.dumps(history(spin.wander(run, seed, 400), run)))
        done = play_history(load(file), any_server.url if seed < 5 else "", both=seed < 5)
        assert done.violation is None
        assert not done.different
        verdicts += done.verdicts
    assert verdicts


def test_program_prints_a_table_and_writes_histories(tmp_path: Path) -> None:
    args = ["split-rows", "rows", "--trails", "--histories", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "proof.model", *args], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert "The ack of message 1 arrives alone." in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["split-rows.json"]
    assert "found" in done.stdout
    assert "holds" in done.stdout


def test_missing_tool_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proof.model"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert done.stderr == "spin is missing; on Debian: apt install spin gcc libc6-dev\n"


def test_search_that_is_not_exhaustive_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spin, "DEPTH", 20)
    checked = spin.check(next(run for run in KEPT if run.name == "rows"))
    assert not checked.errors
    assert not checked.exhaustive
    assert not checked.passed


def test_command_replays_a_history(tmp_path: Path, any_server: EmbeddedRedis) -> None:
    file = written(named("split-rows"), tmp_path)
    said = set()
    for where in ("reference", any_server.url):
        args = ["simulate", "--history", str(file), "--server", where]
        done = CliRunner().invoke(app, args)
        assert done.exit_code == 1
        said.add(done.stdout)
    assert len(said) == 1
    assert "violation: false ack: outstanding: messages" in said.pop()
    as_json = CliRunner().invoke(app, ["simulate", "--history", str(file), "--json"])
    assert json.loads(as_json.stdout)["violation"].startswith("false ack")
