"""The rotator as a service: a few threads that rotate the shards of all namespaces.

``schedule.py`` decides whose turn it is, and ``flows/drain.py`` what to send. This module holds the
threads and the log. One lock guards all shared state; no thread holds it during a call.

When changes are noticed:

- A tick: when it is due, or later by up to a twentieth of the time until then (at most 0.25 s), so
  that not all rotators call at once.
- A clock that was set, or a shorter ``tick_ms``: within 10 s.
- Another number of shards, a new namespace, a dropped namespace: within 5 s.

No error ends a rotator.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from acker_redis.errors import (
    AckerError,
    NamespaceNotFoundError,
    RedisUnavailableError,
)
from acker_redis.flows.namespace_list import read_names
from acker_redis.logs import Event
from acker_redis.protocol.keys import check_name
from acker_redis.rotator import heartbeat
from acker_redis.rotator.history import HistoryJob, write_once
from acker_redis.rotator.jobs import (
    Home,
    NamesJob,
    NamespaceJob,
    Pace,
    ShardJob,
    log,
    where,
)
from acker_redis.rotator.once import rotate_once
from acker_redis.rotator.outages import Outages
from acker_redis.rotator.schedule import Schedule, Turn
from acker_redis.sync.connection import Connection

WORKERS = 4
"""Number of threads, and so of calls in flight; at most half of them at one server."""
HANGS_AFTER = 20.0
"""Seconds that a turn may be late, or last, before the heartbeat stops."""
_BEAT_EVERY = 1.0

Job = ShardJob | NamespaceJob | NamesJob | HistoryJob
Said = tuple[int, Event, Exception | None]
"""What to log once the lock is free: level, event, and an exception for its traceback."""


def serve(
    client: Any,
    namespaces: Sequence[str] | None,
    *,
    stop: threading.Event,
    once: bool = False,
    heartbeat_file: Path | None = None,
    pace: Pace | None = None,
) -> int:
    """Rotate until ``stop`` is set, or, with ``once``, each shard once; return the exit code.

    When ``stop`` is set, the current calls are completed, which takes the client's timeouts at
    most. A signal handler may set it.

    Args:
        client: A client of redis-py, as :func:`acker_redis.transport.connect.connect` makes it; all
            threads share it.
        namespaces: The names of the namespaces; None means all that exist at any time. A named
            namespace that does not exist is waited for; with ``once`` it counts as failed.
        stop: The event that ends it.
        once: Whether to rotate each shard once.
        heartbeat_file: A file to touch while it works.
        pace: How much it requests, and how often.

    Returns:
        0. With ``once``: 1 if a shard failed, or ``stop`` was set before all shards were rotated.

    Raises:
        ConfigError: A name is invalid.

    """
    connection = Connection(client)
    for name in namespaces or ():
        check_name("namespace", name)
    if once:
        return _once(connection, namespaces, pace or Pace(), stop)
    service = Service(
        [Home(connection, name) for name in dict.fromkeys(namespaces or ())],
        every=connection if namespaces is None else None,
        pace=pace,
        heartbeat_file=heartbeat_file,
    )
    service.run(stop)
    log.info(Event("left"))
    return 0


class Service:
    """Rotates the named namespaces (``homes``), and with ``every`` all namespaces of that Redis."""

    def __init__(
        self,
        homes: Iterable[Home],
        every: Connection | None = None,
        *,
        pace: Pace | None = None,
        heartbeat_file: Path | None = None,
    ) -> None:
        self._pace = pace or Pace()
        self._heartbeat_file = heartbeat_file
        self._changed = threading.Condition()
        self._stopping = False
        self._outages = Outages()
        self._schedule: Schedule[Job] = Schedule(
            WORKERS, lambda job: where(job.connection, job.key)
        )
        self._known: dict[str, NamespaceJob] = {}
        """Namespaces that were found rather than named, by name."""
        self._histories: dict[NamespaceJob, HistoryJob] = {}
        self._beats = True
        now = time.monotonic()
        for home in homes:
            self._schedule.add(NamespaceJob(home, self._pace.follow_every, named=True), now)
        if every:
            self._schedule.add(NamesJob(every, self._pace.follow_every), now)

    def run(self, stop: threading.Event) -> None:
        """Rotate until ``stop`` is set, finish the current calls, and return."""
        # The thread that receives signals must not wait for the event that their handler sets: it
        # might hold the event's lock, and deadlock.
        watch = _begin("acker-rotator-watch", self._watch, stop)
        workers: list[threading.Thread] = []
        try:
            workers.extend(_begin("acker-rotator-worker", self._work) for _ in range(WORKERS))
        except RuntimeError as error:  # the system gives no more threads
            if not workers:
                self._leave()
                raise
            log.warning(Event("few_threads", workers=len(workers), error=error))
        for thread in (watch, *workers):
            # With a timeout: a signal that the system delivers to another thread does not end a
            # join.
            while thread.is_alive():
                thread.join(1.0)

    def _watch(self, stop: threading.Event) -> None:
        """Touch the heartbeat file until ``stop`` is set."""
        while not stop.wait(_BEAT_EVERY):
            if self._heartbeat_file:
                self._beat(self._heartbeat_file)
        self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _beat(self, file: Path) -> None:
        why: object = ""
        try:
            with self._changed:
                late = self._schedule.lateness(time.monotonic())
            if late > HANGS_AFTER:
                why = f"a turn is {late:.0f} s late"
            else:
                heartbeat.beat(file)
        except Exception as error:
            why = error
        if why and self._beats:
            log.warning(Event("no_heartbeat", file=file, error=why))
        self._beats = not why

    def _work(self) -> None:
        while not self._stopping:
            try:
                turn = self._next()
                if turn:
                    self._give(turn)
            except Exception:
                # A bug in acker-redis. If the turn is lost, the heartbeat stops after a while.
                log.exception("rotator: unexpected error in a worker thread, which continues")
                time.sleep(0.1)

    def _give(self, turn: Turn[Job]) -> None:
        """Make one call, and apply its result to the schedule."""
        wait: float | None = None
        failure: Exception | None = None
        try:
            wait = turn.job.ask()
        except Exception as error:
            failure = error
        said: list[Said] = []
        now = time.monotonic()
        with self._changed:
            if failure is None:
                try:
                    said += self._heard(turn.job, now)
                except Exception as error:
                    failure = error
            if failure is not None:
                said += self._failed(turn, failure, now)
            elif wait is None:
                self._schedule.more(turn, now)
            else:
                self._schedule.until(turn, now + wait)
        for level, event, cause in said:
            log.log(level, event, exc_info=cause)

    def _next(self) -> Turn[Job] | None:
        """Wait for a turn; return None when the service stops."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                turn = self._schedule.take(now)
                if turn:
                    # Another worker must wait for the next turn.
                    self._changed.notify()
                    return turn
                self._changed.wait(self._schedule.wait(now))
            return None

    def _heard(self, job: Job, now: float) -> list[Said]:
        """Apply the findings of a job; the caller holds the lock."""
        said: list[Said] = []
        if isinstance(job, NamesJob):
            for name in job.found:
                if name not in self._known:
                    home = Home(job.connection, name)
                    found = NamespaceJob(home, self._pace.follow_every, named=False)
                    self._known[name] = found
                    self._schedule.add(found, now)
        elif isinstance(job, NamespaceJob):
            said += self._follow(job, now)
        over = self._outages.well(job, now)
        return [(logging.INFO, over, None), *said] if over else said

    def _follow(self, job: NamespaceJob, now: float) -> list[Said]:
        """Schedule exactly the shards that a namespace has; the caller holds the lock."""
        wanted = {keys.shard: keys for keys in job.found or ()}
        before = len(job.jobs)
        for shard in [shard for shard in job.jobs if shard not in wanted]:
            gone = job.jobs.pop(shard)
            self._schedule.remove(gone)
            self._outages.well(gone, now)
        for shard, keys in wanted.items():
            if shard not in job.jobs:
                job.jobs[shard] = ShardJob(job.connection, keys, self._pace)
                self._schedule.add(job.jobs[shard], now)
        if wanted and job not in self._histories:
            self._histories[job] = HistoryJob(job.home)
            self._schedule.add(self._histories[job], now)
        elif not wanted and job in self._histories:
            past = self._histories.pop(job)
            self._schedule.remove(past)
            self._outages.well(past, now)
        if wanted:
            job.missed = False
            if len(wanted) != before:
                return [(logging.INFO, Event("rotates", **job.fields, shards=len(wanted)), None)]
        elif not job.named:
            del self._known[job.home.name]
            self._schedule.remove(job)
            if before:
                return [(logging.INFO, Event("is_gone", **job.fields), None)]
        elif not job.missed:
            job.missed = True
            advice = f"acker-redis create {job.home.name}"
            return [(logging.WARNING, Event("not_there", **job.fields, advice=advice), None)]
        return []

    def _failed(self, turn: Turn[Job], error: Exception, now: float) -> list[Said]:
        """Schedule the retry of a failed job, and log a new outage; the caller holds the lock."""
        job = turn.job
        away = isinstance(error, RedisUnavailableError)
        self._schedule.failed(turn, now, away)
        if isinstance(error, NamespaceNotFoundError):
            # The namespace may have been dropped: read its configuration at once.
            for other in self._schedule:
                if isinstance(other, NamespaceJob) and job in other.jobs.values():
                    self._schedule.hasten(other, now)
            if turn.failures == 1:
                return []
        if turn.gone:
            return []
        group = str(turn.place) if away else str(job.fields.get("namespace", turn.place))
        cause = None if isinstance(error, AckerError) else error
        event = self._outages.failed(job, group, now, **job.fields, error=_words(error))
        return [(logging.WARNING, event, cause)] if event else []


def _once(
    connection: Connection, namespaces: Sequence[str] | None, pace: Pace, stop: threading.Event
) -> int:
    wanted = (
        connection.drive(read_names()) if namespaces is None else list(dict.fromkeys(namespaces))
    )
    homes = [Home(connection, name) for name in wanted]
    done = rotate_once(homes, pace, stop=stop)
    write_once(homes, stop)
    failed = done.stopped
    for name, shard, error in done.errors:
        if namespaces is None and shard is None and isinstance(error, NamespaceNotFoundError):
            continue  # it is being created, or dropped
        failed = True
        fields = {"namespace": name} if shard is None else {"namespace": name, "shard": shard}
        cause = None if isinstance(error, AckerError) else error
        log.error(Event("cannot_rotate", **fields, error=_words(error)), exc_info=cause)
    return int(failed)


def _begin(name: str, target: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, AckerError) else repr(error)
