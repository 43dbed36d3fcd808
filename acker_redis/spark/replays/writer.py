"""The ``foreachBatch`` writer that replays nacked records after a back-off, and gives up at last.

A batch does four steps, each of which is a no-op if the batch runs again:

1. Keep its nacks, by the attempt that their records get.
2. Plan: which of the nacks that wait are due, as far as there is room for their trees.
3. Look up the records of the plan, keep them, track them and write their messages to the queues.
4. Write dead letters: the nacks of last attempts, and those whose record was not found.

``waiting.py`` keeps nacks, plan and records on disk, so verdicts do not wait in Redis meanwhile.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import BacklogError, ConfigError, HighWaterError, InvalidBatchError
from acker_redis.protocol.keys import check_name
from acker_redis.spark.acker import Acker
from acker_redis.spark.fold.lanes import applied_content
from acker_redis.spark.fold.report import Report
from acker_redis.spark.functions import Counted
from acker_redis.spark.micro_batch import MicroBatch
from acker_redis.spark.numbering import LEAST, MAX_SPREAD
from acker_redis.spark.replays.attempts import with_attempt
from acker_redis.spark.replays.waiting import Waiting
from acker_redis.spark.streams.outcome_rows import SCHEMA
from acker_redis.spark.streams.queue import FileQueue, Queue, check_queues
from acker_redis.spark.tracking import check_key
from acker_redis.spark.writers import hand_on
from acker_redis.trees.record import Backoff

log = logging.getLogger(__name__)

_ATTEMPT, _NEXT, _ID = "attempt", "next_attempt", "_replayed_id"
_BEGIN, _BY = "begin_ms", "kept_by"
_LOST = f"anchor BIGINT, {_BEGIN} BIGINT, {_BY} STRING"
_KEPT = f"{SCHEMA}, {_ATTEMPT} INT, {_NEXT} INT"
_LOTS = 16
"""An empty namespace has room for at least this number of files of nacks."""


class ReplayWriter:
    """A ``foreachBatch`` writer on verdicts: replays nacked records, each nack once.

    A nack of attempt n waits for the back-off, and then its record is tracked as attempt n + 1, and
    its messages go to the queues. After the last attempt the nack goes to the dead letters. Acks
    and touches are ignored. A nack for ``overflow`` does not use up an attempt, because no message
    of it was sent. A tree that Redis has lost is a row of :func:`lost`, with reason ``lost``: add
    such rows to the verdicts of a batch. Each lost tree is replayed once, also if it comes again.

    Nacks wait in files, and not in Redis: other verdicts are not held up, and a query that dies
    continues with the nacks that wait. They wait longer than the back-off while the namespace has
    no room for their trees.

    Args:
        acker: The acker of the application.
        source: The source whose nacks are replayed, as in :class:`TrackWriter`.
        queues: The queue for each edge, as in :class:`TrackWriter`.
        lookup: ``lookup(nacks)`` returns the records with the columns that ``source_id`` and
            ``key`` need. It may return more records than those of ``nacks``, which are ignored.
            ``nacks`` has the columns of verdicts, and ``attempt`` INT: the attempt that failed.
        dead_letters: A queue for the nacks that are given up, with the columns of verdicts,
            ``attempt``, and ``gave_up`` STRING: ``attempts`` after the last attempt, ``no record``
            if ``lookup`` returned none, ``unknown`` for a tree that Spark has not tracked for this
            source, or as an attempt that is not among the first ``attempts``.
        folder: A directory for the nacks that wait, on a file system with atomic rename that every
            driver of the query sees. It stays when the query gets a new checkpoint. One query uses
            it at a time.
        source_id: As in :meth:`MicroBatch.track`, the same that the first attempt had.
        key: As in :meth:`MicroBatch.track`. ``lookup`` then returns all rows of a source id.
        attempts: The maximum number of attempts of a record, with the first.
        backoff: The wait before a replay, by default 1, 2, 4, .. minutes, up to an hour.
        query_id: As in :meth:`Acker.batch`.

    Raises:
        ConfigError: An argument is invalid.

    Examples:
        >>> replay = ReplayWriter(
        ...     acker, "shop", {"price": queue}, source_id="order_id",
        ...     lookup=lambda nacks: spark.read.schema(ORDER).json("/data/orders"),
        ...     dead_letters=FileQueue("/data/given-up"), folder="/data/replays",
        ... )
        >>> writer = replay.read_stream(spark).writeStream.foreachBatch(replay)
        >>> query = writer.option("checkpointLocation", "/checkpoints/replay").start()

    """

    def __init__(
        self,
        acker: Acker,
        source: str,
        queues: Mapping[str, Queue],
        *,
        lookup: Callable[[DataFrame], DataFrame],
        dead_letters: Queue,
        folder: str | Path,
        source_id: str | Column | Counted = "source_id",
        key: str | Column | Sequence[str | Column] = (),
        attempts: int = 5,
        backoff: Backoff | None = None,
        query_id: str | None = None,
    ) -> None:
        if not queues:
            raise ConfigError("a replay needs at least one edge, with a queue to write to")
        check_queues({**queues, "the dead letters": dead_letters})
        if attempts < 1:
            raise ConfigError(f"attempts must be 1 or more, not {attempts!r}")
        self._acker = acker
        self._source = check_name("source", source)
        self._queues = dict(queues)
        self._lookup = lookup
        self._dead_letters = dead_letters
        self._source_id = source_id
        self._key = check_key(key, source_id, acker.application.ledger)
        self._attempts = attempts
        self._backoff = backoff or Backoff(first=60.0, most=3600.0)
        self._query_id = query_id
        self._folder = Path(folder) / f"{acker.namespace}@{source}"
        self._lost_before = FileQueue(self._folder / "lost")
        """The lost trees that were kept: anchor, and when they were tracked."""
        self._in_blocks = isinstance(source_id, Counted) or bool(acker.application.ledger)
        self.last_report: Report | None = None
        """The report of the last batch that replayed records."""

    def read_stream(self, spark: SparkSession, **options: str) -> DataFrame:
        """Return the verdicts of the source as a streaming DataFrame for this writer.

        Spark runs a batch only if there is something to read, and a nack may become due while no
        verdict comes. So the stream has a clock, which adds no rows. It needs Spark 4.2; before,
        let :class:`OutcomeBatches` call this writer.

        Args:
            spark: The session.
            **options: More options of ``format("acker-outcomes")``.

        """
        target = self._acker.application.target
        given = {"url": target.url, "namespace": target.namespace, "source": self._source}
        reader = spark.readStream.format("acker-outcomes").options(**given | options)
        verdicts, clock = reader.load(), spark.readStream.format("rate").load().where("false")
        nulls = [F.lit(None).cast(each.dataType).alias(each.name) for each in verdicts.schema]
        return verdicts.unionByName(clock.select(*nulls))

    def __call__(self, verdicts: DataFrame, batch_id: int) -> None:
        """Keep the nacks of a batch, and replay those that are due.

        Raises:
            DataLossError: The checkpoint was set back.
            InvalidBatchError: ``lookup`` returned a record twice, or invalid records. Nothing of
                the batch is replayed; the next run calls ``lookup`` again.
            AckerError: The records were not tracked; no message is written.

        """
        batch = self._acker.batch(verdicts, batch_id, query_id=self._query_id)
        waiting = Waiting(self._folder, batch.name, batch_id)
        waiting.begin()
        self._keep(verdicts, waiting, batch)
        files = waiting.plan(self._backoff.ceiling, self._room)
        if not files:
            return
        nacks = verdicts.sparkSession.read.schema(_KEPT).parquet(*files)
        records = self._replay(nacks.where(f"{_NEXT} IS NOT NULL"), batch, waiting)
        if records is not None:
            self._give_up(nacks, records, batch)

    def _keep(self, verdicts: DataFrame, waiting: Waiting, batch: MicroBatch) -> None:
        nacks = verdicts.where("verdict = 'nack'")
        if nacks.isEmpty():
            return
        lost = self._lost(nacks, batch)
        if lost is not None:
            nacks = nacks.where("reason <> 'lost'").unionByName(lost.select(*nacks.columns))
        if ledger := self._acker.application.ledger:
            nacks = ledger.name(nacks)
        nacks = with_attempt(nacks, self._acker, self._source, self._attempts, _ATTEMPT)
        after = F.col(_ATTEMPT) + F.when(F.col("reason") == "overflow", 0).otherwise(1)
        nacks = nacks.withColumn(_NEXT, F.when(after < self._attempts, after).cast("int"))
        nacks = nacks.select(*[column.split()[0] for column in _KEPT.split(", ")])
        most = max(1, self._records_in(self._acker.client.config.high_water) // _LOTS)
        for attempt, rows in sorted(nacks.groupBy(_NEXT).count().collect(), key=str):
            same = nacks.where(F.col(_NEXT).eqNullSafe(F.lit(attempt)))
            waiting.put(same.repartition(-(-rows // most)), attempt)
        if lost is not None:  # last: a batch that dies before must find them again
            known = lost.select("anchor", _BEGIN, F.lit(_run_of(batch)).alias(_BY))
            self._lost_before.write(known, batch.name, batch.batch_id)

    def _lost(self, nacks: DataFrame, batch: MicroBatch) -> DataFrame | None:
        """Return the nacks of lost trees that no earlier batch has kept; None without any.

        :func:`lost` returns a tree again until the table of verdicts has it.
        """
        lost = nacks.where("reason = 'lost'")
        if lost.isEmpty():
            return None
        lost = lost.withColumn(_BEGIN, F.unix_millis("at") - F.col("age_ms"))
        before = self._lost_before.read(nacks.sparkSession, _LOST)
        before = before.where(F.col(_BY) != _run_of(batch)).select("anchor", _BEGIN)
        key = ["anchor", _BEGIN]
        return lost.dropDuplicates(key).join(before, key, "left_anti")

    def _replay(self, nacks: DataFrame, batch: MicroBatch, waiting: Waiting) -> DataFrame | None:
        """Replay the records of these nacks, and return them; None if there is no room for them."""
        acker, spark = self._acker, nacks.sparkSession
        records = waiting.records(spark, lambda: self._found(nacks))
        if records.isEmpty():
            return records
        try:
            with acker.batch(records, batch.batch_id, query_id=batch.query_id) as b:
                messages = b.track(
                    source=self._source,
                    source_id=self._source_id,
                    key=self._key,
                    edges=list(self._queues),
                    attempt=F.col(_NEXT),
                ).drop(_NEXT)
        except (HighWaterError, BacklogError, ConfigError, InvalidBatchError) as error:
            lane = acker.application.lane(batch.query_id)
            if applied_content(acker.client, lane, batch.batch_id) is not None:
                raise
            # Verdicts must be taken meanwhile, and another run may find other records.
            waiting.postpone()
            if isinstance(error, ConfigError | InvalidBatchError):
                raise
            log.warning("%s: replays of %s wait: %s", acker.namespace, self._source, error)
            return None
        self.last_report = b.report
        hand_on(b, messages, self._queues, acker.application.names.edge)
        return records

    def _found(self, nacks: DataFrame) -> DataFrame:
        """Return the records of these nacks, each with its next attempt."""
        names = self._acker.application.names
        # A record may have two nacks, for example of two trees after a checkpoint was deleted.
        once = nacks.groupBy(F.col("source_id").alias(_ID)).agg(F.max(_NEXT).alias(_NEXT))
        records = self._lookup(nacks.drop(_NEXT))
        records = records.drop(names.anchor, names.tuple, names.anchors, names.edge)
        records.select(self._name(), *self._key).schema  # noqa: B018 - raises for a missing column
        return records.join(once, self._name() == F.col(_ID)).drop(_ID)

    def _give_up(self, nacks: DataFrame, records: DataFrame, batch: MicroBatch) -> None:
        known = records.select(self._name().alias(_ID)).distinct()
        missing = nacks.where(f"{_NEXT} IS NOT NULL")
        missing = missing.join(known, F.col("source_id") == F.col(_ID), "left_anti")
        why = F.when(F.col(_ATTEMPT).isNull(), "unknown").otherwise("attempts")
        last = nacks.where(f"{_NEXT} IS NULL").withColumn("gave_up", why)
        dead = last.unionByName(missing.withColumn("gave_up", F.lit("no record"))).drop(_NEXT)
        if not dead.isEmpty():
            self._dead_letters.write(dead, batch.name, batch.batch_id)

    def _name(self) -> Column:
        """Return the column of the source id of a record, as verdicts have it."""
        ids = self._source_id
        if isinstance(ids, Counted):
            return F.concat_ws("/", ids.prefix, ids.number.cast("string"))
        return F.col(ids) if isinstance(ids, str) else ids

    def _room(self) -> int:
        """Return the number of records that may be tracked now."""
        status = self._acker.client.status()
        config = status.config
        # This query itself takes the verdicts, so it must not wait for that.
        backlog = max(shard.backlog.get(self._source, 0) for shard in status.shards)
        if status.reshard or 2 * backlog >= config.backlog_share:
            return 0
        free = min(config.share - sum(shard.pending) for shard in status.shards)
        return self._records_in(max(0, free * len(status.shards)))

    def _records_in(self, free: int) -> int:
        """Return the number of records that surely fit, also if they have gaps between them."""
        return max(min(free, LEAST - 1), free // MAX_SPREAD) if self._in_blocks else free


def _run_of(batch: MicroBatch) -> str:
    return f"{batch.name}/{batch.batch_id}"
