"""``DeltaQueue`` on Delta itself, whose jars Maven fetches; each version needs its own Spark.

``tests/spark/test_delta_queue.py`` has a fake of Delta, and the writers on it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.faults.conftest import java
from tests.spark.faults.stage import Stage
from tests.spark.versions import delta_steps as steps
from tests.spark.versions import jars
from tests.spark.versions.environments import python_of

__all__ = ["java"]
VERSIONS = [
    ("3.5", "delta-spark_2.12", "3.3.2"),
    pytest.param(("4.0", "delta-spark_2.13", "4.0.0"), marks=pytest.mark.nightly),
    pytest.param(("4.2", "delta-spark_4.2_2.13", "4.4.0"), marks=pytest.mark.nightly),
]


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda each: f"delta-{each[2]}")
def stage(
    request: pytest.FixtureRequest, java: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Start a driver with this version of Delta."""
    spark, artifact, version = request.param
    conf = jars.delta(artifact, version) | {"spark.sql.shuffle.partitions": "1"}
    scratch = tmp_path_factory.mktemp(f"delta-{version}")
    with Stage(scratch, "local[2]", conf, python=python_of(spark)) as running:
        yield running


def test_calls_do_what_a_queue_promises(stage: Stage, tmp_path: Path) -> None:
    """As the fake does: a batch is there once, also one without rows; ``replace`` overwrites it."""
    one = [(1, "app@q", 0), (2, "app@q", 0)]
    two = [(5, "app@q", 1), (6, "app@q", 1)]
    found = stage.run(steps.calls, tmp_path / "table")
    assert found[:-3] == [one, one, [*one, (4, "app@q", 1)], *4 * [[*one, *two]], one, one]
    # Delta remembers appends of both batches, and skips those of the new rows.
    assert found[-3:] == 2 * [[*one, (8, "app@q", 1)]] + [[*one, (8, "app@q", 1), (9, "app@q", 3)]]


def test_stream_reads_appended_rows_once(stage: Stage, tmp_path: Path) -> None:
    """It may start before the first batch, and reads no rows that replace others."""
    found = stage.run(steps.stream, tmp_path / "table", tmp_path / "checkpoint")
    assert found == [[], [1, 2], [], [4]]


def test_batches_are_replaced_beside_a_second_query_and_optimize(
    stage: Stage, tmp_path: Path
) -> None:
    """An overwrite for each batch failed by ConcurrentAppendException, 8 of 16 of two queries."""
    errors, found = stage.run(steps.together, tmp_path / "table")
    assert not errors
    assert found == [
        (number + batch_id, query, batch_id)
        for query, number in (("app@a", 2), ("app@b", 12))
        for batch_id in range(2)
    ]


def test_batch_of_a_second_driver_is_not_taken_for_ones_own(stage: Stage, tmp_path: Path) -> None:
    """The acks of this driver are of other rows than those that the table has."""
    found = stage.run(steps.overtaken, tmp_path / "table")
    assert found["replace"].startswith("LaneError: a second driver has written batch 1 of query")
    assert found["table"] == [(2, "app@q", 1), (2, "app@q", 2)]


def test_rows_with_other_columns_are_an_error_that_names_the_option(
    stage: Stage, tmp_path: Path
) -> None:
    found = stage.run(steps.columns, tmp_path / "table")
    assert "create(spark, schema) creates it" in found["no table"]
    for call in ("prepare", "write", "replace", "type"):
        assert found[call].startswith("ConfigError: the Delta table"), call
        assert "merge_schema=True" in found[call]
    assert found["version"] == 1, "prepare() has written"
    assert found["table"] == [(1, None), (2, 5), (3, None)]


def test_stream_beside_maintenance(stage: Stage, tmp_path: Path) -> None:
    """The rules of docs/reference/spark.md, on maintenance of a table."""
    found = stage.run(steps.maintained, tmp_path / "table", tmp_path / "checkpoint")
    error = found.pop("vacuum unread")
    assert isinstance(error, str), "it has read rows of deleted files"
    assert found == {
        "first": [0, 1, 2],
        "optimize": [],
        "update": [],
        "delete": [],
        "merge": [20],
        "merge that updates, too": [],
        "restore": [],
        "restore back": [2],
        "deleted unread": [3],
        "new checkpoint": [0, 1, 2, 4],
    }


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("RESTORE TABLE {} TO VERSION AS OF 0", [(1, "app@q", 0)]),
        ("DELETE FROM {} WHERE n = 2", [(1, "app@q", 0)]),
        pytest.param("DELETE FROM {}", [], marks=pytest.mark.nightly),
    ],
)
def test_skipped_append_is_an_error_that_says_what_to_do(
    stage: Stage, tmp_path: Path, statement: str, left: list[tuple[int, str, int]]
) -> None:
    """Delta remembers the append, and wrote 10 of 20 rows without a word."""
    found = stage.run(steps.removed, tmp_path / "table", statement)
    assert "DataLossError" in found["error"]
    assert "no row of batch 1 of query app@q" in found["error"]
    assert found["table"] == left
    assert found["replaced"] == [*left, (3, "app@q", 1)]
    assert found["again"] == [*left, (2, "app@q", 1)]


def test_session_that_lets_delta_skip_writes_is_refused(stage: Stage, tmp_path: Path) -> None:
    for error in stage.run(steps.session, tmp_path / "table"):
        assert error.startswith("ConfigError: the session sets spark.databricks.delta.write.txn")
