"""The read-only scripts as a library of Redis functions, for users without ``EVAL``.

``FCALL_RO`` runs only functions that an administrator has loaded, never code of the caller. So a
user with ``FCALL_RO`` and without ``EVAL`` cannot send a script that never ends or exhausts memory.
Redis 7.0 and later have functions; Valkey has them too.

**Scripts that write stay scripts.** At ``maxmemory`` Redis either refuses a function that writes
entirely, or, with the flag ``allow-oom``, never refuses it. ``apply`` needs the behaviour of
``EVALSHA``: Redis refuses a batch that creates trees, but accepts an ack, which frees memory.

The library's name contains its SHA1. So libraries of several versions coexist, and each client
calls the version that it was built with.
"""

import hashlib
from functools import cache
from typing import Any, Protocol, TypeVar

from acker_redis.protocol import scripts

NAMES = ("status", "show", "alive", "list")
"""Scripts that are also available as functions; all are read-only."""

_USED = "acker_redis_functions"

T = TypeVar("T")


class _Connection(Protocol):
    def command(self, *args: str | bytes | int) -> Any: ...


def use_functions(client: T) -> T:
    """Return the redis-py client, marked to call functions instead of the scripts in ``NAMES``.

    Mark the client before you create an Acker with it. ``?functions=yes`` in a URL does the same.

    >>> import redis
    >>> acker = Acker(use_functions(redis.Redis.from_url(url)), "orders")
    """
    setattr(client, _USED, True)
    return client


def are_used(client: Any) -> bool:
    """Return whether this client calls functions."""
    return getattr(client, _USED, False) is True


def load(connection: _Connection) -> str:
    """Load the library (on a cluster into each master) and return its name; idempotent.

    Redis persists and replicates functions like keys.

    Raises:
        RedisRefusedError: The server is Redis 6.2, or the user lacks ``FUNCTION LOAD``.

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
    """Return the library as a Script, so that positions in errors map to the Lua files."""
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
