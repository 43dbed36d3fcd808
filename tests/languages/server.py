"""The content of servers, read in one call: the runner compares all of it after each step."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import redis

from acker_redis.protocol import scripts
from tests.languages.links import Links

_READ = """
local found = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local read = { hash = 'HGETALL', set = 'SMEMBERS', string = 'GET' }
  local value = kind == 'stream' and redis.call('XRANGE', key, '-', '+')
    or redis.call(read[kind], key)
  found[i] = { key, kind, value }
end
return found
"""
Found = dict[bytes, tuple[bytes, Any]]


class Server:
    """One server, or the masters of a cluster, as ``proof/cases/run.py`` uses a redis.Redis.

    The content is cached until a command is sent here, or until :meth:`forget`.
    """

    def __init__(self, ports: Sequence[int], router: Any = None) -> None:
        self.ports = list(ports)
        self.nodes = [redis.Redis(port=port) for port in ports]
        self._links = Links(ports)
        self._router = router or self.nodes[0]
        self._found: Found | None = None

    def forget(self) -> None:
        """Drop the cache, because another client may have changed a key."""
        self._found = None

    def load_scripts(self) -> None:
        """Load all scripts into all nodes, so that each call is one EVALSHA."""
        for node in self.nodes:
            for name in scripts.NAMES:
                node.script_load(scripts.load(name).source)

    def flushall(self) -> None:
        """Remove all keys."""
        self.forget()
        self._links.ask("FLUSHALL")

    def execute_command(self, *words: Any) -> Any:
        """Send a command to the node that it belongs to."""
        self.forget()
        return self._router.execute_command(*words)

    def keys(self, pattern: str = "*") -> list[bytes]:
        """Return the keys of all nodes."""
        return [key for key in self._all() if fnmatchcase(key.decode(), pattern)]

    def type(self, key: str | bytes) -> bytes:
        """Return the type of a key, b"none" if it does not exist."""
        return self._at(key)[0]

    def hgetall(self, key: str | bytes) -> dict[bytes, bytes]:
        """Return the fields of a hash."""
        flat = self._at(key)[1] or []
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def get(self, key: str | bytes) -> bytes | None:
        """Return the value of a string."""
        value: bytes | None = self._at(key)[1]
        return value

    dump = get

    def xrange(self, key: str | bytes, count: int | None = None) -> list[tuple[bytes, Any]]:
        """Return the entries of a stream."""
        entries = (self._at(key)[1] or [])[:count]
        return [(id_, dict(zip(flat[::2], flat[1::2], strict=True))) for id_, flat in entries]

    def close(self) -> None:
        """Close the connections that were opened here."""
        self._links.close()
        for node in self.nodes:
            node.close()

    def _at(self, key: str | bytes) -> tuple[bytes, Any]:
        return self._all().get(key.encode() if isinstance(key, str) else key, (b"none", None))

    def _all(self) -> Found:
        if self._found is None:
            replies = self._links.ask("EVAL", _READ, 0)
            self._found = {key: (kind, value) for its in replies for key, kind, value in its}
        return self._found
