"""The rotator as a service: some threads that give the shards of all namespaces their turns.

``schedule.py`` says whose turn it is, ``flows/drain.py`` what to send; here are the threads, and
what is written to the log. What they share is changed under one lock, which nobody holds during a
call.

What is noticed, and when: a tick when it is due, or later by a twentieth of the time until then
(at most 0.25 s), so that not all rotators ask at once; a clock that was moved, or a shorter
``tick_ms``, within 10 s; another number of shards, a namespace that is new or gone, within 5 s.
Whatever goes wrong, a rotator goes on.
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
from acker_redis.flows.names import names
from acker_redis.logs import Event
from acker_redis.protocol.keys import check_name
from acker_redis.rotator import heartbeat
from acker_redis.rotator.jobs import (
    Home,
    Job,
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
"""Threads, and calls under way; at one server at most half as many."""
HANGS_AFTER = 20.0
"""Seconds by which a turn may be late, or last, before the heartbeat stops."""
_BEAT_EVERY = 1.0

Said = tuple[int, Event, Exception | None]
"""What is to be logged when the lock is free: level, event, and an error with its traceback."""


def serve(
    client: Any,
    namespaces: Sequence[str] | None,
    *,
    stop: threading.Event,
    once: bool = False,
    heartbeat_file: Path | None = None,
    pace: Pace | None = None,
) -> int:
    """Rotate until ``stop`` is set, or, with ``once``, each shard once; the exit code.

    ``client`` is one of redis-py, as :func:`acker_redis.transport.connect.connect` makes it; all
    threads share it. ``namespaces`` None are all there are, at any time. A namespace that is named
    and not there is waited for; with ``once`` it has failed. When ``stop`` is set, calls in hand
    are finished, which takes as long as the client's timeouts at most. A signal's handler may set
    it.

    0 is all that a service returns. With ``once`` it is 1 if a shard failed or ``stop`` came first.
    Raises ConfigError for a name that cannot be.
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
    """Rotates namespaces that are named (``homes``), and with ``every`` all of that Redis."""

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
        """Namespaces that were found, by name."""
        self._beats = True
        now = time.monotonic()
        for home in homes:
            self._schedule.add(NamespaceJob(home, self._pace.follow_every, named=True), now)
        if every:
            self._schedule.add(NamesJob(every, self._pace.follow_every), now)

    def run(self, stop: threading.Event) -> None:
        """Rotate until ``stop`` is set, finish the calls in hand, and return."""
        # The thread that gets the signals may not wait for what their handler sets: it would wait
        # for a lock that it holds.
        watch = _begin("acker-rotator-watch", self._watch, stop)
        workers: list[threading.Thread] = []
        try:
            workers.extend(_begin("acker-rotator-worker", self._work) for _ in range(WORKERS))
        except RuntimeError as error:  # no more threads are to be had
            if not workers:
                self._leave()
                raise
            log.warning(Event("few_threads", workers=len(workers), error=error))
        for thread in (watch, *workers):
            # Not for ever: a signal that the system gives to another thread does not end a join.
            while thread.is_alive():
                thread.join(1.0)

    def _watch(self, stop: threading.Event) -> None:
        """Beat until it is time to leave."""
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
                behind = self._schedule.behind(time.monotonic())
            if behind > HANGS_AFTER:
                why = f"a turn is {behind:.0f} s late"
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
                # A bug of ours. The turn may be lost, and then the heartbeat stops in a while.
                log.exception("a rotator's thread met what it should not; it goes on")
                time.sleep(0.1)

    def _give(self, turn: Turn[Job]) -> None:
        """Make one call, and take over what came of it."""
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
        """Wait for a turn; None when it is time to leave."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                turn = self._schedule.take(now)
                if turn:
                    # Somebody else has to watch for the next one.
                    self._changed.notify()
                    return turn
                self._changed.wait(self._schedule.wait(now))
            return None

    def _heard(self, job: Job, now: float) -> list[Said]:
        """Take over what a job has found; with the lock."""
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
        """Give the shards that a namespace has their turns, and no others; with the lock."""
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
        """Have a job wait that failed, and say so if it is news; with the lock."""
        job = turn.job
        away = isinstance(error, RedisUnavailableError)
        self._schedule.failed(turn, now, away)
        if isinstance(error, NamespaceNotFoundError):
            # It may have been dropped just now; whoever reads the configuration finds out.
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
    wanted = connection.drive(names()) if namespaces is None else list(dict.fromkeys(namespaces))
    done = rotate_once([Home(connection, name) for name in wanted], pace, stop=stop)
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
