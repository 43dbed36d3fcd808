"""The address of the acker, in a form that Spark can pickle; one client per process."""

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

    Spark pickles it, with the URL and the password, into the tasks of a query. Spark does not
    display it, but it can be read from the memory of an executor.
    """

    namespace: str
    url: str = field(repr=False)
    timeout: float = 5.0
    """Seconds to connect, and to wait for a reply."""
    retry_for: float = 10.0
    """Seconds for which a call is repeated while Redis does not answer."""

    @classmethod
    def find(
        cls, namespace: str, url: str | None = None, timeout: float = 5.0, retry_for: float = 10.0
    ) -> "Target":
        """Return the target at ``url``, or at the ``ACKER_REDIS_URL`` of this process.

        Raises ConfigError if both are missing, or if URL or namespace is invalid.
        """
        found = url or os.environ.get(URL_VARIABLE)
        if not found:
            raise ConfigError(
                f"the URL of Redis is missing: give url='redis://HOST:6379/0', or set "
                f"{URL_VARIABLE} in the environment of the driver"
            )
        RedisUrl.parse(found)
        return cls(check_name("namespace", namespace), found, timeout, retry_for)

    def __str__(self) -> str:
        return f"{self.namespace} at {redact(self.url)}"

    def client(self) -> Acker:
        """Return the client of this process; later calls return the same client."""
        client = _clients.get(self)
        if client is None:
            client = _clients[self] = Acker.from_url(
                self.url, self.namespace, timeout=self.timeout, retry_for=self.retry_for
            )
        return client


# In a module that the workers import, and not in a pickled object: so a client outlives its task.
_clients: dict[Target, Acker] = {}
