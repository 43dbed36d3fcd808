"""The service as it runs in production, a process of its own, in front of a Redis."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import TracebackType
from typing import Self


class Service:
    """``python -m acker_api`` on a port of its own; ``fields`` are settings of the API."""

    def __init__(self, redis_url: str, **fields: str) -> None:
        self.port = _free_port()
        self._environment = {
            **{name: value for name, value in os.environ.items() if "ACKER" not in name},
            "ACKER_REDIS_URL": redis_url,
            "ACKER_REDIS_API_PORT": str(self.port),
            **{f"ACKER_REDIS_API_{name.upper()}": value for name, value in fields.items()},
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where the dashboard is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "acker_api"],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/livez", timeout=1):
                    return self
            except (urllib.error.URLError, OSError):
                if self._process.poll() is not None:
                    break
                time.sleep(0.05)
        self.stop()
        raise RuntimeError("the service did not come up")

    def stop(self) -> None:
        """End it at once."""
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


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
