"""Run flows and scripts on a synchronous client of redis-py, standalone or cluster."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

import redis

from acker_redis.errors import AckerError
from acker_redis.flows.forks import reset_in_children
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
    Send,
    Step,
    Tell,
    Together,
)  # fmt: skip
from acker_redis.protocol import functions, scripts, server_version
from acker_redis.protocol.commands import Call
from acker_redis.protocol.scripts import Script
from acker_redis.protocol.server_version import ServerVersion
from acker_redis.transport.arguments import KEYS, as_text
from acker_redis.transport.clients import check_client, node_of
from acker_redis.transport.errors import (
    FAILED,
    is_redirection,
    must_leave,
    tls_options,
    translate,
)

T = TypeVar("T")
Command = tuple[str | bytes | int, ...]

MAX_THREADS = 16
"""Maximum number of shards that are called side by side."""


class Connection:
    """Runs calls and flows. Thread-safe, as redis-py's clients are."""

    def __init__(self, client: Any) -> None:
        check_client(client)
        self.client = client
        self.functions = functions.are_used(client)
        self._threads: ThreadPoolExecutor | None = None
        self._refresh: Future[Any] | None = None
        """The last read of a cluster's slots in the background."""
        reset_in_children(self)

    def run(self, call: Call) -> Any:
        """Send a call once and return its reply.

        Raises the AckerError that the script names; RedisUnavailableError without a reply, when the
        call may have run; RedisRefusedError if Redis refused to run it.
        """
        script = scripts.load(call.script)
        function = functions.function(call.script) if self.functions else None
        try:
            if function:
                return self.client.fcall_ro(function, KEYS, *call.keys, *call.args)
            try:
                return self.client.evalsha(script.sha, KEYS, *call.keys, *call.args)
            except redis.exceptions.NoScriptError:
                return self._eval(script, call)
        except FAILED as error:
            raise self._failed(error, functions.library() if function else script) from error
        except BaseException:
            self._drop_unread()
            raise

    def command(self, *args: str | bytes | int) -> Any:
        """Send a plain command and return its reply; raises the same errors as ``run``."""
        try:
            return self.client.execute_command(*as_text(args))
        except FAILED as error:
            raise self._failed(error) from error
        except BaseException:
            self._drop_unread()
            raise

    def commands(self, commands: Sequence[Command]) -> list[Any]:
        """Send plain commands that change nothing, as ``each``, and return the replies.

        Raises the same errors as ``run``.
        """
        if len(commands) == 1:
            return [self.command(*commands[0])]
        replies = self.each(commands)
        for reply in replies:
            if isinstance(reply, AckerError):
                raise reply
        return replies

    def each(self, commands: Sequence[Command]) -> list[Any]:
        """Send plain commands that change nothing; return each reply, or the AckerError in place.

        Each command has its key as the second word. The nodes of a cluster get a pipeline each,
        side by side. redis-py's own pipeline over several nodes repeats each command of a node that
        does not answer, one after another.
        """
        nodes: dict[Any, list[int]] = {}
        for number, command in enumerate(commands):
            nodes.setdefault(node_of(self.client, command[1]), []).append(number)
        asked = [
            partial(self._ask_node, node, [commands[number] for number in numbers])
            for node, numbers in nodes.items()
        ]
        replies = [None] * len(commands)
        for numbers, found in zip(nodes.values(), self._together(asked), strict=True):
            for number, reply in zip(numbers, found, strict=True):
                replies[number] = reply
        return replies

    def _ask_node(self, node: Any, commands: Sequence[Command]) -> list[Any]:
        """Send commands to a node of a cluster, or to the only server if ``node`` is None."""
        try:
            client = self.client if node is None else self.client.get_redis_connection(node)
            pipe = client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*as_text(command))
            replies = pipe.execute(raise_on_error=False)
        except FAILED as error:
            if node is not None and (self._refresh is None or self._refresh.done()):
                self._refresh = self._begin(self._read_slots)
            return [self._error(error)] * len(commands)
        except BaseException:
            self._drop_unread()
            raise
        return [self._reply(each, reply) for each, reply in zip(commands, replies, strict=True)]

    def _read_slots(self) -> None:
        """Let a cluster's client read the slots again: a replica may have been promoted."""
        with contextlib.suppress(*FAILED):
            self.client.nodes_manager.initialize()

    def _reply(self, command: Command, reply: Any) -> Any:
        if not isinstance(reply, Exception):
            return reply
        if not is_redirection(reply):
            return self._error(reply)
        try:
            return self.command(*command)  # the client of the cluster follows it
        except AckerError as error:
            return error

    def version(self) -> ServerVersion | None:
        """Return product and version of the server; None where INFO is not allowed."""
        try:
            return server_version.of_info(self.client.info("server"))
        except redis.exceptions.NoPermissionError:
            return None
        except FAILED as error:
            raise self._failed(error) from error
        except BaseException:
            self._drop_unread()
            raise

    def drive(self, flow: Flow[T]) -> T:
        """Run a flow to its end, and return its result."""
        while isinstance(found := self.advance(flow), Hand):
            pass  # drive() has no use for values that are handed out
        return found.value

    def advance(self, flow: Flow[T]) -> Hand | Ended[T]:
        """Run a flow until it hands a value out, or to its end."""
        try:
            step = next(flow)
            while not isinstance(step, Hand):
                try:
                    result = self.take(step)
                except BaseException as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
            return step
        except StopIteration as end:
            return Ended(end.value)

    def take(self, step: Step) -> Any:
        """Run one step of a flow, and return its result."""
        if isinstance(step, Run):
            return self.run(step.call)
        if isinstance(step, Ask):
            return self.command(*step.args)
        if isinstance(step, AskAll):
            return self.commands(step.commands)
        if isinstance(step, AskEach):
            return self.each(step.commands)
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        if isinstance(step, Tell):
            return [self._call(step, args) for args in step.calls]
        if isinstance(step, Send):
            for number, args in enumerate(step.calls):
                step.on_result(number, self._call(step, args))
            return None
        if isinstance(step, Together):
            return self._together([partial(self._result, flow) for flow in step.flows])
        if isinstance(step, Begin):
            return self._begin(partial(self._result, step.flow))
        if isinstance(step, Places):
            return [getattr(node_of(self.client, key), "name", None) for key in step.keys]
        return self.version()

    def reset_after_fork(self) -> None:
        """Reset in a forked child: it has the parent's locks, but none of the parent's threads."""
        self._threads = self._refresh = None
        _free_locks(self.client)

    def close(self) -> None:
        """Close the connections."""
        if self._threads:
            self._threads.shutdown()
            self._threads = None
        self.client.close()

    def _together(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        if len(works) < 2:
            return [work() for work in works]
        threads = self._threads
        if threads is None:
            threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="acker-shard")
            self._threads = threads
        # This thread does the first work, and then each that no pool thread has begun. If the pool
        # has no threads, because the program ends or has too many, this thread does them all.
        first, *others = [(work, Future[Any]()) for work in works]
        with contextlib.suppress(RuntimeError):
            for work, future in others:
                threads.submit(self._take_over, work, future)
        try:
            results = [first[0]()]
            for work, future in others:
                results.append(work() if future.cancel() else future.result())
            return results
        finally:
            # The caller holds a lane: wait until no call of that lane is in flight, also after an
            # interrupt.
            wait([future for _, future in others if not future.cancel()])

    def _take_over(self, work: Callable[[], Any], future: "Future[Any]") -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

    def _begin(self, work: Callable[[], Any]) -> "Future[Any]":
        future = Future[Any]()
        # Not a thread of the pool: the end of the program does not wait for a node that hangs.
        thread = threading.Thread(
            target=self._take_over, args=(work, future), name="acker-probe", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the program ends, or has too many threads
            future.cancel()
        return future

    def _result(self, flow: Flow[Any]) -> Any:
        try:
            return self.drive(flow)
        except Exception as error:
            return error

    def _call(self, step: Tell | Send, args: tuple[Any, ...]) -> Any:
        try:
            return step.function(*args)
        except Exception as error:
            return error

    def _failed(self, error: Exception, script: scripts.Script | None = None) -> AckerError:
        """Return the AckerError for an error of redis-py.

        After one of a demoted master, or of a connection that could not authenticate, reconnect.
        """
        if must_leave(error):
            reconnect(self.client)
        return translate(error, tls_options(self.client), script)

    def _error(self, error: Exception) -> AckerError:
        """Return what ``raise self._failed(error) from error`` would raise."""
        failed = self._failed(error)
        failed.__cause__ = error
        return failed

    def _drop_unread(self) -> None:
        """Close the connection that an exception has interrupted, and all idle ones.

        A signal handler, for example, may raise between a command and its reply. The next command
        on that connection would read the reply of the interrupted one.
        """
        _drop_idle(self.client)

    def _eval(self, script: Script, call: Call) -> Any:
        return self.client.eval(script.source, KEYS, *call.keys, *call.args)


def reconnect(client: Any) -> None:
    """Let a client of redis-py use new connections only, after an error of a demoted master.

    redis-py keeps a connection that got a reply. If a name, a virtual address or a proxy leads to
    the new master, only a new connection reaches it.
    """
    _drop_used(client)
    _drop_idle(client)


def _drop_used(client: Any) -> None:
    """Make the pool close connections that other threads use, when these are returned.

    redis-py before 7 cannot do this: such a connection stays until a write on it is refused.
    """
    for each in _clients(client):
        pool = getattr(each, "connection_pool", None)
        mark = getattr(pool, "update_active_connections_for_reconnect", None)
        if mark is not None:
            mark()


def _drop_idle(client: Any) -> None:
    """Close the connections that no call uses at the moment."""
    for each in _clients(client):
        pool = getattr(each, "connection_pool", None)
        if pool is not None:
            try:
                pool.disconnect(inuse_connections=False)
            except TypeError:  # a blocking pool of redis-py 6 drops all connections
                pool.disconnect()
        # With single_connection_client=True the connection is in use as long as the client exists.
        single = getattr(each, "connection", None)
        if single is not None:
            single.disconnect()


def _clients(client: Any) -> list[Any]:
    """Return the client, and the clients of a cluster's nodes."""
    nodes = getattr(client, "nodes_manager", None)
    known = [node.redis_connection for node in nodes.nodes_cache.values()] if nodes else []
    return [client, *known]


_LOCKS = ("_lock", "_fork_lock", "_initialization_lock")


def _free_locks(client: Any) -> None:
    """Give a client of redis-py free locks in a forked child.

    Its pools notice a fork and reset themselves. From redis-py 7 on they take their lock for that,
    and another thread of the parent may have held it at the fork.
    """
    nodes = getattr(client, "nodes_manager", None)
    known = list(nodes.nodes_cache.values()) if nodes else []
    clients = [client, *(node.redis_connection for node in known if node.redis_connection)]
    holders = [nodes, *clients, *(getattr(each, "connection_pool", None) for each in clients)]
    holders += [getattr(each, "_event_dispatcher", None) for each in holders]
    replaced: dict[int, Any] = {}  # two holders that shared a lock share the new one
    for holder in holders:
        for name in _LOCKS:
            lock = getattr(holder, name, None)
            if isinstance(lock, _REENTRANT):
                setattr(holder, name, replaced.setdefault(id(lock), threading.RLock()))


_REENTRANT = type(threading.RLock())
