"""The calls of ``alive`` and their replies: which trees are pending, and what a shard remembers."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from acker_redis.errors import SchemaError
from acker_redis.protocol.commands import Call
from acker_redis.protocol.ids import shard_of
from acker_redis.protocol.keys import ShardKeys

# From lua/spec.json, by python -m proof.spec
MAX_ROWS = 1024
MAX_SKEW_MS = 600_000
"""Milliseconds by which the clocks of two servers may differ."""


@dataclass(frozen=True, slots=True)
class Alive:
    """Reply of ``alive``, for the anchors of its call."""

    now_ms: int
    """The clock of the shard's server, in ms since 1970, like the other times."""
    since_ms: int
    until_ms: int
    """Of every tree that was tracked between the two, the shard knows whether it is pending."""
    shards: int
    of: str
    """Names the namespace without its salt; see :func:`acker_redis.protocol.keys.feed_tag`."""
    pending: tuple[bool, ...]

    def remembers(self, least_ms: int, most_ms: int) -> bool:
        """Return whether the shard knows all trees that were tracked in a span of time.

        Args:
            least_ms: The end of the span, in ms before ``now_ms``.
            most_ms: Its begin.

        Examples:
            >>> alive = Alive(10_000, 2_000, 9_000, 1, "", ())
            >>> alive.remembers(1_000, 8_000), alive.remembers(999, 8_000)
            (True, False)
            >>> alive.remembers(1_000, 8_001)
            False

        """
        return self.now_ms - self.until_ms <= least_ms <= most_ms <= self.now_ms - self.since_ms


def anchors_by_call(shards: int, anchors: Iterable[int]) -> list[tuple[int, list[int]]]:
    """Return the shard and the anchors of each call, in the order of their first anchors."""
    found: dict[int, list[int]] = {}
    for anchor in anchors:
        found.setdefault(shard_of(anchor, shards), []).append(anchor)
    return [
        (shard, several[at : at + MAX_ROWS])
        for shard, several in found.items()
        for at in range(0, len(several), MAX_ROWS)
    ]


def alive(keys: ShardKeys, anchors: Sequence[int]) -> Call:
    """Build the call that looks up to 1024 anchors of a shard up."""
    return Call("alive", keys.both, (struct.pack(f">{len(anchors)}Q", *anchors),))


def parse_alive(reply: Sequence[Any], count: int) -> Alive:
    """Parse the reply for ``count`` anchors; raise SchemaError if it is no reply of the script."""
    try:
        now, since, until, shards, of, bitmap = reply
        pending = tuple(bool(bitmap[k // 8] >> (7 - k % 8) & 1) for k in range(count))
        return Alive(int(now), int(since), int(until), int(shards), of.decode(), pending)
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise SchemaError(f"alive has replied {reply!r:.160}") from error
