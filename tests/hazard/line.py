"""A proxy to Redis that loses, cuts and delays calls at random, as networks do."""

import contextlib
import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

from acker_redis.protocol import scripts
from tests.transport.listener import Listener
from tests.waiting import wait_until

FATES = {
    "reply lost": 5,  # it ran, the reply is lost with the connection
    "reply cut": 2,  # half of the reply arrives
    "never sent": 3,  # the connection ends before the call
    "cut in half": 3,  # Redis gets half of a command
    "silent": 1,  # it ran, no reply arrives, and the connection stays open
    "late": 2,  # it arrives after the client has timed out and retried on another connection
}
"""Percentage of calls that meet each fate; the others are answered."""
APPLY = tuple(scripts.load(name).sha.encode() for name in ("apply", "apply_blocks"))
"""Hashes that identify a call that changes trees; such a call by EVAL is rare."""
LONGEST = 0.3
"""Maximum delay of a late call after the client's timeout, in seconds."""


class BadLine:
    """A proxy to a Redis on loopback; calls of scripts meet their ``FATES``."""

    def __init__(self, url: str, seed: int) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self.bad = True
        self.fates: Counter[str] = Counter()
        self._chance = random.Random(seed)
        # A slow machine makes only few calls, so each fate is among the first calls.
        self._first = [*FATES, *["answered"] * len(FATES)]
        self._chance.shuffle(self._first)
        self._lock = threading.Lock()
        self._under_way = 0
        self._listener = Listener(self._serve)
        self.port = self._listener.port
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def settle(self) -> None:
        """Forward all calls from now on, and wait until all late calls have reached Redis."""
        self.bad = False
        wait_until(lambda: not self._under_way, "late calls")

    def close(self) -> None:
        self.bad = False
        self._listener.close()

    def _serve(self, client: socket.socket) -> None:
        # If one side closes its connection, close both.
        with contextlib.suppress(OSError), client, socket.create_connection(self._target) as redis:
            for each in (client, redis):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            waiting = b""
            while True:
                ready, _, _ = select.select([client, redis], [], [])
                if redis in ready:
                    reply = redis.recv(1 << 20)
                    if not reply:
                        return
                    client.sendall(reply)
                if client in ready:
                    data = client.recv(1 << 20)
                    if not data:
                        return
                    waiting += data
                    while (end := _end_of_command(waiting)) is not None:
                        command, waiting = waiting[:end], waiting[end:]
                        if not self._pass_on(command, client, redis):
                            return

    def _pass_on(self, command: bytes, client: socket.socket, redis: socket.socket) -> bool:
        """Apply a fate to a command; return whether the connection stays open."""
        fate = self._fate(command)
        if fate == "answered":
            redis.sendall(command)
            return True
        with self._busy():
            if fate == "cut in half":
                redis.sendall(command[: len(command) // 2])
            elif fate == "late":
                _wait_for_its_end(client)
                time.sleep(self._delay())
                redis.sendall(command)
                redis.recv(1 << 20)
            elif fate != "never sent":
                redis.sendall(command)
                reply = redis.recv(1 << 20)
                if fate == "reply cut":
                    client.sendall(reply[: len(reply) // 2])
                elif fate == "silent":
                    _wait_for_its_end(client)
        return False

    def _fate(self, command: bytes) -> str:
        if not self.bad or b"EVAL" not in command[:24].upper():
            return "answered"
        with self._lock:
            others = 100 - sum(FATES.values())
            if self._first and any(sha in command for sha in APPLY):
                fate = self._first.pop()
            else:
                [fate] = self._chance.choices(["answered", *FATES], [others, *FATES.values()])
            self.fates[fate] += 1
            return fate

    def _delay(self) -> float:
        with self._lock:
            return self._chance.uniform(0, LONGEST)

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1


def _wait_for_its_end(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while client.recv(1 << 20):
            pass


def _end_of_command(data: bytes) -> int | None:
    """Return the end of the first command, an array of bulk strings; None if it is incomplete."""
    line = data.find(b"\r\n")
    if line < 0:
        return None
    place = line + 2
    for _ in range(int(data[1:line])):
        line = data.find(b"\r\n", place)
        if line < 0:
            return None
        place = line + 2 + int(data[place + 1 : line]) + 2
    return place if place <= len(data) else None


@contextlib.contextmanager
def bad_line(url: str, seed: int) -> Iterator[BadLine]:
    """Yield a bad line to the Redis at this URL."""
    line = BadLine(url, seed)
    try:
        yield line
    finally:
        line.close()
