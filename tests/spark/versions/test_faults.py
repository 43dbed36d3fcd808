"""The faults of ``tests/spark/faults`` on the oldest version; that suite itself runs the newest."""

import os
import subprocess
import sys

import pytest

from tests.spark.faults.stage import ROOT
from tests.spark.versions.environments import python_of


@pytest.mark.nightly
def test_faults_on_the_oldest_version() -> None:
    tests = [sys.executable, "-m", "pytest", "-q", "tests/spark/faults", "--tier", "nightly"]
    environment = {**os.environ, "ACKER_SPARK_PYTHON": python_of("3.5")}
    done = subprocess.run(tests, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:]
    assert " passed" in done.stdout
