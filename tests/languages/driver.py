"""A client's driver: a process that answers requests, line by line."""

import contextlib
import json
import selectors
import subprocess
from types import TracebackType
from typing import Any, Self

from tests.languages.clients import Client
from tests.waiting import LIMIT

Json = Any
PATIENCE_MS = 120_000
"""Reply timeout of a client, unless the test is about that timeout."""


class DriverError(Exception):
    """Raised when a driver answers with an error; holds its code and message."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(f"{code} {words}")
        self.code = code


class Driver:
    """A running driver of a client; it ends by :meth:`close` or :meth:`kill`."""

    def __init__(self, client: Client, library: str = "") -> None:
        client.prepare()
        self.client, self.library = client, library
        self._process = subprocess.Popen(
            client.command(client.driver),
            cwd=client.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._out, selectors.EVENT_READ)
        self._rest = b""

    def ask(self, op: str, **fields: Json) -> Json:
        """Send a request and return its answer; raise DriverError if it is an error."""
        self.send(op, **fields)
        return self.answer()

    def send(self, op: str, **fields: Json) -> None:
        """Send a request; read its answer later by :meth:`answer`."""
        line = json.dumps({"op": op, **fields}, ensure_ascii=False)
        self._in.write(line.encode() + b"\n")
        self._in.flush()

    def answer(self) -> Json:
        """Return the next answer; raise DriverError if it is an error."""
        answer = json.loads(self._line())
        if "error" in answer:
            raise DriverError(answer["error"], answer.get("message", ""))
        return answer

    def connect(self, *ports: int, cluster: bool = False, timeout_ms: int = PATIENCE_MS) -> None:
        """Connect to servers on 127.0.0.1."""
        nodes = [f"127.0.0.1:{port}" for port in ports]
        self.ask(
            "connect", nodes=nodes, cluster=cluster, library=self.library, timeout_ms=timeout_ms
        )

    def begin(self, namespace: str, retry_ms: int = 0, linger_ms: int = 2) -> None:
        """Let the driver create a new client object."""
        self.ask("begin", namespace=namespace, retry_ms=retry_ms, linger_ms=linger_ms)

    @property
    def alive(self) -> bool:
        """Return whether the driver runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the driver with SIGKILL."""
        self._process.kill()
        self._end()

    def close(self) -> None:
        """Close its stdin and check the exit code, by which sanitizers report a leak."""
        self._in.close()
        try:
            code = self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = -9
        self._end()
        assert code == 0, f"the driver of {self.client.name} ended with {code}"

    def _end(self) -> None:
        self._process.wait()
        self._ready.close()
        self._out.close()
        if not self._in.closed:
            with contextlib.suppress(BrokenPipeError):
                self._in.close()

    def _line(self) -> bytes:
        while b"\n" not in self._rest:
            if not self._ready.select(LIMIT):
                self.kill()
                raise AssertionError(f"the driver of {self.client.name} did not answer")
            data = self._out.read1(1 << 20)  # type: ignore[attr-defined]
            if not data:
                raise AssertionError(f"the driver of {self.client.name} has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.alive:
            self._end()
        elif error is None:
            self.close()
        else:
            self.kill()  # a second error would hide the first one
