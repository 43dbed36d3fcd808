"""Several processes that serve one listening socket, and the one that looks after them.

The parent forks them and serves nothing itself. It is asked to end by SIGTERM or SIGINT, and lets
them end; a second signal kills them. A worker that ends otherwise is started anew. Workers hold the
reading end of a pipe whose writing end only the parent has: when that is closed the parent is gone,
by whatever, and they end too. What uvicorn brings for this leaves them running then, and ends
streams of events only when their time is up.
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
from acker_redis.logs import Event

log = logging.getLogger("acker_api")

ENDS = (signal.SIGINT, signal.SIGTERM)
NOT_STARTED = 3
"""Exit code of a worker that could not begin to serve: another could not either."""
WELL_AFTER = 10.0
"""Seconds after which a worker was well: it is started anew at once."""
PAUSES = (0.5, 10.0)
"""Seconds until it is started anew when it was not, for the second time on: the first, and the
longest."""
GRACE = 3.0
"""Seconds more than requests may take in which a worker may close what it has."""


@dataclass
class _Place:
    """A worker's, and that of those that come after it."""

    process: Any = None
    due: float = 0.0
    """When the next is started, if there is none."""
    pause: float = 0.0
    started: float = field(default=0.0)


class Workers:
    """Processes that each run a copy of ``server`` on ``listener``; to be used by the main thread.

    Nothing of the server may have run yet. Requests may take ``within`` seconds at the end. Raises
    ConfigError where there is no fork, and in another thread.
    """

    def __init__(
        self, server: StreamServer, listener: socket.socket, count: int, within: float
    ) -> None:
        if not hasattr(os, "fork"):
            raise ConfigError("several workers need a system that can fork; take one")
        if threading.current_thread() is not threading.main_thread():
            raise ConfigError("several workers are started from the main thread; take one here")
        self._server, self._listener, self._within = server, listener, within
        self._places = [_Place() for _ in range(count)]
        self._told: list[signal.Signals] = []
        self._failed = self._leaving = False

    def run(self) -> int:
        """Start them, and look after them until a signal comes; the exit code."""
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
        # Until the child has handlers of its own a signal would call those of the parent.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        return process

    def _wait(self, until: float) -> None:
        """Until a worker ends, a signal comes, or it is time."""
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
        # Asked once a turn: who ends after that is waited for by what it was asked for.
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
        """In the child: serve until told to end, or the parent is gone."""
        server = self._server

        def leave(number: int, frame: FrameType | None) -> None:
            self._leave()

        # Ctrl-C reaches all of a terminal's processes; the parent lets its workers end.
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
        os.read(self._life[0], 1)  # nothing ever comes but its end
        self._leave()
        time.sleep(self._within + GRACE)
        os._exit(1)
