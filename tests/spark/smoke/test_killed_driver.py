"""A driver is killed when Redis has a batch of which Spark knows nothing yet."""

from pathlib import Path

import pytest

from tests.spark.faults.stage import Stage
from tests.spark.faults.streams import drain, pour
from tests.spark.faults.work import reconcile
from tests.spark.smoke.conftest import MakeCase


def test_a_killed_driver_loses_and_doubles_nothing(tmp_path: Path, make_case: MakeCase) -> None:
    case, client = make_case(2, "loose")
    pour(case)
    with Stage(tmp_path / "stage") as stage:
        fault = stage.plan("sent", 2, "kill-driver")
        with pytest.raises(EOFError):
            stage.run(drain, case, {"source": "driver"})
        assert fault.happened
        fault.lift()
    with Stage(tmp_path / "stage") as stage:
        stage.run(drain, case, {"source": "driver", "middle": "executors", "last": "driver"})
    assert client.status().counters["repeated"] > 0
    reconcile(case, client, None)
