"""A standalone cluster with speculation: twins of tasks, and executors and workers that die."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from acker_redis.spark.acker import Mode
from tests.spark.faults.conftest import MakeCase
from tests.spark.faults.standalone import Standalone, Victim, cluster
from tests.spark.faults.streams import drain, pour
from tests.spark.faults.work import last, middle, reconcile, track
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def standalone(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """Start a cluster of two workers."""
    with cluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


def test_speculative_twin_applies_each_call_once(
    standalone: Standalone, make_case: MakeCase
) -> None:
    """Both attempts send the calls of one shard alternately."""
    case, client = make_case(1, "loose")
    stage = standalone.stage
    stage.run(track, case)
    first = stage.plan("sent", 2, "wait")
    second = stage.plan("sent", 4, "wait")
    stage.begin(middle, replace(case, mode="executors"))
    first.wait()
    # The first attempt waits, so the fourth call is one of the twin.
    second.wait()
    first.go()
    wait_until(lambda: first.calls >= 6, "calls of the first")
    second.go()
    report = stage.end()
    first.lift()
    second.lift()
    stage.run(last, case)
    repeated = client.status().counters["repeated"]
    print("calls", report["calls"], "sent", first.calls, "repeated", repeated)
    assert repeated >= 2
    reconcile(case, client, None)


@pytest.mark.parametrize("mode", ["driver", "executors"])
@pytest.mark.parametrize("victim", ["executor", "worker"])
def test_host_that_dies_in_each_query_leaves_each_record_one_verdict(
    standalone: Standalone, make_case: MakeCase, victim: Victim, mode: Mode
) -> None:
    """The killed task's Python worker may go on: its late calls count once, too."""
    case, client = make_case(4, "loose")
    pour(case)
    for name in ("source", "middle", "last"):
        fault = standalone.stage.plan("sent", 2, "wait")
        standalone.stage.begin(drain, case, {name: mode})
        fault.wait()
        standalone.kill(victim, fault.pid)
        fault.go()
        standalone.stage.end()
        fault.lift()
        standalone.mend()
    reconcile(case, client, None)
