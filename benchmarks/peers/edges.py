"""By hand: a SET a tree with the ids of its outstanding messages. A repeated SREM does no harm."""

from collections.abc import Sequence
from typing import Any

from by_hand import run


class Edges:
    """SADD, then SREM and SCARD a message: Redis deletes a set that is empty."""

    def prepare(self, client: Any) -> None:
        """Nothing to load."""

    def begin(self, client: Any, tree: int, messages: Sequence[int]) -> Any:
        """Add all messages."""
        return client.sadd(f"tree:{tree}", *messages)

    def processed(self, client: Any, tree: int, message: int) -> Any:
        """Remove a message, then ask for the number of those that are left."""
        client.srem(f"tree:{tree}", message)
        return client.scard(f"tree:{tree}")

    def complete(self, reply: Any) -> bool:
        """Return whether the set is empty."""
        return bool(reply == 0)


if __name__ == "__main__":
    run(Edges())
