"""One plain connection to each of several nodes, for the same command to all nodes."""

from collections.abc import Sequence
from typing import Any

import redis

from tests.waiting import LIMIT


class Links:
    """Connections to nodes on 127.0.0.1, without pools and retries: the tests send thousands."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._links = [redis.Connection(port=port, socket_timeout=LIMIT) for port in ports]

    def ask(self, *words: str | bytes | int) -> list[Any]:
        """Send a command to all nodes and return the reply of each."""
        for link in self._links:
            link.send_command(*words)
        return [link.read_response() for link in self._links]

    def close(self) -> None:
        """Close the connections."""
        for link in self._links:
            link.disconnect()
