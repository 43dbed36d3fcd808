"""RabbitMQ: a channel of ``pika`` that tracks what its consumers process and publish.

It needs the extra ``rabbitmq``. ``channel.py`` consumes and publishes, ``deliveries.py`` is
the state of one message between the two, ``settling.py`` sends the results to Redis and the broker,
``headers.py`` reads and writes ids, ``sender.py`` publishes the first messages of a source.
"""

from acker_redis.errors import needs

with needs("rabbitmq", "acker_redis.integrations.rabbitmq"):
    from acker_redis.integrations.rabbitmq.channel import TrackedChannel
    from acker_redis.integrations.rabbitmq.sender import RabbitSender

__all__ = ["RabbitSender", "TrackedChannel"]
