"""Write the reference of the command line: ``python -m tests.docs.cli_page``.

The page has the help texts, arguments, options and examples of ``acker_redis/cli``.
"""

import ast
import re
import typing
from collections.abc import Iterator
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from acker_redis.cli import app, output
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"
HEAD = """\
# Command line

<!-- Written by `python -m tests.docs.cli_page` from acker_redis/cli. -->

This page is for people who run `acker-redis` in a shell or a script. It lists every command with
its arguments, its options and its exit codes.

Terms: [glossary](../glossary.md).

{description}

`pip install '.[cli]'` in a checkout installs the commands. `acker-redis serve` also needs the extra
`api`, and `acker-redis demo` the extra `demo`. `acker-redis COMMAND --help` prints the help of a
command; `acker-redis --install-completion` installs completion in your shell.

## Common to all commands

- **Redis.** `--url` names the Redis server; without it, `ACKER_REDIS_URL` does.
  [Connecting](connecting.md) has the forms of a URL, and [settings](settings.md) the other
  environment variables. Prefer the variable when the URL has a password: other users of the
  machine can read command lines.
- **Output.** Results go to stdout; progress, questions and errors go to stderr. With `--json`,
  stdout is one JSON object, or one object per line. `acker-redis rotator` and `acker-redis serve`
  write their log as JSON.
- **Text of others.** Control characters, marks of direction and characters without width in source
  ids, labels and reasons are escaped on a terminal and in JSON. In a pipe the text is unchanged.
- **Closed streams.** A command that must read a closed stdin, or write a closed stdout, fails, so
  that no id and no verdict is lost. Without stderr, a service runs and its log is dropped.
- **Ids.** A message is `ANCHOR:TUPLE`, two decimal numbers, as `acker-redis track` prints it. A
  tree is named by its anchor.

## Exit codes

| code | meaning |
|---|---|
{codes}

Commands that report a result use the codes as follows:

| command | 0 | 1 | 2 |
|---|---|---|---|
| `doctor` | no problem | warnings | errors, or Redis does not answer |
| `rotator --once` | every shard was rotated | a shard could not be rotated | |
| `rotator --check` | the heartbeat file is recent | it is missing or too old | |
| `demo` | each verdict is right | a verdict is wrong | |
| `tour` | each step went as described | a step did not | |
| `simulate` | no promise was broken | a promise was broken | |
"""
TYPES = {str: "TEXT", list[str]: "TEXT", int: "INT", float: "NUMBER", Path: "PATH"}


def exit_codes() -> str:
    """Return the rows of the table of exit codes."""
    (body,) = (each.body for each in ast.parse(getsource(output.Exit)).body)  # type: ignore[attr-defined]
    meaning = {
        code.targets[0].id: words.value.value
        for code, words in pairwise(body)
        if isinstance(code, ast.Assign) and isinstance(words, ast.Expr)
    }
    meaning.setdefault("OK", "Success.")
    return "\n".join(f"| {code.value} | {_cell(meaning[code.name])} |" for code in output.Exit)


def commands(group: Any, before: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield panel, name and command, in the order of the help page."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            for _, inner, each in commands(command, f"{before}{name} "):
                yield command.rich_help_panel, inner, each
        else:
            yield command.rich_help_panel, f"{before}{name}", command


def section(name: str, command: Any) -> str:
    """Return the section of a command."""
    hints = typing.get_type_hints(command.callback, include_extras=True)
    arguments = [each for each in command.params if not each.opts[0].startswith("-")]
    options = [each for each in command.params if each.opts[0].startswith("-")]
    words = [f"acker-redis {name}", *(_argument(each) for each in arguments)]
    if any(each.required for each in options):
        words += [f"{each.opts[0]} {_type(hints[each.name])}" for each in options if each.required]
    words += ["[OPTIONS]"] if len(options) > sum(each.required for each in options) else []
    parts = [f"### acker-redis {name}", command.help.strip(), f"```text\n{' '.join(words)}\n```"]
    if arguments:
        rows = [
            f"| `{_argument(each)}` | {_meaning(each, hints[each.name])} |" for each in arguments
        ]
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows]))
    rows = [
        f"| {_option(each, hints[each.name])} | {_meaning(each, hints[each.name])} |"
        for each in options
    ]
    parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    examples = re.findall(r"^\[dim\]\$\[/dim\] (.*)$", command.epilog or "", re.MULTILINE)
    parts.append('```sh title="fragment"\n' + "\n".join(examples) + "\n```")
    return "\n\n".join(parts)


def _argument(parameter: Any) -> str:
    name = str(parameter.name).upper().replace("_", "-")
    name += "..." if parameter.nargs == -1 else ""
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any, hint: Any) -> str:
    names = [f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts)]
    values = " or ".join(f"`{each}`" for each in _type(hint).split("|") if each)
    return " ".join([", ".join(names), *filter(None, [values])])


def _type(hint: Any) -> str:
    """Return the placeholder of a value, such as INT or a|b; "" for a flag."""
    inner = typing.get_args(hint)[0]
    kinds = [each for each in typing.get_args(inner) or (inner,) if each is not type(None)]
    if typing.get_origin(inner) is typing.Literal:
        return "|".join(kinds)
    if kinds and typing.get_origin(kinds[0]) is typing.Literal:
        return "|".join(typing.get_args(kinds[0]))
    return TYPES.get(kinds[0], "")


def _meaning(parameter: Any, hint: Any) -> str:
    words = _cell(parameter.help or "")
    kind = _type(hint)
    if "|" in kind and not parameter.opts[0].startswith("-"):
        words += ": " + ", ".join(f"`{each}`" for each in kind.split("|"))
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if low is not None or high is not None:
        words += f". Range: {'' if low is None else low} to {high}" if high else f". At least {low}"
    if parameter.default not in (None, False, ()) and not callable(parameter.default):
        words += f". Default: `{str(parameter.default).lower()}`"
    return words


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


def page() -> str:
    """Return the page as the code has it."""
    group = typer.main.get_command(app)
    parts = [HEAD.format(description=group.help, codes=exit_codes()).rstrip()]  # type: ignore[attr-defined]
    panels: dict[str, list[str]] = {}
    for panel, name, command in commands(group):
        panels.setdefault(panel, []).append(section(name, command))
    for panel, sections in panels.items():
        parts += [f"## {panel}", *sections]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
