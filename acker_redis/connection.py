"""Runs flows and scripts on a synchronous client of redis-py, standalone or cluster."""

import contextlib
import os
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import redis

from acker_redis import scripts
from acker_redis.commands import Call
from acker_redis.errors import ConfigError
from acker_redis.flow import Ask, AskAll, Flow, Pause, Run, Step, Tell, Together
from acker_redis.redis_errors import FAILED, translate
from acker_redis.scripts import Script

T = TypeVar("T")

MOST_THREADS = 16
"""Shards that are asked side by side at most."""


class Connection:
    """Runs calls and flows; thread-safe, as redis-py's clients are."""

    def __init__(self, client: Any) -> None:
        if client.get_encoder().decode_responses:
            raise ConfigError("replies are bytes: the client may not have decode_responses=True")
        self.client = client
        self._threads: ThreadPoolExecutor | None = None
        _CONNECTIONS.add(self)

    def run(self, call: Call) -> Any:
        """Send a call once and return its reply.

        Raises the AckerError that the script names, RedisUnavailableError when no answer
        came (it may have run), RedisRefusedError when Redis refused to run it.
        """
        script = scripts.load(call.script)
        try:
            try:
                return self.client.evalsha(script.sha, 2, *call.keys, *call.args)
            except redis.exceptions.NoScriptError:
                return self._eval(script, call)
        except FAILED as error:
            raise translate(error) from error

    def command(self, *args: str | bytes | int) -> Any:
        """Run a plain command; the same errors as ``run``."""
        try:
            return self.client.execute_command(*args)
        except FAILED as error:
            raise translate(error) from error

    def commands(self, commands: Sequence[tuple[str | bytes | int, ...]]) -> list[Any]:
        """Run plain commands that change nothing, in one go; the same errors as ``run``."""
        if len(commands) == 1:
            return [self.command(*commands[0])]
        try:
            pipe = self.client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            return list(pipe.execute())
        except FAILED as error:
            raise translate(error) from error

    def version(self) -> str:
        """The server's version; '' where INFO is not allowed."""
        try:
            return str(self.client.info("server").get("redis_version", ""))
        except redis.exceptions.NoPermissionError:
            return ""
        except FAILED as error:
            raise translate(error) from error

    def drive(self, flow: Flow[T]) -> T:
        """Run a flow to its end, and return what it returns."""
        try:
            step = next(flow)
            while True:
                try:
                    result = self.take(step)
                except BaseException as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    def take(self, step: Step) -> Any:
        """Do one step of a flow, and return its result."""
        if isinstance(step, Run):
            return self.run(step.call)
        if isinstance(step, Ask):
            return self.command(*step.args)
        if isinstance(step, AskAll):
            return self.commands(step.commands)
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        if isinstance(step, Tell):
            return [self._call(step, args) for args in step.calls]
        if isinstance(step, Together):
            return self._together(step)
        return self.version()

    def forget_threads(self) -> None:
        """In a forked child: the threads have stayed with the parent."""
        self._threads = None

    def close(self) -> None:
        """Close the connections."""
        if self._threads:
            self._threads.shutdown()
            self._threads = None
        self.client.close()

    def _together(self, step: Together) -> list[Any]:
        if len(step.flows) < 2:
            return [self._result(flow) for flow in step.flows]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="acker-shard")
        # This thread takes the first itself, and all when the program ends: then there are no more.
        first, *others = step.flows
        futures = []
        with contextlib.suppress(RuntimeError):
            for flow in others:
                futures.append(self._threads.submit(self._result, flow))  # noqa: PERF401
        rest = others[len(futures) :]
        return [
            self._result(first),
            *(future.result() for future in futures),
            *(self._result(flow) for flow in rest),
        ]

    def _result(self, flow: Flow[Any]) -> Any:
        try:
            return self.drive(flow)
        except Exception as error:
            return error

    def _call(self, step: Tell, args: tuple[Any, ...]) -> Any:
        try:
            return step.function(*args)
        except Exception as error:
            return error

    def _eval(self, script: Script, call: Call) -> Any:
        return self.client.eval(script.source, 2, *call.keys, *call.args)


_CONNECTIONS: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _forget_all() -> None:
    for connection in list(_CONNECTIONS):
        connection.forget_threads()


os.register_at_fork(after_in_child=_forget_all)
