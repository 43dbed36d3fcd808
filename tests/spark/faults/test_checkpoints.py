"""Checkpoints that are restored or deleted, or continue with other content under one number."""

from dataclasses import replace

import pytest

from tests.spark.faults.conftest import MakeCase
from tests.spark.faults.stage import Stage, StageError
from tests.spark.faults.streams import (
    BATCHES,
    copy_checkpoint,
    drain,
    pour,
    query,
    restore_checkpoint,
    written,
)
from tests.spark.faults.work import (
    RECORDS,
    Kind,
    expected,
    name_of,
    processed,
    reconcile,
    settled,
)
from tests.support import dump


@pytest.mark.parametrize("kind", ["loose", pytest.param("counted", marks=pytest.mark.nightly)])
def test_restored_checkpoint_is_refused(stage: Stage, make_case: MakeCase, kind: Kind) -> None:
    """Refused, and nothing is applied. With the latest checkpoint the query continues."""
    case, client = make_case(4, kind)
    pour(case, range(1))
    stage.run(query, case, "source")
    kept = copy_checkpoint(case, "source")
    pour(case, range(1, BATCHES))
    stage.run(query, case, "source")
    before, batches = dump(client), written(case, "tracked")
    latest = copy_checkpoint(case, "source")
    restore_checkpoint(case, "source", kept)
    with pytest.raises(StageError, match="batch 1 runs although batch 2.*was set back or deleted"):
        stage.run(query, case, "source")
    assert dump(client) == before
    assert written(case, "tracked") == batches
    restore_checkpoint(case, "source", latest)
    stage.run(drain, case, {"source": "driver", "middle": "driver", "last": "driver"})
    reconcile(case, client)


@pytest.mark.parametrize("kind", ["loose", pytest.param("counted", marks=pytest.mark.nightly)])
def test_deleted_checkpoint_processes_all_records_again(
    stage: Stage, make_case: MakeCase, kind: Kind
) -> None:
    """The new query processes all records again, and every record gets a verdict.

    Trees of the old query are still pending. Loose trees conflict with them and are nacked. Trees
    in blocks are new trees with their own verdicts.
    """
    case, client = make_case(4, kind)
    pour(case)
    stage.run(query, case, "source")
    restore_checkpoint(case, "source", None)
    stage.run(query, case, "source")
    assert len(written(case, "tracked")) == 2 * BATCHES
    stage.run(query, case, "middle")
    stage.run(query, case, "last")
    found, counters = settled(client)
    for name, verdicts in expected().items():
        if kind == "loose":
            assert found[name] == [("nack", "conflict", "")]
        else:
            assert found[name] == 2 * verdicts


def test_deleted_checkpoint_of_a_named_query_is_refused(stage: Stage, make_case: MakeCase) -> None:
    """Its batch ids start again at 0, but its lane does not: refused, and never skipped."""
    case, client = make_case(4, "loose")
    pour(case)
    stage.run(query, case, "source", query_id="mine")
    before = dump(client)
    restore_checkpoint(case, "source", None)
    with pytest.raises(StageError, match="batch 0 runs although batch 2.*under a new name"):
        stage.run(query, case, "source", query_id="mine")
    assert dump(client) == before
    stage.run(drain, case, {"middle": "driver", "last": "driver"})
    reconcile(case, client)


@pytest.mark.parametrize("mode", ["driver", pytest.param("executors", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", ["loose", pytest.param("counted", marks=pytest.mark.nightly)])
def test_changed_batch_after_a_crash(
    stage: Stage, make_case: MakeCase, kind: Kind, mode: str
) -> None:
    """A random bolt: raise refuses each restart; fail_trees fails the trees and continues."""
    case, client = make_case(4, kind, mode=mode)
    pour(case)
    stage.run(query, replace(case, mode="driver"), "source")
    fault = stage.plan("write", 2, "throw")
    with pytest.raises(StageError, match="the fault that was planned"):
        stage.run(query, case, "changing")
    fault.lift()
    assert len(written(case, "children")) == 1
    before = dump(client)
    with pytest.raises(StageError, match="batch 1 came back with other content.*rand, uuid"):
        stage.run(query, case, "changing")
    assert dump(client) == before
    stage.run(query, replace(case, on_changed="fail_trees"), "changing")
    assert len(written(case, "children")) == BATCHES
    stage.run(query, replace(case, mode="driver"), "last")
    found, counters = settled(client)
    size, done = RECORDS // BATCHES, {i for i, _ in processed(case)}
    for i in range(RECORDS):
        [verdict] = found[name_of(i)]
        if i // size == 1:
            assert verdict == ("nack", "failed", "batch 1 came back with other content")
        elif i % 10 == 6:
            assert verdict == ("nack", "expired", "")
        else:
            assert verdict == ("ack", "completed", "")
            assert i in done
    assert (counters["acked"], counters["failed"]) == (1512, size)
