"""Read and take the outcomes of one source. No I/O: see ``steps.py``.

Shards are independent: a shard that does not answer withholds its own entries only. An entry is
deleted by ``take`` alone, on its own shard, so no entry is lost that was not read.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from acker_redis.errors import AckerError
from acker_redis.flows.reach import Reach
from acker_redis.flows.steps import AskAll, AskEach, Flow, Run, each_of
from acker_redis.protocol import commands
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.outcome import Entry, parse_entry
from acker_redis.protocol.stored import shards_of


@dataclass(slots=True)
class Found:
    """The result of a read."""

    entries: list[Entry] = field(default_factory=list)
    read: dict[int, int] = field(default_factory=dict)
    """Number of entries of each shard that answered."""
    errors: dict[int, AckerError] = field(default_factory=dict)
    """Errors of the other shards that were asked."""


class OutcomeFlows:
    """The flows of one source's outcomes, which ``Outcomes`` and ``AsyncOutcomes`` run."""

    def __init__(
        self, shards: Sequence[ShardKeys], source: str, edges: tuple[str, ...] = ()
    ) -> None:
        self.source = check_name("source", source)
        self._edges = edges
        self._shards = {keys.shard: keys for keys in shards}
        self._namespace = shards[0].namespace
        self._reach = Reach(self._namespace)
        """For ``read`` only: a ``Source`` has its own."""

    @property
    def shards(self) -> int:
        """Number of shards when it was last read."""
        return len(self._shards)

    def read(self, count: int, after: Mapping[int, str] | None = None) -> Flow[list[Entry]]:
        """See :meth:`Outcomes.read`. ``after`` holds, per shard, the id after which to begin.

        Without an id a shard is read from its oldest entry: after a failover new ids may be smaller
        than those read before.
        """
        now = time.monotonic()
        ready = yield from self._reach.ready(self.shards, now)
        found = yield from self.read_each(ready, count, after)
        for shard, error in found.errors.items():
            self._reach.failed(shard, error, now)
        self._reach.served(found.read, now)
        errors = found.errors or self._reach.away
        if errors and not found.entries:  # else [] would say that no entry waits
            raise next(iter(errors.values()))
        return found.entries

    def read_each(
        self, asked: Collection[int], count: int, after: Mapping[int, str] | None = None
    ) -> Flow[Found]:
        """Read these shards, and all if their number has changed; see ``read``."""
        while True:
            begin = {shard: f"({id_}" for shard, id_ in (after or {}).items()}
            reads: list[tuple[str | int, ...]] = [
                ("XRANGE", k.outcomes(self.source), begin.get(k.shard, "-"), "+", "COUNT", count)
                for k in map(self._shards.__getitem__, asked)
            ]
            # A deleted stream reads like an empty one. So the same round trip reads the number of
            # shards, which a reshard may have changed, from shard 0.
            meta = ShardKeys(self._namespace, 0).meta
            if 0 in asked:
                reads.append(("HGET", meta, "shards"))
            replies = yield AskEach(tuple(reads))
            stored = replies.pop() if 0 in asked else None
            if stored is None or isinstance(stored, AckerError):
                break
            shards = shards_of(stored, meta)
            if shards == self.shards:
                break
            self._shards = {n: ShardKeys(self._namespace, n) for n in range(shards)}
            asked = range(shards)
        found = Found()
        for shard, reply in zip(asked, replies, strict=True):
            if isinstance(reply, AckerError):
                found.errors[shard] = reply
                continue
            found.read[shard] = len(reply)
            found.entries += [parse_entry(shard, id_, each, self._edges) for id_, each in reply]
        return found

    def entry(self, shard: int, id_: str) -> Flow[Entry | None]:
        """Return one waiting entry; None if the entry or its shard does not exist."""
        if shard not in self._shards:
            yield from self.read(1)  # a reshard may have added shards
        keys = self._shards.get(shard)
        if keys is None:
            return None
        (found,) = yield AskAll((("XRANGE", keys.outcomes(self.source), id_, id_),))
        if not found:
            return None
        id_found, fields = found[0]
        return parse_entry(shard, id_found, fields, self._edges)

    def take(self, entries: Iterable[Entry]) -> Flow[int]:
        """See :meth:`Outcomes.take`."""
        taken = yield from self.take_each(entries)
        for result in taken.values():
            if isinstance(result, AckerError):
                raise result
        return sum(result for result in taken.values() if isinstance(result, int))

    def take_each(self, entries: Iterable[Entry]) -> Flow[dict[int, int | AckerError]]:
        """Take entries; return, per shard, the number of verdicts, or the error."""
        ids: dict[int, list[str]] = {}
        for entry in entries:
            if entry.shard in self._shards:  # else the namespace has fewer shards now
                ids.setdefault(entry.shard, []).append(entry.id)
        flows = [self._take(shard, its) for shard, its in ids.items()]
        return dict(zip(ids, (yield from each_of(flows)), strict=True))

    def _take(self, shard: int, ids: list[str]) -> Flow[int]:
        taken = 0
        while ids:
            part = ids[: commands.MAX_TAKE]
            call = commands.take(self._shards[shard], self.source, part)
            _, verdicts, _, looked = yield Run(call)
            taken += int(verdicts)
            ids = ids[int(looked) :]
        return taken
