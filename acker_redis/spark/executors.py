"""A check that the Python of the executors has the packages that a batch may need there.

With ``mode="auto"`` tasks need them only when a batch is large. Without the check a query would run
for weeks, and stop at its peak.
"""

import importlib
import logging
import socket
import sys
import weakref

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import ConfigError
from acker_redis.spark.queries import context_of, described, is_local

log = logging.getLogger(__name__)

_MODULE = "acker_redis.spark.fold.apply"
"""The module that tasks import, and with it all packages that they need."""
_checked: "weakref.WeakSet[object]" = weakref.WeakSet()


def check_packages(spark: SparkSession) -> None:
    """Raise ConfigError if an executor lacks a package; one task, once in a Spark application.

    A no-op where tasks use the packages of the driver, ``local[n]``. The task runs on any executor:
    the check assumes that all of them have the same packages.
    """
    context = context_of(spark)
    if context in _checked:
        return
    if is_local(spark):
        _checked.add(context)
        return

    # Pickled by value, because it is no attribute of a module: the executor may lack this package.
    def missing(name: str) -> str:
        try:
            importlib.import_module(name)
        except ImportError as error:
            return f"{sys.executable} on {socket.gethostname()}: {error}"
        return ""

    # Without Arrow, which may be missing, too.
    probe = F.udf(missing, "string", useArrow=False)
    try:
        with described(spark, "acker: packages of the executors"):
            rows = spark.range(0, 1, 1, 1).select(probe(F.lit(_MODULE)).alias("words")).collect()
    except Exception as error:
        log.warning("whether the executors have acker-redis could not be checked: %s", error)
        rows = []
    if words := rows and rows[0]["words"]:
        raise ConfigError(
            f"the executors lack a package that batches of more than a million messages need: "
            f"{words}. Install acker-redis with its extra 'spark' in that Python, or set "
            "PYSPARK_PYTHON, in the environment before the session starts, to a Python that has "
            "it; or use mode='driver', for which the executors need no package"
        )
    _checked.add(context)
