"""The writers, ``explain`` and verdicts on other versions of Spark, in their own environments.

An environment takes minutes to make, so only that of the oldest version is in the full tier.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.faults.conftest import MakeCase, java, make_case
from tests.spark.faults.stage import Stage
from tests.spark.faults.streams import drain, pour
from tests.spark.faults.work import RECORDS, STEPS, Kind, expire, name_of, reconcile
from tests.spark.known_ids import EXPECTED, known_ids
from tests.spark.versions import steps
from tests.spark.versions.environments import python_of

__all__ = ["java", "make_case"]
later = pytest.mark.nightly
VERSIONS = ["3.5", *(pytest.param(each, marks=later) for each in ("4.0", "4.1", "4.2", "4.3"))]


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Return the version of the stage; the newest is that of these tests."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def stage(version: str, java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start a driver with this version."""
    python = sys.executable if version == "4.3" else python_of(version)
    scratch = tmp_path_factory.mktemp(f"spark-{version}")
    with Stage(scratch, "local[2]", python=python) as running:
        assert running.run(steps.version).startswith(f"{version}.")
        yield running


def test_ids_are_those_of_every_version(stage: Stage) -> None:
    """Jobs of one pipeline may run on different versions."""
    assert stage.run(known_ids) == EXPECTED


@pytest.mark.parametrize(
    ("kind", "shards", "mode"),
    [pytest.param("loose", 1, "driver", marks=pytest.mark.nightly), ("counted", 2, "executors")],
)
def test_batches(stage: Stage, make_case: MakeCase, kind: Kind, shards: int, mode: str) -> None:
    """Track, emit, fail, ack and write, each in a micro-batch."""
    case, client = make_case(shards, kind, mode=mode)
    for step in STEPS.values():
        assert stage.run(step, case)["mode"] == mode
    reconcile(case, client)


def test_streaming_queries(stage: Stage, make_case: MakeCase) -> None:
    case, client = make_case(2, "counted")
    pour(case)
    stage.run(drain, case, {"source": "executors", "middle": "driver", "last": "executors"})
    reconcile(case, client)


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_writers_and_verdicts(stage: Stage, make_case: MakeCase, mode: Any) -> None:
    """The verdicts are read as a table, and then taken in batches of a streaming query."""
    case, client = make_case(2, "loose", mode=mode)
    found = stage.run(steps.writers, case)
    assert "scalar-subquery" in found["plan"]
    assert found["secret"] not in found["plan"]
    expire(client)
    fates = {3: ("nack", "failed", "it is a three")}
    fates |= dict.fromkeys((4, 5, 6), ("nack", "expired", ""))
    wanted = [(name_of(i), *fates.get(i % 10, ("ack", "completed", ""))) for i in range(RECORDS)]
    assert stage.run(steps.verdicts, case, mode) == sorted(wanted)
    assert stage.run(steps.taken, case) == sorted(wanted)


def test_lost_rows_are_explained(stage: Stage) -> None:
    found = stage.run(steps.lost_rows)
    assert found == [(2, 0, None, 0, "none"), (2**61 + 1, 2**60 + 1, "a", 5, "found")]


def test_ids_travel_in_headers(stage: Stage) -> None:
    texts, ids, error = stage.run(steps.headers)
    assert texts == [[], [("acker-tuple", "7:40")]]
    assert ids == [None, [(7, 40)]]
    assert "acker-tuple needs <anchor>:<tuple>, and has: #" in error


NEEDS = {
    "sink_stream": ((4, 1), "a stream to acker needs Spark 4.1 or later.*BoltWriter"),
    "outcomes_stream": ((4, 2), "a stream needs Spark 4.2 or later.*OutcomeBatches"),
}


def test_data_sources_work_or_say_what_to_use(
    stage: Stage, version: str, make_case: MakeCase, tmp_path: Path
) -> None:
    case, _ = make_case(1, "loose")
    errors = stage.run(steps.formats, case, tmp_path)
    this = tuple(map(int, version.split(".")))
    if this < (4, 0):
        words = errors.pop("register")
        assert "has no data sources in Python" in words
        assert "read_outcomes" in words
        assert not errors
        return
    for name, words in errors.items():
        oldest, error = NEEDS.get(name, ((4, 0), ""))
        if this < oldest:
            assert re.search(error, words, re.DOTALL)
        else:
            assert words == ""
