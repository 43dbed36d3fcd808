"""acker-redis: Apache Storm's acker as a service on Redis.

A source tracks a record under a random *anchor*. All messages that follow from the record form
the anchor's *tuple tree*. A bolt that processes a message of the tree acks it and names the
messages it caused. When all messages are acked, the source receives the verdict ``ack``. If one
fails, or the timeout passes first, the source receives ``nack``.
"""

from acker_redis.lazy import public

# On first use, so that ``acker-redis --help`` imports no redis-py.
__all__, __getattr__ = public(__name__)


def __dir__() -> list[str]:
    return __all__
