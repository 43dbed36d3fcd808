"""Apply the terms of a micro-batch, from the executors or from the driver.

Both ways give the same calls: pack the terms per partition, bring the packed rows of each shard
together, merge them, and send the shard's calls under the query's lane. ``executors`` does this in
tasks, with one shuffle of packed rows; the driver receives counts only. ``driver`` collects the
terms (16 bytes each, and texts), and is faster for up to about a million terms.

**Each batch is applied once, with one content.** A batch has one digest, over the contents of all
shards. Before the first call is sent, the driver reads the query's lane on every shard. (With one
shard and ``executors``, the task that sends reads it.) Three cases:

- No shard has a call of this batch: send the calls in generation 0.
- The lane has the same digest: the batch is a retry, so send the same calls under the same numbers.
  The fence skips those that were applied.
- The lane has another digest: the batch came back with other content. Raise ChangedBatchError, or
  fail all its trees in a new generation (``on_changed_batch``).

With several shards, ``executors`` runs two Spark jobs. The first merges and checks all shards, and
gives the digest. Only the second sends, so a batch that one shard refuses changes no shard.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from acker_redis import errors
from acker_redis.errors import (
    AckerError,
    ChangedBatchError,
    InvalidBatchError,
    WrongShardError,
)
from acker_redis.spark.fold import lanes, unreachable
from acker_redis.spark.fold.content import Content, Sealed
from acker_redis.spark.fold.id_columns import IdColumns
from acker_redis.spark.fold.report import ShardReport
from acker_redis.spark.fold.steps import Steps
from acker_redis.spark.fold.target import Target
from acker_redis.spark.fold.terms import ARROW_SCHEMA, SPARK_SCHEMA, Kind, Packed, Packer, bad
from acker_redis.spark.fold.vanished import Unmentioned

OnChanged = Literal["raise", "fail_trees"]
Place = Literal["driver", "executors"]
_ROWS_PER_BATCH = 64
_TERM = {"anchor": "BIGINT", "delta": "BIGINT", "text": "STRING", "parent": "BIGINT"}


@dataclass(frozen=True)
class Terms:
    """The terms of one kind, a DataFrame with the columns that the kind needs.

    Columns: ``anchor`` BIGINT; ``delta`` BIGINT for all kinds with a delta; ``text`` STRING for
    FAIL, and for TRACK of loose trees. A CHILD or a PART may have ``parent`` BIGINT, the id of its
    input: it stands for a MENTION term.
    """

    kind: Kind
    plan: Callable[[], DataFrame]
    """It makes the DataFrame. That takes some milliseconds, and readers of ``files`` need none."""
    files: IdColumns | None = None
    """The same rows in committed files that the driver can read by itself."""

    @cached_property
    def df(self) -> DataFrame:
        """The rows."""
        return self.plan()

    def without_parent(self) -> "Terms":
        """Return the terms without the mentions that they stand for."""
        files = self.files
        if files is not None:
            names = {name: column for name, column in files.names.items() if name != "parent"}
            files = replace(files, names=names)
        return Terms(self.kind, lambda: self.df.drop("parent"), files)


@dataclass(frozen=True)
class Job:
    """The settings that all calls of a micro-batch share; pickled to the executors."""

    target: Target
    shards: int
    lane: str
    batch_id: int
    on_changed: OnChanged = "raise"
    source: str = ""
    labels: Mapping[int, str] = field(default_factory=dict)
    """Labels of the tracked blocks, by block number."""
    unmentioned: Unmentioned = "ack"
    why_vanished: str = ""


@dataclass(frozen=True)
class Done:
    """The reports of the shards, and whether the batch came back with other content."""

    shards: tuple[ShardReport, ...]
    changed: bool


Keep = Callable[[DataFrame], DataFrame]
"""A function that evaluates rows once, and returns them as committed files."""


def apply(
    job: Job, terms: Sequence[Terms], place: Place, keep: Keep, steps: Steps | None = None
) -> Done:
    """Apply terms. Raises what :func:`lanes.send` and :meth:`Content.seal` raise."""
    steps = steps or Steps()
    if place == "driver":
        return in_driver(job, collected(terms, job.shards), steps)
    return _in_executors(job, terms, keep, steps)


def in_driver(job: Job, packed: Iterable[Packed], steps: Steps | None = None) -> Done:
    """Merge packed rows and send them from this process, one shard after the other."""
    steps = steps or Steps()
    with steps("read_ids"):
        rows = list(packed)

    def seal(why: str | None) -> tuple[dict[int, Sealed], str]:
        contents: dict[int, Content] = {}
        with steps("fold"):
            for row in rows:
                if row.shard not in contents:
                    contents[row.shard] = _content(job, row.shard, why)
                contents[row.shard].add(row)
            sealed = {shard: contents[shard].seal() for shard in sorted(contents)}
            return sealed, lanes.digest_of((n, each.digest) for n, each in sealed.items())

    client = job.target.client()
    sealed, digest = seal(None)
    why = None
    with steps("apply"):
        turn = _first_turn(job, digest)
    if turn is None:
        why = _why(job)
        sealed, digest = seal(why)
        turn = _next_turn(job, digest)
    with steps("apply"):
        reports = tuple(lanes.send(client, turn, each) for each in sealed.values())
    return Done(reports, why is not None)


def _in_executors(job: Job, terms: Sequence[Terms], keep: Keep, steps: Steps) -> Done:
    packed = [each.df.mapInArrow(_packing(each.kind, job.shards), SPARK_SCHEMA) for each in terms]
    if not packed:
        return in_driver(job, [], steps)
    together = reduce(DataFrame.unionAll, packed)
    if job.shards == 1:
        with steps("apply"):
            found = _results(_by_shard(together, 1), job, None)
        # The batch is empty, so no task ran. The lane must be checked all the same.
        return _done(found) if found else in_driver(job, [], steps)
    # All shards are merged and checked before a call is sent to any shard.
    with steps("read_ids"):
        together = _by_shard(keep(together), job.shards)
    with steps("fold"):
        digests = _digests(_results(together, job, Sealing(None)))
    turn, why = _first_turn(job, lanes.digest_of(digests.items())), None
    if turn is None:
        why = _why(job)
        with steps("fold"):
            digests = _digests(_results(together, job, Sealing(why)))
        turn = _next_turn(job, lanes.digest_of(digests.items()))
    with steps("apply"):
        done = _done(_results(together, job, Sending(turn, why, digests)))
    return Done(done.shards, why is not None)


@dataclass(frozen=True)
class Sealing:
    """The phase in which a task merges and checks its shards, and returns their digests."""

    why: str | None


@dataclass(frozen=True)
class Sending:
    """The phase in which a task merges its shards again and sends the calls."""

    turn: lanes.LaneTurn
    why: str | None
    digests: dict[int, str]
    """The digest of each shard's content, from the first phase."""


Phase = Sealing | Sending | None
"""None: check and send in one phase, for a namespace with one shard."""


def _applied_content(job: Job) -> lanes.AppliedContent | None:
    """Return the content of this batch that was applied before; None if none was.

    Raises WrongShardError if the batch was packed for another number of shards.
    """
    client = job.target.client()
    before = lanes.applied_content(client, job.lane, job.batch_id)
    if client.config.shards != job.shards:
        # Some shards would apply such calls and others refuse them. A retry with the new number of
        # shards would then have another digest.
        raise WrongShardError(
            f"{client.namespace} was resharded to {client.config.shards} shards, or created again: "
            "run the batch again"
        )
    return before


def _first_turn(job: Job, digest: str) -> lanes.LaneTurn | None:
    """Return the turn of a new batch, or of a retry; None if all trees of the batch must fail."""
    before = _applied_content(job)
    if before is None or before.digest == digest:
        generation = before.generation if before else 0
        return lanes.LaneTurn(job.lane, job.batch_id, generation, digest)
    if job.on_changed == "raise":
        raise lanes.changed(job.batch_id)
    return None


def _next_turn(job: Job, digest: str) -> lanes.LaneTurn:
    """Return the turn that fails all trees of a batch that came back with other content.

    ``digest`` is the digest of these failures. If the lane has this digest, the turn is a retry.
    """
    before = _applied_content(job)
    generation = before.generation if before else 0
    if before is None or before.digest != digest:
        generation += 1
    if generation >= lanes.GENERATIONS:
        raise ChangedBatchError(
            f"batch {job.batch_id} came back with other content {lanes.GENERATIONS} times; make "
            "its plan deterministic"
        )
    return lanes.LaneTurn(job.lane, job.batch_id, generation, digest)


def _why(job: Job) -> str:
    return f"batch {job.batch_id} came back with other content"


def _content(job: Job, shard: int, why: str | None) -> Content:
    return Content(
        shard, job.shards, job.source, job.labels, why, job.unmentioned, job.why_vanished
    )


def _work(job: Job, phase: Phase, rows: Sequence[Packed]) -> Iterator[dict[str, Any]]:
    """Do one phase in a task, for the shards whose rows the task has."""
    by_shard: dict[int, list[Packed]] = {}
    for row in rows:
        by_shard.setdefault(row.shard, []).append(row)
    for shard, its in sorted(by_shard.items()):
        if phase is None:
            done = in_driver(job, its)
            yield {"shard": shard, "report": done.shards[0].to_json(), "changed": done.changed}
            continue
        content = _content(job, shard, phase.why)
        for row in its:
            content.add(row)
        sealed = content.seal()
        if isinstance(phase, Sealing):
            yield {"shard": shard, "digest": sealed.digest}
        else:
            if sealed.digest != phase.digests.get(shard):
                raise lanes.changed(job.batch_id)
            report = lanes.send(job.target.client(), phase.turn, sealed)
            yield {"shard": shard, "report": report.to_json()}


def _results(together: DataFrame, job: Job, phase: Phase) -> list[Any]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [row for batch in batches for row in _rows(batch)]
        try:
            found = list(_work(job, phase, rows))
        except AckerError as error:
            found = [{"shard": -1, "error": type(error).__name__, "words": str(error)}]
        if found:
            yield pa.RecordBatch.from_pylist(found, schema=_RESULT_ARROW)

    found = together.mapInArrow(work, _RESULT_SPARK).collect()
    for row in found:
        if row["error"]:
            kind = getattr(errors, row["error"], AckerError)
            raise unreachable.of_task(kind(row["words"]), job.target)
    return found


_RESULT_ARROW = pa.schema(
    [
        ("shard", pa.int32()),
        ("digest", pa.string()),
        ("report", pa.string()),
        ("changed", pa.bool_()),
        ("error", pa.string()),
        ("words", pa.string()),
    ]
)
_RESULT_SPARK = (
    "shard INT, digest STRING, report STRING, changed BOOLEAN, error STRING, words STRING"
)


def _digests(found: Sequence[Any]) -> dict[int, str]:
    return {row["shard"]: row["digest"] for row in found}


def _done(found: Sequence[Any]) -> Done:
    reports = sorted(
        (ShardReport.from_json(row["report"]) for row in found), key=lambda each: each.shard
    )
    return Done(tuple(reports), any(row["changed"] for row in found))


def _by_shard(packed: DataFrame, shards: int) -> DataFrame:
    """Return the rows in one partition per shard.

    The content of a partition depends only on the content of the batch, not on its partitions.
    """
    if hasattr(packed, "repartitionById"):
        return packed.repartitionById(shards, "shard")
    return packed.repartition(shards, "shard")


def _packing(kind: Kind, shards: int) -> Any:
    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packer = Packer(shards)
        try:
            for batch in batches:
                yield from _batches(_added(packer, kind, pa.table(batch)))
            yield from _batches(packer.finish())
        except InvalidBatchError as error:
            yield from _batches(bad(error, shards))

    return pack


def _added(packer: Packer, kind: Kind, table: pa.Table) -> Iterator[Packed]:
    anchors, deltas, texts = _columns(table)
    yield from packer.add(kind, anchors, deltas, texts)
    if "parent" in table.column_names:
        yield from packer.add(Kind.MENTION, anchors, _ints(table, "parent"))


def collected(terms: Sequence[Terms], shards: int) -> Iterator[Packed]:
    """Yield the packed terms of all kinds: those in files, and others by one Spark job."""
    packer = Packer(shards)
    for each in terms:
        for table in each.files.tables() if each.files else ():
            yield from _added(packer, each.kind, table)
    yield from _by_spark([each for each in terms if each.files is None], packer)
    yield from packer.finish()


def _by_spark(terms: Sequence[Terms], packer: Packer) -> Iterator[Packed]:
    # TRACK terms of loose trees have texts, TRACK terms in blocks have none: pack them separately.
    tags: dict[tuple[Kind, tuple[str, ...]], int] = {}
    every: list[DataFrame] = []
    found = [each.df.columns for each in terms]
    used = {name: sql for name, sql in _TERM.items() if any(name in some for some in found)}
    for each, some in zip(terms, found, strict=True):
        columns = tuple(name for name in used if name in some)
        tag = tags.setdefault((each.kind, columns), len(tags))
        cells = [n if n in some else f"cast(NULL AS {sql}) AS {n}" for n, sql in used.items()]
        every.append(each.df.selectExpr(f"{tag} AS tag", *cells))
    if not every:
        return
    table = _table(reduce(DataFrame.unionAll, every))
    tagged = table.column("tag").to_numpy()
    for (kind, columns), tag in tags.items():
        mine = table.filter(pa.array(tagged == tag)) if len(tags) > 1 else table
        yield from _added(packer, kind, mine.select(list(columns)))


def _table(df: DataFrame) -> pa.Table:
    if hasattr(df, "toArrow"):
        return df.toArrow()
    # Spark 3.5: this is what its toPandas() calls. A DataFrame of pandas would turn a column of
    # BIGINT with nulls into floats, which have 53 bits.
    batches = df._collect_as_arrow()  # type: ignore[operator]
    return pa.Table.from_batches(batches) if batches else _NO_TERMS.empty_table()


_NO_TERMS = pa.schema(
    [
        ("tag", pa.int32()),
        ("anchor", pa.int64()),
        ("delta", pa.int64()),
        ("text", pa.string()),
        ("parent", pa.int64()),
    ]
)


def _columns(table: pa.Table) -> tuple[Any, Any, Any]:
    """Return anchors, deltas and texts of a table of terms; None for a missing column."""
    anchors = _ints(table, "anchor")
    deltas = _ints(table, "delta") if "delta" in table.column_names else None
    if "text" not in table.column_names:
        return anchors, deltas, None
    return anchors, deltas, table.column("text").combine_chunks()


def _ints(table: pa.Table, name: str) -> Any:
    column = table.column(name)
    if column.null_count:
        raise InvalidBatchError(
            f"{column.null_count} rows have no {'anchor' if name == 'anchor' else 'tuple'}: keep "
            "the columns anchor and tuple that a message came with, also through joins"
        )
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _rows(batch: pa.RecordBatch) -> Iterator[Packed]:
    for row in batch.to_pylist():
        yield Packed(**{**row, "kind": Kind(row["kind"])})


def _batches(packed: Iterable[Packed]) -> Iterator[pa.RecordBatch]:
    some: list[Packed] = []
    for row in packed:
        some.append(row)
        if len(some) == _ROWS_PER_BATCH:
            yield _batch(some)
            some = []
    if some:
        yield _batch(some)


def _batch(rows: Sequence[Packed]) -> pa.RecordBatch:
    columns = [
        pa.array([getattr(row, each.name) for row in rows], each.type) for each in ARROW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)
