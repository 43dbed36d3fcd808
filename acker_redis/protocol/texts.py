"""Texts in rows: source ids, and the reasons of failures."""

import itertools
import re
from collections.abc import Iterator

from acker_redis.errors import InvalidBatchError

# From lua/spec.json, by python -m proof.spec
MAX_TEXT = 255
"""Maximum length of a source id or of a reason, in bytes."""

MAX_LEAVES = 3
"""Exceptions of a group that are named in a reason."""
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""What the scripts refuse in a text."""
_CONTROL_BYTES = re.compile(CONTROL.pattern.encode())
_CONTROL = {**dict.fromkeys(range(0x20), " "), 0x7F: " "}


def check_text(kind: str, text: str, least: int) -> bytes:
    """Return the UTF-8 of a source id or why; raise InvalidBatchError if scripts would refuse it.

    ``least`` is the minimum length in bytes.
    """
    try:
        data = text.encode()
    except (UnicodeEncodeError, AttributeError):
        raise InvalidBatchError(f"a {kind} is text that UTF-8 can encode, not {text!r}") from None
    if not least <= len(data) <= MAX_TEXT:
        raise InvalidBatchError(f"a {kind} has {least} to {MAX_TEXT} bytes, this one {len(data)}")
    if _CONTROL_BYTES.search(data):
        raise InvalidBatchError(f"a {kind} must not contain control characters: {text!r}")
    return data


def words(error: BaseException) -> str:
    """Return an exception as text for a row: up to 255 bytes of UTF-8, no control characters.

    Of a group, the text has the first exceptions that are in it.

    >>> words(ValueError("no such address"))
    'ValueError: no such address'
    >>> words(KeyboardInterrupt())
    'KeyboardInterrupt'
    >>> words(ExceptionGroup("in a TaskGroup", [ValueError("no such address"), OSError()]))
    'ValueError: no such address; OSError'
    """
    leaves = _leaves(error)
    said = [_said(each) for each in itertools.islice(leaves, MAX_LEAVES)]
    more = sum(1 for _ in leaves)
    return clipped("; ".join([*said, f"and {more} more"] if more else said))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and in its groups, in their order; or only ``error``."""
    left = [error]
    while left:
        each = left.pop()
        if isinstance(each, BaseExceptionGroup):
            left += reversed(each.exceptions)
        else:
            yield each


def _said(error: BaseException) -> str:
    name = type(error).__name__
    try:
        said = str(error)
    except Exception:  # a bolt must be able to fail with any exception
        said = ""
    return f"{name}: {said}" if said else name


def clipped(text: str) -> str:
    """Return the text cut to 255 bytes, with control characters replaced: see :func:`words`."""
    short = text[:MAX_TEXT].translate(_CONTROL).encode(errors="replace")
    return short[:MAX_TEXT].decode(errors="ignore")
