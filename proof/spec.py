"""Write the numbers and words of ``lua/spec.json`` to the code and the pages that use them.

python -m proof.spec           write, and print the files that changed
python -m proof.spec --check   print the files that are not current, and numbers outside of regions

A comment with "From lua/spec.json" opens a region, which ends at the next blank line. Each
declaration in it stays where it is, with the name, visibility and comments of its language; this
program writes its value:

    MAX_ROWS = 1024            a limit or flag; also maxRows, flagTrack, _acker_MAX_ROWS, X => 1
    MIN_BUCKETS, MAX_BUCKETS   the range of a field of the configuration
    tick_ms = { 1, 1e12 }      the same; "tick_ms": (1, 10**12)
    tick_ms = 1e12             its maximum
    slo_ms = '0'               its default
    Reason = Literal["..."]    verdicts, reasons, causes; reason: 'a' | 'b' in TypeScript
    COUNTERS = { 'tracked' }   all counters
    PASSING = "LOADING|ASK"    codes of a server, from protocol/codes.py; also PATIENT, DEMOTED

In Markdown the table of a topic follows the comment. In a file with a region, the defaults of a
dataclass of the configuration are written, too.

A refusal has two parts: the problem and, after a semicolon, the advice. In any file of code the
advice of the specification is written after a problem, also where the text is broken into literals.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

from acker_redis.protocol.codes import CODES, Treatment

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[1]
MARK = "From lua/spec.json"
_ROOTS = ("lua", "acker_redis", "api/acker_api", "clients", "proof", "docs")
_SUFFIXES = frozenset(
    {".lua", ".py", ".js", ".ts", ".go", ".java", ".php", ".pm", ".rb", ".c", ".h", ".sh", ".md"}
)
_NUMBER = r"\d[\d_]*(?:e\d+)?(?:(?: \* |\*\*)\d+)*L?"
_DECLARED = re.compile(
    rf"(?<![\w.$:-])(\w+(?:, \w+)*)((?:: \w+)?\s*=>?\s*)({_NUMBER}(?:, {_NUMBER})*)"
    r"(?![\w.(]| [*/+-] ?[\w(])"
)
_RANGE = re.compile(rf"(\w+)(\"?\s*[:=]\s*[({{]\s*)({_NUMBER}), ({_NUMBER})(?=\s*[)}}])")
_TEXT = re.compile(r"(\w+)(\"?\s*[:=]\s*)(['\"])([^'\"]*)\3")
_DEFAULT = re.compile(r"^(    )(\w+)(: [^=\n]+ = )([^\n]+)$", re.M)
_LITERAL = re.compile(r"\b(Verdict|Reason|Cause)( = Literal\[)[^\]]*(?=\])")
_UNION = re.compile(r"\b(verdict|reason)(: )'[a-z]+'(?: \| '[a-z]+')+")
_GOES_ON = r"""["'`]\s*(?:\.\.|\w+\+=|[+.\\])?\s*f?["'`]"""
"""Between two parts of a long text, in each language."""
_COUNTERS = re.compile(r"(COUNTERS = \{\s*)'[^}]*'")
_LIST = re.compile(
    r"(?i:(passing|patient|demoted))((?:\[\])?\s*=.*?)(?<![A-Za-z])[A-Z]{3,}(?:\|[A-Z]{3,})+", re.S
)
_NAME = re.compile(r"(A-Za-z0-9_\.-\]\{1,|\b1 to )(\d+)(?=\}| characters of A-Z a-z)")


@cache
def spec() -> Json:
    """Return the content of ``lua/spec.json``."""
    loaded: Json = json.loads((ROOT / "lua" / "spec.json").read_text())
    return loaded


def number(value: float | str) -> float:
    """Return a number of the specification.

    >>> number("64 KiB"), number(1e12)
    (65536, 1000000000000.0)
    """
    if not isinstance(value, str):
        return value
    count, unit = value.split()
    return int(count) << {"KiB": 10, "MiB": 20}[unit]


def constants() -> dict[str, float | str]:
    """Return the value of each constant by its name: limits, flags, and ranges of integer fields.

    >>> constants()["MAX_SHARDS"]
    1024
    """
    found = {
        name: value for part in ("limits", "flags") for name, (value, _) in spec()[part].items()
    }
    for field, given in spec()["configuration"].items():
        if "range" in given:
            found[f"MIN_{field.upper()}"], found[f"MAX_{field.upper()}"] = given["range"]
    return found


def constant(name: str) -> str:
    """Return the specification's name of a constant of some language.

    >>> constant("maxTakeBytes"), constant("_acker_MAX_ROWS"), constant("flagFail")
    ('MAX_TAKE_BYTES', 'MAX_ROWS', 'FAIL')
    """
    name = re.sub(r"^(_acker_|ACKER_|flag(?=[A-Z]))", "", name)
    if not name.isupper():
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
    return "MAX_SLOTS" if name == "SLOTS" else name


def written(value: float | str, suffix: str) -> str:
    """Return a number as a language writes it.

    >>> written("64 KiB", ".go"), written("64 KiB", ".sh"), written(1e12, ".py")
    ('64 * 1024', '65536', '10**12')
    """
    if isinstance(value, str) and suffix != ".sh":
        count, unit = value.split()
        return " * ".join([count, "1024"] if unit == "KiB" else ["1024"] * 2)
    exact = number(value)
    if exact == 10**12:
        return "10**12" if suffix == ".py" else "1e12"
    return f"{exact:_}" if suffix == ".py" and exact >= 10_000 else f"{exact}"


def _declared(suffix: str, match: re.Match[str]) -> str:
    names, values = match[1].split(", "), match[3].split(", ")
    given, fields = constants(), spec()["configuration"]
    wanted = []
    for name, value in zip(names[-len(values) :], values, strict=False):
        if constant(name) in given and name not in fields:
            wanted.append(written(given[constant(name)], suffix))
        elif "range" in fields.get(name, {}):
            wanted.append(written(fields[name]["range"][1], suffix))
        else:
            raise SystemExit(f"a region has {name} = {value}, which lua/spec.json does not have")
    return f"{match[1]}{match[2]}{', '.join(wanted)}"


def _range(suffix: str, match: re.Match[str]) -> str:
    low, high = spec()["configuration"][match[1]]["range"]
    return f"{match[1]}{match[2]}{written(low, suffix)}, {written(high, suffix)}"


def _text(match: re.Match[str]) -> str:
    field = spec()["configuration"].get(match[1])
    return f"{match[1]}{match[2]}{match[3]}{field['default']}{match[3]}" if field else match[0]


def _words(name: str) -> list[str]:
    return (["", *spec()["causes"]]) if name == "cause" else list(spec()[f"{name}s"])


def _literal(match: re.Match[str]) -> str:
    return match[1] + match[2] + ", ".join(f'"{word}"' for word in _words(match[1].lower()))


def _union(match: re.Match[str]) -> str:
    return match[1] + match[2] + " | ".join(f"'{word}'" for word in _words(match[1]))


def _default(match: re.Match[str]) -> str:
    field = spec()["configuration"].get(match[2])
    if not field:
        return match[0]
    value = field["default"]
    text = {"yes": "True", "": "()"}.get(value) or (
        f'"{value}"' if isinstance(value, str) else written(value, ".py")
    )
    return match[1] + match[2] + match[3] + (f"{value:.1f}" if "float" in match[3] else text)


def _shown(value: float | str) -> str:
    exact = number(value)
    return (
        value
        if isinstance(value, str)
        else "10^12"
        if exact == 10**12
        else f"{exact:,}"
        if exact >= 10_000
        else f"{exact}"
    )


def _codes(match: re.Match[str]) -> str:
    passing = {Treatment.FOLLOWED, Treatment.RETRIED}
    found = {
        "passing": [n for n, c in CODES.items() if c.treatment in passing and n != "NOSCRIPT"],
        "patient": [n for n, c in CODES.items() if c.treatment is Treatment.PATIENT],
        # redis-py itself leaves a server that loads its data.
        "demoted": [n for n, c in CODES.items() if c.leave or n == "LOADING"],
    }
    return match[1] + match[2] + "|".join(found[match[1].lower()])


def _advised(text: str) -> str:
    """Return a text in which each refusal says what to do in the words of the specification."""
    for wrong, advice in spec()["refusals"].items():
        opening = re.escape(wrong).replace(r"\{\}", r"[^;]{1,80}?")
        # Not the end of a statement.
        opening = rf"""{opening}(?<!\))(?<!\w["'`]);\ """
        opening = opening.replace(r"\ ", f"(?:{_GOES_ON})? (?:{_GOES_ON})?")

        def replaced(match: re.Match[str], advice: str = advice) -> str:
            said = re.sub(_GOES_ON, "", match[2])
            return match[0] if said == advice else match[1] + advice

        text = re.sub(rf"""({opening})((?:{_GOES_ON}|[^"'`\\\n])+)""", replaced, text)
    return text


def _setting(field: Json) -> tuple[str, ...]:
    low, high = field.get("range", ("", ""))
    default = field["default"]
    default = f"`{default}`" if isinstance(default, str) and default else default
    return str(default), f"{low} .. {_shown(high)}" if high else "", field["meaning"]


_TABLES: dict[str, tuple[str, str, Callable[[Any], tuple[str, ...]]]] = {
    "limits": ("limit | value | of", "limits", lambda each: (_shown(each[0]), each[1])),
    "flags": ("flag | value | a row with it", "flags", lambda each: (str(each[0]), each[1])),
    "configuration": ("field | default | range | meaning", "configuration", _setting),
    "reasons": ("reason | verdict and cause", "reasons", lambda each: (each,)),
    "counters": ("counter | counts", "counters", lambda each: (each,)),
    "errors": ("code | when", "errors", lambda each: (each[1],)),
    "exceptions": (
        "code | when | exception in Python",
        "errors",
        lambda each: (each[1], f"`{each[0]}`"),
    ),
    "codes": (
        "code | treatment | when",
        "",
        lambda each: (each.treatment + ", *leave*" * each.leave, each.when),
    ),
}
"""Of each topic the heading, the part of the specification, and the cells after the name."""


def _table(topic: str) -> str:
    head, part, cells = _TABLES[topic]
    entries = spec()[part] if part else CODES
    rows = [[f"`{name}`", *cells(each)] for name, each in entries.items()]
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    return "\n".join([f"| {head} |", "|---" * len(head.split("|")) + "|", *lines])


def _region(suffix: str, text: str) -> str:
    text = _LITERAL.sub(_literal, _UNION.sub(_union, _LIST.sub(_codes, text)))
    text = _TEXT.sub(_text, _RANGE.sub(partial(_range, suffix), text))
    names = ", ".join(f"'{name}'" for name in spec()["counters"])
    text = _COUNTERS.sub(lambda match: match[1] + names, text)
    return _DECLARED.sub(partial(_declared, suffix), text)


_FROM = rf"(?:{MARK}|From acker_redis/protocol/codes.py)"
MARKED = re.compile(rf"^.*{_FROM}.*\n(?:.*\S.*\n)*", re.M)
_TABLE = re.compile(rf"^(<!-- {_FROM}.*: (\w+) -->\n\n)(?:\|.*\n)*", re.M)


def filled(text: str, suffix: str) -> str:
    """Return the text of a file with the values of the specification."""
    name = str(spec()["limits"]["MAX_NAME"][0])
    text = _NAME.sub(lambda match: match[1] + name, text)
    text = text if suffix == ".md" else _advised(text)
    if not MARKED.search(text):
        return text
    if suffix == ".md":
        return _TABLE.sub(lambda match: f"{match[1]}{_table(match[2])}\n", text)
    if suffix == ".py":
        text = _DEFAULT.sub(_default, text)
    return MARKED.sub(lambda match: _region(suffix, match[0]), text)


def files() -> Iterator[Path]:
    """Yield the files that may use the specification."""
    for top in _ROOTS:
        for folder, folders, names in os.walk(ROOT / top):
            place = Path(folder)
            copies = place.parent == ROOT / "clients"
            skipped = {"node_modules", "__pycache__", "target", *(["lua", "out"] if copies else [])}
            folders[:] = sorted(f for f in set(folders) - skipped if not f.startswith("."))
            for name in sorted(names):
                path = place / name
                if path.suffix in _SUFFIXES and path != Path(__file__).resolve():
                    yield path


def stale() -> dict[Path, str]:
    """Return the wanted text of each file that is not current."""
    wanted = {}
    for path in files():
        text = path.read_text()
        if (current := filled(text, path.suffix)) != text:
            wanted[path] = current
    return wanted


def typed() -> list[str]:
    """Return the limits and the lists of codes that are declared outside of a region."""
    found, limits = [], {name: number(value) for name, (value, _) in spec()["limits"].items()}
    three_codes = rf"\b(?:(?:{'|'.join(CODES)})\|){{2}}(?:{'|'.join(CODES)})\b"
    for path in files():
        text = MARKED.sub("", path.read_text()) if path.suffix != ".md" else ""
        found += [f"{path.relative_to(ROOT)}: {codes}" for codes in re.findall(three_codes, text)]
        for match in _DECLARED.finditer(text):
            for name, value in zip(match[1].split(", "), match[3].split(", "), strict=False):
                factors = value.removesuffix("L").replace("_", "").split(" * ")
                is_field = name in spec()["configuration"] or "*" in factors[0]
                if not is_field and limits.get(constant(name)) == prod(map(float, factors)):
                    found.append(f"{path.relative_to(ROOT)}: {name} = {value}")
    return found


def main(words: list[str]) -> int:
    """Run the command; return 1 if ``--check`` finds something."""
    outdated = stale()
    for path, text in outdated.items():
        print(path.relative_to(ROOT))
        if words != ["--check"]:
            path.write_text(text)
    if words == ["--check"]:
        print(*typed(), sep="\n")
        return int(bool(outdated or typed()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
