"""One client of the fake Redis: fakeredis's socket with our Lua modules and a RESP encoder.

fakeredis converts its replies to the values that redis-py returns. This module keeps the raw
replies, so that status replies, bulk strings and the full text of an error reach clients in any
language.
"""

from __future__ import annotations

import fnmatch
import hashlib
import queue
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import redis
from fakeredis import FakeServer
from fakeredis._helpers import NoResponse, SimpleError, SimpleString
from fakeredis._socket import FakeSocket

REDIS_VERSION = (7, 0)
LUA_MODULES = {"bit", "struct"}
# As in Redis, a script must not access these names or create a global. In fakeredis a global would
# persist and fail every later script.
CONFINE = """
for _, name in ipairs({'python', 'package', 'require', 'module', 'dofile', 'loadfile', 'io',
                       'debug', 'print', 'newproxy'}) do
  _G[name] = nil
end
os = { clock = os.clock }
setmetatable(_G, { __newindex = function(_, name)
  error("Script attempted to create global variable '" .. tostring(name) .. "'", 2)
end })
"""


@dataclass(frozen=True)
class Reply:
    """The reply to a command, in contrast to a message that the server pushes."""

    value: Any


def _sha1hex(text: bytes) -> bytes:
    """``redis.sha1hex``, which the ``redis`` table of fakeredis's scripts lacks."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def encode(value: Any, resp3: bool) -> bytes:
    """Return one value in RESP2 or RESP3; raise TypeError for a value without a RESP form."""
    if isinstance(value, SimpleString):
        return b"+%s\r\n" % value.value
    if isinstance(value, SimpleError):
        return b"-%s\r\n" % value.value.replace("\r", " ").replace("\n", " ").encode()
    if value is None:
        return b"_\r\n" if resp3 else b"$-1\r\n"
    if isinstance(value, bool):
        return (b"#t\r\n" if value else b"#f\r\n") if resp3 else b":%d\r\n" % value
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, float) and resp3:
        return b",%s\r\n" % repr(value).encode()
    if isinstance(value, float | str):
        value = (repr(value) if isinstance(value, float) else value).encode()
    if isinstance(value, bytes):
        return b"$%d\r\n%s\r\n" % (len(value), value)
    if isinstance(value, dict):
        parts = [part for item in value.items() for part in item]
        head = b"%%%d\r\n" % len(value) if resp3 else b"*%d\r\n" % len(parts)
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
        head = b"~%d\r\n" if resp3 and isinstance(value, set | frozenset) else b"*%d\r\n"
        head %= len(parts)
    else:
        raise TypeError(f"no RESP form for {type(value).__name__}")
    return head + b"".join(encode(part, resp3) for part in parts)


class FakeRedisSocket(FakeSocket):
    """One client of the fake: sendall() takes requests, ``outbox`` holds the encoded replies."""

    def __init__(
        self,
        server: FakeServer,
        info: Callable[[], bytes],
        config: Mapping[str, str],
        address: str,
    ) -> None:
        self._answer_info = info
        self._settings = config
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        super().__init__(
            server,
            db=0,
            lua_modules=set(LUA_MODULES),
            client_class=redis.Redis,
            client_info={"addr": address},
        )

    def _decode_result(self, result: Any) -> Reply | NoResponse:
        return result if isinstance(result, NoResponse) else Reply(result)

    def put_response(self, msg: Any) -> None:
        """Encode a reply, or a message of pub/sub, and queue it for the client."""
        resp3 = self._client_info.protocol_version == 3
        if isinstance(msg, Reply):
            self.outbox.put(encode(msg.value, resp3))
        else:
            data = encode(msg, resp3)
            self.outbox.put(b">" + data[1:] if resp3 else data)

    def _process_command(self, fields: list[bytes]) -> None:
        name = fields[0].lower() if fields else b""
        if name == b"info":
            self.put_response(Reply(self._answer_info()))
        elif name == b"config" and len(fields) > 2 and fields[1].lower() == b"get":
            self.put_response(Reply(self.config_get(fields[2:])))
        else:
            super()._process_command(fields)

    def config_get(self, patterns: list[bytes]) -> Any:
        """Answer CONFIG GET."""
        shapes = [pattern.decode(errors="replace").lower() for pattern in patterns]
        found = {
            name.encode(): value.encode()
            for name, value in self._settings.items()
            if any(fnmatch.fnmatchcase(name, shape) for shape in shapes)
        }
        if self._client_info.protocol_version == 3:
            return found
        return [part for item in found.items() for part in item]

    def _get_server_runtime(self, server: FakeServer) -> Any:
        fresh = not hasattr(server, "_lua_runtime")
        runtime = super()._get_server_runtime(server)
        if fresh:
            if missing := LUA_MODULES - self.load_lua_modules:
                raise SimpleError(f"ERR the fake's Lua could not load {', '.join(missing)}")
            runtime.execute(CONFINE.encode())
            runtime.eval(b"function(f) redis.sha1hex = f end")(_sha1hex)
        return runtime

    def _lua_redis_pcall(self, lua_runtime: Any, expected: set[Any], op: bytes, *args: Any) -> Any:
        # fakeredis returns a Python str to the script here, which Lua cannot use.
        try:
            return self._lua_redis_call(lua_runtime, expected, op, *args)
        except SimpleError as error:
            return lua_runtime.table_from({b"err": error.value.encode()})
