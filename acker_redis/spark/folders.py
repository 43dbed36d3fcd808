"""Folders on the file system of a Spark session: their age, and their deletion.

The driver's JVM reaches every file system of Hadoop. With Spark Connect there is no JVM in this
process, so only folders of this machine are listed and deleted.
"""

import contextlib
import functools
import itertools
import logging
import operator
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
_MARK = "_began"


def local_path(folder: str) -> Path | None:
    """Return the path of a folder on this machine; None for another file system.

    >>> local_path("file:/data/q%20x"), local_path("s3a://bucket/q")
    (PosixPath('/data/q x'), None)
    """
    found = urlsplit(folder)
    if found.scheme == "file":
        return Path(unquote(found.path))
    return None if found.scheme else Path(folder)


def mark(spark: SparkSession, folder: str) -> None:
    """Make a folder with a hidden mark; a no-op with Spark Connect."""
    if reached := _hadoop(spark, f"{folder}/{_MARK}"):
        fs, path_of = reached
        if fs.getUri().getScheme() == "file":
            # Hadoop starts a process for the rights of each folder.
            rights = _class_of(spark.sparkContext._jvm, "permission.FsPermission")
            mode = 0o777 & ~rights.getUMask(fs.getConf()).toShort()
            _make(Path(fs.makeQualified(path_of).toUri().getPath()), mode)
        else:
            fs.mkdirs(path_of)


def unmark(spark: SparkSession, folder: str) -> bool:
    """Delete the mark; return False if it was deleted before. True with Spark Connect."""
    if reached := _hadoop(spark, f"{folder}/{_MARK}"):
        fs, path_of = reached
        return bool(fs.delete(path_of, True))
    return True


def aged(spark: SparkSession, folder: str, new: str) -> Iterator[tuple[str, int]]:
    """Yield the folders in a folder, with their age in ms by the clock of the file system.

    ``new`` is the name of one that was made now. Without it, none is yielded.
    """
    reached = _hadoop(spark, folder)
    if reached is None:
        path = local_path(folder)
        if path is None or not path.is_dir():
            return
        found = [
            (str(each), each.name, int(1000 * each.stat().st_mtime)) for each in path.iterdir()
        ]
    else:
        fs, path_of = reached
        try:
            found = [
                (each.getPath().toString(), each.getPath().getName(), each.getModificationTime())
                for each in fs.listStatus(path_of)
                if each.isDirectory()
            ]
        except Exception:  # not written to yet, or a right is missing: nothing to delete
            return
    # Not the youngest one: a machine with a wrong clock may have made a folder of the future.
    for now in (ms for _, name, ms in found if name == new):
        yield from ((each, now - ms) for each, _, ms in found)


def delete(spark: SparkSession, folder: str) -> None:
    """Delete a folder and its content, if it exists; log a warning if that fails."""
    try:
        reached = _hadoop(spark, folder)
        if reached is not None:
            fs, path_of = reached
            fs.delete(path_of, True)
        elif path := local_path(folder):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)
    except Exception as error:
        log.warning("the staging folder %s was not deleted: %s", folder, error)


def _make(folder: Path, mode: int) -> None:
    """Make a folder and its parents, with these rights for any umask of this process."""
    places = (folder, *folder.parents)
    for each in reversed([*itertools.takewhile(lambda place: not place.exists(), places)]):
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode)
            each.chmod(mode)


def _hadoop(spark: SparkSession, folder: str) -> tuple[Any, Any] | None:
    """Return the Hadoop file system and path of a folder; None without a JVM."""
    try:
        context = spark.sparkContext
    except Exception:  # Spark Connect
        return None
    path = _class_of(context._jvm, "Path")(folder)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path


@functools.lru_cache(maxsize=2)
def _class_of(jvm: Any, name: str) -> Any:
    return operator.attrgetter(f"org.apache.hadoop.fs.{name}")(jvm)  # five calls of the JVM
