"""A pipeline with acks and failures, for the dashboard: real trees in a real Redis."""

import random
from collections.abc import Iterator

from acker_redis.batching.batch import Batch
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker

WHYS = ("no such address", "timeout: warehouse", "card was declined")

HOSTILE = {
    "html": '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>',
    "quotes": "\"'`; window.hacked=1; //--></title>",
    "rtl": "\u202egnp.exe\u202c \u0645\u0631\u062d\u0628\u0627 \u200f1",
    "separators": "one\u2028two\u2029three\u00a0four",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 14,
    "url": "javascript:window.hacked=1",
    "template": "{{7*7}}${7*7}%3Cscript%3E",
}
"""Source ids and reasons that a page must show unchanged; a producer may send 255 bytes."""


class Load:
    """Tracks, acks, fails and expires trees in a namespace, with constant seeds."""

    def __init__(self, url: str, namespace: str, **fields: object) -> None:
        self.acker = Acker.from_url(url, namespace, timeout=60)
        self.acker.create(AckerConfig(**{"tick_ms": 3_600_000, **fields}))  # type: ignore[arg-type]
        self._random = random.Random(namespace)
        self._next = 1
        self.waiting: list[tuple[int, int]] = []
        """Anchor and id of the message that is outstanding."""

    def track(self, count: int, source: str = "shop", prefix: str = "order") -> None:
        """Track new trees, each with one message outstanding."""
        for part in _parts(count):
            batch = Batch(source)
            for _ in range(part):
                anchor, message = self._random.getrandbits(62), self._random.getrandbits(62) | 1
                batch.track(anchor, f"{prefix}-{self._next}", [message])
                self._next += 1
                self.waiting.append((anchor, message))
            self.acker.apply(batch)

    def track_as(self, source_id: str, source: str = "shop") -> int:
        """Track one tree with this source id; return its anchor."""
        batch, anchor = Batch(source), self._random.getrandbits(62)
        batch.track(anchor, source_id, [self._random.getrandbits(62) | 1])
        self.acker.apply(batch)
        return anchor

    def track_on(self, edge: str, count: int = 1, source: str = "shop") -> list[int]:
        """Track trees that wait for one message on an edge; return the ids of the messages."""
        batch, ids = Batch(source), list[int]()
        for _ in range(count):
            ids.append(self.acker.ids.code(edge) | self._random.getrandbits(54) | 1)
            batch.track(self._random.getrandbits(62), f"{edge or 'none'}-{len(ids)}", ids[-1:])
        self.acker.apply(batch)
        return ids

    def ack(self, count: int) -> None:
        """Complete so many of the open trees, chosen at random."""
        for part in _parts(min(count, len(self.waiting))):
            batch = Batch()
            for _ in range(part):
                batch.ack(*self._take())
            self.acker.apply(batch)

    def fail(self, count: int, why: str = "") -> None:
        """Fail so many of the open trees."""
        for part in _parts(min(count, len(self.waiting))):
            batch = Batch()
            for _ in range(part):
                batch.fail(self._take()[0], why or self._random.choice(WHYS))
            self.acker.apply(batch)

    def tick(self) -> None:
        """Tick every shard now, and drain it."""
        Rotator([self.acker]).step(force=True)

    def no_rotator_for(self, ms: int) -> None:
        """Set the last tick back by so many ms."""
        for shard in range(self.acker.config.shards):
            meta = ShardKeys(self.acker.namespace, shard).meta
            self.acker.connection.client.hincrby(meta, "ticked_ms", -ms)

    def _take(self) -> tuple[int, int]:
        return self.waiting.pop(self._random.randrange(len(self.waiting)))

    def close(self) -> None:
        """Close the connection."""
        self.acker.close()


def _parts(count: int) -> Iterator[int]:
    """Yield the sizes of batches of at most a thousand."""
    for begin in range(0, count, 1000):
        yield min(1000, count - begin)
