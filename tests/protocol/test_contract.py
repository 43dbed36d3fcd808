"""The headers of the scripts, lua/README.md and the docs agree with the code."""

import re
from pathlib import Path

import pytest

from acker_redis.protocol import commands, scripts
from acker_redis.protocol.config import CREATED, OPTIONAL, AckerConfig
from acker_redis.protocol.keys import ShardKeys

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = (ROOT / "lua" / "README.md").read_text()
CODES = re.compile(r"refuse\('([A-Z]+)'|ACKER ([A-Z]+)")


def parts(name: str) -> tuple[str, str]:
    header, code = scripts.load(name).source.decode().split("--]]", 1)
    return header, code


@pytest.mark.parametrize("name", scripts.NAMES)
def test_header_names_keys_reply_and_errors(name: str) -> None:
    header, code = parts(name)
    assert header.startswith(f"--[[\n{name}: ")
    assert "KEYS[1]  shard " in header
    assert "KEYS[2]  meta " in header
    assert "\nReply " in header
    line = re.search(r"Errors   ACKER ([A-Z |\n]+) <words>", header)
    assert line
    documented = set(re.findall(r"[A-Z]+", line.group(1)))
    used = {a or b for a, b in CODES.findall(code)}
    assert used == documented


@pytest.mark.parametrize("name", scripts.NAMES)
def test_header_lists_the_keys_and_arguments_that_are_used(name: str) -> None:
    header, code = parts(name)
    assert {int(n) for n in re.findall(r"KEYS\[(\d+)\]", code)} == {1, 2}
    assert re.findall(r"KEYS\[(\d+)\]", header) == ["1", "2"]
    used = {int(n) for n in re.findall(r"ARGV\[(\d+)\]", code)}
    listed = [(int(n), more) for n, more in re.findall(r"^ARGV\[(\d+)(\+?)\]", header, re.M)]
    assert [n for n, _ in listed] == list(range(1, len(listed) + 1))
    open_end = {n for n, more in listed if more}
    assert used | open_end >= {n for n, _ in listed}, "an argument is documented, but not used"
    assert used <= {n for n, _ in listed}


def lists(text: str, opening: re.Pattern[str]) -> list[int]:
    """Return the lengths of the lists ``{a, {b, c}, d}`` that begin where ``opening`` matches."""
    found = []
    for match in opening.finditer(text):
        depth, length = 1, 1
        for char in text[match.end() :]:
            depth += (char in "{(") - (char in "})")
            if depth == 0:
                break
            length += char == "," and depth == 1
        found.append(length)
    return found


@pytest.mark.parametrize("name", [name for name in scripts.NAMES if name != "create"])
def test_replies_are_as_long_as_the_header_says(name: str) -> None:
    header, code = parts(name)
    reply = header[header.index("\nReply ") : header.index("\nErrors ")]
    documented = lists(reply, re.compile(r"^(?:Reply)? +\{(?!field)", re.M))
    if name == "status":
        documented = documented[:1]
    returned = lists(code, re.compile(r"^ *return \{", re.M))
    assert set(returned) == set(documented)


def test_commands_that_a_user_needs_are_in_the_contract() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`[A-Z` ]+`) \|", CONTRACT.split("## Rights")[1], re.M)
    documented = {name: set(re.findall(r"[A-Z]+", commands)) for name, commands in rows}
    for name in scripts.NAMES:
        _, code = parts(name)
        used = set(re.findall(r"call\('([A-Z]+)'", code))
        assert documented[name] == used


def test_every_error_code_has_a_class() -> None:
    used = set()
    for name in scripts.NAMES:
        used |= {a or b for a, b in CODES.findall(parts(name)[1])}
    assert used == set(commands._KINDS)


def test_keys_of_the_contract_are_those_of_the_code() -> None:
    keys = ShardKeys("n", 3)
    names = [keys.meta, keys.pending(1), keys.fence(1), keys.durable_fences, keys.expiring]
    names += [keys.blocks_expiring, keys.blocks(1), keys.block(2**48), keys.reports]
    names += [keys.failed(2**48), keys.present(2**48)]
    for name in [*names, keys.dropping, keys.outcomes("task")]:
        suffix = name.removeprefix("acker:{n:3}")
        shown = suffix.replace(f"{2**48:013x}", "<hex>")
        shown = shown.replace(":1", ":<i>").replace(":task", ":<task>")
        assert f"| `<shard>{shown}` |" in CONTRACT
        base = suffix.split(":")[1]
        assert any(f":{base}" in parts(script)[1] for script in scripts.NAMES)


def test_scripts_use_only_keys_of_their_shard() -> None:
    for name in scripts.NAMES:
        _, code = parts(name)
        for literal in re.findall(r"'(acker:[^']*)'", code):
            assert literal == "acker:", f"{name}: {literal}"
            assert "PUBLISH" in code
        assert "#!lua" not in code


def test_configuration_of_the_contract_is_that_of_the_code() -> None:
    rows = dict(
        re.findall(r"^\| `(\w+)` \| `?(\w*)`? *\|", CONTRACT.split("## Configuration")[1], re.M)
    )
    wire = dict(zip(CREATED, AckerConfig().to_wire(), strict=True)) | OPTIONAL
    assert {field: rows[field] for field in wire} == wire
    assert set(wire) == set(AckerConfig.__slots__)


def test_scripts_use_no_numbers_for_ids() -> None:
    """A Lua number cannot hold a 64-bit id exactly, but it can hold 32-bit halves."""
    for name in scripts.NAMES:
        _, code = parts(name)
        assert not re.search(r"I8|i8|>d", code)


def test_every_test_that_the_docs_name_exists() -> None:
    code = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(
        re.findall(r"`(test_\w+)`", (ROOT / "docs" / "explanation" / "guarantees.md").read_text())
    )
    assert len(named) > 20
    assert [name for name in sorted(named) if f"def {name}(" not in code] == []
