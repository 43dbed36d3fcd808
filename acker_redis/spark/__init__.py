"""Spark Structured Streaming: track, ack and fail the records of streaming queries, across jobs.

It needs the extra ``spark``. This wing may import ``sync`` and the wings below it. Begin
with ``micro_batch.py``, the terms of one batch. The folder ``fold`` turns these terms into calls,
and ``streams`` has the data sources and sinks. See docs/how-to/write-a-spark-job.md.
"""

from functools import partial

from acker_redis.errors import needs
from acker_redis.lazy import public

# On first use: Spark starts many processes that need little of it.
__all__, __getattr__ = public(__name__, partial(needs, "spark", __name__, pyspark="spark-local"))


def __dir__() -> list[str]:
    return __all__
