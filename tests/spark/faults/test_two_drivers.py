"""Two drivers run the same batch at once: it is applied and written once, or by one of them."""

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
    """A second driver."""
    with Stage(tmp_path_factory.mktemp("twin"), "local[2,4]") as running:
        yield running


def track_some(spark: SparkSession, case: Case, modulo: int) -> None:
    """Track under the same number, but not all of it."""
    rows = records(spark).where(f"i % {modulo} <> 0")
    with case.acker(spark).batch(rows, 0, query_id="source") as b:
        out = b.track(source=TASK, source_id=ids(case.kind), edges=EDGE)
    case.queue("tracked").write(out.drop("edge"), "source", 0)


@pytest.mark.parametrize(
    ("kind", "mode", "step", "where"),
    [
        ("loose", "driver", "track", "standing"),
        ("loose", "executors", "middle", "sent"),
        ("counted", "driver", "middle", "sent"),
        ("counted", "driver", "track", "write"),
    ],
)
def test_the_same_content(
    stage: Stage,
    twin: Stage,
    make_case: MakeCase,
    kind: Kind,
    mode: Mode,
    step: str,
    where: str,
) -> None:
    """One stops on its way, the other does all of it, and then the first goes on."""
    case, client = make_case(4, kind)
    both = replace(case, mode=mode)
    for name, function in STEPS.items():
        if name != step:
            stage.run(function, case)
            continue
        # Of tracking, the first look at the lane is whether it must wait for room.
        fault = stage.plan(where, 2 if (where, name) == ("standing", "track") else 1, "wait")
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
def test_other_content(stage: Stage, twin: Stage, make_case: MakeCase, kind: Kind) -> None:
    """Both have looked at the lane, and found it free. What is written is what was tracked."""
    case, client = make_case(4, kind)
    first, second = stage.plan("standing", 2, "wait"), twin.plan("standing", 2, "wait")
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


def test_other_content_shard_by_shard(stage: Stage, twin: Stage, make_case: MakeCase) -> None:
    """Each is the first on some shard: then neither goes on, nothing is written, all is told."""
    case, client = make_case(4, "loose")
    first, second = stage.plan("standing", 2, "wait"), twin.plan("standing", 2, "wait")
    for running, modulo in ((stage, 7), (twin, 11)):
        running.begin(track_some, case, modulo)
    for fault in (first, second):
        fault.wait()
        fault.lift()
    # The first stops after shard 0; the second meets it there.
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
