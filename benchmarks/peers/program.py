"""What each peer's program shares: its verbs on the command line, and how it runs its workers.

A program is run as ``PEER.py VERB [ARGUMENT]``, in a separate process and environment. The URL of
the server contains a password, so it is in the environment: ``BENCH_URL``.

- ``speed N``: complete N trees of five messages; print ``{"seconds": ...}``.
- ``pending N``: emit the messages of N trees and process none.
- ``lose S``: lose a message of two trees; print the observations of S seconds.
- ``work``: process messages until SIGTERM (task queues only).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis

MESSAGES = 5
"""Messages of a tree."""
WORKERS = 2
"""Worker processes of a task queue."""
DONE, FINISHED, BEGUN, LOSE = "bench:done", "bench:finished", "bench:begun", "bench:lose"
Verb = Callable[..., Mapping[str, Any] | None]
Seen = tuple[str, str] | None
"""A kind of :data:`KINDS` and the words of the peer, or None: nothing yet."""
KINDS = ("nothing", "redelivered", "error", "name")


def main(verbs: Mapping[str, Verb]) -> None:
    """Run the verb of the command line and print its result as JSON."""
    verb, *rest = sys.argv[1:]
    url = os.environ["BENCH_URL"]
    if verb != "work":
        # The workers that the program started end with it.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    found = verbs[verb](url, *(int(each) for each in rest))
    if found is not None:
        print(json.dumps(found), flush=True)


def tree_is_done(url: str, tree: int, expected: int) -> None:
    """Count a completed tree; report when it was the last one. Called by the workers."""
    client = connection(url)
    client.set(f"{DONE}:{tree}", 1)
    if client.incr(DONE) == expected:
        client.rpush(FINISHED, 1)


_CONNECTIONS: dict[tuple[int, str], redis.Redis] = {}


def connection(url: str) -> redis.Redis:
    """Return the client of this process for a URL; a child after a fork gets its own."""
    key = (os.getpid(), url)
    if key not in _CONNECTIONS:
        _CONNECTIONS[key] = redis.Redis.from_url(url)
    return _CONNECTIONS[key]


def stuck_once(url: str, tree: int, message: int) -> None:
    """Never return for the first message of tree 0 in its first attempt, so that it can be lost.

    Only :func:`queue_loss` asks for this.
    """
    if tree or message:
        return
    client = connection(url)
    if client.get(LOSE) and client.incr(BEGUN) == 1:
        time.sleep(3600)


def start_worker(program: str, url: str) -> subprocess.Popen[bytes]:
    """Start one worker in a separate process group."""
    quiet = subprocess.DEVNULL
    command, environment = [sys.executable, program, "work"], {**os.environ, "BENCH_URL": url}
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=quiet, stderr=quiet
    )


def end_worker(worker: subprocess.Popen[bytes], how: int = signal.SIGTERM) -> None:
    """Signal the process group of this worker and wait; kill the group after ten seconds."""
    for signum in (how, signal.SIGKILL):
        try:
            os.killpg(worker.pid, signum)
        except ProcessLookupError:
            break
        try:
            worker.wait(10)
        except subprocess.TimeoutExpired:
            continue
    worker.wait()


@contextmanager
def workers(program: str, url: str, count: int) -> Iterator[None]:
    """Run workers during the block."""
    running = [start_worker(program, url) for _ in range(count)]
    try:
        yield
    finally:
        for worker in running:
            end_worker(worker)


def queue_speed(
    program: str, url: str, trees: int, emit: Callable[[int, int], object], count: int = WORKERS
) -> dict[str, float]:
    """Return the seconds from the first message emitted until the last tree was reported done.

    The workers run before the clock starts: a first tree has gone through each of them.
    """
    client = redis.Redis.from_url(url, socket_timeout=600)
    with workers(program, url, count):
        warm = 4 * count
        for tree in range(warm):
            emit(tree, warm)
        if client.blpop([FINISHED], timeout=60) is None:
            raise TimeoutError("the first trees were not completed within 60 s")
        client.delete(DONE)
        begin_counting(client)
        began = time.perf_counter()
        for tree in range(trees):
            emit(tree, trees)
        if client.blpop([FINISHED], timeout=300) is None:
            raise TimeoutError(f"{trees} trees were not completed within 300 s")
        return {"seconds": time.perf_counter() - began, **commands(client)}


def begin_counting(client: redis.Redis) -> None:
    """Reset commandstats, and mark the place for MONITOR, which does not show CONFIG."""
    client.config_resetstat()
    client.echo("bench:begin")


def commands(client: redis.Redis) -> dict[str, float]:
    """Return the commands that the server executed since the last CONFIG RESETSTAT.

    Commands that a script calls are counted as well, each as one.
    """
    client.echo("bench:end")
    counts: Any = client.info("commandstats")
    return {"commands": sum(each["calls"] for each in counts.values())}


def queue_loss(
    program: str,
    url: str,
    wait: int,
    emit: Callable[[int, int], object],
    queue: str,
    ask: Callable[[int], Seen],
) -> dict[str, Any]:
    """Lose a message of tree 0 by killing its worker, and one of tree 1 by popping the queue.

    Another worker starts right after the kill. Return the observations of each tree within ``wait``
    seconds: the kind, the words of the peer, and after how many seconds.
    """
    client = redis.Redis.from_url(url)
    client.set(LOSE, 1)
    emit(1, 0)
    if client.lpop(queue) is None:
        raise LookupError(f"the queue {queue} is empty: no message to lose")
    emit(0, 0)
    doomed = start_worker(program, url)
    try:
        limit = time.monotonic() + 60
        while not client.get(BEGUN):
            if time.monotonic() > limit:
                raise TimeoutError("no worker took a message within 60 s")
            time.sleep(0.05)
    finally:
        end_worker(doomed, signal.SIGKILL)
    with workers(program, url, 1):
        return watch(client, {"killed": 0, "dropped": 1}, wait, ask)


def watch(
    client: redis.Redis, trees: Mapping[str, int], wait: int, ask: Callable[[int], Seen]
) -> dict[str, Any]:
    """Return the observations of each tree, at the latest after ``wait`` seconds."""
    began, found = time.monotonic(), {}
    while len(found) < len(trees) and time.monotonic() < began + wait:
        for how, tree in trees.items():
            if how in found:
                continue
            seen = ask(tree)
            if client.get(f"{DONE}:{tree}"):
                seen = ("redelivered", "the tree is complete")
            if seen:
                after = round(time.monotonic() - began, 1)
                found[how] = {"kind": seen[0], "words": seen[1], "after_s": after}
        time.sleep(0.2)
    nothing = {"kind": "nothing", "words": "", "after_s": wait}
    return {how: found.get(how, nothing) for how in trees}
