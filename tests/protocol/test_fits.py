"""Arguments of a wrong type are refused at once, with an error that names the right one."""

from typing import Any

import pytest

from acker_redis import Acker, Bolt, MessageId, Producer, Rotator, Source
from acker_redis.aio import AsyncAcker, AsyncBolt, AsyncProducer, AsyncSource
from acker_redis.errors import ConfigError, InvalidBatchError

URL = "redis://localhost:1"


async def send(record: Any, ids: Any) -> None:
    """Do nothing; a coroutine function, which a thread would never run."""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda sync, twin: Rotator([twin]), "Rotator.from_url"),
        (lambda sync, twin: Producer(twin), "a Producer takes an Acker, not AsyncAcker"),
        (lambda sync, twin: Source(twin, "t"), "a Source takes an Acker, not AsyncAcker"),
        (lambda sync, twin: AsyncProducer(sync), "takes an AsyncAcker, not Acker"),
        (lambda sync, twin: AsyncSource(sync, "t"), "takes an AsyncAcker, not Acker"),
        (lambda sync, twin: Source(sync, "t", send), "function: use acker_redis.aio"),
        (lambda sync, twin: Source(sync, "t", on_ack=send), "on_ack= of a Source is a coroutine"),
        (lambda sync, twin: Bolt(sync), "a Bolt takes a Producer, not Acker"),
        (lambda sync, twin: Bolt(AsyncProducer(twin)), "takes a Producer, not AsyncProducer"),
        (lambda sync, twin: AsyncBolt(Producer(sync)), "takes an AsyncProducer, not Producer"),
        (lambda sync, twin: Acker(URL, "n"), "for a URL use from_url"),
        (lambda sync, twin: AsyncAcker(URL, "n"), "for a URL use from_url"),
        (lambda sync, twin: Source(sync, "t", backoff=0.1), "backoff is a Backoff"),
    ],
)
def test_wrong_types_are_refused_with_advice(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(Acker.from_url(URL, "n"), AsyncAcker.from_url(URL, "n"))


def test_one_acker_is_enough_for_a_rotator() -> None:
    Rotator(Acker.from_url(URL, "n"))


@pytest.mark.parametrize("headers", ["7:40", b"7:40"])
def test_text_is_not_accepted_as_headers(headers: Any) -> None:
    with pytest.raises(InvalidBatchError, match=r"for text use parse\(\)"):
        MessageId.from_headers(headers)
