"""A Celery app for tests; ``python -m tests.integrations.celery URL NAMESPACE FILE`` is its worker.

Each task writes a line ``<anchor> <step>`` to the file before it returns. The name of the namespace
is the name of the queue, too.
"""

import functools
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import Celery, chord, group
from celery.exceptions import Ignore, Reject, Retry

from acker_redis import Acker
from acker_redis.integrations.celery import TaskTracker, tracker
from tests.waiting import LIMIT

ROOT = Path(__file__).parents[2]


def make(
    url: str, namespace: str, file: str | Path, acker_url: str = "", **conf: Any
) -> tuple[Celery, TaskTracker]:
    """Return a new app with its tracker, and without a worker.

    An acker with a URL of its own has no patience.
    """
    app = Celery(namespace, broker=url, set_as_current=False)
    app.conf.update(
        result_backend=conf.pop("result_backend", url),
        task_default_queue=namespace,
        result_backend_transport_options={
            "global_keyprefix": namespace,
            # A result that is collected after its server has stopped would wait for it 20 times.
            "retry_policy": {"max_retries": 2, "interval_start": 0, "interval_max": 0.1},
        },
        broker_connection_retry_on_startup=True,
        worker_prefetch_multiplier=4,
        **conf,
    )
    patience = 0.0 if acker_url else 10.0
    acker = Acker.from_url(acker_url or url, namespace, timeout=60, retry_for=patience)
    tracking = TaskTracker(app, acker)
    add_tasks(app, tracking, Path(file))
    return app, tracking


def add_tasks(app: Celery, tracking: TaskTracker, file: Path) -> None:
    """Define the tasks."""

    def did(step: str) -> None:
        (ids,) = tracking.current.processing.inputs
        with file.open("a") as out:
            out.write(f"{next(iter(ids), 'untracked')} {step}\n")

    # Not shared: otherwise another app of this process would get these functions, too.
    task = functools.partial(app.task, shared=False)

    @task(name="step")
    def step(*args: Any) -> Any:
        did(f"step {args[-1]}")
        return args[-1]

    @task(name="price")
    def price(name: str) -> None:
        if name == "poison":
            raise ValueError("no such address")
        did("priced")
        chord([part.s(n) for n in range(2)], app=app)(ship.s())

    @task(name="part")
    def part(number: int) -> float:
        did(f"part {number}")
        return time.time()  # another result at a second delivery

    @task(name="ship")
    def ship(parts: list[float]) -> None:
        did("shipped")

    @task(name="flaky", bind=True)
    def flaky(self: Any, failures: int) -> None:
        if self.request.retries < failures:
            error = ConnectionError(f"try {self.request.retries}")
            raise self.retry(exc=error, countdown=0, max_retries=2)
        did("flaky")

    @task(name="broken")
    def broken(*args: Any) -> None:
        raise ValueError("no such address")

    @task(name="spread")
    def spread(count: int) -> None:
        group([step.s(n) for n in range(count)], app=app).delay()
        did("spread")

    @task(name="replaced", bind=True)
    def replaced(self: Any) -> None:
        raise self.replace(step.s("instead"))

    @task(name="ignored")
    def ignored() -> None:
        raise Ignore

    @task(name="wilful")
    def wilful() -> None:
        raise Retry("by hand")  # it publishes nothing

    @task(name="later", ignore_result=True)
    async def later() -> None:
        """Never awaited: Celery has no coroutines."""

    @task(name="generated", ignore_result=True)
    def generated() -> Any:
        yield

    @task(name="rejected")
    def rejected() -> None:
        raise Reject("no room", requeue=False)

    @task(name="killed")
    def killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @task(name="slow", time_limit=1)
    def slow() -> None:
        time.sleep(600)

    @task(name="unpublished", bind=True)
    def unpublished(self: Any) -> None:
        # The next task of the chain cannot be published: JSON has no such value.
        self.request.chain[-1]["kwargs"]["it"] = object()

    @task(name="miscounted", bind=True)
    def miscounted(self: Any) -> None:
        # The chord of this task loses its counter, so that its body is never published.
        app.backend.client.delete(app.backend.get_key_for_group(self.request.group, ".s"))
        did("miscounted")

    @task(name="settled")
    def settled() -> None:
        tracking.current.reset_timeout()
        tracking.current.fail("no such address")


def start(url: str, namespace: str, file: str | Path, *options: str) -> Any:
    """Start a worker with two pool processes as a new process group."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}
    command = [sys.executable, "-m", __spec__.name, url, namespace, str(file), *options]
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def stop(process: Any) -> None:
    """End a worker after its running tasks, and then all that is left of it."""
    process.terminate()
    try:
        # A pool process of billiard may wait for 30 s: its worker has not read all its results.
        process.wait(LIMIT)
    finally:
        kill(process)


def kill(process: Any) -> None:
    """Kill a worker and its pool processes with SIGKILL, as one process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def pool(process: Any) -> list[int]:
    """Return the ids of the pool processes of a worker."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(each) for each in children.split()]


def main(url: str, namespace: str, file: str, *options: str) -> None:
    """Run the worker.

    The option ``late`` sets ``task_acks_late``. With ``lingering`` rows wait for a minute. With
    ``recycled`` a pool process ends after each task. A URL is the result backend, and one after
    ``acker=`` that of the acker.
    """
    conf: dict[str, Any] = {"broker_transport_options": {"visibility_timeout": 2}}
    for option in options:
        late = {"task_acks_late": True, "task_reject_on_worker_lost": True}
        if option == "lingering":
            tracker.LINGER = 60.0
        elif option == "recycled":
            conf["worker_max_tasks_per_child"] = 1
        elif option.startswith("acker="):
            conf["acker_url"] = option.removeprefix("acker=")
        else:
            conf |= late if option == "late" else {"result_backend": option}
    app, _ = make(url, namespace, file, **conf)
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=CRITICAL"]
    app.worker_main(["worker", "--concurrency=2", *quiet])


if __name__ == "__main__":
    main(*sys.argv[1:])
