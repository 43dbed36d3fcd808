"""Published verdicts, gathered for an event; its size is bounded for any input.

A user of Redis who may publish can publish anything, so other messages than the scripts' are
ignored.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from acker_api.shapes.verdicts import Outcome
from acker_redis import block_anchor
from acker_redis.operate import NAME, Cause, count_slots, odd_edges, slots_of_hex

MOST = 200
"""Maximum number of verdicts of an event."""
MAX_ACKS = 100
"""Maximum number of acks and touches among them: a thousand acks per second hide no nack."""
MAX_BLOCKS = 50
"""Maximum number of blocks of an event."""
MAX_TEXT = 128 * 1024
"""Approximate maximum length of an event, in characters."""

MAX_MESSAGE = 4 * 1024 * 1024
"""Maximum size of a message, in bytes; the scripts publish about 1 MB at most. To parse a larger
one of another program would delay all streams."""

_CHANNEL = re.compile(f"acker:({NAME}):(ack|nack|touch|mixed):({NAME})".encode())
_RESIDUAL = re.compile(r"[0-9a-f]{16}")
_TAG = re.compile(rb',"of":"([0-9a-f]{16})"\}\Z')
_HEAD = re.compile(rb'\{"verdict":"[a-z]+","reason":"([a-z]+)","n":([0-9]{1,9}),')


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of the name of a channel."""

    namespace: str
    verdict: str
    source: str

    @classmethod
    def of(cls, channel: bytes) -> "Address | None":
        """Parse the name of a channel; return None for a channel of another program.

        >>> Address.of(b"acker:orders:nack:shop")
        Address(namespace='orders', verdict='nack', source='shop')
        """
        match = _CHANNEL.fullmatch(channel)
        return cls(*(part.decode() for part in match.groups())) if match else None


def tag_of(message: bytes) -> str | None:
    """Return the tag of the namespace that published a message; None for a script without tags.

    >>> tag_of(b'{"verdict":"ack","of":"0123456789abcdef"}')
    '0123456789abcdef'
    """
    match = _TAG.search(message, max(0, len(message) - 30))
    return match[1].decode() if match else None


class _Row(NamedTuple):
    """The fields of a verdict that its row has, not validated."""

    anchor: str
    source_id: Any
    age_ms: Any
    why: Any
    slot: int | None = None
    cause: Any = ""
    residual: str | None = None
    edges: tuple[str, ...] = ()
    idle_ms: Any = None


class BlockVerdict(BaseModel):
    """The verdicts on the trees of a block, in one entry."""

    verdict: str = Field(description="ack, nack, touch, or mixed", examples=["ack"])
    reason: str = Field(examples=["completed"])
    block: str = Field(description="Number of the block", examples=["17"])
    label: str = Field(description="The source's name for the block", examples=["page 1"])
    source: str = Field(description="The source that gets the verdict", examples=["shop"])
    count: int = Field(
        description="Number of verdicts: slots without a tree have none, nor have trees that "
        "failed earlier",
        examples=[4095],
    )
    acked: int = Field(examples=[4095])
    nacked: int = Field(examples=[0])
    age_ms: int = Field(examples=[5200])
    cause: Cause = Field(description="Of a block that expired: `idle` or `deadline`", examples=[""])
    edges: dict[str, int] = Field(
        description="Of a block that expired: nacked trees, by the edges on which an odd number of "
        "their messages is unaccounted for",
        examples=[{}],
    )
    idle_ms: int | None = Field(
        description="Of a block that expired: time since its last row, to within a tick",
        examples=[None],
    )
    at_ms: int = Field(examples=[1_700_000_000_000])


@dataclass
class Gathering:
    """Verdicts for the next event, of a namespace with these edges."""

    edges: tuple[str, ...] = ()
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    """Each as JSON: for listeners that may see ids of messages, and for others."""
    blocks: list[str] = field(default_factory=list)
    dropped: int = 0
    """Verdicts that were left out."""
    _acks: int = 0
    _size: int = 0

    def __bool__(self) -> bool:
        return bool(self.outcomes or self.blocks or self.dropped)

    def add(self, address: Address, message: bytes, at_ms: int) -> bool:
        """Add a published message; return False, and ignore it, if no script has written it."""
        head = _HEAD.match(message)
        if not head or len(message) > MAX_MESSAGE:
            return False
        count = int(head[2])
        if not self._room(address.verdict) and len(self.blocks) >= MAX_BLOCKS:
            self.dropped += count  # the message is not even parsed
            return True
        try:
            self._take(address, head[1].decode(), count, json.loads(message), at_ms)
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
            return False
        return True

    def data(self, ids: bool) -> str:
        """Return the data of the event, as JSON, with ids of messages or without."""
        outcomes = ",".join(each[0 if ids else 1] for each in self.outcomes)
        blocks = ",".join(self.blocks)
        return f'{{"outcomes":[{outcomes}],"blocks":[{blocks}],"dropped":{self.dropped}}}'

    def _room(self, verdict: str) -> bool:
        full = len(self.outcomes) >= MOST or self._size >= MAX_TEXT
        return not full and (verdict == "nack" or self._acks < MAX_ACKS)

    def _take(self, address: Address, reason: str, count: int, body: Any, at_ms: int) -> None:
        if "block" not in body:
            # Parse all rows before any is added: a message is added as a whole, or ignored.
            rows = [self._row(*row) for row in body["rows"]]
            self._outcomes(address, reason, rows, at_ms)
        elif "rows" in body:
            block, label, age_ms = int(body["block"], 16), body["label"], body["age"]
            rows = [
                _Row(str(block_anchor(block, n)), label, age_ms, why, n) for n, why in body["rows"]
            ]
            self._outcomes(address, reason, rows, at_ms)
        else:
            nacked = _nacked(address.verdict, count, body)
            told = BlockVerdict(
                verdict=address.verdict,
                reason=reason,
                block=str(int(body["block"], 16)),
                label=body["label"],
                source=address.source,
                count=count,
                acked=count - nacked if address.verdict in ("ack", "mixed") else 0,
                nacked=nacked,
                age_ms=body["age"],
                cause=body.get("cause", ""),
                edges=self._odd(body.get("residuals", "")),
                idle_ms=body.get("idle"),
                at_ms=at_ms,
            ).model_dump_json()
            if len(self.blocks) < MAX_BLOCKS and self._size < MAX_TEXT:
                self.blocks.append(told)
                self._size += len(told)
            else:
                self.dropped += count

    def _row(
        self,
        anchor: str,
        source_id: Any,
        age_ms: Any,
        text: Any,
        residual: str | None = None,
        idle_ms: Any = None,
    ) -> "_Row":
        """Convert a published row; of an expired tree the text is the cause."""
        name = str(int(anchor, 16))
        if residual is None:
            return _Row(name, source_id, age_ms, text)
        if not _RESIDUAL.fullmatch(residual):
            raise ValueError(f"invalid residual {residual!r:.30}")
        edges = odd_edges(self.edges, int(residual, 16))
        return _Row(name, source_id, age_ms, "", None, text, residual, edges, idle_ms)

    def _odd(self, residuals: str) -> dict[str, int]:
        """Count the nacked trees of a block by edge."""
        if not self.edges:
            return {}
        # The first three of 16 hex digits hold the code of the edge; they have few values.
        heads = Counter(residuals[at : at + 3] for at in range(0, len(residuals), 16))
        found = Counter[str]()
        for head, trees in heads.items():
            found.update(dict.fromkeys(odd_edges(self.edges, int(head, 16) << 52), trees))
        return dict(found)

    def _outcomes(self, address: Address, reason: str, rows: "list[_Row]", at_ms: int) -> None:
        made: list[tuple[str, str]] = []
        size = self._size
        room = MOST - len(self.outcomes)
        if address.verdict != "nack":
            room = min(room, MAX_ACKS - self._acks)
        for row in rows:
            if len(made) >= room or size >= MAX_TEXT:
                break
            told = Outcome(
                verdict=address.verdict,
                reason=reason,
                **row._asdict(),
                at_ms=at_ms,
                source=address.source,
                entry="",
            )
            whole = told.model_dump_json()
            public = whole
            if told.residual is not None:
                public = told.model_copy(update={"residual": None}).model_dump_json()
            made.append((whole, public))
            size += len(whole)
        self.outcomes += made
        self._size = size
        self._acks += 0 if address.verdict == "nack" else len(made)
        self.dropped += len(rows) - len(made)


def _nacked(verdict: str, count: int, body: Any) -> int:
    """Return how many of the ``count`` trees of a block are nacked.

    Raises KeyError, TypeError or ValueError if a bitmap of slots is missing or malformed, or if the
    bitmaps do not give ``count``: damage must not be shown as acks.
    """
    slots, failed, nacked = body["slots"], b"", b""
    if verdict in ("ack", "mixed"):
        failed = slots_of_hex(body["failed"], slots)
    if verdict == "mixed":
        nacked = slots_of_hex(body["nacked"], slots)
        if len(body["residuals"]) != 16 * count_slots(nacked):
            raise ValueError("a residual for each nacked tree is missing")
    trees = slots
    if "present" in body:
        trees = count_slots(slots_of_hex(body["present"], slots))
    if trees - count_slots(failed) != count or count_slots(nacked) > count:
        raise ValueError(f"{count} verdicts, but {trees} trees of a block")
    return count if verdict == "nack" else count_slots(nacked)
