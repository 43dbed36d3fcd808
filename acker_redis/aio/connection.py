"""Run flows and scripts on an asyncio client of redis-py, standalone or cluster."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import redis

from acker_redis.aio.loops import LoopBound, forget_connections
from acker_redis.aio.nodes import Nodes
from acker_redis.errors import AckerError
from acker_redis.flows.steps import (
    Ask,
    AskAll,
    AskEach,
    Begin,
    Ended,
    Flow,
    Hand,
    Pause,
    Places,
    Run,
    Step,
    Tell,
    Together,
)  # fmt: skip
from acker_redis.protocol import functions, scripts, server_version
from acker_redis.protocol.commands import Call
from acker_redis.protocol.keys import PREFIX
from acker_redis.protocol.server_version import ServerVersion
from acker_redis.transport.arguments import KEYS, as_text
from acker_redis.transport.clients import check_client
from acker_redis.transport.errors import (
    FAILED,
    is_redirection,
    must_leave,
    tls_options,
    translate,
)

T = TypeVar("T")
Command = tuple[str | bytes | int, ...]


class AsyncConnection(LoopBound):
    """Runs calls and flows in one event loop at a time: see :mod:`acker_redis.aio.loops`."""

    def __init__(self, client: Any) -> None:
        check_client(client)
        self.client = client
        self.functions = functions.are_used(client)
        self._nodes = _nodes(client)
        self._whole: set[asyncio.Task[Any]] = set()
        self._begun: set[asyncio.Task[Any]] = set()
        """Flows in the background, which change nothing."""

    def _begin(self) -> None:
        self._whole, self._begun = set(), set()
        self._nodes = _nodes(self.client)
        forget_connections(self.client)

    async def run(self, call: Call) -> Any:
        """Send a call once and return its reply; raises the errors of ``Connection.run``."""
        self._enter()
        script = scripts.load(call.script)
        function = functions.function(call.script) if self.functions else None
        rest = (KEYS, *call.keys, *call.args)
        try:
            if function:
                return await self._send("FCALL_RO", function, *rest, key=call.keys[0])
            try:
                return await self._send("EVALSHA", script.sha, *rest, key=call.keys[0])
            except redis.exceptions.NoScriptError:
                return await self._send("EVAL", script.source, *rest, key=call.keys[0])
        except FAILED as error:
            library = functions.library() if function else script
            raise await self._failed(error, library) from error

    async def command(self, *args: str | bytes | int) -> Any:
        """Send a plain command and return its reply; raises the same errors as ``run``."""
        self._enter()
        key = args[1] if len(args) > 1 and str(args[1]).startswith(PREFIX) else None
        try:
            return await self._send(*as_text(args), key=key)
        except FAILED as error:
            raise await self._failed(error) from error

    async def commands(self, commands: Sequence[Command]) -> list[Any]:
        """Send plain commands that change nothing, as ``each``, and return the replies.

        Raises the same errors as ``run``.
        """
        self._enter()
        if len(commands) == 1:
            return [await self.command(*commands[0])]
        replies = await self.each(commands)
        for reply in replies:
            if isinstance(reply, AckerError):
                raise reply
        return replies

    async def each(self, commands: Sequence[Command]) -> list[Any]:
        """Send plain commands, and return each reply or AckerError; see ``Connection.each``."""
        self._enter()
        nodes: dict[Any, list[int]] = {}
        for number, command in enumerate(commands):
            nodes.setdefault(await self._node_of(command[1]), []).append(number)
        found = await asyncio.gather(
            *(
                self._ask_node(node, [commands[number] for number in numbers])
                for node, numbers in nodes.items()
            )
        )
        replies = [None] * len(commands)
        for numbers, its in zip(nodes.values(), found, strict=True):
            for number, reply in zip(numbers, its, strict=True):
                replies[number] = reply
        return replies

    async def _ask_node(self, node: Any, commands: Sequence[Command]) -> list[Any]:
        """Send commands to a node of a cluster, or to the only server if ``node`` is None."""
        texts = [as_text(command) for command in commands]
        try:
            if self._nodes and node is not None:
                replies = await self._nodes.pipeline(node, texts)
            else:
                pipe = self.client.pipeline(transaction=False)
                for command in texts:
                    pipe.execute_command(*command)
                replies = await pipe.execute(raise_on_error=False)
        except FAILED as error:
            return [await self._error(error)] * len(commands)
        return [await self._reply(*pair) for pair in zip(commands, replies, strict=True)]

    async def _reply(self, command: Command, reply: Any) -> Any:
        if not isinstance(reply, Exception):
            return reply
        if not is_redirection(reply):
            return await self._error(reply)
        try:
            return await self.command(*command)  # the client of the cluster follows it
        except AckerError as error:
            return error

    async def _node_of(self, key: Any) -> Any:
        try:
            return await self._nodes.of(key) if self._nodes else None
        except FAILED:
            return None  # no node answers: the call fails, too

    async def _send(self, *args: Any, key: Any) -> Any:
        if self._nodes and key is not None:
            return await self._nodes.execute(key, *args)
        return await self.client.execute_command(*args)

    async def version(self) -> ServerVersion | None:
        """Return product and version of the server; None where INFO is not allowed."""
        self._enter()
        try:
            return server_version.of_info(await self.client.info("server"))
        except redis.exceptions.NoPermissionError:
            return None
        except FAILED as error:
            raise await self._failed(error) from error

    async def drive(self, flow: Flow[T]) -> T:
        """Run a flow to its end, and return its result."""
        while isinstance(found := await self.advance(flow, self.take), Hand):
            pass  # drive() has no use for values that are handed out
        return found.value

    async def advance(
        self, flow: Flow[T], take: Callable[[Step], Awaitable[Any]]
    ) -> Hand | Ended[T]:
        """Run a flow until it hands a value out, or to its end; ``take`` runs each step."""
        try:
            step = next(flow)
            while not isinstance(step, Hand):
                try:
                    result = await take(step)
                except BaseException as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
            return step
        except StopIteration as end:
            return Ended(end.value)

    async def take(self, step: Step) -> Any:
        """Run one step of a flow, and return its result."""
        task = asyncio.current_task()
        asked = task.cancelling() if task else 0
        result = await self._take(step)
        if task and task.cancelling() > asked:
            # Before Python 3.12 wait_for(), which redis-py uses, may swallow a cancellation.
            raise asyncio.CancelledError
        return result

    async def _take(self, step: Step) -> Any:
        if isinstance(step, Run):
            return await self.run(step.call)
        if isinstance(step, Ask):
            return await self.command(*step.args)
        if isinstance(step, AskAll):
            return await self.commands(step.commands)
        if isinstance(step, AskEach):
            return await self.each(step.commands)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Tell):
            return await asyncio.gather(*(self._call(step, args) for args in step.calls))
        if isinstance(step, Together):
            return await asyncio.gather(*map(self._result, step.flows))
        if isinstance(step, Begin):
            return self._in_background(step.flow)
        if isinstance(step, Places):
            return [getattr(await self._node_of(key), "name", None) for key in step.keys]
        return await self.version()

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, also when the caller is cancelled.

        A call in flight cannot be revoked. A caller that stopped waiting for its reply would not
        know whether it ran, and might leave a batch partially applied.
        """
        try:
            self._enter()
        except BaseException:
            work.close()
            raise
        task = asyncio.ensure_future(work)
        self._whole.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for the coroutines of :meth:`whole`, then close the connections."""
        self._enter()
        while self._whole:
            await asyncio.wait(set(self._whole))
        for task in self._begun:
            task.cancel()
        if self._nodes:
            await self._nodes.close()
        await asyncio.gather(*self._begun, return_exceptions=True)
        await self.client.aclose()

    def _in_background(self, flow: Flow[Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(self._result(flow), name="acker-probe")
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._whole.discard(task)
        if not task.cancelled():
            task.exception()  # a cancelled caller does not retrieve it

    async def leave(self) -> None:
        """Close the connections; those in use when they are returned. See ``Connection._failed``.

        The asyncio client of a cluster has no such pool: its nodes answer MOVED.
        """
        pool = getattr(self.client, "connection_pool", None)
        mark = getattr(pool, "update_active_connections_for_reconnect", None)
        if mark is not None:
            await mark()
        if pool is not None:
            await pool.disconnect(inuse_connections=False)
        single = getattr(self.client, "connection", None)
        if single is not None:
            await single.disconnect()

    async def _failed(self, error: Exception, script: scripts.Script | None = None) -> AckerError:
        """Return the AckerError for an error of redis-py.

        After one of a demoted master, or of a connection that could not authenticate, reconnect.
        """
        if must_leave(error):
            await self.leave()
        return translate(error, tls_options(self.client), script)

    async def _error(self, error: Exception) -> AckerError:
        """Return what ``raise await self._failed(error) from error`` would raise."""
        failed = await self._failed(error)
        failed.__cause__ = error
        return failed

    async def _call(self, step: Tell, args: tuple[Any, ...]) -> Any:
        return await outcome_of(step.function, args)

    async def _result(self, flow: Flow[Any]) -> Any:
        try:
            return await self.drive(flow)
        except Exception as error:
            return error


def _nodes(client: Any) -> Nodes | None:
    return Nodes(client) if hasattr(client, "nodes_manager") else None


async def outcome_of(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return the result of a user's function, awaited if it can be, or the exception it raises."""
    try:
        result = function(*args)
        return await result if inspect.isawaitable(result) else result
    except Exception as error:
        return error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task and task.cancelling():
            raise
        return error  # the cancellation of a task that the function awaited
