"""Celery: a tree is a chord of five tasks; its callback is the verdict. Defaults, Redis as broker.

Celery also carries and executes the messages, stores their results and retries on request.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from celery import Celery, chord
from program import (
    MESSAGES,
    Seen,
    main,
    queue_loss,
    queue_speed,
    stuck_once,
    tree_is_done,
)

CALLBACKS: dict[int, Any] = {}


@cache
def app(url: str) -> Celery:
    """Return the app; its broker and its results are in the same Redis."""
    made = Celery("peers", broker=url, backend=url)
    made.conf.update(broker_connection_retry_on_startup=True)

    @made.task(name="message")
    def message(tree: int, number: int) -> int:
        stuck_once(url, tree, number)
        return number

    @made.task(name="done")
    def done(_: list[int], tree: int, expected: int) -> None:
        tree_is_done(url, tree, expected)

    return made


def emit(url: str, tree: int, expected: int) -> None:
    """Emit a tree."""
    tasks = app(url).tasks
    header = [tasks["message"].s(tree, number) for number in range(MESSAGES)]
    CALLBACKS[tree] = chord(header)(tasks["done"].s(tree, expected))


def ask(tree: int) -> Seen:
    """Return what the result of the callback says."""
    result = CALLBACKS[tree]
    return ("error", str(result.result)) if result.state == "FAILURE" else None


def speed(url: str, trees: int) -> dict[str, float]:
    """One worker with two pool processes."""
    return queue_speed(__file__, url, trees, lambda tree, n: emit(url, tree, n), count=1)


def pending(url: str, trees: int) -> None:
    """Emit trees that no worker takes."""
    for tree in range(trees):
        emit(url, tree, 0)


def lose(url: str, wait: int) -> dict[str, Any]:
    """Lose two messages."""
    return queue_loss(__file__, url, wait, lambda tree, n: emit(url, tree, n), "celery", ask)


def work(url: str) -> None:
    """Run a worker."""
    app(url).worker_main(["worker", "--concurrency=2", "--loglevel=ERROR"])


if __name__ == "__main__":
    main({"speed": speed, "pending": pending, "lose": lose, "work": work})
