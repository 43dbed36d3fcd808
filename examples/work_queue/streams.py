"""A Redis stream as a work queue: each entry goes to one worker, or to another if that one dies.

Delivery is at least once: a worker may die after its work and before its ack. The second delivery
has the same message id.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import redis

from acker_redis import MessageId

GROUP = "workers"
IDLE_MS = 1_500
"""Milliseconds after which an unfinished entry goes to another worker."""


class Entry:
    """An entry that was read from a queue."""

    def __init__(self, key: bytes, fields: Mapping[bytes, bytes]) -> None:
        self.key = key
        self.message = MessageId.from_headers(fields)
        self._fields = fields

    def __getitem__(self, name: str) -> bytes:
        return self._fields[name.encode()]


class Queue:
    """A stream that is read by one group of workers."""

    def __init__(self, client: "redis.Redis", name: str) -> None:
        self._client, self._name = client, name
        with contextlib.suppress(redis.ResponseError):  # the group exists
            client.xgroup_create(name, GROUP, id="0", mkstream=True)

    def put(self, message: MessageId, **fields: str | bytes | int) -> None:
        """Put something into the queue, with the id of its message."""
        entry: dict[Any, Any] = {**message.to_headers(), **fields}
        self._client.xadd(self._name, entry)

    def entries(self) -> Iterator[Entry]:
        """Yield entries without end: new ones, and those that dead workers left."""
        me = f"worker-{os.getpid()}"
        while True:
            left = self._client.xautoclaim(self._name, GROUP, me, IDLE_MS, count=10)
            new = self._client.xreadgroup(GROUP, me, {self._name: ">"}, count=1, block=100)
            for _, entries in [(b"", left[1]), *new]:
                for key, fields in entries:
                    yield Entry(key, fields)

    def done(self, *entries: Entry) -> None:
        """Acknowledge entries, so that they are not delivered again."""
        keys = [entry.key for entry in entries]
        with self._client.pipeline() as pipe:
            pipe.xack(self._name, GROUP, *keys)
            pipe.xdel(self._name, *keys)
            pipe.execute()
