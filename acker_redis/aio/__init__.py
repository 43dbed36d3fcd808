"""The asyncio twins: the same names with Async before them, the same methods, to be awaited."""

from acker_redis.aio.bolt import AsyncBolt, AsyncHandle
from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.outcomes import AsyncOutcomes
from acker_redis.aio.producer import AsyncProducer
from acker_redis.aio.source import AsyncSource

__all__ = [
    "AsyncAcker",
    "AsyncBolt",
    "AsyncHandle",
    "AsyncOutcomes",
    "AsyncProducer",
    "AsyncSource",
]
