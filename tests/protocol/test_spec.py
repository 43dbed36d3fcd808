"""The numbers and words of the protocol are those of lua/spec.json, everywhere."""

import copy
import json
import re

import pytest

from acker_redis.protocol import commands, scripts
from acker_redis.protocol.codes import CODES, RETRIED, Code
from acker_redis.protocol.config import AckerConfig
from proof import spec

REGIONS = {
    ".lua": "-- {}\nlocal A, B = 1, 2\nlocal MAX_ROWS, MAX_TEXTS = 1, 2\n",
    ".py": "# {}\nMAX_ROWS = 1\nMAX_TEXTS = 64 * 1024\n",
    ".js": "// {}\nexport const MAX_ROWS = 1;\nconst MAX_TEXTS = 2;\n",
    ".go": "// {}\nconst (\n\tmaxRows  = 1\n\tmaxTexts = 64 * 1024 // bytes\n)\n",
    ".java": "// {}\n/** Rows. */\nstatic final int MAX_ROWS = 1;\nfinal int MAX_TEXTS = 2;\n",
    ".php": "    // {}\n    public const MAX_ROWS = 1;\n    private const MAX_TEXTS = 2;\n",
    ".pm": "# {}\nuse constant {{ MAX_ROWS => 1, MAX_TEXTS => 64 * 1024 }};\n",
    ".rb": "  # {}\n  MAX_ROWS = 1\n  MAX_TEXTS = 2\n",
    ".h": "/* {} */\nenum {{ MAX_ROWS = 1, ACKER_MAX_TEXTS = 2 }};\n",
    ".sh": "# {}\n_acker_MAX_ROWS=1 _acker_MAX_TEXTS=65536\n",
}


def test_every_file_has_the_values_of_the_specification() -> None:
    outdated = [str(path.relative_to(spec.ROOT)) for path in spec.stale()]
    assert outdated == [], "run python -m proof.spec"


def test_no_limit_is_typed_outside_of_a_region() -> None:
    assert spec.typed() == []


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> spec.Json:
    """Return a copy of the specification, which the test may change."""
    other = copy.deepcopy(spec.spec())
    monkeypatch.setattr(spec, "spec", lambda: other)
    return other


@pytest.mark.parametrize("suffix", REGIONS)
def test_changed_limit_is_written_in_each_language(suffix: str, changed: spec.Json) -> None:
    changed["limits"]["MAX_ROWS"][0], changed["limits"]["MAX_TEXTS"][0] = 20_000, "32 KiB"
    changed["limits"] |= {"A": [1, ""], "B": [2, ""]}
    text = REGIONS[suffix].format(spec.MARK) + "\nMAX_ROWS = 7\n"
    wanted = {".py": "20_000"}.get(suffix, "20000"), {".sh": "32768"}.get(suffix, "32 * 1024")
    found = spec.filled(text, suffix)
    assert all(number in found for number in wanted)
    assert found.endswith("\n\nMAX_ROWS = 7\n")
    assert found.count("\n") == text.count("\n")
    assert spec.filled(found, suffix) == found


def test_changed_setting_is_written_to_scripts_client_and_page(changed: spec.Json) -> None:
    changed["configuration"]["buckets"] |= {"default": 5, "range": [4, 32]}
    changed["configuration"]["slo_ms"] |= {"default": 7}
    files = {
        path.relative_to(spec.ROOT).as_posix(): text.splitlines()
        for path, text in spec.stale().items()
    }
    assert "local MIN_BUCKETS, MAX_BUCKETS = 4, 32" in files["lua/parts/ring.lua"]
    assert any("buckets = { 4, 32 }," in line for line in files["lua/create.lua"])
    assert "local DEFAULT = { slo_target = '99', slo_ms = '7' }" in files["lua/configure.lua"]
    config = files["acker_redis/protocol/config.py"]
    assert {"    buckets: int = 5", '        "buckets": (4, 32),'} <= set(config)
    assert any("| 5 | 4 .. 32 |" in line for line in files["lua/README.md"])
    assert any("maxBuckets = 32" in line for line in files["clients/go/batch.go"])


def test_each_number_in_a_region_is_written(changed: spec.Json) -> None:
    for value in [*changed["limits"].values(), *changed["flags"].values()]:
        value[0] = int(spec.number(value[0])) + 3
    for field in changed["configuration"].values():
        field["default"] = field["default"] if isinstance(field["default"], str) else 77
        field["range"] = [7, 77_777]
    for path, text in ((path, path.read_text()) for path in spec.files()):
        if spec.MARK in text and path.suffix != ".md":
            lines = zip(text.splitlines(), spec.filled(text, path.suffix).splitlines(), strict=True)
            same = [old for old, new in lines if old == new]
            for region in spec.MARKED.findall(text):
                left = [line for line in region.splitlines() if re.search(r"[=>] ?\d", line)]
                assert not set(left) & set(same), path


def test_new_code_of_a_server_is_written_to_each_client_and_to_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new = {"NEWCODE": Code(RETRIED, "a new state", leave=True)}
    monkeypatch.setattr(spec, "CODES", CODES | new)
    found = {str(path.relative_to(spec.ROOT)): text for path, text in spec.stale().items()}
    clients = sorted(name.split("/")[1] for name in found if name.startswith("clients/"))
    assert clients == ["c", "go", "java", "node", "perl", "php", "ruby", "shell"]
    assert all(text.count("|NEWCODE") == 2 for name, text in found.items() if "clients" in name)
    assert "| `NEWCODE` | retried, *leave* | a new state |" in found["docs/reference/errors.md"]


def test_changed_refusal_is_written_in_each_language(changed: spec.Json) -> None:
    """Also where its text is broken into several parts. One that stands once needs no entry."""
    changed["refusals"] = {wrong: f"do <{n}>" for n, wrong in enumerate(changed["refusals"])}
    found = spec.stale()
    assert {path.suffix for path in found} == {*REGIONS} - {".h"} | {".c"}
    for n in range(len(changed["refusals"])):
        assert sum(f"; do <{n}>" in re.sub(spec._GOES_ON, "", found[path]) for path in found) > 1
    assert all(spec.filled(text, path.suffix) == text for path, text in found.items())
    for code in ("die 'there is no input 7'; return 0;", 'refuse("there is no input 7"); end(i);'):
        assert spec.filled(code, ".pm") == code


def test_unknown_name_in_a_region_is_an_error() -> None:
    with pytest.raises(SystemExit, match="MAX_ROWZ = 3"):
        spec.filled(f"# {spec.MARK}\nMAX_ROWZ = 3\n", ".py")


def test_reasons_counters_and_errors_are_those_of_the_code() -> None:
    code = "".join(scripts.load(name).source.decode() for name in scripts.NAMES)
    given = spec.spec()
    words = [*given["verdicts"], *given["reasons"], *given["causes"]]
    assert [word for word in words if f"'{word}'" not in code] == []
    assert tuple(given["counters"]) == commands.COUNTERS
    assert {code: kind for code, (kind, _) in given["errors"].items()} == {
        code: kind.__name__ for code, kind in commands._KINDS.items()
    }


def test_configuration_has_the_fields_of_the_client() -> None:
    assert set(spec.spec()["configuration"]) == set(AckerConfig.__slots__)


def test_specification_is_one_line_an_entry() -> None:
    """A diff shows what a change means."""
    text = (spec.ROOT / "lua" / "spec.json").read_text()
    parts = json.loads(text).values()
    assert (
        text.count("\n")
        == sum(2 + len(part) if isinstance(part, dict) else 1 for part in parts) + 2
    )
