"""dramatiq: a tree is a group of five messages with a completion callback. Redis as broker.

dramatiq also carries and executes the messages, and retries those that raise.
"""

from __future__ import annotations

import signal
import threading
from functools import cache
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits.backends import RedisBackend
from program import (
    MESSAGES,
    Seen,
    connection,
    main,
    queue_loss,
    queue_speed,
    stuck_once,
    tree_is_done,
)


@cache
def broker(url: str) -> RedisBroker:
    """Return the broker with its two actors."""
    made = RedisBroker(url=url)
    made.add_middleware(GroupCallbacks(RedisBackend(client=connection(url))))
    dramatiq.set_broker(made)

    @dramatiq.actor(broker=made, actor_name="message")
    def message(tree: int, number: int) -> None:
        stuck_once(url, tree, number)

    @dramatiq.actor(broker=made, actor_name="done")
    def done(tree: int, expected: int) -> None:
        tree_is_done(url, tree, expected)

    return made


def emit(url: str, tree: int, expected: int) -> None:
    """Emit a tree."""
    made = broker(url)
    message, done = (made.get_actor(name) for name in ("message", "done"))
    group = dramatiq.group(message.message(tree, each) for each in range(MESSAGES))
    group.add_completion_callback(done.message(tree, expected))
    group.run()


def ask(tree: int) -> Seen:
    """Return nothing: without results, only the callback says something of a group."""
    return None


def speed(url: str, trees: int) -> dict[str, float]:
    """Two worker processes of eight threads."""
    return queue_speed(__file__, url, trees, lambda tree, n: emit(url, tree, n))


def pending(url: str, trees: int) -> None:
    """Emit trees that no worker takes."""
    for tree in range(trees):
        emit(url, tree, 0)


def lose(url: str, wait: int) -> dict[str, Any]:
    """Lose two messages."""
    queue = "dramatiq:default"
    return queue_loss(__file__, url, wait, lambda tree, n: emit(url, tree, n), queue, ask)


def work(url: str) -> None:
    """Run a worker until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    worker = dramatiq.Worker(broker(url), worker_threads=8)
    worker.start()
    ended.wait()
    worker.stop(timeout=1000)


if __name__ == "__main__":
    main({"speed": speed, "pending": pending, "lose": lose, "work": work})
