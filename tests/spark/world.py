"""The sets of written and processed messages, in which an ack is checked."""

import random
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession

from acker_redis.batching.batch import Batch
from acker_redis.sync.client import Acker as Client
from tests.spark.conftest import outcomes

Pair = tuple[int, int]
"""Anchor and id of a message in one tree."""
SCHEMA = "anchor BIGINT, tuple BIGINT, n INT"
PLACES = [("driver", 1), ("executors", 2)]
"""Mode, and shards."""


class World:
    """The sets of written and processed messages; an acked tree has no unprocessed message."""

    def __init__(self, client: Client, seed: int = 0) -> None:
        self.client = client
        self._chance = random.Random(seed)
        self.written: set[Pair] = set()
        self.processed: set[Pair] = set()
        self.names: dict[int, str] = {}
        self.acked: set[str] = set()

    def track(self, *firsts: int, block: str = "") -> list[list[Pair]]:
        """Track a tree for each number, with this number of first messages; or one block."""
        ids = [[self._chance.getrandbits(63) | 1 for _ in range(count)] for count in firsts]
        if block:
            # Every other slot holds no tree.
            deltas = [delta for each in ids for delta in (xor(each), 0)]
            present = range(0, len(deltas), 2)
            slots = self.client.track_block("t", block, deltas, present=present)
            anchors = [slots[slot] for slot in present]
            self.names |= {slots[slot]: f"{block}#{slot}" for slot in present}
        else:
            anchors, batch = [self._chance.getrandbits(62) | 1 for _ in firsts], Batch("t")
            for anchor, each in zip(anchors, ids, strict=True):
                self.names[anchor] = f"s{len(self.names)}"
                batch.track(anchor, self.names[anchor], each)
            self.client.apply(batch)
        found = [[(a, i) for i in each] for a, each in zip(anchors, ids, strict=True)]
        self.written |= {pair for each in found for pair in each}
        return found

    def wrote(self, *frames: DataFrame) -> list[Pair]:
        """Note messages that were written to the next queue."""
        found: list[Pair] = []
        for frame in frames:
            for row in frame.collect():
                if "anchors" in frame.columns:
                    found += [(pair["anchor"], pair["tuple"]) for pair in row["anchors"] or ()]
                elif row["anchor"] is not None:
                    found.append((row["anchor"], row["tuple"]))
        self.written |= set(found)
        self.check()
        return found

    def ack(self, pairs: Iterable[Pair]) -> None:
        """Process messages with a client, one after the other."""
        for anchor, id_ in pairs:
            batch = Batch()
            batch.ack(anchor, id_)
            self.processed.add((anchor, id_))
            self.client.apply(batch)
            self.check()

    def check(self) -> None:
        """Check the new verdicts against the sets."""
        left = {self.names.get(anchor) for anchor, _ in self.written - self.processed}
        acked = {name for verdict, _, name, _ in outcomes(self.client) if verdict == "ack"}
        assert not acked & left, "a message is outstanding"
        self.acked |= acked

    def drain(self) -> set[str]:
        """Process the remaining messages in random order; return the acked source ids."""
        left = sorted(self.written - self.processed)
        self._chance.shuffle(left)
        self.ack(left)
        return self.acked


def xor(ids: Iterable[int]) -> int:
    found = 0
    for each in ids:
        found ^= each
    return found


def frame(spark: SparkSession, pairs: Sequence[Pair]) -> DataFrame:
    """Messages in two partitions, numbered by the column ``n``."""
    rows = [(anchor, id_, n) for n, (anchor, id_) in enumerate(pairs)]
    return spark.createDataFrame(rows, SCHEMA)


def firsts(trees: list[list[Pair]]) -> list[Pair]:
    return [pair for each in trees for pair in each]
