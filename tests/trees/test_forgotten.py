"""Messages that a program began to process, and neither acked nor failed, are reported."""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from acker_redis import Acker, Bolt, Producer
from acker_redis.aio import AsyncAcker, AsyncBolt, AsyncProducer
from acker_redis.integrations.aiokafka import TrackedAsyncConsumer
from acker_redis.integrations.aiokafka.producer import Got
from acker_redis.integrations.celery import TaskTracker
from acker_redis.integrations.celery.work import Task
from acker_redis.integrations.core.settling import Leased
from acker_redis.integrations.core.work import Work
from acker_redis.integrations.http import current_handle
from acker_redis.integrations.http.work import Request
from acker_redis.integrations.kafka import TrackedConsumer
from acker_redis.integrations.kafka.producer import Polled
from acker_redis.integrations.rabbitmq import TrackedChannel
from acker_redis.integrations.rabbitmq.deliveries import Delivery
from acker_redis.integrations.streams import StreamWorker
from acker_redis.trees import forgotten

Begin = Callable[..., Any]


class Full:
    """A sink that refuses all rows."""

    def add(self, rows: Any, wait: bool = True) -> None:
        raise OSError("no room")


@pytest.fixture(autouse=True)
def none_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgotten, "_reported", set())


@pytest.fixture
def reports(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    gc.collect()  # messages that earlier tests have left are reported now
    caplog.clear()
    with caplog.at_level(logging.WARNING, forgotten.__name__):
        yield lambda: (gc.collect(), list(caplog.messages))[1]


def batch(*ids: str) -> Any:
    acker = Acker.from_url("redis://localhost:1", "orders")
    return Bolt(Producer(acker)).process_batch(ids)


def async_batch(*ids: str) -> Any:
    acker = AsyncAcker.from_url("redis://localhost:1", "orders")
    return AsyncBolt(AsyncProducer(acker)).process_batch(ids)


ALL = [Bolt(sink=None).process, AsyncBolt(sink=None).process, batch, async_batch]  # type: ignore[arg-type]


@pytest.mark.parametrize("begin", ALL, ids=["sync", "asyncio", "batch", "async batch"])
def test_forgotten_message_is_reported_once_for_its_line(
    begin: Begin, reports: Callable[[], list[str]]
) -> None:
    for number in range(3):
        begin(f"7:{40 + number}")
    (report,) = reports()
    here = sys._getframe().f_lineno
    assert report.startswith(f"{__file__}:{here - 2}: messages that bolt.process() began")
    t = begin("7:50")
    del t
    assert len(reports()) == 2


def test_message_whose_ack_or_failure_was_tried_is_not_reported(
    reports: Callable[[], list[str]],
) -> None:
    bolt, full = Bolt(sink=None), Bolt(Full())  # type: ignore[arg-type]
    bolt.process("")
    Bolt(Rows()).process("7:40").ack()
    with Bolt(Rows()).process("7:40"):
        pass
    for end in ("ack", "fail"):
        with suppress(OSError):
            getattr(full.process("7:40"), end)()
    with suppress(OSError, ValueError), full.process("7:40"):
        raise ValueError("no such address")
    assert reports() == []


class Rows:
    def add(self, rows: Any, wait: bool = True) -> None:
        pass


def test_message_of_the_parent_is_not_reported_in_a_forked_child() -> None:
    t = Bolt(sink=None).process("7:40")  # type: ignore[arg-type]
    child = os.fork()
    if child == 0:
        del t
        os._exit(len(forgotten._reported))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    asyncio.run(asyncio.sleep(0))
    t.processing.acked()


def test_number_of_reports_is_bounded(
    reports: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgotten, "MAX_PLACES", 1)
    bolt = Bolt(sink=None)  # type: ignore[arg-type]
    bolt.process("7:40")
    bolt.process("7:41")
    assert len(reports()) == 1


def test_handle_of_a_message_that_an_integration_settles_is_not_reported(
    reports: Callable[[], list[str]],
) -> None:
    """A handler that takes longer writes ``worker.current.reset_timeout()``."""
    owner = SimpleNamespace(_sink=Rows(), acker=None)
    read = (None, None, ("orders", 0), 0, owner)
    messages: list[tuple[Any, Any]] = [
        (TaskTracker, Task(owner, str)),
        (TrackedConsumer, Polled(*read)),  # type: ignore[arg-type]
        (TrackedAsyncConsumer, Got(*read)),  # type: ignore[arg-type]
        (TrackedChannel, Delivery(1)),
        (StreamWorker, Leased(owner, b"1-0", {}, 0.0)),
    ]
    owner._in_process = partial(StreamWorker._in_process, owner)
    for kind, message in messages:
        with Work(message, "7:40") as work:
            assert kind.current.fget(owner).processing is work.processing
    with Work(Request(owner._sink), "7:40") as work:
        assert current_handle().processing is work.processing
    assert reports() == []
