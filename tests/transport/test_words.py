"""Errors of redis-py in words: no tuples of sockets, and no objects of a program."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
import redis

from acker_redis import Acker
from acker_redis.aio import AsyncAcker
from acker_redis.errors import RedisUnavailableError
from acker_redis.transport.errors import translate
from acker_redis.transport.words import plain_words
from tests.transport.listener import Listener


def said_by(url: str) -> list[str]:
    """Return the errors of both clients."""

    async def ask() -> None:
        async with AsyncAcker.from_url(url, "orders", retry_for=0) as acker:
            await acker.status()

    def asks() -> None:
        with Acker.from_url(url, "orders", retry_for=0) as acker:
            acker.status()

    def error_of(call: Callable[[], object]) -> str:
        with pytest.raises(RedisUnavailableError) as raised:
            call()
        return str(raised.value)

    return [error_of(asks), error_of(lambda: asyncio.run(ask()))]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "redis://127.0.0.1:{port}",
            "Error 111 connecting to 127.0.0.1:{port}. Connection refused",
        ),
        ("redis+cluster://127.0.0.1:{port}", "127.0.0.1:{port}. Connection refused; is it running"),
        (
            "redis+sentinel://127.0.0.1:{port}/svc",
            "no sentinel names a master for 'svc' (127.0.0.1:{port}: ConnectionError); is it",
        ),
    ],
)
def test_closed_port_is_named_in_words(url: str, words: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        for said in said_by(url.format(port=port)):
            assert words.format(port=port) in said
            assert "('" not in said


def test_reset_of_a_connection_is_named_in_words() -> None:
    def reset(client: socket.socket) -> None:
        client.recv(1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    listener = Listener(reset)
    try:
        for said in said_by(f"redis://127.0.0.1:{listener.port}/0?socket_timeout=60"):
            assert "Connection reset by peer; is it running" in said
            assert "'" not in said
    finally:
        listener.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Error Multiple exceptions: [Errno 111] Connect call failed ('::1', 7, 0, 0), [Errno "
            "110] Connect call failed ('127.0.0.1', 7) connecting to localhost:7.",
            "Error connecting to localhost:7. ::1: Connection refused, 127.0.0.1: Connection timed "
            "out",
        ),
        (
            "TTL exhausted.",
            "the nodes of the cluster sent the call from one to another, sixteen times: they "
            "disagree on which of them has its slot (redis-cli --cluster check HOST:PORT shows it)",
        ),
        (
            "NOREPLICAS Not enough good replicas to write.",
            "NOREPLICAS Not enough good replicas to write: start its replicas again, or lower "
            "min-replicas-to-write",
        ),
        ("No master found for 'a' : ", "no sentinel names a master for 'a'"),
        ("READONLY You can't write (1, 'x'", "READONLY You can't write (1, 'x'"),
        ("Timeout reading from redis:6379", "Timeout reading from redis:6379"),
    ],
)
def test_messages_of_redis_py(text: str, words: str) -> None:
    assert plain_words(text) == words


def test_error_of_a_server_that_runs_does_not_ask_whether_it_runs() -> None:
    for error, begin in (
        (redis.exceptions.ClusterError("TTL exhausted."), "Redis cannot run the call now: the no"),
        (redis.ConnectionError("max number of clients reached"), "Redis cannot run the call now"),
        (redis.exceptions.MovedError("1 127.0.0.1:7"), "this server is a node of a cluster, and"),
    ):
        said = str(translate(error))
        assert said.startswith(begin)
        assert "is it running" not in said
    assert "write redis+cluster:// in the URL" in said
