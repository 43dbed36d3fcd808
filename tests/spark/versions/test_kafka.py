"""A real broker, and Spark's connector: the offsets of a batch give its blocks without a job."""

import json
import subprocess
import sys

from acker_flights import session
from acker_redis.embedded import find_server
from tests.conftest import missing
from tests.spark.versions.jars import FOLDER


def test_offsets_of_a_topic_need_no_job_unless_it_has_gaps() -> None:
    if find_server() is None:
        missing("redis-server")
    if advice := session.missing_java():
        missing(advice)
    FOLDER.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.spark.versions.kafka_steps", str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if "Maven" in done.stderr:
        missing(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr[-3000:]
    each = [2000, 2000, 2000]
    """Trees, records, and anchors."""
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "plain-files": [*each, False],
        "plain-cache": [*each, False],
        "gaps-files": [*each, True],
        "gaps-cache": [*each, True],
    }
