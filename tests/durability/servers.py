"""Servers that are killed and come back to what their disk has; sets of them, one of which leads.

Each is reached by a socket in a directory of the test's own: no port is fixed, so that nobody
else can have taken it meanwhile, and the URL stays the same over restarts and failovers.
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
from tests.waiting import wait_until

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
EVERY_SECOND = ("--appendonly", "yes", "--appendfsync", "everysec")
NEITHER = ()
"""Nothing on disk, but by SAVE."""
# Without a delay: a replica that joins is there at once.
REPLICATION = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")


class Kept:
    """A server whose directory outlives it; a guard ends it with the process that made it."""

    def __init__(self, binary: ServerBinary, directory: Path, *settings: str) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.socket = directory / "redis.sock"
        self._binary = binary
        self._settings = (
            *("--dir", str(directory), "--unixsocket", str(self.socket)),
            *settings,
        )
        self._server: EmbeddedRedis | None = None
        self.start()

    @property
    def url(self) -> str:
        """By its socket."""
        return f"unix://{self.socket}"

    @property
    def port(self) -> int:
        """On loopback, another one each time it starts."""
        assert self._server
        return self._server.port

    @property
    def log(self) -> Path:
        """The file with the last of the append-only log."""
        parts = sorted(self.directory.glob("appendonlydir/*.incr.aof"))
        return parts[-1] if parts else self.directory / "appendonly.aof"

    def start(self) -> None:
        """Start it with what is in its directory; returns when that is loaded."""
        self._server = EmbeddedRedis(binary=self._binary, extra_args=self._settings).start()

    def kill(self) -> None:
        """End its process without a word."""
        assert self._server
        assert self._server.pid
        os.kill(self._server.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """Let its guard end it; nothing if that is done."""
        if self._server:
            self._server.stop()
        self._server = None

    def ask(self, *args: str | int) -> Any:
        """Run a command, on a connection of its own."""
        with redis.Redis(unix_socket_path=str(self.socket), protocol=2) as client:
            return client.execute_command(*args)

    def info(self, field: str) -> Any:
        """A field of INFO."""
        with redis.Redis(unix_socket_path=str(self.socket), protocol=2) as client:
            return client.info().get(field)

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
    """A master and two replicas; ``url`` leads to whichever the clients are to use."""

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
        """Of the server that the clients are to use."""
        return f"unix://{self._link}"

    def follow(self, replica: Kept, master: Kept) -> None:
        """Make it a replica, and wait until it is in step."""
        replica.ask("REPLICAOF", "127.0.0.1", master.port)
        wait_until(lambda: replica.info("master_link_status") == "up", "a replica", pause=0.02)

    def catch_up(self, *replicas: Kept) -> None:
        """Wait until these replicas, or all, have what the master has written so far."""
        written = self.master.info("master_repl_offset")
        replicas = replicas or tuple(each for each in self.servers if each is not self.master)

        def has_it_all() -> bool:
            return all(replica.info("slave_repl_offset") >= written for replica in replicas)

        wait_until(has_it_all, "replicas that have it all", pause=0.02)

    def cut_off(self, replica: Kept) -> None:
        """It hears no more of its master, and will be promoted: from here on writes get lost."""
        replica.ask("REPLICAOF", "NO", "ONE")

    def move_clients(self, server: Kept) -> None:
        """From now on clients reach this server, and their connections to the old one are gone."""
        new = self._link.with_suffix(".new")
        new.symlink_to(server.socket)
        new.replace(self._link)
        old, self.master = self.master, server
        if old is not server:
            old.ask("CLIENT", "KILL", "TYPE", "normal")

    def stop(self) -> None:
        """Stop all that was started here."""
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
