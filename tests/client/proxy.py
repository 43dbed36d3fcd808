"""A TCP proxy on loopback that loses what it is told to lose."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


class Proxy:
    """Forwards to a Redis; ``swallow`` replies are lost by closing the connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.swallow = 0
        """Replies to lose from now on: the command reaches Redis, its answer nobody."""
        self.cut = 0
        """Requests to cut in half from now on: Redis never sees a whole command."""
        self.stall = False
        """Whether nothing goes on for the time being; what came meanwhile goes on afterwards."""
        self.lost = 0
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._open = self.stall = False
        self._listener.close()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as redis:
            losing = False
            while True:
                ready, _, _ = select.select([client, redis], [], [])
                # A command first: its reply cannot be there before it.
                source = client if client in ready else redis
                data = _receive(source)
                while self.stall:
                    time.sleep(0.002)
                if not data or (losing and source is redis):
                    return
                if source is redis:
                    client.sendall(data)
                elif self.cut > 0:
                    self.cut -= 1
                    self.lost += 1
                    redis.sendall(data[: len(data) // 2])
                    return
                else:
                    if self.swallow > 0 and b"evalsha" in data[:40].lower():
                        self.swallow -= 1
                        self.lost += 1
                        losing = True
                    redis.sendall(data)


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(1 << 20)
    except OSError:
        return b""


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    """A proxy in front of the Redis at this URL."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
