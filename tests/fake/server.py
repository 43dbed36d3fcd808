"""fakeredis over TCP on 127.0.0.1, with Lua that has ``bit`` and ``struct``.

The conformance suite runs on it. ``python -m tests.fake.server`` prints its port and serves until
its stdin ends. The fake is slow, persists nothing, and has no password. It is no sandbox: a script
sent to it can run code as its user.

One thread reads each connection and a second one writes to it, so that a published message never
waits for a request. This server replaces the TCP server of fakeredis, which loads no Lua modules,
closes a connection after each error, and puts ERR before the first word of a script's error.

Differences from Redis: no ``cmsgpack`` or ``redis.set_repl``; reading an undefined global gives
nil; an error that Lua's ``pcall`` catches is not a string; cjson does not escape ``/``. INFO and
CONFIG GET reply only with the few fields below. CONFIG SET, SHUTDOWN and inline commands are
refused.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import threading
import time
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

# Lua and fakeredis read these when they are first loaded. The Lua of Redis is 5.1.
os.environ["LUA_PATH"] = f"{Path(__file__).parent / 'lua'}/?.lua"
os.environ["FAKEREDIS_LUA_VERSION"] = "5.1"

import redis
from fakeredis import FakeServer
from fakeredis._helpers import SimpleError

from tests.fake.connection import REDIS_VERSION, FakeRedisSocket, Reply


class ClientHandler(BaseRequestHandler):
    """Serves one connection: this thread reads, a second thread writes."""

    server: FakeTcpServer
    request: socket.socket

    def handle(self) -> None:
        """Serve the connection until the client disconnects or sends an invalid request."""
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = self.client_address
        fake = FakeRedisSocket(
            self.server.fake, self.server.info, self.server.config, f"{host}:{port}"
        )
        writer = threading.Thread(target=self.write, args=(fake.outbox,), daemon=True)
        writer.start()
        try:
            while data := self.request.recv(1 << 16):
                fake.sendall(data)
        except (ConnectionError, redis.ConnectionError):
            pass
        except SimpleError as error:
            fake.put_response(Reply(error))
        except Exception as error:
            # A fault inside fakeredis: the parser, and so the connection, is unusable.
            print(f"fakeredis failed: {error!r}", file=sys.stderr, flush=True)
            fake.put_response(Reply(SimpleError(f"ERR fakeredis failed: {error!r}")))
        finally:
            fake.outbox.put(None)
            writer.join()
            fake.close()

    def write(self, outbox: queue.SimpleQueue[bytes | None]) -> None:
        """Send the contents of the outbox, until it yields None or the client disconnects."""
        with contextlib.suppress(OSError):
            while (data := outbox.get()) is not None:
                self.request.sendall(data)


class FakeTcpServer(ThreadingTCPServer):
    """Serves one fakeredis database set on a free port of 127.0.0.1."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        self.fake = FakeServer(version=REDIS_VERSION)
        super().__init__(("127.0.0.1", 0), ClientHandler)
        self.port = int(self.server_address[1])
        self.started = time.monotonic()
        self.config = {
            "appendonly": "no",
            "dir": str(Path.cwd()),
            "hash-max-listpack-entries": "64",
            "maxmemory": "0",
            "maxmemory-policy": "noeviction",
            "port": str(self.port),
            "save": "",
        }

    def info(self) -> bytes:
        """Return the reply to INFO, which is the same for all sections."""
        fields = {
            "redis_version": ".".join(map(str, (*REDIS_VERSION, 0))),
            "redis_mode": "standalone",
            "fakeredis": "yes",
            "process_id": os.getpid(),
            "tcp_port": self.port,
            "uptime_in_seconds": int(time.monotonic() - self.started),
            "connected_clients": len(self.fake.sockets),
            "maxmemory": 0,
            "maxmemory_policy": "noeviction",
            "role": "master",
        }
        return "".join(f"{name}:{value}\r\n" for name, value in fields.items()).encode()


def main() -> None:
    """Serve until stdin ends. It ends with the parent process, even if that is killed."""
    with FakeTcpServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.port, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
