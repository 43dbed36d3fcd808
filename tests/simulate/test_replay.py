"""A history from a file is replayed step by step, and compared with what the file states."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from acker_redis.cli import app
from acker_redis.errors import ConfigError
from proof.run import play_history
from proof.simulate.replay import load


def apply(lane: str, done: list[int], links: list[list[int]], **more: Any) -> dict[str, Any]:
    step = {"say": f"{lane} sends.", "do": "apply", "lane": lane, "number": 1, "done": done}
    return step | {"made": [], "flags": [], "links": links} | more


EMIT = {"say": "Message 1 exists.", "do": "emit", "messages": [1], "if_applied": False}
TRACK = apply("source", [], [[1, 0]], flags=["TRACK"], made=[1])
ROW = apply("bolt", [1], [[1, 0]])


def write(folder: Path, steps: list[dict[str, Any]], **more: Any) -> Path:
    file = folder / "history.json"
    head = {"history": 1, "title": "a tree", "buckets": 2, "life": 0, "ids": [], "messages": 1}
    file.write_text(
        json.dumps({**head, "whole_rows": True, "truthful": True, "steps": steps, **more})
    )
    return file


def command(file: Path) -> Result:
    return CliRunner().invoke(app, ["simulate", "--history", str(file)])


def test_replay_reports_replies_and_verdicts(tmp_path: Path) -> None:
    again = ROW | {"reply": "repeated"}
    done = play_history(load(write(tmp_path, [EMIT, TRACK, ROW, again])))
    assert [step.reply for step in done.steps] == ["", "applied", "applied", "repeated"]
    assert done.verdicts == ["completed"]
    assert (done.violation, done.different) == (None, [])


def test_tree_expires_after_its_ticks(tmp_path: Path) -> None:
    tick, drain = {"say": "Tick.", "do": "tick"}, {"say": "Drain.", "do": "drain"}
    done = play_history(load(write(tmp_path, [EMIT, TRACK, tick, tick, drain])))
    assert done.steps[-1].verdicts == ("expired",)


def test_failover_brings_an_ended_tree_back(tmp_path: Path) -> None:
    keep, back = {"say": "Keep.", "do": "snapshot"}, {"say": "Back.", "do": "failover"}
    steps = [EMIT, TRACK, keep, ROW, back, ROW]
    assert play_history(load(write(tmp_path, steps))).verdicts == ["completed", "completed"]


def test_difference_from_the_file_is_shown(tmp_path: Path) -> None:
    file = write(tmp_path, [EMIT, TRACK | {"verdicts": ["completed"]}])
    done = command(file)
    assert done.exit_code == 1
    assert "the file states: applied, completed" in done.stdout
    assert "the shard has not done what the file states" in done.stdout
    assert command(write(tmp_path, [EMIT, TRACK])).exit_code == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"history": 2}, "format 2 of a history"),
        ({"steps": [{"do": "dance"}]}, "step 1: do is one of emit, .*, not 'dance'"),
        ({"steps": [7]}, "step 1: it is no JSON object"),
        ({"steps": [{"do": "tick"}]}, "step 1: tick needs say"),
        ({"steps": [{"say": "", "do": "emit"}]}, "step 1: emit needs messages"),
        ({"steps": [{"say": "", "do": "fail", "messages": 1}]}, "messages is a list of whole"),
        ({"steps": [{"say": "", "do": "tick", "number": -1}]}, "number is a whole number from 1"),
        ({"steps": [{"say": "", "do": "tick", "links": [[1]]}]}, "links is a list of pairs"),
        ({"steps": [{"say": "", "do": "tick", "flags": ["X"]}]}, "flags is a list out of TRACK"),
        ({"ids": [[1, 0, 2**63]]}, "an entry of ids is three whole numbers"),
        ({"title": None}, "title is a text"),
        ({"buckets": 1}, "buckets"),
        ({"ids": [1]}, "is not a history"),
    ],
)
def test_invalid_file_is_refused(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(write(tmp_path, **({"steps": []} | more)))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a history: FileNotFoundError"):
        load(tmp_path / "none.json")
