"""Untrusted text on a terminal: what it executes or does not show is escaped."""

import json
import re
import unicodedata

import pytest

from acker_redis.terminal import plain, visible
from tests.cli.support import Shell
from tests.conftest import MakeAcker
from tests.support import fail, track

C1 = "\x80\x85\x90\x9b2J\x9d\x9f"
"""Some terminals treat U+009B as ESC [, which here would erase the screen."""
HIDDEN = "\u202egnp.exe\u202c \u2066a\u2069 \u200bb\u200d \ufeff\u2028 \u00ad\ufe0f\U000e0041"
"""Marks of direction, which rearrange the line; and characters without width."""
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
    track(acker, 7, 40, f"page {C1}{HIDDEN}")
    fail(acker, 7, f"why {C1}{HIDDEN}")
    track(acker, 8, 40, f"page {C1}{HIDDEN}")
    args = command.format(ns=acker.namespace).split()
    ran = shell(*args, *(["--json"] if json_too else []), tty=True)
    said = _COLOUR.sub("", ran.out + ran.err)
    assert not _CONTROL.search(said)
    assert unseen(said) == ""


def test_c1_controls_of_a_wrong_argument_do_not_reach_stderr(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    ns, odd = make_any_acker().namespace, C1 + HIDDEN
    for args in (["ack", ns, f"7{odd}"], ["track", ns, "t", "x" * 250 + odd], [f"no{odd}"]):
        ran = shell(*args, tty=True)
        assert ran.code != 0
        assert not _CONTROL.search(_COLOUR.sub("", ran.err))
        assert unseen(ran.err) == ""


def test_json_has_the_same_text_and_a_pipe_the_same_bytes(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    text = f"page {C1}{HIDDEN}"
    track(acker, 7, 0, text)
    out = shell("outcomes", acker.namespace, "t", "--json").out
    assert "\\u009b2J" in out
    assert "\\u202egnp" in out
    assert unseen(out) == ""
    assert json.loads(out)["source_id"] == text
    assert text in shell("outcomes", acker.namespace, "t").out


def test_every_character_that_unicode_does_not_show_is_escaped() -> None:
    """Except the marks of some scripts that are shown before a number or a sign."""
    shown = "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001343f"
    every = re.sub(f"[{shown}\ud800-\udfff]", "", "".join(map(chr, range(0x110000))))
    assert unseen(every)
    assert unseen(visible(every)) == unseen(plain(every)) == ""
    assert visible("é \u0301 ש ▲ 😀 \u3000\x1b[1m") == "é \u0301 ש ▲ 😀 \u3000\x1b[1m"


def unseen(text: str) -> str:
    """Return the characters of a text that are formats or separators of lines, by Unicode."""
    return "".join(each for each in text if unicodedata.category(each) in ("Cf", "Zl", "Zp"))
