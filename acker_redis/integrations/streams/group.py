"""The commands of a consumer group: each names one key, so that clusters take them, too.

**Why XPENDING and XCLAIM, not XAUTOCLAIM.** The two do the same in two steps. XAUTOCLAIM does not
say how often an entry was delivered, and on Redis 6.2 it hides the key of a deleted entry. XCLAIM
takes an entry only if it is still idle, so two workers never take the same one.
"""

import os
import secrets
import socket
from contextlib import suppress
from typing import Any, NamedTuple

import redis

from acker_redis.integrations.core.headers import text_of
from acker_redis.integrations.streams.entries import Command, Fields, add, following
from acker_redis.trees.message_id import AnyId

Entry = tuple[Any, Fields]
"""The key of an entry and its fields."""


class Left(NamedTuple):
    """An entry that some worker has received and not settled."""

    key: Any
    deliveries: int
    consumer: str


class Group:
    """One consumer of a group of one stream.

    Args:
        client: A client of redis-py.
        stream: The name of the stream.
        group: The name of the group.
        consumer: The name of the consumer; None for a random one.
        idle: Seconds after which an entry goes to another worker.
        delete: Whether entries are deleted from the stream, too.

    """

    errors: tuple[type[Exception], ...] = (
        redis.RedisError,
        redis.exceptions.RedisClusterException,
    )

    def __init__(
        self, client: Any, stream: str, group: str, consumer: str | None, idle: float, delete: bool
    ) -> None:
        self.client, self.name, self.group = client, stream, group
        self._idle, self._delete = int(idle * 1000), delete
        self._given = consumer
        self.join()

    def join(self) -> None:
        """Take the name of the consumer: another one in a forked child."""
        random = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.consumer = self._given or random

    def id_of(self, fields: Fields) -> AnyId:
        """Return the id of an entry, which may be malformed."""
        return text_of(fields)

    def sent_ms(self, key: Any, _: Fields) -> int | None:
        """Return the time in the key of an entry, which is that of the server if it made the key.

        A key that a producer has made is no time, or one that :meth:`now_ms` does not come after.
        """
        return int(key.partition(b"-" if isinstance(key, bytes) else "-")[0])

    @following()
    def now_ms(self) -> int:
        """Return the clock of the server that has the stream, in ms since 1970."""
        on = {}
        if hasattr(self.client, "get_node_from_key"):
            # Each node of a cluster has its own clock.
            on = {"target_nodes": self.client.get_node_from_key(self.name)}
        seconds, micros = self.client.execute_command("TIME", **on)
        return int(seconds) * 1000 + int(micros) // 1000

    def add(self, children: list[Command]) -> list[Exception | None]:
        """Add entries to streams; see :func:`acker_redis.integrations.streams.entries.add`."""
        return add(self.client, children)

    def passes(self, error: Exception) -> bool:
        """Return False: the worker knows the errors of Redis."""
        return False

    @following()
    def create(self) -> None:
        """Create the group, at the first entry of the stream; a no-op if it exists."""
        try:
            self.client.xgroup_create(self.name, self.group, id="0", mkstream=True)
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    @following()
    def new(self, count: int, block: int | None) -> list[Entry]:
        """Return up to ``count`` entries that no consumer has received; wait ``block`` ms."""
        read = self.client.xreadgroup
        found = read(self.group, self.consumer, {self.name: ">"}, count=count, block=block)
        if isinstance(found, dict):  # RESP3
            return [entry for lists in found.values() for each in lists for entry in each]
        return [entry for _, entries in found for entry in entries]

    def left(self, idle: int) -> Left | None:
        """Return the first entry that is idle for at least ``idle`` ms; None if there is none."""
        found = self._pending("-", "+", idle)
        return found[0] if found else None

    @following()
    def claim(self, key: Any, idle: int) -> Fields | None:
        """Take an entry over if it is idle for ``idle`` ms; return its fields.

        None if another worker was faster, or the entry was deleted from the stream: then it leaves
        the group, too.

        Raises:
            UnicodeDecodeError: The client decodes replies, and the entry is no text.

        """
        for found, fields in self.client.xclaim(self.name, self.group, self.consumer, idle, [key]):
            if found is not None:
                return dict(fields)
            self._leave([key])  # Redis 6.2; later versions have done it
        return None

    @following()
    def undecoded(self, key: Any) -> Fields | None:
        """Return the fields of an entry as bytes, also if the client decodes replies.

        None if the entry was deleted from the stream.
        """
        found = self.client.execute_command("XRANGE", self.name, key, key, NEVER_DECODE=True)
        return dict(found[0][1]) if found else None

    def owns(self, key: Any, _: float) -> bool:
        """Return whether an entry still belongs to this consumer."""
        return any(each.consumer == self.consumer for each in self._pending(key, key))

    def keep(self, key: Any) -> None:
        """Restart the idle time of an entry, without a further delivery."""
        self._own([key], 0)

    def give_back(self, keys: list[Any]) -> None:
        """Let other workers take entries of this consumer over at once."""
        if keys:
            self._own(keys, self._idle)

    def done(self, keys: list[Any]) -> None:
        """Remove entries from the group, and, if so set, from the stream."""
        if keys:
            self._leave(keys, delete=self._delete)

    @following()
    def leave(self) -> None:
        """Remove a consumer with a random name if nothing is pending for it.

        With pending entries Redis would forget those, too. A given name may be in use elsewhere.
        """
        if self._given is not None:
            return
        with suppress(redis.ResponseError):  # the group may be deleted
            if not self.client.xpending_range(
                self.name, self.group, min="-", max="+", count=1, consumername=self.consumer
            ):
                self.client.xgroup_delconsumer(self.name, self.group, self.consumer)

    @following()
    def _leave(self, keys: list[Any], *, delete: bool = False) -> None:
        pipe = self.client.pipeline(transaction=False)
        pipe.xack(self.name, self.group, *keys)
        if delete:
            pipe.xdel(self.name, *keys)
        pipe.execute()

    @following()
    def _own(self, keys: list[Any], idle: int) -> None:
        args = self.name, self.group, self.consumer, 0, keys
        self.client.xclaim(*args, idle=idle, justid=True)

    @following()
    def _pending(self, first: Any, last: Any, idle: int | None = None) -> list[Left]:
        try:
            found = self.client.xpending_range(
                self.name, self.group, min=first, max=last, count=1, idle=idle
            )
        except redis.ResponseError as error:
            if is_missing(error):
                return []
            raise
        return [
            Left(each["message_id"], each["times_delivered"], _text(each["consumer"]))
            for each in found
        ]


def is_missing(error: redis.ResponseError) -> bool:
    """Return whether Redis says that the stream or the group does not exist."""
    # The second: a command that waited for entries when the stream was deleted.
    return str(error).startswith(("NOGROUP", "UNBLOCKED the stream key no longer exists"))


def _text(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name
