"""The facts about the rows of a case, for the oracle: the messages that each row adds and ends.

An id is a name here. Ids are told apart by XOR only where the wire has no more than their XOR: a
message that several others cause, and the first messages of a tree in a block.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import xor

from acker_redis.protocol.ids import EDGE_BIT
from proof.cases.lines import Json
from proof.cases.shard import block_rows
from proof.oracle import FAIL, TOUCH, TRACK, Link, Part
from proof.oracle.facts import slot_anchor

_FLAGS = {"track": TRACK, "ack": 0, "fail": FAIL, "touch": TOUCH}


@dataclass
class Fact:
    """The rows of one step for one anchor, folded."""

    flags: int = 0
    source_id: str = ""
    why: str = ""
    done: tuple[int, ...] = ()
    made: tuple[int, ...] = ()
    links: frozenset[Link] = frozenset()


class Messages:
    """The messages of one anchor, from all its rows in the case."""

    def __init__(self, edges: Sequence[str]) -> None:
        self._edges = edges
        self._joined: dict[int, int] = {}
        self.parts: dict[int, Part] = {}
        self.tracks = 0
        self.named: Counter[int] = Counter()
        """How many rows name a message."""

    def learn(self, rows: Sequence[Json], deltas: Sequence[tuple[bool, int]]) -> None:
        """Read all rows, and all deltas without ids, each with whether it is of a TRACK."""
        processed = {int(row["tuple"]) for row in rows if int(row.get("tuple", 0))}
        emitted = {int(id_) for row in rows for id_ in row.get("emitted", ())}
        for message in processed - emitted:
            for some in _sums(sorted(emitted - processed), message, 2):
                self._joined |= dict.fromkeys(some, message)
        for message in sorted(processed):
            self._part(message)
        for row in rows:
            for link in self.announced(row):
                self._part(link[0]).links.add(link)
                self.named[link[0]] += 1
            self.named[int(row.get("tuple", 0))] += 1
        for tracked, delta in sorted(deltas, reverse=True):
            for message in self.split(delta):
                if tracked:
                    self._part(message).links.add((message, 0))
        self.tracks = sum("source_id" in row for row in rows) + sum(first for first, _ in deltas)
        for message, part in self.parts.items():
            part.links = part.links or {(message, 0)}

    def announced(self, row: Json) -> frozenset[Link]:
        """Return the links to the messages that a row announces."""
        found: frozenset[Link] = frozenset()
        for id_ in map(int, row.get("emitted", ())):
            found ^= {(self._joined.get(id_, id_), int(row.get("tuple", 0)))}
        return found

    def split(self, delta: int) -> tuple[int, ...]:
        """Return the known messages whose ids have this XOR; without any, it is one message."""
        found = next(_sums(self.parts, delta, 1), (delta,)) if delta else ()
        for message in found:
            self._part(message)
        return found

    def _part(self, message: int) -> Part:
        edges = [name for k, name in enumerate(self._edges) if message >> EDGE_BIT + k & 1]
        part = Part(edges[0] if len(edges) == 1 else "", message)
        return self.parts.setdefault(message, part)


class Facts:
    """The facts about all rows of a case."""

    def __init__(self, case: Json) -> None:
        rows: dict[int, list[Json]] = {}
        deltas: dict[int, list[tuple[bool, int]]] = {}
        for step in case["steps"]:
            for anchor, _, fields in _each(step):
                rows.setdefault(anchor, []).append(fields)
            for anchor, tracked, delta in _columns(step):
                deltas.setdefault(anchor, []).append((tracked, delta))
        self.messages: dict[int, Messages] = {}
        for anchor in {*rows, *deltas}:
            self.messages[anchor] = Messages(case["config"]["edges"])
            self.messages[anchor].learn(rows.get(anchor, []), deltas.get(anchor, []))

    def of(self, step: Json) -> dict[int, Fact]:
        """Return the facts about the rows of a step, by anchor."""
        found: dict[int, Fact] = {}
        for anchor, verb, fields in _each(step):
            fact, of = found.setdefault(anchor, Fact()), self.messages[anchor]
            fact.flags |= _FLAGS[verb]
            fact.source_id = fact.source_id or fields.get("source_id", "")
            fact.why = fact.why or fields.get("why", "")
            links = of.announced(fields)
            fact.made += tuple(message for message, _ in links)
            fact.links ^= links
            if message := int(fields.get("tuple", 0)):
                fact.done += (message,)
                fact.links ^= of.parts[message].links
        for anchor, tracked, delta in _columns(step):
            fact, of = found.setdefault(anchor, Fact()), self.messages[anchor]
            for message in of.split(delta):
                if tracked:
                    fact.made, fact.links = (*fact.made, message), fact.links ^ {(message, 0)}
                else:
                    fact.done += (message,)
                    fact.links ^= of.parts[message].links
            fact.flags |= TRACK if tracked else 0
        return found


def has_explicit_zeros(step: Json) -> bool:
    """Return whether rows of a block have deltas of zero, which no message has."""
    return any(not tracked and not delta for _, tracked, delta in _columns(step))


def _each(step: Json) -> Iterator[tuple[int, str, Json]]:
    """Yield the rows of a step with ids: anchor, verb, fields."""
    do = (step.get("do") or {}).get("apply", {})
    for row in do.get("rows", ()) if not step.get("refused") else ():
        ((verb, fields),) = row.items()
        if verb != "track_block":
            yield int(fields["anchor"]), verb, fields


def _columns(step: Json) -> Iterator[tuple[int, bool, int]]:
    """Yield the deltas of a step without ids: anchor, whether they are of a TRACK, delta."""
    do = (step.get("do") or {}).get("apply", {})
    for row in do.get("rows", ()) if not step.get("refused") else ():
        if fields := row.get("track_block"):
            for slot, delta in enumerate(fields["deltas"]):
                yield slot_anchor(int(fields["block"]), slot), True, int(delta)
    for call in step.get("calls", ()) if not step.get("do") else ():
        if call["script"] == "apply_blocks" and not isinstance(call["reply"], dict):
            for block in block_rows(call):
                for slot, delta in block.deltas.items():
                    if slot not in block.absent:
                        yield slot_anchor(block.block, slot), bool(block.task), delta


def _sums(ids: Iterable[int], total: int, least: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of up to three ids that have this XOR, the smallest first."""
    ids = list(ids)
    for size in range(least, 4):
        for some in combinations(ids, size):
            if reduce(xor, some) == total:
                yield some
