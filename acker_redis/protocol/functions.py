"""The scripts that only read, as a library of Redis functions, for users without ``EVAL``.

``FCALL_RO`` runs functions that an administrator has loaded, and no code of the caller. So a user
with ``FCALL_RO`` and without ``EVAL`` cannot send a script that never ends or exhausts memory.
Redis 7.0 and later have functions, and so has Valkey.

**Scripts that write stay scripts.** At ``maxmemory`` Redis refuses a function that writes as a
whole, or, with the flag ``allow-oom``, not at all. ``apply`` needs what Redis does for ``EVALSHA``:
it refuses a batch that creates trees, and lets an ack through, which frees memory.

The library's name holds its SHA1. So libraries of several versions stand side by side, and each
client calls the text that it was made with.
"""

import hashlib
from functools import cache
from typing import Any, Protocol, TypeVar

from acker_redis.protocol import scripts

NAMES = ("status", "show", "list")
"""Scripts that are functions too; none of them writes."""

_USED = "acker_redis_functions"

T = TypeVar("T")


class _Connection(Protocol):
    def command(self, *args: str | bytes | int) -> Any: ...


def use_functions(client: T) -> T:
    """Let this client of redis-py call functions for the scripts in ``NAMES``, and return it.

    Mark it before an Acker is made of it. ``?functions=yes`` in a URL does the same.

    >>> import redis
    >>> acker = Acker(use_functions(redis.Redis.from_url(url)), "orders")
    """
    setattr(client, _USED, True)
    return client


def are_used(client: Any) -> bool:
    """Return whether this client calls functions."""
    return getattr(client, _USED, False) is True


def load(connection: _Connection) -> str:
    """Load the library, on a cluster into each master, and return its name. It is idempotent.

    Raises RedisRefusedError on Redis 6.2, or if the user lacks ``FUNCTION LOAD``. Redis saves and
    replicates functions as it does keys.
    """
    connection.command("FUNCTION LOAD", "REPLACE", source())
    return f"acker_{_sha()}"


def function(script: str) -> str | None:
    """Return the name of a script's function; None if the script writes."""
    return f"acker_{script}_{_sha()}" if script in NAMES else None


def source() -> bytes:
    """Return the text of the library."""
    return library().source


@cache
def library() -> scripts.Script:
    """Return the library, whose positions can be located as those of a script can."""
    parts: list[tuple[bytes, tuple[tuple[str, int], ...]]] = [
        (b"#!lua name=acker_%s\n" % _sha().encode(), (_NOWHERE,))
    ]
    for name in NAMES:
        script = scripts.load(name)
        opening = _OPENING % (name.encode(), _sha().encode())
        parts += [(opening, (_NOWHERE, _NOWHERE)), (script.source, script.places)]
        parts += [(b"end }\n", (_NOWHERE,))]
    places = tuple(place for _, lines in parts for place in lines)
    return scripts.Script(f"acker_{_sha()}", b"".join(text for text, _ in parts), _sha(), places)


@cache
def _sha() -> str:
    texts = b"".join(scripts.load(name).source for name in NAMES)
    return hashlib.sha1(texts, usedforsecurity=False).hexdigest()[:12]


_NOWHERE = ("", 0)
_OPENING = b"""redis.register_function{
function_name = 'acker_%s_%s', flags = { 'no-writes' }, callback = function(KEYS, ARGV)
"""
