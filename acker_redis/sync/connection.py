"""Runs flows and scripts on a synchronous client of redis-py, standalone or cluster."""

import contextlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import redis

from acker_redis.errors import AckerError, ConfigError
from acker_redis.flows.steps import (
    Ask,
    AskAll,
    Ended,
    Flow,
    Hand,
    Pause,
    Run,
    Send,
    Step,
    Tell,
    Together,
)  # fmt: skip
from acker_redis.forks import begins_in_children
from acker_redis.protocol import functions, scripts, server_version
from acker_redis.protocol.commands import Call
from acker_redis.protocol.scripts import Script
from acker_redis.protocol.server_version import ServerVersion
from acker_redis.transport.arguments import KEYS, as_text
from acker_redis.transport.errors import FAILED, is_demoted, tls_options, translate

T = TypeVar("T")

MAX_THREADS = 16
"""Shards that are asked side by side at most."""


class Connection:
    """Runs calls and flows; thread-safe, as redis-py's clients are."""

    def __init__(self, client: Any) -> None:
        if not hasattr(client, "get_encoder"):
            raise ConfigError(
                f"this takes a client of redis-py, not {type(client).__name__}; "
                "for a URL there is from_url()"
            )
        if client.get_encoder().decode_responses:
            raise ConfigError("replies are bytes: the client may not have decode_responses=True")
        self.client = client
        self.functions = functions.are_used(client)
        self._threads: ThreadPoolExecutor | None = None
        begins_in_children(self)

    def run(self, call: Call) -> Any:
        """Send a call once and return its reply.

        Raises the AckerError that the script names, RedisUnavailableError when no answer
        came (it may have run), RedisRefusedError when Redis refused to run it.
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
        """Run a plain command; the same errors as ``run``."""
        try:
            return self.client.execute_command(*as_text(args))
        except FAILED as error:
            raise self._failed(error) from error
        except BaseException:
            self._drop_unread()
            raise

    def commands(self, commands: Sequence[tuple[str | bytes | int, ...]]) -> list[Any]:
        """Run plain commands that change nothing, in one go; the same errors as ``run``."""
        if len(commands) == 1:
            return [self.command(*commands[0])]
        try:
            pipe = self.client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*as_text(command))
            return list(pipe.execute())
        except FAILED as error:
            raise self._failed(error) from error
        except BaseException:
            self._drop_unread()
            raise

    def version(self) -> ServerVersion | None:
        """Product and version of the server; None where INFO is not allowed."""
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
        """Run a flow to its end, and return what it returns."""
        while isinstance(found := self.advance(flow), Hand):
            pass  # no caller takes it
        return found.value

    def advance(self, flow: Flow[T]) -> Hand | Ended[T]:
        """Run a flow until it hands something out, or to its end."""
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
        if isinstance(step, Send):
            for number, args in enumerate(step.calls):
                step.told(number, self._call(step, args))
            return None
        if isinstance(step, Together):
            return self._together(step)
        return self.version()

    def begin(self) -> None:
        """In a forked child: the threads stayed with the parent, what they had locked did not."""
        self._threads = None
        _free_locks(self.client)

    def close(self) -> None:
        """Close the connections."""
        if self._threads:
            self._threads.shutdown()
            self._threads = None
        self.client.close()

    def _together(self, step: Together) -> list[Any]:
        if len(step.flows) < 2:
            return [self._result(flow) for flow in step.flows]
        threads = self._threads
        if threads is None:
            threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="acker-shard")
            self._threads = threads
        # This thread takes the first itself, and then whatever nobody has taken yet: when the
        # program ends, or can have no more threads, that is all.
        first, *others = [(flow, Future[Any]()) for flow in step.flows]
        with contextlib.suppress(RuntimeError):
            for flow, future in others:
                threads.submit(self._take_over, flow, future)
        try:
            results = [self._result(first[0])]
            for flow, future in others:
                results.append(self._result(flow) if future.cancel() else future.result())
            return results
        finally:
            # Whoever is interrupted holds a lane, in which calls may still be in flight.
            wait([future for _, future in others if not future.cancel()])

    def _take_over(self, flow: Flow[Any], future: "Future[Any]") -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(self._result(flow))
            except BaseException as error:
                future.set_exception(error)

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
        """AckerError for an error of redis-py; after a demoted master's, connect again."""
        if is_demoted(error):
            # redis-py keeps a connection that has answered. Where a name, a virtual address or a
            # proxy leads to the new master, only a new connection gets there.
            self._drop_used()
            self._drop_idle()
        return translate(error, tls_options(self.client), script)

    def _drop_unread(self) -> None:
        """Drop the connection that an exception from outside has interrupted, and all idle ones.

        A signal's handler, for example, may raise between a command and its reply. The next command
        would read that reply.
        """
        self._drop_idle()

    def _drop_used(self) -> None:
        """Let a pool drop the connections of other threads when they are given back.

        redis-py before 7 cannot: such a connection stays until a write on it is refused.
        """
        for client in self._clients():
            pool = getattr(client, "connection_pool", None)
            mark = getattr(pool, "update_active_connections_for_reconnect", None)
            if mark is not None:
                mark()

    def _clients(self) -> list[Any]:
        """The client, and those of a cluster's nodes."""
        nodes = getattr(self.client, "nodes_manager", None)
        known = [node.redis_connection for node in nodes.nodes_cache.values()] if nodes else []
        return [self.client, *known]

    def _drop_idle(self) -> None:
        """Drop the connections that no call uses at the moment."""
        for client in self._clients():
            pool = getattr(client, "connection_pool", None)
            if pool is not None:
                try:
                    pool.disconnect(inuse_connections=False)
                except TypeError:  # a blocking pool of redis-py 6 drops all connections
                    pool.disconnect()
            # With single_connection_client=True it is in use for as long as the client is there.
            single = getattr(client, "connection", None)
            if single is not None:
                single.disconnect()

    def _eval(self, script: Script, call: Call) -> Any:
        return self.client.eval(script.source, KEYS, *call.keys, *call.args)


_LOCKS = ("_lock", "_fork_lock", "_initialization_lock")


def _free_locks(client: Any) -> None:
    """Give a client of redis-py, in a forked child, locks that nobody holds.

    Its pools notice a fork and begin anew; but from 7 on they take their lock to do so, which
    another thread of the parent may have held.
    """
    nodes = getattr(client, "nodes_manager", None)
    known = list(nodes.nodes_cache.values()) if nodes else []
    clients = [client, *(node.redis_connection for node in known if node.redis_connection)]
    holders = [nodes, *clients, *(getattr(each, "connection_pool", None) for each in clients)]
    holders += [getattr(each, "_event_dispatcher", None) for each in holders]
    anew: dict[int, Any] = {}  # a lock that two share they share again
    for holder in filter(None, holders):
        for name in _LOCKS:
            lock = getattr(holder, name, None)
            if isinstance(lock, _REENTRANT):
                setattr(holder, name, anew.setdefault(id(lock), threading.RLock()))


_REENTRANT = type(threading.RLock())
