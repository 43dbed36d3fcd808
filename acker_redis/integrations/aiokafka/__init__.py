"""Kafka with asyncio: a consumer and a producer of ``aiokafka`` that track what they process.

It needs the extra ``aiokafka``. ``consumer.py`` processes and commits, ``producer.py``
emits. ``kafka_messages`` has the state of one message between the two.
"""

from acker_redis.errors import needs
from acker_redis.integrations.core.batches import Messages

with needs("aiokafka", "acker_redis.integrations.aiokafka"):
    from acker_redis.integrations.aiokafka.consumer import TrackedAsyncConsumer
    from acker_redis.integrations.aiokafka.producer import TrackedAsyncProducer

__all__ = ["Messages", "TrackedAsyncConsumer", "TrackedAsyncProducer"]
