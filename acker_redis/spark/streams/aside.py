"""A batch of a :class:`FileQueue` in a hidden folder, until it is published by a rename.

A killed write leaves a folder ``_writing-..`` or ``_replaced-..``, which readers ignore. The next
write of the same machine removes it, unless another write runs: running writes share the lock of
the file ``_lock`` (``flock``), which the kernel releases for a process that is killed. Folders of
other machines are removed after a day by the clock of the file system, because many network file
systems do not share locks.
"""

import contextlib
import fcntl
import os
import platform
import re
import shutil
import uuid
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO

from pyspark.sql import DataFrame

from acker_redis.errors import DataLossError
from acker_redis.spark.staging import Staged, written

_ABANDONED_SECONDS = 24 * 3600.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Aside:
    """The rows of a batch in a hidden folder of a queue; :meth:`publish` shows them to readers.

    It shares the lock of all writes until :meth:`delete`, which a ``with`` block calls.
    """

    def __init__(self, df: DataFrame, done: Path) -> None:
        self._done = done
        # Spark's file sources ignore names with a leading underscore. Each writer has its own
        # folder: a batch that another driver has partially written must not get the final name.
        name = f"{done.name.removeprefix('batch-')}-{uuid.uuid4().hex}-{_machine()}"
        self._folder = done.parent / f"_writing-{name}"
        # Spark warns of a path that it reads by name and that begins with an underscore.
        self._rows = self._folder / "rows"
        self._lock = _shared(done.parent)
        try:
            self.staged: Staged = written(df, str(self._rows))
            """The rows. After :meth:`publish`, the files have another place."""
        except BaseException:
            self.delete()
            raise
        self.rows = self.staged.df
        """What the caller of the batch got of them."""

    def publish(self, replace: bool = False) -> bool:
        """Show the rows to readers; return False, and show nothing, if the queue has the batch.

        With ``replace``, the rows take the place of the batch that the queue has. If the process
        dies between the two steps, the queue has neither until the batch runs again. Raises OSError
        if another driver writes the batch at the same moment.
        """
        if not replace:
            try:
                self._rows.rename(self._done)
            except OSError:
                if not holds(self._done):
                    raise
                return False
            return True
        # Renamed before it is deleted: otherwise a reader could see a part of the batch.
        old = self._folder.with_name(f"_replaced-{self._folder.name}")
        with contextlib.suppress(FileNotFoundError):
            self._done.rename(old)
        self._rows.rename(self._done)
        shutil.rmtree(old, ignore_errors=True)
        return True

    def delete(self) -> None:
        """Delete the folder, with its rows unless they were published; release the lock."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> "Aside":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.delete()


def holds(done: Path) -> bool:
    """Return whether a queue has the batch of this folder.

    Raises DataLossError if the files of the batch were deleted without their folder.
    """
    # A batch without rows has a file, too.
    if done.exists() and not any(done.glob("*.parquet")):
        raise DataLossError(
            f"{done} has no Parquet file: the files of this batch were deleted without their "
            "folder, so its rows are missing. Delete the folder to write the batch again; to "
            "delete old data, delete whole folders"
        )
    return done.exists()


def _shared(queue: Path) -> IO[str]:
    """Share the lock of all writes; first remove leftovers if no other write has the lock."""
    file = (queue / "_lock").open("a")
    if _locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
        os.utime(file.fileno())
        now = os.fstat(file.fileno()).st_mtime
        for folder in [*queue.glob("_writing-*"), *queue.glob("_replaced-*")]:
            if _is_left(folder, now):
                shutil.rmtree(folder, ignore_errors=True)
    _locked(file, fcntl.LOCK_SH)
    return file


def _is_left(folder: Path, now: float) -> bool:
    """Return whether a killed write left this folder, if no other write has the lock.

    ``now`` is the time of the file system, in seconds.
    """
    aside = folder.name.removeprefix("_replaced-")
    batch = f"batch-{aside.removeprefix('_writing-').rsplit('-', 2)[0]}"
    if aside != folder.name and not (folder.parent / batch).exists():
        return False  # these may be the only rows of the batch
    if aside.endswith(f"-{_machine()}"):
        return True
    with contextlib.suppress(FileNotFoundError):
        return now - folder.stat().st_mtime > _ABANDONED_SECONDS
    return False


@cache
def _machine() -> str:
    """Return letters and digits that name the running kernel: its processes share all locks."""
    try:
        name = _BOOT_ID.read_text()
    except OSError:
        name = platform.node()  # not on Linux
    return re.sub(r"[^A-Za-z0-9]", "", name) or "unknown"


def _locked(file: IO[str], how: int) -> bool:
    """Return whether this process has the lock now; never, on a file system without locks."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, how)
        return True
    return False
