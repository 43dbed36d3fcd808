"""The benchmark of all languages applies the rows that it counts; no figure is checked."""

import subprocess
import sys
from pathlib import Path

from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker
from tests.languages.cases import calls_of
from tests.languages.driver import Driver
from tests.languages.monitor import Monitor
from tests.languages.server import Server
from tests.support import total
from tests.waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]


def test_bench_applies_the_rows_that_it_counts(
    driver: Driver, any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    server = Server([any_server.port])
    server.load_scripts()
    server.close()
    driver.connect(any_server.port)
    driver.begin(acker.namespace)
    with Monitor([any_server.port]) as monitor:
        monitor.begin()
        answer = driver.ask("bench", rows=900, batch=150, lanes=2, trees=150)
        calls = [call for call in calls_of(monitor.end()) if call[0] == "apply"]
    assert answer["rows"] == 900
    assert answer["seconds"] > 0
    tracks = [argv for _, _, argv in calls if argv[5]]
    acks = [argv for _, _, argv in calls if not argv[5]]
    assert sum(len(argv[2]) // 2 for argv in tracks) == 150
    assert [len(argv[2]) // 2 for argv in acks] == [150] * 6
    assert all(argv[0] and argv[1] for argv in acks), "fenced, as in production"
    counters = total(acker)
    assert (counters["pending"], counters["acked"], counters["orphaned"]) == (150, 0, 0)


def test_languages_prints_a_table() -> None:
    words = ("--rows", "4000", "--rounds", "1", "--only", "python")
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "languages.py", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the server alone" in done.stdout
    assert "Python (redis-py)" in done.stdout
