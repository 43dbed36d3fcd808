"""A small pipeline with known verdicts: a source, a bolt in the middle, and a last bolt.

Record ``i`` has the source id ``r<i // 360>/<number>``. Even prefixes have consecutive numbers, and
odd ones have gaps between them. The last digit of ``i`` decides its verdict:

==  ==================================================  ====================
3   the middle fails it                                 nack failed
4   the middle filters it: it is acked alone            ack completed
5   the middle drops it: it has vanished                nack failed
6   the last bolt leaves one of its children            nack expired
..  two children, both processed                        ack completed
==  ==================================================  ====================

Functions whose first argument is a session run on a :class:`Stage`; the others run in the tests.
"""

import contextlib
import os
import signal
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.protocol.labels import source_id_of
from acker_redis.rotator.rotator import Rotator
from acker_redis.spark import Acker, Counted, FileQueue, counted
from acker_redis.spark.acker import Mode
from acker_redis.sync.client import Acker as Client

RECORDS = 2520
VANISHED = "vanished"
"""Begin of the reason of a tree with a message that vanished; its end names batch and query."""
PER_PREFIX = 360
EDGE = "work"
TASK = "t"
COLUMNS = "i BIGINT, anchor BIGINT, tuple BIGINT"
CHILDREN = "i BIGINT, anchor BIGINT, tuple BIGINT, k INT"

Kind = Literal["loose", "counted"]
Verdict = tuple[str, str, str]


@dataclass(frozen=True)
class Case:
    """One run of the pipeline, in a separate namespace and folder."""

    url: str
    namespace: str
    folder: Path
    kind: Kind
    mode: Mode = "driver"
    on_changed: Literal["raise", "fail_trees"] = "raise"

    def acker(self, spark: SparkSession) -> Acker:
        return Acker(
            spark,
            self.namespace,
            app_id="app",
            url=self.url,
            mode=self.mode,
            timeout=60,
            on_changed_batch=self.on_changed,
            staging=str(self.folder / "staging"),
        )

    def queue(self, name: str) -> FileQueue:
        return FileQueue(self.folder / name)


def name_of(i: int) -> str:
    prefix, place = divmod(i, PER_PREFIX)
    return f"r{prefix}/{place * (1 + prefix % 2)}"


def expected() -> dict[str, list[Verdict]]:
    """Return the expected verdicts of each source id."""
    fates = {
        3: ("nack", "failed", "it is a three"),
        5: ("nack", "failed", VANISHED),
        6: ("nack", "expired", ""),
    }
    ack = ("ack", "completed", "")
    return {name_of(i): [fates.get(i % 10, ack)] for i in range(RECORDS)}


def records(spark: SparkSession) -> DataFrame:
    return spark.range(RECORDS).withColumnRenamed("id", "i").repartition(3, "i")


def ids(kind: Kind) -> Column | Counted:
    group = F.floor(F.col("i") / PER_PREFIX)
    prefix = F.concat(F.lit("r"), group.cast("string"))
    number = F.col("i") % PER_PREFIX * (1 + group % 2)
    if kind == "counted":
        return counted(prefix, number=number)
    return F.concat_ws("/", prefix, number.cast("string"))


def track(spark: SparkSession, case: Case, rows: DataFrame | None = None) -> dict[str, Any]:
    with case.acker(spark).batch(rows or records(spark), 0, query_id="source") as b:
        out = b.track(source=TASK, source_id=ids(case.kind), edges=EDGE)
    case.queue("tracked").write(out.drop("edge"), "source", 0)
    return asdict(b.report) if b.report else {}


def middle(spark: SparkSession, case: Case) -> dict[str, Any]:
    with case.acker(spark).batch(
        case.queue("tracked").read(spark, COLUMNS), 0, query_id="middle"
    ) as b:
        out = process(b)
    case.queue("children").write(out, "middle", 0)
    return asdict(b.report) if b.report else {}


def process(b: Any) -> DataFrame:
    """Process a batch of the bolt in the middle."""
    digit = F.col("i") % 10
    b.ack(b.df.where(digit == 4))
    b.fail(b.df.where(digit == 3), "it is a three")
    rows = b.df.where(~digit.isin(3, 4, 5))
    twice = rows.withColumn("k", F.explode(F.array(F.lit(0), F.lit(1))))
    found: DataFrame = b.emit(twice, edge="child", key=["k"])
    return found


def last(spark: SparkSession, case: Case) -> dict[str, Any]:
    rows = case.queue("children").read(spark, CHILDREN)
    with case.acker(spark).batch(rows, 0, query_id="last", unmentioned="leave") as b:
        done = b.df.where("i % 10 <> 6 or k = 0")
        b.write(done, case.queue("done"))
        b.ack(done)
    return asdict(b.report) if b.report else {}


COUNTERS = Counter(
    tracked=RECORDS,
    acked=7 * RECORDS // 10,
    failed=2 * RECORDS // 10,
    expired=RECORDS // 10,
)
"""Counters of a run without faults; all others are 0."""


STEPS = {"track": track, "middle": middle, "last": last}


def expire(client: Client) -> None:
    """Expire all trees."""
    for _ in range(client.config.buckets):
        Rotator([client]).step(force=True)


def settled(client: Client) -> tuple[dict[str, list[Verdict]], Counter[str]]:
    """Expire all trees; return all verdicts by source id, and the counters."""
    expire(client)
    found: dict[str, list[Verdict]] = {}
    waiting = client.outcomes(TASK)
    while entries := list(waiting.read()):
        for entry in entries:
            for o in entry:
                name = o.source_id if o.slot is None else source_id_of(o.source_id, o.anchor)
                why = VANISHED if o.why.startswith(VANISHED) else o.why
                found.setdefault(name, []).append((o.verdict, o.reason, why))
        waiting.take(entries)
    status = client.status()
    assert status.pending == 0
    return found, +Counter(status.counters)


def processed(case: Case) -> Counter[tuple[int, int]]:
    """Return how often the last bolt has processed each child (i, k)."""
    return Counter((row["i"], row["k"]) for row in _rows(case, "done"))


def reconcile(case: Case, client: Client, repeated: int | None = 0) -> None:
    """Check verdicts and counters against those of a run without faults.

    ``repeated`` is the number of calls that the fences must have skipped; None if it is unknown.
    """
    found, counters = settled(client)
    assert found == expected()
    check_processed(case, found)
    skipped = counters.pop("repeated", 0)
    assert counters == COUNTERS
    if repeated is not None:
        assert skipped == repeated


def check_processed(case: Case, found: dict[str, list[Verdict]]) -> None:
    """Check that each acked record was processed, and none was written or processed twice."""
    done = processed(case)
    assert not [each for each, times in done.items() if times > 1], "processed twice"
    for i in range(RECORDS):
        acked = any(verdict[0] == "ack" for verdict in found.get(name_of(i), ()))
        if acked and i % 10 != 4:
            assert done[i, 0] == done[i, 1] == 1, f"{i} was acked and not processed"
    for name in ("tracked", "children"):
        tuples = Counter(row["tuple"] for row in _rows(case, name))
        assert max(tuples.values(), default=0) <= 1, f"{name} was written twice"


def _rows(case: Case, name: str) -> list[dict[str, Any]]:
    files = sorted((case.folder / name).glob("batch-*/*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def picked(spark: SparkSession, case: Case, kill: bool = False) -> list[int]:
    """Track; then run a bolt that emits a random half of the records, and fails the others.

    With ``kill``, all executors are killed once the rows are evaluated. Return the records that
    were emitted.
    """
    acker = case.acker(spark)
    df = spark.range(0, 60, 1, 1).select(
        F.col("id").alias("i"), F.col("id").cast("string").alias("s")
    )
    with acker.batch(df, 0, query_id="source") as b:
        messages = b.track(source=TASK, source_id="s")

    def chance(i: int) -> bool:
        time.sleep(0.07)  # long enough for another executor to take the partition, too
        return hash((os.getpid(), time.time_ns(), i)) % 2 == 0

    pick = F.udf(chance, "boolean").asNondeterministic()
    with acker.batch(messages, 0, query_id="bolt") as b:
        done = b.freeze(b.df.withColumn("pick", pick("i")))
        for each in executors(os.getpid()) if kill else ():
            os.kill(each, signal.SIGKILL)
        out = b.emit(done.where("pick"), edge=EDGE)
        b.fail(done.where("NOT pick"), "not picked")
    return [row.i for row in out.select("i").collect()]


def executors(driver: int) -> set[int]:
    """Return the process ids of the executors of a driver."""
    found = set()
    for each in psutil.Process(driver).children(recursive=True):
        # A worker of Python that has just ended has no command.
        with contextlib.suppress(psutil.NoSuchProcess):
            if each.name() == "java" and "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()):
                found.add(each.pid)
    return found
