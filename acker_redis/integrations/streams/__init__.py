"""Redis Streams: a work queue that tracks what its workers do.

It needs no further library. ``worker.py`` processes the entries of a consumer group: ``reading.py``
gets them. ``sender.py`` sends the records of a source. ``group.py`` has the commands of a group,
``entries.py`` makes entries with ids.
"""

from acker_redis.integrations.core.batches import Messages
from acker_redis.integrations.streams.sender import StreamSender
from acker_redis.integrations.streams.worker import StreamWorker

__all__ = ["Messages", "StreamSender", "StreamWorker"]
