"""A Python worker dies while it folds or sends: Spark retries the task, which is applied once."""

from dataclasses import replace

import pytest

from tests.spark.faults.conftest import MakeCase
from tests.spark.faults.stage import Stage, StageError
from tests.spark.faults.work import STEPS, Kind, middle, reconcile, track


@pytest.mark.parametrize(("kind", "shards"), [("loose", 4), ("counted", 1)])
def test_pipeline_without_faults(
    stage: Stage, make_case: MakeCase, kind: Kind, shards: int
) -> None:
    case, client = make_case(shards, kind)
    for step in STEPS.values():
        assert stage.run(step, case)["repeated"] == 0
    reconcile(case, client)


@pytest.mark.parametrize(
    ("kind", "shards", "step", "where", "at", "what"),
    [
        ("loose", 1, "track", "pack", 1, "kill"),
        ("loose", 1, "track", "sent", 2, "kill"),
        ("loose", 1, "middle", "send", 3, "throw"),
        pytest.param("loose", 1, "middle", "pack", 4, "kill", marks=pytest.mark.nightly),
        pytest.param("counted", 1, "track", "sent", 1, "throw", marks=pytest.mark.nightly),
        ("counted", 1, "middle", "sent", 1, "kill"),
        ("loose", 4, "middle", "sent", 2, "kill"),
        pytest.param("counted", 4, "middle", "send", 3, "kill", marks=pytest.mark.nightly),
        pytest.param("loose", 4, "track", "pack", 2, "throw", marks=pytest.mark.nightly),
        pytest.param("loose", 4, "last", "sent", 3, "throw", marks=pytest.mark.nightly),
    ],
)
def test_retried_task_is_applied_once(
    stage: Stage,
    make_case: MakeCase,
    kind: Kind,
    shards: int,
    step: str,
    where: str,
    at: int,
    what: str,
) -> None:
    case, client = make_case(shards, kind)
    repeated = 0
    for name, function in STEPS.items():
        if name != step:
            assert stage.run(function, case)["repeated"] == 0
            continue
        fault = stage.plan(where, at, what)
        report = stage.run(function, replace(case, mode="executors"))
        fault.lift()
        assert fault.happened
        if where != "pack":
            repeated = fault.calls_of_its_task() - (where == "send")
            assert report["repeated"] == repeated
    reconcile(case, client, repeated)


def test_batch_whose_task_dies_each_time_can_be_retried(stage: Stage, make_case: MakeCase) -> None:
    """Four attempts die, each one call later than the one before, and so the batch fails."""
    case, client = make_case(1, "loose")
    stage.run(track, case)
    # Each attempt starts with the first call: attempt n dies at its n-th call.
    faults = [stage.plan("sent", at, "kill") for at in (1, 3, 6, 10)]
    with pytest.raises(StageError, match="PythonException|exited unexpectedly"):
        stage.run(middle, replace(case, mode="executors"))
    for fault in faults:
        assert fault.happened
        fault.lift()
    assert not (case.folder / "children").exists(), "the batch was written"
    report = stage.run(middle, replace(case, mode="executors"))
    assert report["repeated"] == 4
    stage.run(STEPS["last"], case)
    reconcile(case, client, 0 + 1 + 2 + 3 + 4)
