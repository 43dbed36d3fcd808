"""Users of all roles on a running server."""

import contextlib
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import NoPermissionError, ResponseError

from acker_redis.ops import acl
from acker_redis.protocol.keys import ShardKeys
from tests.waiting import LIMIT

PASSWORD = "correct horse"
PASSED_OVER = {b"client|setinfo", b"client|maint_notifications", b"client"}
"""Refused commands that redis-py ignores; not every server has them, so no rule names them."""


@dataclass
class Users:
    """A user of each role, for one namespace or for all."""

    ports: list[int]
    clients: list[Any]
    """Clients of each node, with all rights."""
    namespace: str
    all_namespaces: bool = False
    functions: bool = False
    """Whether roles that can work without EVAL have no EVAL; their clients call functions."""

    def name(self, role: str) -> str:
        """Return the user name of a role."""
        return f"{self.namespace}-{role}"

    def url(self, role: str) -> str:
        """Return the URL with user and password; a cluster URL if there are several nodes."""
        login = f"{self.name(role)}:{PASSWORD.replace(' ', '%20')}"
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        kind, db = ("redis", "/0") if len(self.ports) == 1 else ("redis+cluster", "")
        without_eval = self.functions and acl.calls_functions(role)
        functions = "&functions=yes" if without_eval else ""
        return f"{kind}://{login}@{hosts}{db}?client_name=test{functions}"

    def make(self) -> None:
        """Create the users on each node, with exactly the words of their rules."""
        of = None if self.all_namespaces else self.namespace
        for role in acl.roles():
            functions = self.functions and acl.calls_functions(role)
            rule = acl.rule(role, of, self.name(role), PASSWORD, functions=functions)
            words = rule.split(" ")
            assert words[:2] == ["user", self.name(role)]
            for client in self.clients:
                client.execute_command("ACL", "SETUSER", *words[1:])

    def remove(self) -> None:
        """Remove the users."""
        for client in self.clients:
            client.execute_command("ACL", "DELUSER", *map(self.name, acl.roles()))

    def refusals(self) -> set[tuple[str, bytes]]:
        """Return and clear the refusals: role, and command, key or channel."""
        found = set()
        for client in self.clients:
            for entry in client.execute_command("ACL", "LOG", 128):
                fields = entry
                if isinstance(entry, list):
                    fields = dict(zip(entry[::2], entry[1::2], strict=True))
                role = fields[b"username"].decode().removeprefix(f"{self.namespace}-")
                if fields[b"object"].lower() not in PASSED_OVER:
                    found.add((role, fields[b"object"]))
            client.execute_command("ACL", "LOG", "RESET")
        return found


@contextlib.contextmanager
def users(
    ports: Iterable[int],
    clients: Iterable[Any],
    namespace: str = "",
    everywhere: bool = False,
    functions: bool = False,
) -> Iterator[Users]:
    """Create users of all roles; remove them at the end of the block."""
    name = namespace or f"acl-{uuid.uuid4().hex[:8]}"
    made = Users(list(ports), list(clients), name, everywhere, functions)
    made.make()
    made.refusals()
    try:
        yield made
    finally:
        made.remove()


def is_refusal(reply: Any) -> bool:
    """Return whether a reply is a refusal; inside a script its text differs."""
    words = r"NOPERM|The user executing the script can't |ACL failure in script: "
    return isinstance(reply, NoPermissionError) or (
        isinstance(reply, ResponseError) and bool(re.search(words, str(reply)))
    )


class Login:
    """One connection of a user that sends commands unchanged."""

    def __init__(self, port: int, user: str, password: str = PASSWORD) -> None:
        # RESP2: one reply per command, also after SUBSCRIBE.
        self._port, self._user, self._password = port, user, password
        self._open()

    def _open(self) -> None:
        self._connection = redis.Connection(
            port=self._port,
            username=self._user,
            password=self._password,
            protocol=2,
            socket_timeout=LIMIT,
        )
        self._connection.connect()

    def send(self, *args: str | bytes | int) -> Any:
        """Send a command; return its reply, which may be an error."""
        try:
            self._connection.send_command(*args)
            return self._connection.read_response()
        except ResponseError as error:
            return error

    def write(self, sent: bytes) -> None:
        """Send raw bytes without reading a reply."""
        self._connection.send_packed_command([sent])

    def refused(self, *args: str | bytes | int) -> bool:
        """Return whether Redis refuses this command."""
        return is_refusal(self.send(*args))

    def reconnect(self) -> None:
        """Reconnect, which resets the state of the connection."""
        self.close()
        self._open()

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()

    def __enter__(self) -> "Login":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def own_key(namespace: str) -> str:
    """Return a key of the namespace that no script uses."""
    return f"{ShardKeys(namespace, 0).prefix}:own"
