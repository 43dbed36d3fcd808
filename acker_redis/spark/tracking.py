"""Track the rows of a micro-batch: as loose trees, or in blocks if the records are numbered."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StringType

from acker_redis.errors import ConfigError, InvalidBatchError
from acker_redis.protocol.ids import BLOCK_MAX, SLOTS
from acker_redis.protocol.keys import check_name
from acker_redis.spark.admission import wait_for_room
from acker_redis.spark.bad_rows import without_bad_rows
from acker_redis.spark.fold.apply import Done, Place, Terms, apply, collected, in_driver
from acker_redis.spark.fold.id_columns import IdColumns
from acker_redis.spark.fold.report import Report, combine
from acker_redis.spark.fold.terms import ELSEWHERE, LOOSE, Kind
from acker_redis.spark.functions import Counted, counted
from acker_redis.spark.input_batch import InputBatch
from acker_redis.spark.kafka_offsets import offset_groups
from acker_redis.spark.ledger import Ledger
from acker_redis.spark.names import check_case
from acker_redis.spark.numbering import (
    ATTEMPT,
    HIDDEN,
    LEAST,
    NUMBER,
    PREFIX,
    SOURCE,
    Group,
    Numbered,
    in_blocks,
    number,
)
from acker_redis.spark.plans import constants
from acker_redis.spark.source_files import number_range
from acker_redis.spark.streams.queue import Queue, can_stage

_TWICE = "_acker_twice"
_PART_BLOCKS = 16
"""Blocks that the records of a ledger's part fill. Each part is a task that sorts its records."""
_FEW = 1000
"""Maximum number of rejected trees that are filtered out by a list; more need a join."""


class _GapsError(Exception):
    """A range of offsets has fewer records than offsets."""


class Tracking:
    """The tracking of one batch of a source."""

    def __init__(
        self,
        batch: InputBatch,
        source: str,
        edges: Sequence[str],
        attempt: int | str | Column,
        key: Sequence[str | Column] = (),
        queue: Queue | None = None,
        bad_rows: Queue | None = None,
    ) -> None:
        self._bad_rows, self._bad = bad_rows, 0
        self._batch, self._edges, self._key = batch, edges, key
        self._queue = queue if queue is not None and len(edges) == 1 and can_stage(queue) else None
        self._text = SOURCE
        self._source = check_name("source", source)
        self._names = batch.application.names
        self._attempt = F.col(attempt) if isinstance(attempt, str) else attempt
        self._ids = self._first_ids = [f"_acker_id_{each}" for each in range(len(edges))]
        self._offsets: int | None = None
        """How many offsets the blocks have, if ranges of offsets gave them."""
        self._client = batch.application.client
        self._lane = batch.application.lane(batch.query_id)
        self._again = batch.was_applied()
        self._waited = 0.0

    def run(self, df: DataFrame, source_id: str | Column | Counted) -> tuple[DataFrame, Report]:
        """Track the rows; return the messages of the trees that were not rejected, and a report."""
        self._check(df)
        if self._bad_rows is not None:
            text = source_id if isinstance(source_id, Counted) else self._source_id(df, source_id)
            with self._batch.steps("write"):
                df, self._bad = without_bad_rows(
                    self._batch, df, text, self._tried(), self._key, self._bad_rows
                )
        try:
            return self._run(df, source_id)
        except _GapsError:
            # Not tried again in the next batch, because a topic with gaps has them everywhere.
            self._batch.shared.note_gaps(self._batch.query_id)
            self._offsets, self._ids = None, self._first_ids
            return self._run(df, source_id)

    def _run(self, df: DataFrame, source_id: str | Column | Counted) -> tuple[DataFrame, Report]:
        if isinstance(source_id, Counted):
            trees = self._counted(df, source_id)
        elif ledger := self._batch.application.ledger:
            trees = self._in_ledger(df, source_id, ledger)
        else:
            trees = self._loose(df, source_id)
        if self._queue is not None:
            trees = self._staged(trees, self._queue)
        elif self._offsets is not None:
            kept = trees.trees.drop(*self._spare(trees.loose))
            trees = Numbered(self._batch.freeze(kept), trees.blocks, trees.loose)
        if (staged := self._batch.kept(trees.trees)) is not None:
            self._expect(staged.count)
        began = time.monotonic()
        place, done = self._track(trees)
        report = combine(
            done.shards,
            query_id=self._batch.query_id,
            batch_id=self._batch.batch_id,
            mode=place,
            waited_ms=round(1000 * self._waited),
            ms=round(1000 * (time.monotonic() - began - self._waited)),
            changed=done.changed,
            bad=self._bad,
            timings=self._batch.steps.timings,
        )
        return self._messages(trees.trees, report), report

    def _loose(self, df: DataFrame, source_id: str | Column) -> Numbered:
        named = df.withColumns({SOURCE: self._source_id(df, source_id), ATTEMPT: self._tried()})
        anchor = self._names.anchor
        named = self._batch.ids.add_anchor(named, anchor, SOURCE, ATTEMPT, self._source)
        trees = self._with_ids(Numbered(named.drop(ATTEMPT), (), loose=True))
        if self._queue is None:
            trees = self._batch.freeze(trees)
        elif isinstance(source_id, str) and source_id in df.columns and "." not in source_id:
            self._text, trees = source_id, trees.drop(SOURCE)
        return Numbered(trees, (), loose=True)

    def _staged(self, found: Numbered, queue: Queue) -> Numbered:
        """Write the messages of the trees once, with their ids, to the folder of the queue.

        Numbers were read before, perhaps from another evaluation. A row whose number was not in the
        blocks of that evaluation gets no anchor of theirs, so the fold refuses the batch.
        """
        names, trees = self._names, found.trees
        drop = {*self._spare(found.loose), _SAVED, _TWICE, self._ids[0]}
        if found.loose and found.blocks:
            loose = F.when(~in_blocks(names.anchor), F.col(SOURCE))
            trees = trees.withColumn(SOURCE, loose)
        tuple_id = F.col(self._ids[0]).alias(names.tuple)
        trees = trees.select("*", tuple_id, F.lit(self._edges[0]).alias(names.edge)).drop(*drop)
        self._ids = [names.tuple]
        return Numbered(self._batch.stage(trees, queue), found.blocks, found.loose)

    def _spare(self, loose: bool) -> set[str]:
        """Return the columns that rows with ids do not need."""
        return {*HIDDEN} - ({SOURCE} if loose else set())

    def _expect(self, rows: Callable[[], int]) -> None:
        """Raise _GapsError if offsets gave the blocks, and some of them have no row."""
        if self._offsets is not None and rows() != self._offsets:
            raise _GapsError

    def _from_offsets(self, df: DataFrame, ids: Counted) -> list[Group] | None:
        """Return the numberings of a batch of Kafka's source, if a plan tells them."""
        batch, attempt = self._batch, self._attempt
        gaps = batch.shared.has_gaps(batch.query_id)
        if ids.kafka is None or not isinstance(attempt, int) or gaps:
            return None
        found = offset_groups(df, ids.kafka, attempt)
        rows = sum(group[-1] for group in found or ())
        if not found or (not batch.freezes and batch.shared.limited(rows) == "executors"):
            return None
        self._offsets = rows
        return found

    def _counted(
        self, df: DataFrame, ids: Counted, least: int = LEAST, freeze: bool = False
    ) -> Numbered:
        columns = {PREFIX: ids.prefix, NUMBER: ids.number, ATTEMPT: self._tried()}
        trees = df.withColumns(columns)
        kind = trees.schema[NUMBER].dataType
        if not isinstance(kind, ByteType | ShortType | IntegerType | LongType):
            raise InvalidBatchError(
                f"a record's number must be a whole number, not {kind.simpleString()}; give other "
                "source ids as a STRING column"
            )
        if not isinstance(kind, LongType):
            trees = trees.withColumn(NUMBER, F.col(NUMBER).cast("bigint"))
        batch = self._batch
        known = None if freeze else self._from_offsets(df, ids)
        if known is None and (self._queue is None or freeze):
            trees = batch.freeze(trees)
        whose = (self._lane, batch.batch_id)
        name, large = self._names.anchor, batch.shared.is_large(batch.query_id)
        if known is None and not batch.kept(trees):
            known = _known(trees)
        with batch.steps("read_ids"):
            found = number(trees, name, self._source, whose, batch.ids, least, large, known)
        return Numbered(self._with_ids(found), found.blocks, found.loose)

    def _in_ledger(self, df: DataFrame, source_id: str | Column, ledger: Ledger) -> Numbered:
        """Number the records by their source ids, and write the numbering to the ledger."""
        batch = self._batch
        named = df.withColumn(SOURCE, self._source_id(df, source_id))
        # The number of parts depends on the records alone, so the same records get the same numbers
        # on any cluster.
        with batch.steps("read_ids"):
            parts = max(1, -(-named.count() // (_PART_BLOCKS * SLOTS)))
        placed = named.repartition(parts, SOURCE).withColumnRenamed(SOURCE, _SAVED)
        twice = F.count("*").over(Window.partitionBy(_SAVED))
        placed = placed.withColumn(_TWICE, twice).sortWithinPartitions(_SAVED)
        place = F.monotonically_increasing_id()
        name = f"{batch.application.app_id}.{batch.query_id}.{batch.batch_id}"
        part = F.shiftright(place, 33).cast("string")
        ids = counted(F.lit(name), part, number=place.bitwiseAND(F.lit(2**33 - 1)))
        found = self._counted(placed, ids, least=1, freeze=True)
        nulls = F.count(F.when(F.col(_SAVED).isNull(), 1)).alias("nulls")
        with batch.steps("read_ids"):
            [worst] = found.trees.agg(F.max(_TWICE).alias("n"), nulls).collect()
        if worst["nulls"]:
            raise InvalidBatchError(
                f"{worst['nulls']} rows have no source id: it must not be null; {ELSEWHERE}"
            )
        if (worst["n"] or 0) > 1:
            raise InvalidBatchError(
                f"a source id occurs {worst['n']} times in this batch: make it unique; {ELSEWHERE}"
            )
        kept = found.trees.selectExpr(f"`{self._names.anchor}` AS anchor", f"{_SAVED} AS source_id")
        with batch.steps("write"):
            ledger.write(kept, batch.name, batch.batch_id, replace=not self._again)
        return found

    def _track(self, found: Numbered) -> tuple[Place, Done]:
        batch, trees, name = self._batch, found.trees, self._names.anchor
        terms = []
        row = [f"`{name}` AS anchor", " ^ ".join(f"`{each}`" for each in self._ids) + " AS delta"]
        mixed = bool(found.blocks) and found.loose
        if found.blocks:
            files = self._columns(trees, True if mixed else None)
            mine = trees.where(in_blocks(name)) if mixed else trees
            terms.append(Terms(Kind.TRACK, partial(mine.selectExpr, *row), files))
        if found.loose:
            mine = trees.where(~in_blocks(name)) if mixed else trees
            loose = partial(mine.selectExpr, *row, f"`{self._text}` AS text")
            if self._key:
                terms.append(Terms(Kind.TRACK, partial(_merged, loose())))
            else:
                files = self._columns(trees, False if mixed else None, text=self._text)
                terms.append(Terms(Kind.TRACK, loose, files))
        job = batch.job(self._source, {block.number: block.label for block in found.blocks})
        with batch.steps("read_ids"):
            place = batch.shared.place(
                trees, batch.query_id, terms=terms, rows=None if batch.freezes else self._offsets
            )
        # Absent slots count as pending, too.
        counts = [0] * job.shards
        for block in found.blocks:
            counts[block.number % job.shards] += block.slots
        if place == "driver":
            with batch.steps("read_ids"):
                packed = list(collected(terms, job.shards))
            self._expect(lambda: sum(each.terms for each in packed))
            for each in packed:
                counts[each.shard] += each.terms if each.block == LOOSE else 0
            self._wait(counts)
            return place, in_driver(job, packed, batch.steps)
        if found.loose:
            shard_of = (F.col("anchor") % job.shards).alias("shard")
            with batch.steps("read_ids"):
                for shard, rows in terms[-1].df.groupBy(shard_of).count().collect():
                    counts[shard] += rows
        self._wait(counts)
        return place, apply(job, terms, place, batch.keep, batch.steps)

    def _columns(self, trees: DataFrame, in_blocks: bool | None, **more: str) -> IdColumns | None:
        """Return the columns of the terms in staged files; None if there are none."""
        first, *others = self._ids
        names = {"anchor": self._names.anchor, "delta": first, **more}
        files = self._batch.id_columns(trees, names)
        if files is None:
            return None
        return replace(files, in_blocks=in_blocks, others=tuple(others))

    def _wait(self, slots: list[int]) -> None:
        # If the batch was tracked before, its own trees may fill the table.
        max_wait = self._batch.application.max_wait
        self._waited = wait_for_room(self._client, self._source, slots, max_wait, self._again)

    def _messages(self, trees: DataFrame, report: Report) -> DataFrame:
        names = self._names
        if report.changed:
            trees = trees.limit(0)
        if report.rejected:
            trees = self._without(trees, F.col(names.anchor), report.rejected)
        if report.rejected_blocks:
            block = F.shiftright(names.anchor, 12).bitwiseAND(F.lit(BLOCK_MAX))
            block = F.when(in_blocks(names.anchor), block).otherwise(F.lit(-1))
            trees = self._without(trees, block, report.rejected_blocks)
        if self._queue is not None:
            return self._batch.returned(trees, trees.drop(SOURCE))
        if len(self._edges) == 1:
            more = F.lit(self._edges[0]).alias(names.edge), F.col(self._ids[0]).alias(names.tuple)
            return trees.select("*", *more).drop(*HIDDEN, _SAVED, _TWICE, *self._ids)
        # A row for each edge, from the same ids that were tracked.
        ways = [
            f"named_struct('{names.edge}', cast(X'{edge.encode().hex()}' AS STRING), "
            f"'{names.tuple}', {column})"
            for edge, column in zip(self._edges, self._ids, strict=True)
        ]
        messages = trees.selectExpr("*", f"inline(array({', '.join(ways)}))")
        return messages.drop(*HIDDEN, _SAVED, _TWICE, *self._ids)

    def _without(self, trees: DataFrame, key: Column, rejected: tuple[int, ...]) -> DataFrame:
        if len(rejected) <= _FEW:
            return trees.where(~key.isin(list(rejected)))
        excluded = trees.sparkSession.createDataFrame(
            [(each,) for each in rejected], "_rejected BIGINT"
        )
        return trees.join(F.broadcast(excluded), key == F.col("_rejected"), "left_anti")

    def _with_ids(self, found: Numbered) -> DataFrame:
        """Return the trees with one more column for the id of each of their messages.

        The anchor of a loose tree comes again with its source id, that of a tree in a block never.
        """
        name = self._names.anchor
        made = dict(zip(self._ids, self._edges, strict=True))
        run = self._batch.run if found.loose else ""
        alone = in_blocks(name) if found.blocks else None
        return self._batch.ids.add_messages(found.trees, name, made, self._key, run, alone)

    def _tried(self) -> Column:
        """Return the attempts: INT, not null."""
        if isinstance(self._attempt, int):
            # Without ANSI mode the cast would turn 2^32 into 0, which is another attempt.
            if not -(2**31) <= self._attempt < 2**31:
                raise InvalidBatchError(f"an attempt must fit an INT, not {self._attempt}")
            return F.expr(f"cast({self._attempt} AS INT)")
        wraps = ~self._attempt.cast("bigint").between(-(2**31), 2**31 - 1)
        refused = F.raise_error("an attempt must fit an INT")
        tried = F.when(wraps, refused.cast("int")).otherwise(self._attempt.cast("int"))
        return F.coalesce(tried, F.lit(0))

    def _source_id(self, df: DataFrame, source_id: str | Column) -> Column:
        if isinstance(source_id, str):
            check_case(df, source_id)
        column = F.col(source_id) if isinstance(source_id, str) else source_id
        kind = df.select(column.alias("s")).schema["s"].dataType
        if not isinstance(kind, StringType):
            raise InvalidBatchError(
                f"a source id must be a string, not {kind.simpleString()}: make it with "
                "source_id(), or with counted() for numbered records"
            )
        return column

    def _check(self, df: DataFrame) -> None:
        for name in (self._names.anchor, self._names.tuple, self._names.edge):
            check_case(df, name)
            if name in df.columns:
                raise InvalidBatchError(
                    f"column {name} exists already, and track() adds it: drop it first, or choose "
                    "another name for the added column: Acker(.., names=Names(..))"
                )


def _known(trees: DataFrame) -> list[Group] | None:
    """Return the numbering of all records, if the files of the source tell it."""
    same = constants(trees.select(PREFIX, ATTEMPT))
    numbers = number_range(trees.select(NUMBER)) if same else None
    return [(same[0], same[1], *numbers)] if same and numbers else None


def check_key(
    key: str | Column | Sequence[str | Column],
    source_id: str | Column | Counted,
    ledger: Ledger | None,
) -> list[str | Column]:
    """Return the columns of the key. Raise ConfigError if they need trees in blocks."""
    columns = [key] if isinstance(key, str | Column) else list(key)
    if columns and (isinstance(source_id, Counted) or ledger):
        raise ConfigError(
            "key= needs a STRING source id, and an Acker without a ledger: a tree in a block "
            "belongs to one batch, so rows of one source id in two batches would be two trees "
            "without a conflict"
        )
    return columns


def _merged(rows: DataFrame) -> DataFrame:
    """Return one row for each tree of several rows, with the XOR of their deltas.

    Equal rows would cancel. A tree that has some is returned twice, which the fold refuses.
    """
    repeats = "count(*) > count(DISTINCT delta)"
    trees = rows.groupBy("anchor", "text").agg(
        F.expr("bit_xor(delta)").alias("delta"), F.expr(f"if({repeats}, 2, 1)").alias("times")
    )
    return trees.selectExpr("anchor", "delta", "explode(array_repeat(text, times)) AS text")


_SAVED = "_acker_saved"
