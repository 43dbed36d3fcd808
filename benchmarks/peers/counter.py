"""By hand: a counter a tree, a key that begins at five; each processed message sends DECR.

A message that is delivered twice counts twice: then the tree is complete too early.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from by_hand import run

DECR = """
local left = redis.call('DECR', KEYS[1])
if left == 0 then redis.call('DEL', KEYS[1]) end
return left
"""
SHA = hashlib.sha1(DECR.encode(), usedforsecurity=False).hexdigest()


class Counter:
    """SET, then one DECR a message, in a script because the last one deletes the key."""

    def prepare(self, client: Any) -> None:
        """Load the script."""
        client.script_load(DECR)

    def begin(self, client: Any, tree: int, messages: Sequence[int]) -> Any:
        """Set the counter."""
        return client.set(f"tree:{tree}", len(messages))

    def processed(self, client: Any, tree: int, message: int) -> Any:
        """Count down."""
        return client.evalsha(SHA, 1, f"tree:{tree}")

    def complete(self, reply: Any) -> bool:
        """Return whether nothing is left."""
        return bool(reply == 0)


if __name__ == "__main__":
    run(Counter())
