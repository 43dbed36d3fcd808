"""An advisory lock on a file: one stream reader per source in a Spark application.

A stream reader deletes the verdicts that it has read. Two readers of one source (the two sides of a
self-join, or two queries) would delete entries that the other reader has planned and not yet read.
Spark starts a process for each stream reader from the JVM of the driver, and ends the process with
the query. The lock ends with the process, even if it is killed. The lock does not see readers in
another application: such a reader finds that entries are missing, and raises DataLossError.
"""

import hashlib
import logging
import os
import tempfile
import time
from pathlib import Path

from acker_redis.errors import ConfigError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no such locks
    fcntl = None  # type: ignore[assignment]

WAIT_SECONDS = 30.0
"""Seconds for which a query that starts waits for a query that is being stopped."""
_POLL_SECONDS = 0.1

log = logging.getLogger(__name__)


class OneReader:
    """The lock of one source; :meth:`hold` takes it."""

    def __init__(
        self,
        url: str,
        namespace: str,
        source: str,
        wait: float = WAIT_SECONDS,
        folder: str = "",
        jvm: int | None = None,
    ) -> None:
        self._what = f"{source} of namespace {namespace}"
        self._name = hashlib.sha256(repr((url, namespace, source)).encode()).hexdigest()[:32]
        self._wait = wait
        self._folder = folder
        self._jvm = jvm
        self._held: int | None = None

    def hold(self) -> None:
        """Take the lock, unless this reader holds it; wait for a reader that is being stopped.

        Raises ConfigError if another reader holds the lock for longer than the wait. If the lock
        file cannot be opened, log a warning and lock nothing.
        """
        if self._held is not None or fcntl is None:
            return
        try:
            found = os.open(self._path(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            log.warning("a second reader of %s cannot be detected: %s", self._what, error)
            self._held = -1
            return
        end = time.monotonic() + self._wait
        while True:
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() >= end:
                    os.close(found)
                    raise ConfigError(
                        f"there are two readers of source {self._what} in this Spark application: "
                        "each would take verdicts of the other. A self-join has two readers, and "
                        "so have two queries. Read the stream once, and use it twice in one "
                        "foreachBatch"
                    ) from None
                time.sleep(_POLL_SECONDS)
            else:
                self._held = found
                return

    def release(self) -> None:
        """Release the lock for the next reader."""
        if self._held is not None and self._held >= 0:
            os.close(self._held)
        self._held = None

    def _path(self) -> Path:
        # The JVM is the parent process of all its readers. It removes the folder of
        # SPARK_LOCAL_DIRS when it ends: a reader that starts at that moment must not leave a
        # file anywhere else.
        given = self._folder or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        folder = Path(given or tempfile.gettempdir())
        return folder / f"acker-outcomes-{self._jvm or os.getppid()}-{self._name}.lock"
