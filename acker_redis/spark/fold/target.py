"""Where the acker is, in a form that Spark may send to its executors; one client a process."""

import os
from dataclasses import dataclass, field

from acker_redis.errors import ConfigError
from acker_redis.protocol.keys import check_name
from acker_redis.sync.client import Acker
from acker_redis.transport.urls import RedisUrl, redact

URL_VARIABLE = "ACKER_REDIS_URL"


@dataclass(frozen=True)
class Target:
    """A namespace on a Redis. Its repr shows no password.

    It is pickled into the tasks of a query, and so is the URL with its password: Spark shows it
    nowhere, but whoever may read the memory of an executor has it.
    """

    namespace: str
    url: str = field(repr=False)
    timeout: float = 5.0
    """Seconds to connect, and to wait for a reply."""
    retry_for: float = 10.0
    """Seconds for which a call is sent again when Redis does not answer."""

    @classmethod
    def find(
        cls, namespace: str, url: str | None = None, timeout: float = 5.0, retry_for: float = 10.0
    ) -> "Target":
        """Target at ``url``, else at what ``ACKER_REDIS_URL`` says where this runs.

        Raises ConfigError if neither is there, or if URL or namespace cannot be.
        """
        found = url or os.environ.get(URL_VARIABLE)
        if not found:
            raise ConfigError(
                f"say where Redis is: url='redis://HOST:6379/0', or {URL_VARIABLE} in the "
                "environment of the driver"
            )
        RedisUrl.parse(found)
        return cls(check_name("namespace", namespace), found, timeout, retry_for)

    def __str__(self) -> str:
        return f"{self.namespace} at {redact(self.url)}"

    def client(self) -> Acker:
        """The client of this process; whoever asks again gets the same, with its connection."""
        client = _clients.get(self)
        if client is None:
            client = _clients[self] = Acker.from_url(
                self.url, self.namespace, timeout=self.timeout, retry_for=self.retry_for
            )
        return client


# In a module that workers import, not in one that is pickled: only so it outlives a task.
_clients: dict[Target, Acker] = {}
