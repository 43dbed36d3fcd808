"""A signal handler that raises at any line of redis-py: no command gets the reply of another."""

import contextlib
import gc
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.sync.client import Acker
from acker_redis.transport.arguments import Packer
from acker_redis.transport.connect import connect
from tests.conftest import MakeAcker
from tests.tiers import budget
from tests.transport.listener import Listener

LATE = 0.003
"""Delay of a reply in seconds: it arrives only after the interrupt."""


class Alarm(BaseException):
    """The exception that the signal handler raises."""


@pytest.fixture
def acker(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> Iterator[Acker]:
    """An acker whose replies are delayed."""
    direct = make_any_acker(high_water=1)
    parts = urlsplit(any_server.url)
    target = (parts.hostname or "", parts.port or 0)
    listener = Listener(partial(_serve, target))
    with Acker.from_url(f"redis://127.0.0.1:{listener.port}/0", direct.namespace) as through:
        yield through
    listener.close()


def _serve(target: tuple[str, int], client: socket.socket) -> None:
    redis = socket.create_connection(target)
    threading.Thread(target=_pump, args=(client, redis, 0.0), daemon=True).start()
    _pump(redis, client, LATE)


def _pump(source: socket.socket, to: socket.socket, late: float) -> None:
    try:
        while data := source.recv(1 << 16):
            time.sleep(late)
            to.sendall(data)
    except OSError:
        pass
    # The other thread may be reading from ``to``; that thread closes it.
    for each in (source, to):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
    source.close()


class Interrupt:
    """Raises at the n-th executed line of redis-py."""

    def __init__(self, line: int) -> None:
        self.left = line
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if "/redis/" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                raise Alarm
        return self._line


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Prevent that clients of other tests are collected, in lines of redis-py, during this one."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage")
def test_next_command_gets_its_own_reply_after_an_interrupt_at_any_line(acker: Acker) -> None:
    """The quick tier tries every fourth line."""
    command, line, points = acker.connection.command, 0, 0
    tracer = sys.gettrace()  # of a coverage tool
    while True:
        line += budget().interrupt_each
        command("PING")
        interrupt = Interrupt(line)
        try:
            command("ECHO", f"first {line}")
        except Alarm:
            points += 1
        finally:
            sys.settrace(tracer)
        assert command("ECHO", f"second {line}") == f"second {line}".encode()
        if interrupt.left > 0:
            break
    assert points > 100 / budget().interrupt_each


def test_batch_does_not_get_the_reply_of_an_interrupted_batch(acker: Acker) -> None:
    """The second batch exceeds the high-water mark, so its reply must list the rejected trees."""
    one, more = Batch("t"), Batch("t")
    one.track(1, "one", [10])
    for anchor in (2, 3, 4):
        more.track(anchor, "more", [20])
    assert acker.config
    read, calls = acker.connection.client.parse_response, []

    def interrupted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise Alarm
        return read(*args, **options)

    acker.connection.client.parse_response = interrupted
    with pytest.raises(Alarm):
        acker.apply(one)
    applied = acker.apply(more)
    assert applied.tracked == 3
    assert set(applied.rejected) == {a for a in (2, 3, 4) if acker.show(a) is None} != set()


def test_redis_py_packs_no_numbers(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    """hiredis crashes with a segmentation fault if a handler raises while it converts a number."""
    packed: list[Any] = []
    pack = redis.connection.HiredisRespSerializer.pack

    def note(self: Any, *args: Any) -> Any:
        packed.append(args)
        return pack(self, *args)

    monkeypatch.setattr(redis.connection.HiredisRespSerializer, "pack", note)
    batch = Batch("t")
    batch.track(1, "s", [])
    acker.apply(batch)
    acker.show(1)
    acker.status()
    assert list(acker.outcomes("t"))
    acker.connection.command("PEXPIRE", "no such key", 1)
    acker.connection.commands([("EXPIRE", "no such key", 1), ("SETEX", "key", 1, 2)])
    commands = {args[0] for args in packed}
    assert {"HELLO", "EVALSHA", "PEXPIRE"} <= commands
    numbers = [args for args in packed if any(isinstance(arg, int | float) for arg in args)]
    assert numbers == []


@pytest.mark.parametrize(
    "url", ["redis://h/0", "rediss://h/0", "unix:///tmp/s.sock", "redis+sentinel://h:26379/master"]
)
def test_every_kind_of_connection_packs_without_numbers(url: str) -> None:
    with connect(url, 1.0) as client:
        connection = client.connection_pool.make_connection()
        assert isinstance(connection._command_packer, Packer)
