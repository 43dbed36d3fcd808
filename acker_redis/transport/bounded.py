"""A bound on the replies of Redis, for programs that serve many namespaces.

The rotator, the admin service and the doctor read keys that the producers of any namespace can
write. A stream entry or a field of hundreds of megabytes must cost such a program neither its
memory nor the others their turn. So a connection that has read ``MAX_REPLY`` bytes of one reply
closes itself and raises an error, which :func:`~acker_redis.transport.errors.translate` makes a
SchemaError: the program goes on with the next namespace.
"""

from functools import cache
from typing import Any

from redis.exceptions import RedisError

MAX_REPLY = 32 * 1024 * 1024
"""Maximum bytes of a reply. An entry of a stream has up to some 250 KB, so a hundred of the largest
fit; other replies are far smaller."""


class ReplyTooLargeError(RedisError):
    """Raised when a reply has more than MAX_REPLY bytes; the connection is closed."""


def is_too_large(error: BaseException) -> bool:
    """Return whether an AckerError was caused by a reply of more than MAX_REPLY bytes."""
    return isinstance(error.__cause__, ReplyTooLargeError)


def bound(client: Any) -> Any:
    """Bound the replies of a redis-py client, of one server, sentinels or a cluster; return it."""
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        pool.connection_class = _bounded(pool.connection_class)
        return client
    nodes = client.nodes_manager
    if hasattr(nodes, "create_redis_node"):
        create = nodes.create_redis_node
        nodes.create_redis_node = lambda *args, **options: bound(create(*args, **options))
        for node in nodes.nodes_cache.values():
            if node.redis_connection:
                bound(node.redis_connection).connection_pool.reset()
        return client
    for options in (client.connection_kwargs, nodes.connection_kwargs):
        options["connection_class"] = _bounded(options["connection_class"])
    for node in nodes.startup_nodes.values():
        node.connection_class = options["connection_class"]
    return client


class _Counted:
    """A socket, or the reader of an asyncio stream, that counts the bytes of a reply."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def recv(self, *args: Any) -> Any:
        data = self._inner.recv(*args)
        self._add(len(data))
        return data

    def recv_into(self, *args: Any) -> Any:
        size = self._inner.recv_into(*args)
        self._add(size)
        return size

    async def read(self, *args: Any) -> Any:
        data = await self._inner.read(*args)
        self._add(len(data))
        return data

    def _add(self, size: int) -> None:
        self.count += size
        if self.count > MAX_REPLY:
            raise ReplyTooLargeError(
                f"a reply has more than {MAX_REPLY // 2**20} MB, so no script of acker-redis has "
                "written the value"
            )


class _Bounded:
    """A connection of redis-py; its base is the class that a pool would create."""

    _sock: Any

    def _connect(self) -> Any:
        return _Counted(super()._connect())  # type: ignore[misc]

    def read_response(self, *args: Any, **options: Any) -> Any:
        if isinstance(self._sock, _Counted):
            self._sock.count = 0
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except ReplyTooLargeError:
            self.disconnect()  # type: ignore[attr-defined]
            raise


class _AsyncBounded:
    """The same of asyncio."""

    _reader: Any

    async def on_connect_check_health(self, *args: Any, **options: Any) -> None:
        if not isinstance(self._reader, _Counted):
            self._reader = _Counted(self._reader)
        await super().on_connect_check_health(*args, **options)  # type: ignore[misc]

    async def read_response(self, *args: Any, **options: Any) -> Any:
        if isinstance(self._reader, _Counted):
            self._reader.count = 0
        try:
            return await super().read_response(*args, **options)  # type: ignore[misc]
        except ReplyTooLargeError:
            await self.disconnect(nowait=True)  # type: ignore[attr-defined]
            raise


@cache
def _bounded(kind: type) -> type:
    if issubclass(kind, _Bounded | _AsyncBounded):
        return kind
    mixin = _AsyncBounded if "asyncio" in kind.__module__ else _Bounded
    return type(f"Bounded{kind.__name__}", (mixin, kind), {})
