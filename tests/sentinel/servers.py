"""A master, a replica, and three sentinels that monitor them, on loopback."""

import contextlib
import math
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.binary import ServerBinary
from tests.open_redis import OpenRedis
from tests.waiting import wait_until

SERVICE = "svc"
QUORUM = 2
CONFIG = """\
sentinel monitor {service} 127.0.0.1 {port} {quorum}
sentinel down-after-milliseconds {service} 600000
sentinel failover-timeout {service} 10000
"""
"""With this timeout a server that stops for some seconds does not count as down."""
DOWN_AFTER = 500
"""ms; used after the master was killed."""
AGAIN = 15.0
"""Seconds after which a requested failover has ended or was given up."""
PERIODS = {"info-period": 500, "publish-period": 200}
"""In ms. Sentinels demote a replaced master after four times the second period; by default 8 s."""
# An embedded server passes "-", to read a password from stdin, and options for a port and a
# directory; a sentinel needs a writable configuration file as its first argument.
WRAPPER = """\
#!/bin/sh
shift
exec '{binary}' '{config}' --sentinel "$@" -
"""
# Without a delay a new replica synchronizes immediately.
REPLICATION = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")


class Watched:
    """Two servers, one of them the master, and their sentinels."""

    def __init__(self, binary: ServerBinary, directory: Path) -> None:
        self._binary = binary
        self._directory = directory
        self._stack = contextlib.ExitStack()
        try:
            master = self._server()
            replica = self._server("--replicaof", "127.0.0.1", str(master.port))
            self.servers = {server.port: server for server in (master, replica)}
            wait_until(lambda: self._is_synced(replica.port), "a synchronized replica", pause=0.05)
            self.sentinels = [self._sentinel(number, master.port) for number in range(3)]
            self._hurry()
            self.settle()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """Return the URL of the master, with all sentinels."""
        return f"redis+sentinel://{self.hosts}/{SERVICE}"

    @property
    def hosts(self) -> str:
        """Return the addresses of the sentinels, as in a URL."""
        return ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)

    def ask(self, port: int, *args: str | int) -> Any:
        """Run a command on a server or a sentinel, on a separate connection."""
        with redis.Redis(port=port, protocol=2) as client:
            return client.execute_command(*args)

    def info(self, port: int, field: str) -> Any:
        """Return a field of INFO of a server."""
        with redis.Redis(port=port, protocol=2) as client:
            return client.info("replication")[field]

    def masters(self) -> set[int]:
        """Return the ports of the masters that the sentinels name: one, if they agree."""
        return {self._named_by(sentinel) for sentinel in self.sentinels}

    @property
    def master(self) -> int:
        """Return the port of the master, on which the sentinels agree."""
        [port] = self.masters()
        return port

    @property
    def replica(self) -> int:
        """Return the port of the other server."""
        [port] = set(self.servers) - self.masters()
        return port

    def fail_over(self) -> None:
        """Let the sentinels promote the replica; return when one of them names it."""
        old, first = self.master, self.sentinels[0]
        asked = -math.inf

        def done() -> bool:
            nonlocal asked
            if self._named_by(first) != old:
                return True
            # A sentinel that was stopped for two seconds does nothing for thirty, then gives up.
            if time.monotonic() > asked + AGAIN:
                try:
                    self.ask(first.port, "SENTINEL", "FAILOVER", SERVICE)
                    asked = time.monotonic()
                except redis.ResponseError as error:
                    # Its view of the replica is too old, or a failover is in progress.
                    if not str(error).startswith(("NOGOODSLAVE", "INPROG")):
                        raise
            return False

        wait_until(done, "a failover", pause=0.05)

    def kill_master(self) -> None:
        """Kill only the master's process; the sentinels detect it soon."""
        pid = self.servers[self.master].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for sentinel in self.sentinels:
            self.ask(
                sentinel.port, "SENTINEL", "SET", SERVICE, "down-after-milliseconds", DOWN_AFTER
            )

    def settle(self) -> None:
        """Wait until each sentinel knows the others, and a replica that it can promote."""
        wait_until(lambda: all(map(self._sees_all, self.sentinels)), "sentinels", pause=0.05)

    def stop(self) -> None:
        """Stop the servers and the sentinels."""
        self._stack.close()

    def _server(self, *settings: str) -> EmbeddedRedis:
        extra = (*REPLICATION, *settings)
        return self._stack.enter_context(OpenRedis(binary=self._binary, extra_args=extra))

    def _sentinel(self, number: int, port: int) -> EmbeddedRedis:
        config = self._directory / f"sentinel-{number}.conf"
        config.write_text(CONFIG.format(service=SERVICE, port=port, quorum=QUORUM))
        wrapper = self._directory / f"sentinel-{number}"
        wrapper.write_text(WRAPPER.format(binary=self._binary.path, config=config))
        wrapper.chmod(0o700)
        binary = replace(self._binary, path=wrapper)
        return self._stack.enter_context(OpenRedis(binary=binary))

    def _hurry(self) -> None:
        """Shorten the periods of the sentinels, which is possible from 7.0 on."""
        for sentinel in self.sentinels:
            for period, ms in PERIODS.items():
                with contextlib.suppress(redis.ResponseError):
                    self.ask(sentinel.port, "SENTINEL", "DEBUG", period, ms)

    def _named_by(self, sentinel: EmbeddedRedis) -> int:
        with redis.Redis(port=sentinel.port, protocol=2) as client:
            return int(client.sentinel_get_master_addr_by_name(SERVICE)[1])

    def _is_synced(self, port: int) -> bool:
        with redis.Redis(port=port) as client:
            return bool(client.info("replication").get("master_link_status") == "up")

    def _sees_all(self, sentinel: EmbeddedRedis) -> bool:
        with redis.Redis(port=sentinel.port, protocol=2) as client:
            master = client.sentinel_masters()[SERVICE]
            replicas = client.sentinel_slaves(SERVICE)
        return (
            master["flags"] == "master"
            and master["num-other-sentinels"] == 2
            and [replica["flags"] for replica in replicas] == ["slave"]
            and replicas[0]["master-link-status"] == "ok"
            and replicas[0]["master-port"] == master["port"]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
