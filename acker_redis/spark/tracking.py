"""Track the rows of a micro-batch: loose trees by source id, or blocks of those that count.

Records that count, by an offset say, are cut into windows of 4095 numbers. What a batch has of a
window is a block: its base is the window's first record of the batch, its label says prefix and
base, and slot = number - base. So a record has the same slot whenever the batch is run again, and
no two batches share a block.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StringType

from acker_redis.errors import InvalidBatchError
from acker_redis.ids import BLOCK_MAX, SLOTS, block_number
from acker_redis.keys import check_name
from acker_redis.spark import lanes
from acker_redis.spark.apply import Done, Place, Terms, apply, collected, in_driver
from acker_redis.spark.columns import check_case
from acker_redis.spark.functions import Counted, anchor, counted, tuple_id, xor
from acker_redis.spark.labels import CountedLabel
from acker_redis.spark.ledger import Ledger
from acker_redis.spark.packed import Kind
from acker_redis.spark.report import Report, combine
from acker_redis.spark.room import wait_for_room

if TYPE_CHECKING:
    from acker_redis.spark.micro_batch import MicroBatch

_SOURCE, _PREFIX, _NUMBER, _ATTEMPT = (
    "_acker_source",
    "_acker_prefix",
    "_acker_number",
    "_acker_try",
)
_WINDOW, _BASE, _BLOCK, _TWICE = "_acker_window", "_acker_base", "_acker_block", "_acker_twice"
_HIDDEN = (_SOURCE, _PREFIX, _NUMBER, _ATTEMPT, _WINDOW, _BASE, _BLOCK, _TWICE)
_LOOKUP = 10_000
"""Windows of one numbering that are looked up in an array."""
_FEW = 1000
"""Rejected trees that are left out by a list of them; more of them by a join."""


@dataclass(frozen=True)
class _Block:
    """What a batch has of one window."""

    number: int
    label: str
    prefix: str
    attempt: int
    window: int
    base: int
    slots: int


def _constants(numbers: Sequence[int]) -> Column:
    # As one string, since each literal would be a call into the JVM; Spark folds it at once.
    return F.split(F.lit(",".join(map(str, numbers))), ",").cast("array<bigint>")


def _first_anchor(block: _Block) -> int:
    return 1 << 62 | block.number << 12


class Tracking:
    """Tracks one batch of a source."""

    def __init__(
        self, batch: "MicroBatch", source: str, edges: Sequence[str], attempt: int | str | Column
    ) -> None:
        self._batch, self._edges = batch, edges
        self._source = check_name("source", source)
        self._names = batch.acker.names
        self._attempt = F.lit(attempt) if isinstance(attempt, int) else attempt
        self._client = batch.acker.client
        self._waited = 0.0

    def run(self, df: DataFrame, source_id: str | Column | Counted) -> tuple[DataFrame, Report]:
        """Track, and return the messages of what was not rejected."""
        self._check(df)
        if isinstance(source_id, Counted):
            trees, blocks = self._in_blocks(df, source_id)
        elif ledger := self._batch.acker.ledger:
            trees, blocks = self._in_ledger(df, source_id, ledger)
        else:
            trees, blocks = self._loose(df, source_id), None
        began = time.monotonic()
        place, done = self._track(trees, blocks)
        report = combine(
            done.shards,
            query_id=self._batch.query_id,
            batch_id=self._batch.batch_id,
            mode=place,
            waited_ms=round(1000 * self._waited),
            ms=round(1000 * (time.monotonic() - began - self._waited)),
            changed=done.changed,
        )
        return self._messages(trees, report), report

    def _loose(self, df: DataFrame, source_id: str | Column) -> DataFrame:
        named = df.withColumn(_SOURCE, self._source_id(df, source_id))
        named = named.withColumn(self._names.anchor, anchor(_SOURCE, attempt=self._tried()))
        return self._batch.freeze(named)

    def _in_blocks(self, df: DataFrame, ids: Counted) -> tuple[DataFrame, list[_Block]]:
        kind = df.select(ids.number.alias("n")).schema["n"].dataType
        if not isinstance(kind, ByteType | ShortType | IntegerType | LongType):
            raise InvalidBatchError(
                f"a record's number is a whole number, not {kind.simpleString()}; give a source_id "
                "of another kind as a column"
            )
        trees = self._batch.freeze(
            df.withColumns(
                {
                    _PREFIX: ids.prefix,
                    _NUMBER: ids.number.cast("bigint"),
                    _ATTEMPT: F.coalesce(self._tried().cast("int"), F.lit(0)),
                }
            )
        )
        return self._numbered(trees)

    def _in_ledger(
        self, df: DataFrame, source_id: str | Column, ledger: Ledger
    ) -> tuple[DataFrame, list[_Block]]:
        """Number the records by their source ids, and write down which is which."""
        batch = self._batch
        named = batch.freeze(df.withColumn(_SOURCE, self._source_id(df, source_id)))
        # As many parts as they fill blocks: whatever the cluster, the same records get the same.
        parts = max(1, -(-named.count() // SLOTS))
        placed = named.repartition(parts, _SOURCE)
        twice = F.count("*").over(Window.partitionBy(_SOURCE))
        placed = placed.withColumn(_TWICE, twice).sortWithinPartitions(_SOURCE)
        place = F.monotonically_increasing_id()
        name = f"{batch.acker.app_id}/{batch.query_id}/{batch.batch_id}"
        part = F.shiftright(place, 33).cast("string")
        ids = counted(F.lit(name), part, number=place.bitwiseAND(F.lit(2**33 - 1)))
        trees, blocks = self._in_blocks(placed, ids)
        worst = trees.agg(
            F.max(_TWICE).alias("n"), F.count(F.when(F.col(_SOURCE).isNull(), 1)).alias("nulls")
        )
        [found] = worst.collect()
        if found["nulls"]:
            raise InvalidBatchError(f"{found['nulls']} rows have no source id: it may not be null")
        if (found["n"] or 0) > 1:
            raise InvalidBatchError(
                f"a source id is there {found['n']} times in this batch: make it unique"
            )
        kept = trees.select(
            F.col(self._names.anchor).alias("anchor"), F.col(_SOURCE).alias("source_id")
        )
        ledger.write(kept, batch.query_id, batch.batch_id)
        return trees, blocks

    def _numbered(self, trees: DataFrame) -> tuple[DataFrame, list[_Block]]:
        trees = trees.withColumn(_WINDOW, F.expr(f"{_NUMBER} div {SLOTS}"))
        groups = trees.groupBy(_PREFIX, _ATTEMPT, _WINDOW).agg(
            F.min(_NUMBER).alias("least"),
            F.max(_NUMBER).alias("most"),
            F.count("*").alias("rows"),
        )
        blocks = list(self._blocks(groups.collect()))
        if len({block.number for block in blocks}) < len(blocks):
            raise InvalidBatchError("two blocks of the batch share a number: change the prefix")
        placed, block, base = self._placed(trees, blocks)
        anchors = block.bitwiseOR(F.col(_NUMBER) - base)
        return placed.withColumn(self._names.anchor, anchors), blocks

    def _placed(self, trees: DataFrame, blocks: list[_Block]) -> tuple[DataFrame, Column, Column]:
        """Trees, and columns of the first anchor and the base of the block that each stands in."""
        first = min((block.window for block in blocks), default=0)
        last = max((block.window for block in blocks), default=0)
        if len({(block.prefix, block.attempt) for block in blocks}) == 1 and last - first < _LOOKUP:
            # Of one numbering: the window is a place in an array, which costs less than a join.
            known = {block.window: block for block in blocks}
            some = [known.get(window) for window in range(first, last + 1)]
            place = (F.col(_WINDOW) - F.lit(first) + F.lit(1)).cast("int")
            anchors = _constants([_first_anchor(each) if each else 0 for each in some])
            bases = _constants([each.base if each else 0 for each in some])
            return trees, F.element_at(anchors, place), F.element_at(bases, place)
        rows = [(b.prefix, b.attempt, b.window, b.base, _first_anchor(b)) for b in blocks]
        schema = (
            f"{_PREFIX} STRING, {_ATTEMPT} INT, {_WINDOW} BIGINT, {_BASE} BIGINT, {_BLOCK} BIGINT"
        )
        where = trees.sparkSession.createDataFrame(rows, schema)
        joined = trees.join(F.broadcast(where), [_PREFIX, _ATTEMPT, _WINDOW])
        return joined, F.col(_BLOCK), F.col(_BASE)

    def _blocks(self, groups: Sequence[tuple[str, int, int, int, int, int]]) -> Iterator[_Block]:
        for prefix, attempt, window, least, most, rows in groups:
            if least is None or least < 0:
                raise InvalidBatchError(
                    f"{rows} records of {prefix} have no number, or one below 0: numbers are 0 to "
                    "2^63-1"
                )
            label = str(CountedLabel(prefix, least, attempt))
            number = block_number(self._source, label)
            yield _Block(number, label, prefix, attempt, window, least, most - least + 1)

    def _track(self, trees: DataFrame, blocks: list[_Block] | None) -> tuple[Place, Done]:
        batch = self._batch
        columns = [F.col(self._names.anchor).alias("anchor"), self._delta().alias("delta")]
        if blocks is None:
            columns.append(F.col(_SOURCE).alias("text"))
        terms = [Terms(Kind.TRACK, trees.select(*columns))]
        labels = {block.number: block.label for block in blocks or ()}
        job = batch.job(self._source, labels)
        place = batch.acker.place(trees, batch.query_id)
        shards = job.shards
        if place == "driver":
            packed = list(collected(terms, shards))
            self._wait(
                [sum(p.terms for p in packed if p.shard == s) for s in range(shards)], blocks
            )
            return place, in_driver(job, packed)
        counts = [0] * shards
        if blocks is None:
            by_shard = trees.groupBy((F.col(self._names.anchor) % shards).alias("s")).count()
            for shard, count in by_shard.collect():
                counts[shard] = count
        self._wait(counts, blocks)
        return place, apply(job, terms, place)

    def _wait(self, trees: list[int], blocks: list[_Block] | None) -> None:
        """Wait for room, unless some of the batch was tracked before: it may be what fills it."""
        batch, acker = self._batch, self._batch.acker
        if blocks is not None:
            trees = np.zeros(len(trees), dtype=int).tolist()
            for block in blocks:
                trees[block.number % len(trees)] += block.slots
        if lanes.standing(self._client, acker.lane(batch.query_id), batch.batch_id) is None:
            self._waited = wait_for_room(self._client, self._source, trees, acker.max_wait)

    def _messages(self, trees: DataFrame, report: Report) -> DataFrame:
        names = self._names
        if report.changed:
            trees = trees.limit(0)
        if report.rejected:
            trees = self._without(trees, F.col(names.anchor), report.rejected)
        if report.rejected_blocks:
            block = F.shiftright(names.anchor, 12).bitwiseAND(F.lit(BLOCK_MAX))
            trees = self._without(trees, block, report.rejected_blocks)
        edges = F.explode(F.array(*[F.lit(edge) for edge in self._edges]))
        if len(self._edges) == 1:
            edges = F.lit(self._edges[0])
        messages = trees.withColumn(names.edge, edges)
        ids = [
            F.when(F.col(names.edge) == edge, tuple_id(names.anchor, edge)) for edge in self._edges
        ]
        return messages.withColumn(names.tuple, F.coalesce(*ids)).drop(*_HIDDEN)

    def _without(self, trees: DataFrame, key: Column, rejected: tuple[int, ...]) -> DataFrame:
        if len(rejected) <= _FEW:
            return trees.where(~key.isin(list(rejected)))
        gone = trees.sparkSession.createDataFrame([(each,) for each in rejected], "_gone BIGINT")
        return trees.join(F.broadcast(gone), key == F.col("_gone"), "left_anti")

    def _delta(self) -> Column:
        return xor(*[tuple_id(self._names.anchor, edge) for edge in self._edges])

    def _tried(self) -> Column:
        return F.col(self._attempt) if isinstance(self._attempt, str) else self._attempt

    def _source_id(self, df: DataFrame, source_id: str | Column) -> Column:
        if isinstance(source_id, str):
            check_case(df, source_id)
        column = F.col(source_id) if isinstance(source_id, str) else source_id
        kind = df.select(column.alias("s")).schema["s"].dataType
        if not isinstance(kind, StringType):
            raise InvalidBatchError(
                f"a source id is string, not {kind.simpleString()}: make it with source_id(), or "
                "counted() for records that are numbered"
            )
        return column

    def _check(self, df: DataFrame) -> None:
        for name in (self._names.anchor, self._names.tuple, self._names.edge):
            check_case(df, name)
            if name in df.columns:
                raise InvalidBatchError(
                    f"column {name} is there already, and track() adds it: drop it first, or name "
                    "yours otherwise: Acker(.., names=Names(..))"
                )
