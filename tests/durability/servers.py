"""Servers that are killed and restarted from their disk, and sets of a master and its replicas.

Clients reach each server by a socket in a directory of the test. So no other process can take its
address between restarts, and the URL stays the same over restarts and failovers.
"""

import contextlib
import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.binary import ServerBinary
from tests.open_redis import OpenRedis
from tests.waiting import wait_until

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
EVERY_SECOND = ("--appendonly", "yes", "--appendfsync", "everysec")
NEITHER = ()
"""Nothing is on disk, except by SAVE."""
# Without a delay a new replica synchronizes immediately.
REPLICATION = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")


class Kept:
    """A server whose directory outlives it; it ends with the process that started it."""

    def __init__(self, binary: ServerBinary, directory: Path, *settings: str) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.socket = directory / "redis.sock"
        """A link to the socket, which exists only while the server lets clients in."""
        self._listens = directory / "server.sock"
        self._binary = binary
        self._settings = (
            *("--dir", str(directory), "--unixsocket", str(self._listens)),
            *settings,
        )
        self._server: EmbeddedRedis | None = None
        self.start()

    @property
    def url(self) -> str:
        """Return the URL of its socket."""
        return f"unix://{self.socket}"

    @property
    def port(self) -> int:
        """Return its port on loopback, which changes with each start."""
        assert self._server
        return self._server.port

    @property
    def log(self) -> Path:
        """Return the file with the end of the append-only log."""
        parts = sorted(self.directory.glob("appendonlydir/*.incr.aof"))
        return parts[-1] if parts else self.directory / "appendonly.aof"

    def start(self) -> None:
        """Start it from its directory; return when the data is loaded."""
        # It demands a password until OpenRedis has taken it away, and clients do not retry that.
        self.socket.unlink(missing_ok=True)
        self._server = OpenRedis(binary=self._binary, extra_args=self._settings).start()
        self.socket.symlink_to(self._listens)

    def kill(self) -> None:
        """Kill its process with SIGKILL."""
        assert self._server
        assert self._server.pid
        os.kill(self._server.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """Stop it; do nothing if it is already stopped."""
        if self._server:
            self._server.stop()
        self._server = None

    def ask(self, *args: str | int) -> Any:
        """Run a command on a separate connection."""
        with redis.Redis(unix_socket_path=str(self.socket), protocol=2) as client:
            return client.execute_command(*args)

    def info(self, field: str) -> Any:
        """Return a field of INFO."""
        with redis.Redis(unix_socket_path=str(self.socket), protocol=2) as client:
            return client.info().get(field)

    def counts_its_replicas(self) -> bool:
        """Return whether all connected replicas count for ``min-replicas-to-write``, if set."""
        with redis.Redis(unix_socket_path=str(self.socket), protocol=2) as client:
            fields = client.info("replication")
        connected = fields["connected_slaves"]
        return bool(fields.get("min_slaves_good_slaves", connected) == connected)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class ThreeServers:
    """A master and two replicas; ``url`` leads to the server that the clients use."""

    def __init__(self, binary: ServerBinary, directory: Path, *settings: str) -> None:
        self._link = directory / "current.sock"
        self._stack = contextlib.ExitStack()
        try:
            self.servers = [
                self._stack.enter_context(
                    Kept(binary, directory / str(number), *REPLICATION, *settings)
                )
                for number in range(3)
            ]
            self.master = self.servers[0]
            for replica in self.servers[1:]:
                self.follow(replica, self.master)
            self.move_clients(self.master)
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """Return the URL of the server that the clients use."""
        return f"unix://{self._link}"

    def follow(self, replica: Kept, master: Kept) -> None:
        """Make it a replica of ``master``, and wait until it is synchronized and counts."""
        replica.ask("REPLICAOF", "127.0.0.1", master.port)
        wait_until(lambda: replica.info("master_link_status") == "up", "a replica", pause=0.02)
        # Redis 6.2 counts a new replica as good only after its first REPLCONF ACK, up to 1 s later.
        wait_until(master.counts_its_replicas, "a replica that counts", pause=0.02)

    def catch_up(self, *replicas: Kept) -> None:
        """Wait until these replicas, or all, have all writes of the master so far."""
        written = self.master.info("master_repl_offset")
        replicas = replicas or tuple(each for each in self.servers if each is not self.master)

        def caught_up() -> bool:
            return all(replica.info("slave_repl_offset") >= written for replica in replicas)

        wait_until(caught_up, "replicas that have caught up", pause=0.02)

    def cut_off(self, replica: Kept) -> None:
        """Disconnect a replica that will be promoted: later writes of the master are lost."""
        replica.ask("REPLICAOF", "NO", "ONE")

    def move_clients(self, server: Kept) -> None:
        """Let clients reach this server, and close their connections to the old one."""
        new = self._link.with_suffix(".new")
        new.symlink_to(server.socket)
        new.replace(self._link)
        old, self.master = self.master, server
        if old is not server:
            old.ask("CLIENT", "KILL", "TYPE", "normal")

    def stop(self) -> None:
        """Stop all servers."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
