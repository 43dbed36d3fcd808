"""Kafka: a consumer and a producer of ``confluent-kafka`` that track what they process.

It needs the extra ``kafka``. ``consumer.py`` processes and commits, ``producer.py`` emits.
``messages.py`` reads what the library returns.
``kafka_messages`` has the state of one message between the two.
"""

from acker_redis.errors import needs
from acker_redis.integrations.core.batches import Messages

with needs("kafka", "acker_redis.integrations.kafka"):
    from acker_redis.integrations.kafka.consumer import TrackedConsumer
    from acker_redis.integrations.kafka.producer import TrackedProducer

__all__ = ["Messages", "TrackedConsumer", "TrackedProducer"]
