"""Trees that Redis has lost become nacks of reason ``lost``, which ReplayWriter replays once."""

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from acker_redis import BacklogError
from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.keys import ShardKeys
from acker_redis.spark import lost, read_outcomes
from acker_redis.spark.streams.outcome_rows import SCHEMA
from tests.spark.conftest import url_of
from tests.spark.replay_shop import MakeShop, Shop, make_shop
from tests.waiting import wait_until

__all__ = ["make_shop"]

WITHIN = 0.5


class Tracked:
    """What a shop has tracked, in batches, and its table of verdicts."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.rows, self.seen = shop, list[tuple[Any, ...]](), set[int]()
        self.table = shop.spark.createDataFrame([], SCHEMA)

    def track(self, count: int, batch_id: int) -> None:
        self.shop.track(count, batch_id)
        self.at_ms = self.shop.client.status().shards[0].now_ms
        new = [m for m in self.shop.messages().collect() if m["tuple"] not in self.seen]
        self.seen |= {message["tuple"] for message in new}
        self.rows += {(each["anchor"], each["sid"], self.at_ms) for each in new}

    def lose_pending(self) -> None:
        """Lose all trees that are pending, as a failover does."""
        keys = ShardKeys(self.shop.acker.namespace, 0)
        client = self.shop.client.connection.client
        client.delete(*(f(bucket) for bucket in range(3) for f in (keys.pending, keys.blocks)))

    def frame(self) -> DataFrame:
        rows = self.shop.spark.createDataFrame(
            self.rows, "anchor BIGINT, source_id STRING, at BIGINT"
        )
        return rows.withColumn("at", F.timestamp_millis("at"))

    def lost(self, within: float = WITHIN) -> DataFrame:
        old = self.at_ms + 1000 * within
        wait_until(lambda: self.shop.client.status().shards[0].now_ms > old, "old trees")
        return lost(self.shop.acker, "t", self.frame(), lambda: self.table, within=within)


@pytest.mark.parametrize(
    "kind",
    [
        "loose",
        pytest.param("counted", marks=pytest.mark.nightly),
        "ledger",
        pytest.param("keyed", marks=pytest.mark.nightly),
    ],
)
def test_lost_trees_are_replayed_once(make_shop: MakeShop, kind: str) -> None:
    """Records 0 to 79 are tracked twice: their first trees were acked, their second are lost."""
    shop = make_shop(kind, {"shards": 1, "tick_ms": 3_600_000})
    tracked = Tracked(shop)
    tracked.track(80, 0)
    shop.bolt(lambda _: False)
    wait_until(
        lambda: shop.client.status().shards[0].now_ms > tracked.at_ms + 2000 * WITHIN,
        "a later batch",
    )
    tracked.track(100, 1)
    assert tracked.lost().isEmpty(), "pending, or with a verdict that waits"
    tracked.lose_pending()
    rows = tracked.lost()
    found = rows.select("source_id", "verdict", "reason", "trees").collect()
    assert Counter(map(tuple, found)) == Counter((f"p/{n}", "nack", "lost", 1) for n in range(100))
    for batch_id in (5, 5, 6):  # a batch that runs again, and one that gets the rows again
        shop.writer()(rows, batch_id)
    sent = Counter({f"p/{n}": shop.lines * (3 if n < 80 else 2) for n in range(100)})
    assert shop.sent() == sent
    assert shop.given_up() == []
    shop.bolt(lambda _: False)
    assert {each.verdict for entry in shop.client.outcomes("t").read() for each in entry} == {"ack"}
    tracked.table = tracked.table.unionByName(rows)
    assert tracked.lost().isEmpty(), "the table has the rows"


def test_outdated_table_of_spark_is_refused(make_shop: MakeShop) -> None:
    """The verdicts were taken, and are not in the table; ranges of a block count for each tree."""
    shop = make_shop("counted")
    tracked = Tracked(shop)
    tracked.track(80, 0)
    shop.bolt(lambda n: n == 3)
    waiting = read_outcomes(
        shop.spark, shop.acker.namespace, "t", url=url_of(shop.client), mode="driver"
    )
    outcomes = shop.client.outcomes("t")
    outcomes.take(outcomes.read())
    with pytest.raises(BacklogError, match="not up to date"):
        tracked.lost()
    tracked.table = waiting
    assert tracked.lost().isEmpty()
    assert waiting.count() < 80


def test_lost_rows_need_their_columns(make_shop: MakeShop) -> None:
    shop = make_shop()
    frame = shop.spark.range(1).selectExpr("id AS anchor")
    with pytest.raises(InvalidBatchError, match="at, source_id"):
        lost(shop.acker, "t", frame, lambda: frame)
