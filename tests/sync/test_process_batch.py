"""Batches of messages on a real server: acks, failures, blocks, retries, exceptions."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from acker_redis import Acker, Batch, Bolt, Producer, emit
from acker_redis.aio import AsyncAcker, AsyncBolt, AsyncProducer
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    AckerError,
    ClosedError,
    ConfigError,
    MissingExtraError,
    RedisUnavailableError,
)
from tests.conftest import MakeAcker

EDGES = ("price", "ship")


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(edges=EDGES, shards=2)


def tracked(acker: Acker, count: int) -> list[str]:
    """Track records; return the ids of their first messages."""
    batch, texts = Batch("shop"), []
    for number in range(count):
        tree = emit(f"order-{number}", edge="price", ids=acker.ids)
        batch.add(tree.row)
        texts.append(str(tree.ids[0]))
    acker.apply(batch)
    return texts


def verdicts(acker: Acker) -> dict[str, tuple[str, str]]:
    return {each.source_id: (each.verdict, each.why) for each in acker.outcomes("shop")}


def test_trees_complete_when_all_children_are_processed(acker: Acker) -> None:
    with Producer(acker) as producer:
        bolt = Bolt(producer)
        with bolt.process_batch(tracked(acker, 300)) as batch:
            children = batch.emit([n % 3 for n in range(300)], edge="ship")
        # When the block has ended, Redis has the rows: no flush is needed.
        assert len(verdicts(acker)) == 100
        with bolt.process_batch(children.texts[:-1]):
            pass
        found = verdicts(acker)
        assert len(found) == 199
        assert set(found.values()) == {("ack", "")}
        state = acker.show(int(children.texts[-1].partition(":")[0]))
        assert state
        assert acker.ids.edges_of(state.checksum) == ("ship",)
        with bolt.process_batch(children.texts[-1:]):
            pass
        assert list(verdicts(acker)) == ["order-299"]


def test_failed_messages_fail_their_trees_only(acker: Acker) -> None:
    with Producer(acker) as producer, Bolt(producer).process_batch(tracked(acker, 3)) as batch:
        batch.fail(1, ValueError("no such address"))
    assert verdicts(acker) == {
        "order-0": ("ack", ""),
        "order-1": ("nack", "ValueError: no such address"),
        "order-2": ("ack", ""),
    }


def test_trees_of_a_block_are_acked_and_failed(acker: Acker) -> None:
    code = acker.ids.code("price")
    anchors = acker.track_block("shop", "page", [code | 40 + n for n in range(50)])
    texts = [f"{anchor}:{code | 40 + n}" for n, anchor in enumerate(anchors)]
    with Producer(acker) as producer, Bolt(producer).process_batch(texts) as batch:
        batch.fail(7, "torn")
    found = [(each.source_id, each.verdict, each.why) for each in acker.outcomes("shop")]
    assert [each for each in found if each[1] == "nack"] == [("page", "nack", "torn")]
    assert acker.status().counters["acked"] == 49


def test_exception_fails_all_messages_of_the_batch(acker: Acker) -> None:
    with Producer(acker) as producer:
        with (
            pytest.raises(ValueError, match="broken"),
            Bolt(producer).process_batch(tracked(acker, 2)) as batch,
        ):
            batch.fail(0, "no such address")
            raise ValueError("broken")
        assert verdicts(acker) == {
            "order-0": ("nack", "no such address"),
            "order-1": ("nack", "ValueError: broken"),
        }
        with pytest.raises(ClosedError, match="cannot be processed again"), batch:
            pass


def test_batch_in_doubt_is_applied_once(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    apply: Callable[..., Any] = Acker.apply
    texts = tracked(acker, 3)

    def lost(*args: Any) -> None:
        apply(*args)
        raise RedisUnavailableError("the reply is lost")

    with Producer(acker) as producer:
        batch = Bolt(producer).process_batch(texts)
        with monkeypatch.context() as patched:
            patched.setattr(Acker, "apply", lost)
            with pytest.raises(RedisUnavailableError), batch:
                pass
        batch.ack()
        assert list(verdicts(acker).values()) == [("ack", "")] * 3
        assert acker.status().counters["orphaned"] == 0


def test_exception_is_told_when_its_trees_cannot_be_failed(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = tracked(acker, 1)

    def refused(*_: Any) -> None:
        raise AckerError("no")

    with Producer(acker) as producer:
        monkeypatch.setattr(Acker, "apply", refused)
        with (
            pytest.raises(ValueError, match="broken") as raised,
            Bolt(producer).process_batch(texts),
        ):
            raise ValueError("broken")
    assert raised.value.__notes__ == ["its trees cannot be failed and will expire: AckerError: no"]


def test_bolt_without_a_producer_or_numpy_says_what_to_do(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="whose sink is a Producer"):
        Bolt(None).process_batch([])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="whose sink is an AsyncProducer"):
        AsyncBolt(None).process_batch([])  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "acker_redis.trees.processing_batch", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with Producer(acker) as producer, pytest.raises(MissingExtraError, match=r"\.\[numpy\]"):
        Bolt(producer).process_batch([])


def test_empty_batch_and_unanchored_messages_send_nothing(acker: Acker) -> None:
    with Producer(acker) as producer:
        bolt = Bolt(producer)
        with bolt.process_batch([]) as batch:
            assert len(batch.emit()) == 0
        with bolt.process_batch([None, ""]) as batch:
            assert batch.emit(2).texts == [""] * 4
            batch.fail(0, "no such address")
    assert acker.status().pending == 0


def test_asyncio_twin(acker: Acker, any_server: EmbeddedRedis) -> None:
    texts = tracked(acker, 4)

    async def main() -> None:
        async with (
            AsyncAcker.from_url(any_server.url, acker.namespace) as client,
            AsyncProducer(client) as producer,
        ):
            bolt = AsyncBolt(producer)
            async with bolt.process_batch(texts[:3]) as batch:
                assert len(batch) == 3
                children = batch.emit([1, 0, 0], edge="ship")
                batch.fail(1, "no such address")
            async with bolt.process_batch(children.texts):
                pass
            with pytest.raises(ValueError, match="broken"):
                async with bolt.process_batch(texts[3:]):
                    raise ValueError("broken")

    asyncio.run(main())
    assert verdicts(acker) == {
        "order-0": ("ack", ""),
        "order-1": ("nack", "no such address"),
        "order-2": ("ack", ""),
        "order-3": ("nack", "ValueError: broken"),
    }
