"""A TCP proxy on loopback that loses replies and requests on demand."""

import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import redis

from acker_redis.protocol import scripts
from tests.transport.listener import Listener
from tests.waiting import LIMIT


class Proxy:
    """A proxy to a Redis; it loses ``swallow`` replies by closing the connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self.swallow = 0
        """Replies to lose from now on: the command reaches Redis, but the client gets no reply."""
        self.cut = 0
        """Requests to cut in half from now on: Redis never receives a whole command."""
        self.stall = False
        """Whether the proxy holds back all data; it forwards the data after the stall."""
        self.held = 0
        """Requests and replies that arrived during a stall; their calls wait."""
        self.lost = 0
        load_scripts(url)
        self._listener = Listener(self._serve)
        self.url = f"redis://127.0.0.1:{self._listener.port}/0"

    def close(self) -> None:
        self.stall = False
        self._listener.close()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            losing = False
            while True:
                ready, _, _ = select.select([client, server], [], [])
                # Forward a command first: a reply in the same round belongs to an earlier one.
                source = client if client in ready else server
                data = _receive(source)
                self.held += self.stall and bool(data)
                while self.stall:
                    time.sleep(0.002)
                if not data or (losing and source is server):
                    return
                if source is server:
                    client.sendall(data)
                elif self.cut > 0:
                    self.cut -= 1
                    self.lost += 1
                    server.sendall(data[: len(data) // 2])
                    return
                else:
                    if self.swallow > 0 and b"evalsha" in data[:40].lower():
                        self.swallow -= 1
                        self.lost += 1
                        losing = True
                    server.sendall(data)


def load_scripts(url: str) -> None:
    """Load all scripts into a Redis, so that a lost reply is never NOSCRIPT."""
    with redis.Redis.from_url(url, socket_timeout=LIMIT) as client, suppress(redis.RedisError):
        for name in scripts.NAMES:
            client.script_load(scripts.load(name).source)


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(1 << 20)
    except OSError:
        return b""


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    """Run a proxy in front of the Redis at this URL."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
