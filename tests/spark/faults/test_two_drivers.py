"""Two drivers run the same batch concurrently: it is applied and written once, or by one."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from acker_redis.spark.acker import Mode
from tests.spark.faults.conftest import MakeCase
from tests.spark.faults.stage import Stage, StageError
from tests.spark.faults.streams import written
from tests.spark.faults.work import (
    EDGE,
    STEPS,
    TASK,
    Case,
    Kind,
    check_processed,
    ids,
    last,
    middle,
    reconcile,
    records,
    settled,
    track,
)


@pytest.fixture(scope="module")
def twin(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start a second driver."""
    with Stage(tmp_path_factory.mktemp("twin"), "local[2,4]") as running:
        yield running


def track_some(spark: SparkSession, case: Case, modulo: int) -> None:
    """Track a part of the records under the same batch id."""
    rows = records(spark).where(f"i % {modulo} <> 0")
    with case.acker(spark).batch(rows, 0, query_id="source") as b:
        out = b.track(source=TASK, source_id=ids(case.kind), edges=EDGE)
    case.queue("tracked").write(out.drop("edge"), "source", 0)


@pytest.mark.parametrize(
    ("kind", "mode", "step", "where"),
    [
        ("loose", "driver", "track", "applied_content"),
        ("loose", "executors", "middle", "sent"),
        pytest.param("counted", "driver", "middle", "sent", marks=pytest.mark.nightly),
        pytest.param("counted", "driver", "track", "write", marks=pytest.mark.nightly),
    ],
)
def test_second_driver_with_the_same_content_is_idempotent(
    stage: Stage,
    twin: Stage,
    make_case: MakeCase,
    kind: Kind,
    mode: Mode,
    step: str,
    where: str,
) -> None:
    """One driver pauses, the other applies the whole batch, and then the first continues."""
    case, client = make_case(4, kind)
    both = replace(case, mode=mode)
    for name, function in STEPS.items():
        if name != step:
            stage.run(function, case)
            continue
        # A batch that tracks reads the lane first for its wait for room.
        fault = stage.plan(where, 2 if (where, name) == ("applied_content", "track") else 1, "wait")
        stage.begin(function, both)
        fault.wait()
        calls = twin.run(function, both)["calls"]
        batches = [*written(case, "tracked"), *written(case, "children")]
        fault.go()
        report = stage.end()
        fault.lift()
        assert report["calls"] == calls
        assert [*written(case, "tracked"), *written(case, "children")] == batches
    reconcile(case, client, calls)


@pytest.mark.parametrize("kind", ["loose", "counted"])
def test_second_driver_with_other_content_is_refused(
    stage: Stage, twin: Stage, make_case: MakeCase, kind: Kind
) -> None:
    """Both have read the lane before either sent. The written records are the tracked ones."""
    case, client = make_case(4, kind)
    first, second = (
        stage.plan("applied_content", 2, "wait"),
        twin.plan("applied_content", 2, "wait"),
    )
    stage.begin(track_some, case, 7)
    twin.begin(track_some, case, 11)
    for fault in (first, second):
        fault.wait()
        fault.lift()
    first.go()
    stage.end()
    second.go()
    with pytest.raises(StageError, match="batch 0 came back with other content"):
        twin.end()
    assert len(written(case, "tracked")) == 1
    stage.run(middle, case)
    stage.run(last, case)
    found, counters = settled(client)
    assert counters["tracked"] == len(found) == 2520 - 360
    assert counters["conflict"] == 0
    check_processed(case, found)


def test_second_driver_with_other_content_on_some_shards_is_refused(
    stage: Stage, twin: Stage, make_case: MakeCase
) -> None:
    """The second driver finds calls of the first driver on shard 0, and is refused."""
    case, client = make_case(4, "loose")
    first, second = (
        stage.plan("applied_content", 2, "wait"),
        twin.plan("applied_content", 2, "wait"),
    )
    for running, modulo in ((stage, 7), (twin, 11)):
        running.begin(track_some, case, modulo)
    for fault in (first, second):
        fault.wait()
        fault.lift()
    # The first driver pauses after shard 0, where the second driver is refused.
    held = stage.plan("sent", 1, "wait")
    first.go()
    held.wait()
    second.go()
    with pytest.raises(StageError, match="batch 0 came back with other content|CONFLICT"):
        twin.end()
    held.go()
    stage.end()
    held.lift()
    assert len(written(case, "tracked")) == 1
    for step in (middle, last):
        stage.run(step, case)
    found, _ = settled(client)
    check_processed(case, found)
    with pytest.raises(StageError, match="batch 0 came back with other content"):
        twin.run(track, case)
