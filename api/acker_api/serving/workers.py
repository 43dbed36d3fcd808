"""Several processes that serve one listening socket, and their parent.

The parent forks the workers and serves nothing itself. SIGTERM or SIGINT ends it: it lets the
workers end; a second signal kills them. A worker that ends otherwise is restarted. Workers hold the
reading end of a pipe; only the parent has its writing end. When that is closed, the parent has
ended for any reason, and the workers end too. With uvicorn's own workers, they would run on in that
case, and would end streams of events only after their timeout.
"""

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from types import FrameType
from typing import Any

from acker_api.serving.uvicorn_server import StreamServer
from acker_redis.errors import ConfigError
from acker_redis.operate import Event

log = logging.getLogger("acker_api")

ENDS = (signal.SIGINT, signal.SIGTERM)
NOT_STARTED = 3
"""Exit code of a worker that could not begin to serve: another worker could not either."""
WELL_AFTER = 10.0
"""Seconds after which a worker was healthy: it is restarted at once."""
PAUSES = (0.5, 10.0)
"""Seconds until another restart of a worker that was not healthy: the first pause, and the longest.
Its first restart is immediate."""
GRACE = 3.0
"""Seconds beyond the timeout of requests in which a worker may close its connections."""


@dataclass
class _Place:
    """A worker and its successors."""

    process: Any = None
    due: float = 0.0
    """When the next one starts, if none runs."""
    pause: float = 0.0
    started: float = field(default=0.0)


class Workers:
    """Processes that each run a copy of ``server`` on ``listener``; for the main thread.

    Nothing of the server may have run yet. Requests may take ``within`` seconds at shutdown. Raise
    ConfigError on a system without fork, and in another thread.
    """

    def __init__(
        self, server: StreamServer, listener: socket.socket, count: int, within: float
    ) -> None:
        if not hasattr(os, "fork"):
            raise ConfigError("several workers need a system that can fork; set workers to 1")
        if threading.current_thread() is not threading.main_thread():
            raise ConfigError("several workers need the main thread; set workers to 1 here")
        self._server, self._listener, self._within = server, listener, within
        self._places = [_Place() for _ in range(count)]
        self._told: list[signal.Signals] = []
        self._failed = self._leaving = False

    def run(self) -> int:
        """Start the workers, and restart them until a signal comes; return the exit code."""
        self._life = os.pipe()
        self._wake = os.pipe()
        os.set_blocking(self._wake[1], False)
        try:
            with self._listening_to_signals():
                while not (self._told or self._failed):
                    self._start()
                    self._wait(min(place.due for place in self._places))
                    self._reap()
                self._end()
        finally:
            for end in (*self._life, *self._wake):
                os.close(end)
        if self._told:
            log.info(Event("ended", by=self._told[0].name))
        return 1 if self._failed else 0

    def _start(self) -> None:
        for place in self._places:
            if place.process is None and time.monotonic() >= place.due:
                place.started = time.monotonic()
                try:
                    place.process = self._fork()
                except OSError as error:  # too many processes, say
                    place.due = place.started + PAUSES[1]
                    log.warning(Event("worker_failed", why=str(error), next_in=PAUSES[1]))
                    continue
                place.due = float("inf")
                log.info(Event("worker_started", pid=place.process.pid))

    def _fork(self) -> Any:
        process = multiprocessing.get_context("fork").Process(target=self._work, daemon=True)
        # Until the child has its own handlers, a signal would call those of the parent.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        return process

    def _wait(self, until: float) -> None:
        """Wait until a worker ends, a signal comes, or the time has come."""
        running = [place.process.sentinel for place in self._places if place.process]
        timeout = None if until == float("inf") else max(0.0, until - time.monotonic())
        wait([*running, self._wake[0]], timeout)

    def _reap(self) -> None:
        now = time.monotonic()
        for place in self._places:
            process = place.process
            if process is None or process.is_alive():
                continue
            process.join()
            place.process = None
            if self._told:
                continue
            if process.exitcode == NOT_STARTED:
                self._failed = True
                return
            well = now - place.started >= WELL_AFTER
            pause, place.pause = place.pause, min(PAUSES[1], max(PAUSES[0], 2 * place.pause))
            if well:
                pause, place.pause = 0.0, PAUSES[0]
            place.due = now + pause
            log.warning(Event("worker_died", pid=process.pid, exit=process.exitcode, next_in=pause))

    def _end(self) -> None:
        self._listener.close()
        running = [place.process for place in self._places if place.process]
        for process in running:
            process.terminate()
        deadline, signals = time.monotonic() + self._within + GRACE, len(self._told)
        with suppress(BlockingIOError):
            os.set_blocking(self._wake[0], False)
            os.read(self._wake[0], 1024)
        # One check per turn: a worker that ends after it wakes the wait below.
        while alive := [process for process in running if process.is_alive()]:
            left = deadline - time.monotonic()
            if left <= 0 or len(self._told) > signals:
                break
            wait([*(process.sentinel for process in alive), self._wake[0]], left)
        for process in running:
            if process.is_alive():
                log.warning(Event("worker_killed", pid=process.pid))
                process.kill()
            process.join()

    @contextmanager
    def _listening_to_signals(self) -> Iterator[None]:
        def told(number: int, frame: FrameType | None) -> None:
            self._told.append(signal.Signals(number))
            with suppress(BlockingIOError):
                os.write(self._wake[1], b"!")

        before = {number: signal.signal(number, told) for number in ENDS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _work(self) -> None:
        """Run in the child: serve until a signal, or until the parent has ended."""
        server = self._server

        def leave(number: int, frame: FrameType | None) -> None:
            self._leave()

        # Ctrl-C reaches all processes of a terminal; the parent ends its workers.
        server.passes_over = frozenset({signal.SIGINT})
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, leave)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        for end in (self._life[1], *self._wake):
            os.close(end)
        threading.Thread(target=self._follow_the_parent, daemon=True).start()
        server.run(sockets=[self._listener])
        if not (server.started or self._leaving):
            raise SystemExit(NOT_STARTED)

    def _leave(self) -> None:
        self._leaving = self._server.should_exit = True

    def _follow_the_parent(self) -> None:
        os.read(self._life[0], 1)  # returns only at the end of the pipe
        self._leave()
        time.sleep(self._within + GRACE)
        os._exit(1)
