"""The selftest of the shell client: ids, lanes and rows over subshells, unusual settings."""

import shutil
import subprocess

from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker, missing
from tests.languages.clients import HERE
from tests.waiting import LIMIT


def test_shell_selftest_passes(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
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
