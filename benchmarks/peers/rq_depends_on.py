"""rq: a tree is five jobs and a sixth that depends on them. Each job runs in a fork, the default.

rq also carries and executes the jobs, isolates them from each other, and keeps their results.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from program import (
    MESSAGES,
    Seen,
    connection,
    main,
    queue_loss,
    queue_speed,
    stuck_once,
)
from rq import Queue, Worker

JOBS: dict[int, Any] = {}


@cache
def queue(url: str) -> Queue:
    """Return the queue of jobs."""
    return Queue("default", connection=connection(url))


def message(url: str, tree: int, number: int) -> None:
    """Process a message."""
    stuck_once(url, tree, number)


def emit(url: str, tree: int, expected: int) -> None:
    """Emit a tree. Workers import the functions by the name of this module."""
    jobs = [
        queue(url).enqueue("rq_depends_on.message", url, tree, each) for each in range(MESSAGES)
    ]
    JOBS[tree] = [
        queue(url).enqueue("program.tree_is_done", url, tree, expected, depends_on=jobs),
        *jobs,
    ]


def ask(tree: int) -> Seen:
    """Return what a failed job of the tree says."""
    for job in JOBS[tree]:
        if job.get_status(refresh=True) == "failed":
            result = job.latest_result()
            return "error", str(result.exc_string if result else "failed").strip()[-200:]
    return None


def speed(url: str, trees: int) -> dict[str, float]:
    """Two workers."""
    return queue_speed(__file__, url, trees, lambda tree, n: emit(url, tree, n))


def pending(url: str, trees: int) -> None:
    """Emit trees that no worker takes."""
    for tree in range(trees):
        emit(url, tree, 0)


def lose(url: str, wait: int) -> dict[str, Any]:
    """Lose two messages."""
    name = "rq:queue:default"
    return queue_loss(__file__, url, wait, lambda tree, n: emit(url, tree, n), name, ask)


def work(url: str) -> None:
    """Run a worker."""
    Worker([queue(url)], connection=connection(url)).work(logging_level="ERROR")


if __name__ == "__main__":
    main({"speed": speed, "pending": pending, "lose": lose, "work": work})
