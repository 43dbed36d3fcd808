"""The code blocks of a page of Markdown.

A block begins with three backticks, a language, and perhaps ``title="..."``. Its title says what
the tests do with it (``running.py``):

- no title: the block runs;
- ``title="fragment"``: the block is only parsed;
- a file name, such as ``title="shop.py"``: the block is parsed, and written to that file;
- another title, of a ``text`` block: the block is not compared with the output before it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)(?P<rest>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]*)"')
_SKIPPED = ("make ", "pip ", "git ")
"""Beginnings of shell commands that set a machine up: they do not run."""


@dataclass(frozen=True)
class Block:
    """One code block of a page."""

    page: str
    line: int
    """The line of the page on which the code begins, from 1."""
    language: str
    title: str
    code: str
    follows: bool
    """Whether nothing is between this block and the block before it."""

    @property
    def is_fragment(self) -> bool:
        return self.title == "fragment"

    @property
    def file(self) -> str:
        """The file to which the block is written; "" if there is none."""
        return self.title if re.fullmatch(r"[\w/-]+\.[a-z]+", self.title) else ""

    @property
    def runs(self) -> bool:
        return self.language in ("python", "sh") and not self.title and bool(self.program.strip())

    @property
    def program(self) -> str:
        """The code without the commands that set a machine up."""
        if self.language != "sh":
            return self.code
        lines = ["" if each.startswith(_SKIPPED) else each for each in self.code.splitlines()]
        return "\n".join(lines) + "\n"

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return the pages whose blocks are tested, as paths in the repository."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page.relative_to(ROOT).as_posix() for page in found]


def blocks(page: str) -> list[Block]:
    """Return the code blocks of a page, in order."""
    text = (ROOT / page).read_text()
    found: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        title = _TITLE.search(match["rest"])
        indent = match["indent"]
        found.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start("code")) + 1,
                language=match["language"],
                title=title[1] if title else "",
                code=re.sub(f"^{indent}", "", match["code"], flags=re.MULTILINE),
                follows=bool(found) and not text[end : match.start()].strip(),
            )
        )
        end = match.end()
    return found
