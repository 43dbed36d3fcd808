"""An address on loopback that switches to another server, as the DNS name of a managed Redis does.

Open connections are not cut. ``CLIENT KILL`` on the old server would hide a client that never
reconnects.
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
from tests.open_redis import OpenRedis
from tests.transport.listener import Listener
from tests.waiting import wait_until

# Without a delay a new replica is synchronized at once.
REPLICATION = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")


class Address:
    """A TCP proxy whose target for a connection is fixed when the client connects."""

    def __init__(self, port: int) -> None:
        self.leads_to = port
        """Port of the server that new connections reach."""
        self.accepted = 0
        """Number of connections so far."""
        self._open: set[socket.socket] = set()
        self._listener = Listener(self._serve)
        self.port = self._listener.port
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def close(self) -> None:
        """Stop accepting connections, and cut the open ones."""
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
    """A master (``old``) and its replica (``new``); clients reach the master by ``address``."""

    def __init__(self, binary: ServerBinary) -> None:
        self._stack = contextlib.ExitStack()
        try:
            self.old = self._stack.enter_context(OpenRedis(binary=binary, extra_args=REPLICATION))
            self.new = self._stack.enter_context(OpenRedis(binary=binary, extra_args=REPLICATION))
            self.address = Address(self.old.port)
            self._stack.callback(self.address.close)
            follow(self.new, self.old)
        except BaseException:
            self._stack.close()
            raise

    @property
    def url(self) -> str:
        """The URL of the address."""
        return self.address.url

    def catch_up(self) -> None:
        """Wait until the replica has all writes of the master."""
        wait_until(lambda: _offset(self.old) == _offset(self.new), "the replica has all writes")

    def fail_over(self) -> None:
        """Promote the replica, demote the master, switch the address; cut no connection."""
        with client_of(self.old) as old, client_of(self.new) as new:
            # No write is lost here: it either reaches the replica, or is refused.
            old.config_set("min-replicas-to-write", 3)
            self.catch_up()
            new.execute_command("REPLICAOF", "NO", "ONE")
            old.execute_command("REPLICAOF", "127.0.0.1", self.new.port)
            old.config_set("min-replicas-to-write", 0)
            self.address.leads_to = self.new.port
            wait_until(lambda: _is_up(old), "the demoted master is a replica")

    def swap(self) -> None:
        """Swap the roles of ``old`` and ``new``, so that another failover is possible."""
        self.old, self.new = self.new, self.old

    def connected(self, server: EmbeddedRedis) -> set[int]:
        """Return the ids of a server's clients, without replicas and without this query."""
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
    """Yield a client that connects to a server directly, not by the address."""
    with redis.Redis(port=server.port, protocol=2) as client:
        yield client


def follow(replica: EmbeddedRedis, master: EmbeddedRedis) -> None:
    """Make a server a replica of a master, and wait until it is synchronized."""
    with client_of(replica) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", master.port)
        wait_until(lambda: _is_up(client), "the replica is synchronized", pause=0.02)


def _is_up(client: redis.Redis) -> bool:
    return bool(client.info("replication").get("master_link_status") == "up")


def _offset(server: EmbeddedRedis) -> int:
    with client_of(server) as client:
        known = client.info("replication")
    return int(known.get("slave_repl_offset") or known["master_repl_offset"])
