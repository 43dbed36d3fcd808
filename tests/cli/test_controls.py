"""Untrusted text on a terminal: its control characters are escaped."""

import json
import re

import pytest

from tests.cli.support import Shell
from tests.conftest import MakeAcker
from tests.support import fail, track

C1 = "\x80\x85\x90\x9b2J\x9d\x9f"
"""Some terminals treat U+009B as ESC [, which here would erase the screen."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_COLOUR = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")


@pytest.mark.parametrize(
    "command",
    [
        "outcomes {ns} t",
        "find {ns} --source t",
        "show {ns} 8",
        "status {ns}",
        "doctor {ns}",
        "list {ns}",
    ],
)
@pytest.mark.parametrize("json_too", [False, True])
def test_c1_controls_do_not_reach_a_terminal(
    make_any_acker: MakeAcker, shell: Shell, command: str, json_too: bool
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40, f"page {C1}")
    fail(acker, 7, f"why {C1}")
    track(acker, 8, 40, f"page {C1}")
    args = command.format(ns=acker.namespace).split()
    ran = shell(*args, *(["--json"] if json_too else []), tty=True)
    assert not _CONTROL.search(_COLOUR.sub("", ran.out + ran.err))


def test_c1_controls_of_a_wrong_argument_do_not_reach_stderr(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    ns = make_any_acker().namespace
    for args in (["ack", ns, f"7{C1}"], ["track", ns, "t", "x" * 250 + C1], [f"no{C1}"]):
        ran = shell(*args, tty=True)
        assert ran.code != 0
        assert not _CONTROL.search(_COLOUR.sub("", ran.err))


def test_json_has_the_same_text_and_a_pipe_the_same_bytes(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    track(acker, 7, 0, f"page {C1}")
    out = shell("outcomes", acker.namespace, "t", "--json").out
    assert "\\u009b2J" in out
    assert json.loads(out)["source_id"] == f"page {C1}"
    assert f"page {C1}" in shell("outcomes", acker.namespace, "t").out
