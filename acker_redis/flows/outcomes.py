"""Read and take the outcomes of one source. No I/O: see ``steps.py``."""

from collections.abc import Iterable, Mapping, Sequence

from acker_redis.flows.steps import AskAll, Flow, Run, together
from acker_redis.protocol import commands
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.outcome import Entry, parse_entry
from acker_redis.protocol.stored import shards_of


class OutcomeFlows:
    """The flows of one source's outcomes, which ``Outcomes`` and ``AsyncOutcomes`` run."""

    def __init__(
        self, shards: Sequence[ShardKeys], source: str, edges: tuple[str, ...] = ()
    ) -> None:
        self.source = check_name("source", source)
        self._edges = edges
        self._shards = {keys.shard: keys for keys in shards}

    @property
    def shards(self) -> int:
        """Number of shards when it was last read."""
        return len(self._shards)

    def read(self, count: int, after: Mapping[int, str] | None = None) -> Flow[list[Entry]]:
        """See :meth:`Outcomes.read`. ``after`` holds, per shard, the id after which to begin.

        Without an id a shard is read from its oldest entry: after a failover new ids may be smaller
        than those read before.
        """
        begin = {shard: f"({id_}" for shard, id_ in (after or {}).items()}
        while True:
            keys = list(self._shards.values())
            # A deleted stream reads like an empty one. So the same pipeline reads the number of
            # shards, which a reshard may have changed.
            reads = [
                ("XRANGE", k.outcomes(self.source), begin.get(k.shard, "-"), "+", "COUNT", count)
                for k in keys
            ]
            stored, *replies = yield AskAll((("HGET", keys[0].meta, "shards"), *reads))
            shards = len(keys) if stored is None else shards_of(stored, keys[0].meta)
            if shards == len(keys):
                break
            self._shards = {n: ShardKeys(keys[0].namespace, n) for n in range(shards)}
        return [
            parse_entry(k.shard, id_, fields, self._edges)
            for k, found in zip(keys, replies, strict=True)
            for id_, fields in found
        ]

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
        ids: dict[int, list[str]] = {}
        for entry in entries:
            if entry.shard in self._shards:  # else the namespace has fewer shards now
                ids.setdefault(entry.shard, []).append(entry.id)
        if not ids:
            return 0
        return sum((yield from together([self._take(shard, its) for shard, its in ids.items()])))

    def _take(self, shard: int, ids: list[str]) -> Flow[int]:
        taken = 0
        while ids:
            part = ids[: commands.MAX_TAKE]
            call = commands.take(self._shards[shard], self.source, part)
            _, verdicts, _, looked = yield Run(call)
            taken += int(verdicts)
            ids = ids[int(looked) :]
        return taken
