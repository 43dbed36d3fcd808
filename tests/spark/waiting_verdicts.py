"""Verdicts that wait in a stream, and reads of them."""

from typing import Any

from acker_redis.batching.batch import Batch
from acker_redis.protocol.keys import ShardKeys
from acker_redis.spark.streams.outcome_options import OutcomeOptions
from acker_redis.spark.streams.outcomes_source import OutcomesReader
from acker_redis.spark.streams.outcomes_stream import OutcomesStreamReader
from acker_redis.sync.client import Acker
from tests.spark.conftest import url_of
from tests.support import (
    track,
)

TASK = "t"
Seen = list[list[str]]
SECRET = "s3c%r/e:t@#?"


def options(acker: Acker, **more: Any) -> dict[str, str]:
    plain = {"url": url_of(acker), "namespace": acker.namespace, "source": TASK}
    return plain | {name: str(value) for name, value in more.items()}


def reader(acker: Acker, **more: Any) -> OutcomesStreamReader:
    return OutcomesStreamReader(OutcomeOptions.parse(options(acker, **more)))


def stream_key(acker: Acker, shard: int = 0) -> str:
    return ShardKeys(acker.namespace, shard).outcomes(TASK)


def acked(acker: Acker, *names: str) -> None:
    """Track trees that are complete at once: each gives an entry of the stream."""
    for name in names:
        track(acker, 2 * int.from_bytes(name.encode(), "big"), 0, name)


def add(acker: Acker, id_: str, name: str) -> None:
    """Add an entry with a given id."""
    fields = {"verdict": "nack", "reason": "failed", "n": 1, "rows": f'[["7","{name}",5,"w"]]'}
    acker.connection.client.xadd(stream_key(acker), fields, id_)


def ids(acker: Acker, shard: int = 0) -> list[str]:
    return [id_.decode() for id_, _ in acker.connection.client.xrange(stream_key(acker, shard))]


def read_now(acker: Acker, **more: Any) -> list[dict[str, Any]]:
    """Return the rows of a batch read, without Spark."""
    source = OutcomesReader(OutcomeOptions.parse(options(acker, **more)))
    batches = (batch for part in source.partitions() for batch in source.read(part))
    return [found for batch in batches for found in batch.to_pylist()]


def brief(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    columns = ("verdict", "reason", "why", "anchor", "source_id", "trees", "label")
    return [tuple(found[name] for name in columns) for found in rows]


def in_shards(acker: Acker, *anchors: int) -> None:
    for anchor in anchors:
        batch = Batch(TASK)
        batch.track(anchor, f"s{anchor}", [])
        acker.apply(batch)
