"""What the shell client says of itself: ids, lanes and rows over subshells, odd settings."""

import shutil
import subprocess

from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker, missing
from tests.languages.clients import HERE
from tests.waiting import LIMIT


def test_it_passes_its_own_test(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    for tool in ("bash", "redis-cli"):
        if not shutil.which(tool):
            missing(tool)
    script = HERE / "shell" / "selftest.sh"
    done = subprocess.run(
        ["bash", str(script), any_server.url, make_any_acker().namespace],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
