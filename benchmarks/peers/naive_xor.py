"""By hand: the acker's checksum, one EVALSHA a message, a string of 8 bytes a tree.

The script has no fence, so a retried call is applied twice, and no deadline.
"""

import hashlib
import struct
from collections.abc import Sequence
from functools import reduce
from operator import xor
from typing import Any

from by_hand import run

SCRIPT = """
local old = redis.call('GET', KEYS[1])
if not old then redis.call('SET', KEYS[1], ARGV[1]) return 1 end
local a, b = struct.unpack('>I4I4', old)
local c, d = struct.unpack('>I4I4', ARGV[1])
local high, low = bit.bxor(a, c), bit.bxor(b, d)
if high == 0 and low == 0 then redis.call('DEL', KEYS[1]) return 0 end
redis.call('SET', KEYS[1], struct.pack('>I4I4', high, low))
return 1
"""
SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()


class NaiveXor:
    """One EVALSHA for the first ids of a tree, and one for each message."""

    def prepare(self, client: Any) -> None:
        """Load the script."""
        client.script_load(SCRIPT)

    def begin(self, client: Any, tree: int, messages: Sequence[int]) -> Any:
        """Store the XOR of all ids."""
        return self.processed(client, tree, reduce(xor, messages))

    def processed(self, client: Any, tree: int, message: int) -> Any:
        """XOR an id onto the checksum."""
        return client.evalsha(SHA, 1, f"tree:{tree}", struct.pack(">Q", message))

    def complete(self, reply: Any) -> bool:
        """Return whether the checksum is zero."""
        return bool(reply == 0)


if __name__ == "__main__":
    run(NaiveXor())
