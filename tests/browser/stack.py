"""The service as in production: a process, with a Redis."""

import os
import re
import subprocess
import sys
import threading
from types import TracebackType
from typing import Self

from tests.waiting import wait_until

PATIENT = {"answer_within": "60", "scrape_within": "60", "rate_limit": "0"}
"""Settings for a slow machine: a page must show no false problem."""


class Service:
    """``python -m acker_api`` on a free port; ``fields`` are settings of the API."""

    def __init__(self, redis_url: str, **fields: str) -> None:
        self.port, self.redis_url = 0, redis_url
        """The same port after a restart."""
        self._environment = {
            **{name: value for name, value in os.environ.items() if "ACKER" not in name},
            "ACKER_REDIS_URL": redis_url,
            "ACKER_REDIS_TIMEOUT": "60",
            **{f"ACKER_REDIS_API_{k.upper()}": v for k, v in {**PATIENT, **fields}.items()},
        }
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """The URL of the dashboard."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start the service, and wait until it listens."""
        # Another program may have the old port for a moment.
        wait_until(self._listens, "the service listens", pause=0.2)
        return self

    def _listens(self) -> bool:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "acker_api"],
            env={**self._environment, "ACKER_REDIS_API_PORT": str(self.port)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        log = self._process.stderr
        assert log
        for line in log:
            if found := re.search(r"serving url=\S*:(\d+)", line):
                self.port = int(found[1])
                threading.Thread(target=log.read, daemon=True).start()
                return True
        self.stop()
        return False

    def stop(self) -> None:
        """Kill the service."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
