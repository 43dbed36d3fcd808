"""A reply of any size costs a program of many namespaces neither memory nor its other reads."""

import asyncio
from typing import Any

import pytest

from acker_redis.aio.connection import AsyncConnection
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import SchemaError
from acker_redis.ops.settings import Settings
from acker_redis.sync.connection import Connection
from acker_redis.transport import bounded

LARGE = "acker:{orders:0}:outcomes:t"
KEY = "acker:{orders:0}:meta"


def check_bounded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that clients for a URL refuse a reply beyond the bound, and go on."""
    monkeypatch.setattr(bounded, "MAX_REPLY", 200_000)
    settings = Settings.read(url=url, timeout=60)
    sync, read = Connection(settings.connect()), ("XRANGE", LARGE, "-", "+", "COUNT", 1)
    sync.command("XADD", LARGE, "*", "rows", b"x" * 300_000)
    sync.command("HSET", KEY, "tick_ms", "7")
    sync.command("HSET", KEY, "edges", b"x" * 150_000)

    def refuses(answer: Any) -> None:
        assert isinstance(answer, SchemaError)
        assert bounded.is_too_large(answer)

    def tried(call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except SchemaError as error:
            return error

    for _ in range(2):
        refuses(tried(sync.command, *read))
        assert sync.command("HGET", KEY, "tick_ms") == b"7", "the connection is not out of step"
        refuses(tried(sync.commands, [("HGET", KEY, "tick_ms"), read, ("HGET", KEY, "tick_ms")]))
        # Each of these replies is within the bound.
        assert sync.commands([("HGET", KEY, "edges")] * 3) == [b"x" * 150_000] * 3
    sync.command("DEL", KEY)
    sync.close()

    async def talk() -> None:
        client = settings.connect_async()
        connection = AsyncConnection(client)
        for _ in range(2):
            with pytest.raises(SchemaError, match="more than"):
                await connection.command(*read)
            assert await connection.command("HGET", KEY, "tick_ms") is None
            with pytest.raises(SchemaError, match="more than"):
                await connection.commands([read, ("HGET", KEY, "tick_ms")])
            assert await connection.commands([("HGET", KEY, "tick_ms")] * 3) == [None] * 3
        await client.aclose()

    asyncio.run(talk())


@pytest.mark.parametrize("tcp", [True, False])
def test_reply_beyond_the_bound_is_refused(tcp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedRedis(tcp=tcp) as server:
        check_bounded(server.url, monkeypatch)
