"""One stream reader of a task in a Spark application, by an advisory lock on a file.

Reading a stream of verdicts takes them. Two readers, the two sides of a self-join or two queries,
take entries that the other one has planned and not read. Spark starts a process for each stream
reader from the driver's JVM, and ends it with the query: the lock ends with the process, however it
ends. Readers of another application are not seen; they find entries missing, see DataLossError.
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
"""How long a query that starts waits for one that is just being stopped."""
_POLL_SECONDS = 0.1

log = logging.getLogger(__name__)


class OneReader:
    """Lock of one task; nothing is held before :meth:`hold`."""

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
        """Take the lock, unless it is held already; wait for one who is just being stopped.

        Raises ConfigError if another reader holds it for longer than the wait. Without a folder
        that can be written nothing is locked, with a warning.
        """
        if self._held is not None or fcntl is None:
            return
        try:
            found = os.open(self._path(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            log.warning("nothing keeps a second reader of %s away: %s", self._what, error)
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
                        f"there are two readers of task {self._what} in this Spark application: "
                        "each would take verdicts of the other. Read the stream once, and use it "
                        "twice in one foreachBatch; a self-join has two readers, and so have two "
                        "queries"
                    ) from None
                time.sleep(_POLL_SECONDS)
            else:
                self._held = found
                return

    def release(self) -> None:
        """Let the next reader in."""
        if self._held is not None and self._held >= 0:
            os.close(self._held)
        self._held = None

    def _path(self) -> Path:
        # The JVM is the parent of all its readers, and removes the folder that it names.
        given = self._folder or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        folder = given if given and Path(given).is_dir() else tempfile.gettempdir()
        return Path(folder) / f"acker-outcomes-{self._jvm or os.getppid()}-{self._name}.lock"
