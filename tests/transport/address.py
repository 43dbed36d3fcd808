"""An address on loopback that is moved to another server, as managed Redis moves a name.

Connections that are open stay where they are; ``CLIENT KILL`` on the old server would hide a
client that never connects again.
"""

import contextlib
import select
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import redis

from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.binary import ServerBinary
from tests.transport.listener import Listener
from tests.waiting import wait_until

# Without a delay: a replica that joins is in step at once.
REPLICATION = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")


class Address:
    """A TCP proxy; ``port`` of the server is read when a client connects, and never again."""

    def __init__(self, port: int) -> None:
        self.leads_to = port
        """New connections reach the server at this port."""
        self.accepted = 0
        """Connections so far."""
        self._open: set[socket.socket] = set()
        self._listener = Listener(self._serve)
        self.port = self._listener.port
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def close(self) -> None:
        """Accept no more, and cut what is open."""
        self._listener.close()
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _serve(self, client: socket.socket) -> None:
        self.accepted += 1
        with (
            contextlib.suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", self.leads_to)) as server,
        ):
            self._open.add(client)
            try:
                while True:
                    for source in select.select([client, server], [], [])[0]:
                        data = source.recv(1 << 20)
                        if not data:
                            return
                        (server if source is client else client).sendall(data)
            finally:
                self._open.discard(client)


class TwoServers:
    """A master and its replica; clients reach the master by ``address``."""

    def __init__(self, binary: ServerBinary) -> None:
        self._stack = contextlib.ExitStack()
        try:
            self.old = self._stack.enter_context(
                EmbeddedRedis(binary=binary, extra_args=REPLICATION)
            )
            self.new = self._stack.enter_context(
                EmbeddedRedis(binary=binary, extra_args=REPLICATION)
            )
            self.address = Address(self.old.port)
            self._stack.callback(self.address.close)
            follow(self.new, self.old)
        except BaseException:
            self._stack.close()
            raise

    @property
    def url(self) -> str:
        """By the address."""
        return self.address.url

    def catch_up(self) -> None:
        """Wait until the replica has all that the master has written."""
        wait_until(lambda: _offset(self.old) == _offset(self.new), "a replica that has it all")

    def fail_over(self) -> None:
        """Promote the replica, demote the master, move the address; cut no connection."""
        with client_of(self.old) as old, client_of(self.new) as new:
            # Nothing is lost here: a write either reaches the replica, or is refused.
            old.config_set("min-replicas-to-write", 3)
            self.catch_up()
            new.execute_command("REPLICAOF", "NO", "ONE")
            old.execute_command("REPLICAOF", "127.0.0.1", self.new.port)
            old.config_set("min-replicas-to-write", 0)
            self.address.leads_to = self.new.port
            wait_until(lambda: _is_up(old), "a demoted master that follows")

    def swap(self) -> None:
        """Take the new master for the old one from now on, so that it can fail over again."""
        self.old, self.new = self.new, self.old

    def connected(self, server: EmbeddedRedis) -> set[int]:
        """Ids of a server's clients, but of replicas and of the one that asks."""
        with client_of(server) as client:
            mine = client.client_id()
            kinds = ("normal", "pubsub")
            rows = [row for kind in kinds for row in client.client_list(_type=kind)]
        return {int(row["id"]) for row in rows} - {mine}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


@contextlib.contextmanager
def client_of(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    """A client that goes to a server directly, not by the address."""
    with redis.Redis(port=server.port, protocol=2) as client:
        yield client


def follow(replica: EmbeddedRedis, master: EmbeddedRedis) -> None:
    """Make it a replica, and wait until it is in step."""
    with client_of(replica) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", master.port)
        wait_until(lambda: _is_up(client), "a replica in step", pause=0.02)


def _is_up(client: redis.Redis) -> bool:
    return bool(client.info("replication").get("master_link_status") == "up")


def _offset(server: EmbeddedRedis) -> int:
    with client_of(server) as client:
        known = client.info("replication")
    return int(known.get("slave_repl_offset") or known["master_repl_offset"])
