"""Find trees that Redis has lost, from DataFrames: tracked trees, and a table of verdicts."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import InvalidBatchError
from acker_redis.flows.lost import StoredVerdicts
from acker_redis.protocol.ids import ANCHOR_MAX
from acker_redis.protocol.keys import check_name
from acker_redis.protocol.labels import CountedLabel
from acker_redis.spark.acker import Acker
from acker_redis.spark.streams.outcome_rows import SCHEMA
from acker_redis.trees.lost import StoredVerdict, TrackedTree

_BEGIN, _COUNT, _VERDICTS = "_begin_ms", "_trees", "_verdicts"


def lost(
    acker: Acker,
    source: str,
    tracked: DataFrame,
    verdicts: Callable[[], DataFrame],
    *,
    within: float = 600.0,
) -> DataFrame:
    """Return a nack of reason ``lost`` for each tree that Redis has lost.

    A failover or a cut log can lose trees that were tracked: they are not pending, and get no
    verdict. :class:`ReplayWriter` takes the rows like other nacks, and replays each tree once,
    also if a later call returns it again.

    Candidates, trees without a verdict in the table, come to the driver: in normal operation these
    are the pending trees.

    Args:
        acker: The acker of the application that tracked the trees.
        source: The name under which the trees were tracked.
        tracked: The trees that were tracked: ``anchor`` BIGINT, ``source_id`` STRING, ``at``
            TIMESTAMP, about the time of the TRACK, and perhaps ``attempt`` INT. An anchor that was
            tracked in several batches has a row for each. For example the messages of a queue,
            which were written with ``F.current_timestamp()``.
        verdicts: Returns the table of verdicts, with the columns of ``acker-outcomes``. It is
            called twice, and must read the table when it is called. The query that writes the table
            must be the one that reads the verdicts, in the same micro-batch.
        within: By how many seconds ``at`` of a tree may differ from the time of its TRACK on
            Redis's clock: the difference of clocks, and the time of a batch. A tree that is younger
            is not returned.

    Raises:
        BacklogError: The table lacks a verdict that was taken. Call this again later.
        InvalidBatchError: ``tracked`` lacks a column.
        AckerError: As :meth:`acker_redis.Acker.lost`.

    Examples:
        >>> rows = lost(acker, "shop", tracked, lambda: spark.read.parquet("/data/verdicts"))
        >>> replay(rows, batch_id)

    """
    check_name("source", source)
    if missing := {"anchor", "source_id", "at"} - {*tracked.columns}:
        raise InvalidBatchError(f"tracked needs the columns {', '.join(sorted(missing))}")
    attempt = F.col("attempt") if "attempt" in tracked.columns else F.lit(0)
    trees = tracked.select(
        "anchor", "source_id", F.unix_millis("at").alias("at"), attempt.alias("attempt")
    )
    candidates = [
        (TrackedTree(row["anchor"], row["source_id"], row["at"]), row["attempt"] or 0)
        for row in _open(trees, _each(verdicts(), source), round(within * 1000)).collect()
    ]
    attempts = dict(candidates)

    def table(anchors: list[int]) -> StoredVerdicts:
        stored = verdicts()
        newest = _of(stored, source).agg(F.max(F.unix_millis("at"))).collect()[0][0]
        asked = stored.sparkSession.createDataFrame([(each,) for each in anchors], "anchor BIGINT")
        found = _each(stored, source).join(F.broadcast(asked), "anchor")
        rows = found.select("anchor", F.unix_millis("at").alias("at"), "age_ms", "reason")
        return StoredVerdicts(
            newest or 0,
            [
                StoredVerdict(r["anchor"], r["at"], r["age_ms"], 1, r["reason"])
                for r in rows.collect()
            ],
        )

    found = acker.client.lost(source, attempts, table, within=within)
    now_ms = acker.client.status().shards[0].now_ms
    at = datetime.fromtimestamp(now_ms / 1000, UTC)
    rows: list[tuple[Any, ...]] = [
        (
            *(acker.namespace, source, "nack", "lost", "", each.anchor, each.source_id),
            *(now_ms - each.at_ms, at, 1, _label(each, attempts[each]), None, [], None, ""),
        )
        for each in found
    ]
    return tracked.sparkSession.createDataFrame(rows, SCHEMA)


def _of(verdicts: DataFrame, source: str) -> DataFrame:
    return verdicts.where(F.col("source") == source) if "source" in verdicts.columns else verdicts


def _each(verdicts: DataFrame, source: str) -> DataFrame:
    """Return one row for each tree that has a verdict."""
    places = F.sequence(F.lit(0).cast("bigint"), F.col("trees") - 1)
    rows = _of(verdicts, source).where("verdict <> 'touch'").withColumn("_place", F.explode(places))
    return rows.withColumn("anchor", F.col("anchor") + F.col("_place")).drop("_place")


def _open(trees: DataFrame, each: DataFrame, within_ms: int) -> DataFrame:
    """Return the trees of the anchors that have fewer verdicts than trees."""
    begins = each.select("anchor", (F.unix_millis("at") - F.col("age_ms")).alias(_BEGIN)).distinct()
    near = F.abs(F.col(_BEGIN) - F.col("at")) <= within_ms
    known = trees.join(begins, "anchor").where(near).select("anchor", _BEGIN).distinct()
    counts = trees.groupBy("anchor").agg(F.count("*").alias(_COUNT))
    counts = counts.join(
        known.groupBy("anchor").agg(F.count("*").alias(_VERDICTS)), "anchor", "left"
    )
    left = counts.where(F.col(_COUNT) > F.coalesce(_VERDICTS, F.lit(0))).select("anchor")
    return trees.join(left, "anchor")


def _label(tree: TrackedTree, attempt: int) -> str | None:
    """Return the label of a block of this tree alone, which names its attempt."""
    if tree.anchor <= ANCHOR_MAX:
        return None
    prefix, _, number = tree.source_id.rpartition("/")
    if not (prefix and number.isdecimal() and number == str(int(number))):
        prefix, number = tree.source_id, "0"
    return str(CountedLabel(prefix, int(number), attempt))
