"""A driver is killed repeatedly; its successors continue from its checkpoints."""

import contextlib
from pathlib import Path

import pytest

from acker_redis.spark.acker import Mode
from tests.spark.faults.conftest import MakeCase
from tests.spark.faults.stage import Stage
from tests.spark.faults.streams import drain, pour
from tests.spark.faults.work import Kind, reconcile

Kill = tuple[str, int]
KILLS: dict[str, list[Kill]] = {
    # (where, at which call) each driver is killed.
    "few": [("sent", 2), ("write", 3)],
    "many": [
        ("send", 1),
        ("sent", 3),
        ("sent", 4),
        ("write", 1),
        ("written", 1),
        ("sent", 6),
        ("pack", 3),
        ("write", 2),
        ("sent", 2),
        ("written", 2),
    ],
}

nightly = pytest.mark.nightly


@pytest.mark.parametrize(
    ("kind", "source", "middle", "last", "kills"),
    [
        ("loose", "driver", "executors", "driver", "few"),
        pytest.param("counted", "executors", "driver", "executors", "few", marks=nightly),
        pytest.param("loose", "executors", "executors", "executors", "many", marks=nightly),
        pytest.param("loose", "driver", "driver", "driver", "many", marks=nightly),
        pytest.param("counted", "executors", "driver", "executors", "many", marks=nightly),
    ],
)
def test_repeatedly_killed_driver_gives_each_verdict_once(
    tmp_path: Path,
    make_case: MakeCase,
    kind: Kind,
    source: Mode,
    middle: Mode,
    last: Mode,
    kills: str,
) -> None:
    case, client = make_case(4, kind)
    pour(case)
    modes: dict[str, Mode] = {"source": source, "middle": middle, "last": last}
    waiting = list(KILLS[kills])
    killed: list[Kill] = []
    while True:
        with Stage(tmp_path / "stage") as stage:
            planned = waiting.pop(0) if waiting else None
            fault = stage.plan(*planned, "kill-driver") if planned else None
            with contextlib.suppress(EOFError):
                stage.run(drain, case, modes)
                break
            assert fault
            assert fault.happened
            killed.append(planned)  # type: ignore[arg-type]
            fault.lift()
    assert len(killed) == len(KILLS[kills]), f"only {killed} happened"
    print("killed", killed, "repeated", client.status().counters["repeated"])
    assert client.status().counters["repeated"] > 0
    reconcile(case, client, None)
