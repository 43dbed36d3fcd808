"""An extension of griffe that makes Markdown of docstrings.

The docstrings of the package have roles such as ``:meth:`emit```, literal blocks after ``::``, and
doctests. The site shows the first as code, and the last as code blocks.
"""

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:attr|class|exc|func|meth|mod):`~?([^`]+)`")
_LITERAL = re.compile(r"::$", re.MULTILINE)
_DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1\S.*| *\n\1\.\.\. .*)*", re.MULTILINE)


def markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    text = _ROLE.sub(r"`\1`", text)
    text = _LITERAL.sub(lambda found: ":" if text[found.start() - 1].isalnum() else "", text)
    return _DOCTEST.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)


class Docstrings(Extension):
    """Rewrites the docstring of every object that is read."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)
