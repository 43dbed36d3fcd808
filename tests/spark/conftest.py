"""One Spark session for all tests; they skip, or on CI fail, without Java."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conftest import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A local session."""
    from acker_flights import session

    advice = session.missing_java()
    if advice:
        missing(advice)
    with session.started(tmp_path_factory.mktemp("spark")) as running:
        yield running
