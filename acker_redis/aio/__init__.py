"""The clients for asyncio: the same names as in ``acker_redis`` with the prefix Async.

It may import ``transport`` and the wings below, and never ``sync``. Begin with ``client.py``
(AsyncAcker), ``source.py`` and ``bolt.py``. ``connection.py`` runs the flows.
"""

from acker_redis.aio.bolt import AsyncBolt, AsyncHandle
from acker_redis.aio.bolt_batch import AsyncBatchHandle
from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.outcomes import AsyncOutcomes
from acker_redis.aio.producer import AsyncProducer
from acker_redis.aio.source import AsyncSource

__all__ = [
    "AsyncAcker",
    "AsyncBatchHandle",
    "AsyncBolt",
    "AsyncHandle",
    "AsyncOutcomes",
    "AsyncProducer",
    "AsyncSource",
]
