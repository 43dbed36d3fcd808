"""An embedded server on a port of 127.0.0.1 without a password, for tests only.

Drivers in eight languages, nodes of a cluster, replicas, sentinels and proxies connect to it by its
port alone. Every local user can do so, too: on a machine that you share with users whom you do not
trust, run the tests in a container.
"""

from collections.abc import Sequence
from typing import Self

import redis

from acker_redis.embedded import EmbeddedRedis, ServerBinary


class OpenRedis(EmbeddedRedis):
    """An embedded server whose default user needs no password."""

    def __init__(self, binary: ServerBinary | None = None, extra_args: Sequence[str] = ()) -> None:
        super().__init__(binary, extra_args, tcp=True)

    def start(self) -> Self:
        """Start it as EmbeddedRedis does, and let everyone in."""
        if not self.alive:
            super().start()
            with redis.Redis(port=self.port, password=self.password) as client:
                client.acl_setuser("default", enabled=True, nopass=True)
        return self

    @property
    def url(self) -> str:
        """The server's URL, "redis://127.0.0.1:<port>/0"."""
        return f"redis://127.0.0.1:{self.port}/0"
