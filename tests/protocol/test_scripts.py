"""Scripts are assembled from a file and its parts; errors name the line of the source file."""

import re
from pathlib import Path

import pytest

from acker_redis.errors import ConfigError
from acker_redis.protocol import functions, scripts

LUA = scripts.directory()
PARTS = sorted(path.stem for path in (LUA / "parts").glob("*.lua"))
NAMED = re.compile(r"^-- part: (\w+)$", re.M)


def test_script_is_assembled_from_its_file_and_parts(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "two.lua").write_text("local b\nlocal c\n")
    (tmp_path / "one.lua").write_text("local a\n-- part: two\nlocal d\n")
    script = scripts.assemble("one", tmp_path)
    assert script.source == b"local a\n-- parts/two.lua\nlocal b\nlocal c\nlocal d\n"
    assert script.places == (
        ("one.lua", 1),
        ("one.lua", 2),
        ("parts/two.lua", 1),
        ("parts/two.lua", 2),
        ("one.lua", 3),
    )


@pytest.mark.parametrize(
    "line", ["-- part: two ", "--part: two", "  -- part:two", "-- part: two\r"]
)
def test_part_line_may_have_any_spacing(line: str, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "two.lua").write_text("local b\n")
    (tmp_path / "one.lua").write_text(f"local a\n{line}\n")
    assert b"local b\n" in scripts.assemble("one", tmp_path).source


@pytest.mark.parametrize(
    "line", ["-- part: two, three", "-- parts: two", "-- part:", "x() -- part: t"]
)
def test_malformed_part_line_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "one.lua").write_text(f"local a\n{line}\n")
    with pytest.raises(ValueError, match=r"one\.lua:2 names no part"):
        scripts.assemble("one", tmp_path)


def test_a_missing_part_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one.lua").write_text("-- part: none\n")
    with pytest.raises(FileNotFoundError, match=r"none\.lua"):
        scripts.assemble("one", tmp_path)


@pytest.mark.parametrize("name", scripts.NAMES)
def test_assembled_script_contains_no_part_line(name: str) -> None:
    script = scripts.load(name)
    assert not NAMED.search(script.source.decode())
    assert len(script.places) == script.source.count(b"\n")
    for line, (file, number) in zip(script.source.splitlines(), script.places, strict=True):
        written = (LUA / file).read_bytes().splitlines()[number - 1]
        assert line == written or written.startswith(b"-- part: ")


def test_each_part_is_used_and_documents_its_names() -> None:
    used = {name for path in LUA.glob("*.lua") for name in NAMED.findall(path.read_text())}
    assert set(PARTS) == used
    for name in PARTS:
        text = (LUA / "parts" / f"{name}.lua").read_text()
        assert "KEYS" in text or re.search(r"^--.*\b(Needs|Gives)\b", text, re.M), name
        assert not NAMED.search(text), "a part has no parts"


def test_scripts_stay_short() -> None:
    lines = {name: (LUA / f"{name}.lua").read_text().count("\n") for name in scripts.NAMES}
    assert lines["apply"] < 300
    assert max(lines.values()) < 400


@pytest.mark.parametrize(
    "words",
    [
        "ERR user_script:3: attempt to index local 'b' script: 5914, on @user_script:3.",
        "ERR Error running script (call to f_5914): @user_script:3: user_script:3: attempt",
        "ERR user_function:3: attempt to index local 'b' script: f, on @user_function:3.",
    ],
)
def test_error_position_is_translated_to_the_source_file(words: str) -> None:
    script = scripts.Script("one", b"", "", (("one.lua", 1), ("one.lua", 2), ("parts/two.lua", 1)))
    said = script.locate(words)
    assert "parts/two.lua:1" in said
    assert "user_" not in said
    assert script.locate("user_script:99: x") == "user_script:99: x"
    name = "not created: acker:{user_script:2}"
    assert script.locate(name) == name


def test_an_error_in_a_function_names_its_file_and_line() -> None:
    library = functions.library()
    assert len(library.places) == library.source.count(b"\n")
    lines = library.source.decode().splitlines()
    for number, line in enumerate(lines, 1):
        if "HLEN" in line and "':pending:'" in line:
            assert library.locate(f"user_function:{number}").startswith("status.lua:")
            break
    else:
        pytest.fail("status does not call HLEN")
    assert library.locate("user_function:1: x") == "user_function:1: x"


def test_the_scripts_are_not_overwritten() -> None:
    with pytest.raises(ConfigError, match="another folder"):
        scripts.write(LUA)


def test_scripts_writes_complete_scripts(tmp_path: Path) -> None:
    written = scripts.write(tmp_path / "made", ("apply", "take"))
    assert [path.name for path in written] == ["apply.lua", "take.lua"]
    for path in written:
        assert path.read_bytes() == scripts.load(path.stem).source
