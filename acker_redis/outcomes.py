"""Verdicts of a source task, from the durable stream: at least once, in no special order.

Read what waits, handle it, take it. What was not taken is read again, also after a
crash: no cursor is kept anywhere. One reader per task; others may read but never take.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from acker_redis import commands
from acker_redis.connection import Connection
from acker_redis.keys import ShardKeys, check_name

Verdict = Literal["ack", "nack", "touch"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Verdict on one tuple tree."""

    verdict: Verdict
    """``ack``: complete. ``nack``: replay it. ``touch``: its clock was set back."""
    reason: str
    """completed, failed, expired, overflow, conflict or reset."""
    anchor: int
    source_id: str
    age_ms: int
    """Milliseconds from the tree's first row to the verdict."""
    why: str
    """What the bolt said when it failed the tree, or ''."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a task's stream: the outcomes that one call decided alike."""

    shard: int
    id: str
    """Id in the stream of its shard."""
    at_ms: int
    """When it was written, by Redis's clock, in ms since 1970."""
    outcomes: tuple[Outcome, ...]


class Outcomes:
    """Reads and takes the outcomes of one task over all shards."""

    def __init__(self, connection: Connection, shards: Sequence[ShardKeys], task: str) -> None:
        self.task = check_name("task", task)
        self._connection = connection
        self._shards = {keys.shard: keys for keys in shards}

    def read(self, count: int = 16) -> list[Entry]:
        """Up to ``count`` entries per shard, oldest first; [] if none waits.

        An entry holds up to 1024 outcomes. The same entries come again until they are taken.
        """
        return [entry for keys in self._shards.values() for entry in self._read(keys, count)]

    def take(self, entries: Iterable[Entry]) -> int:
        """Delete entries that were handled; returns how many verdicts they held.

        Entries that are gone already are passed over.
        """
        ids: dict[int, list[str]] = {}
        for entry in entries:
            ids.setdefault(entry.shard, []).append(entry.id)
        taken = 0
        for shard, all_ids in ids.items():
            while all_ids:
                part = all_ids[: commands.MAX_TAKE]
                call = commands.take(self._shards[shard], self.task, part)
                _, verdicts, _, looked = self._connection.run(call)
                taken += int(verdicts)
                del all_ids[: int(looked)]
        return taken

    def __iter__(self) -> Iterator[Outcome]:
        """Each outcome that waits now; an entry is taken once all of it was handed out."""
        while entries := self.read(1):
            for entry in entries:
                yield from entry.outcomes
                self.take([entry])

    def _read(self, keys: ShardKeys, count: int) -> list[Entry]:
        stream = keys.outcomes(self.task)
        found = self._connection.command("XRANGE", stream, "-", "+", "COUNT", count)
        return [parse_entry(keys.shard, id_, fields) for id_, fields in found]


def parse_entry(shard: int, id_: bytes, fields: Any) -> Entry:
    """Entry from its stream id and its fields as Redis replies them."""
    flat = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    name = id_.decode()
    verdict, reason = flat[b"verdict"].decode(), flat[b"reason"].decode()
    rows = json.loads(flat[b"rows"])
    return Entry(
        shard=shard,
        id=name,
        at_ms=int(name.partition("-")[0]),
        outcomes=tuple(
            Outcome(verdict, reason, int(anchor, 16), source_id, age_ms, why)
            for anchor, source_id, age_ms, why in rows
        ),
    )
