"""The JVM of an executor is killed during a batch."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from acker_redis import Acker
from acker_redis.spark.acker import Mode
from tests.spark.faults.conftest import MakeCase
from tests.spark.faults.stage import Stage, StageError, spark_home
from tests.spark.faults.work import STEPS, TASK, Case, Kind, executors, picked, reconcile, track


def own_home(scratch: Path) -> Path:
    """Return a SPARK_HOME below which the workers of a cluster write."""
    home = scratch / "home"
    home.mkdir()
    for each in spark_home().iterdir():
        (home / each.name).symlink_to(each)
    return home


@pytest.fixture(scope="module")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start a driver with two executors in separate processes."""
    scratch = tmp_path_factory.mktemp("cluster")
    home = own_home(scratch)
    with Stage(scratch, "local-cluster[2,1,1024]", env={"SPARK_HOME": str(home)}) as running:
        yield running
    assert (home / "work").is_dir(), "the workers wrote to another folder"


@pytest.mark.parametrize(
    ("kind", "shards", "step", "where", "at"),
    [
        pytest.param("loose", 1, "middle", "sent", 2, marks=pytest.mark.nightly),
        pytest.param("loose", 4, "track", "sent", 2, marks=pytest.mark.nightly),
        ("loose", 1, "last", "pack", 1),
        pytest.param("counted", 4, "middle", "sent", 2, marks=pytest.mark.nightly),
    ],
)
def test_killed_executor_applies_each_call_once(
    cluster: Stage,
    make_case: MakeCase,
    kind: Kind,
    shards: int,
    step: str,
    where: str,
    at: int,
) -> None:
    """The rows of the batch are in committed files, which no executor holds."""
    case, client = make_case(shards, kind)
    for name, function in STEPS.items():
        if name != step:
            assert cluster.run(function, case)["repeated"] == 0
            continue
        before = executors(cluster.pid)
        fault = cluster.plan(where, at, "kill-executor")
        in_executors = replace(case, mode="executors")
        cluster.run(function, in_executors)
        assert fault.happened
        fault.lift()
        assert before - executors(cluster.pid), "no executor was killed"
        report = cluster.run(function, in_executors)
        assert report["repeated"] == report["calls"] > 0
    reconcile(case, client, None)


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_two_executors_do_not_evaluate_a_batch_twice(
    cluster: Stage, make_case: MakeCase, mode: Mode
) -> None:
    """With a lazy freeze, two executors computed different rows, and some were in no branch."""
    check_picked(cluster, *make_case(1, "loose"), mode)


def test_executors_that_die_after_the_evaluation_take_no_row_with_them(
    cluster: Stage, make_case: MakeCase
) -> None:
    """With rows in their memory, the query ended with CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND."""
    check_picked(cluster, *make_case(1, "loose"), "driver", kill=True)


def test_package_that_executors_lack_is_named_at_the_first_batch(
    java: None, make_case: MakeCase, tmp_path: Path
) -> None:
    """With ``auto`` a small batch needs no package there, and the first large one stopped."""
    case, _ = make_case(1, "loose")
    plain = sys._base_executable  # type: ignore[attr-defined]
    env = {"SPARK_HOME": str(own_home(tmp_path)), "PYSPARK_PYTHON": plain}
    conf = {"spark.python.daemon.module": "pyspark.daemon"}
    with Stage(tmp_path / "stage", "local-cluster[1,1,1024]", conf, env) as stage:
        for _ in range(2):
            with pytest.raises(StageError, match=f"{plain} on .*No module named .*mode='driver'"):
                stage.run(track, replace(case, mode="auto"))
        assert stage.run(track, replace(case, mode="driver"))["calls"]


def check_picked(cluster: Stage, case: Case, client: Acker, mode: Mode, kill: bool = False) -> None:
    """Check that each record was emitted or failed, and none of them both."""
    written = {str(i) for i in cluster.run(picked, replace(case, mode=mode), kill)}
    found = {o.source_id: o.verdict for entry in client.outcomes(TASK).read() for o in entry}
    failed = {name for name, verdict in found.items() if verdict == "nack"}
    assert written
    assert failed
    assert not written & failed
    assert written | failed == {str(i) for i in range(60)}
    assert "ack" not in found.values()
