"""Search of one namespace for a text: pending trees and untaken verdicts, in bounded reads.

There is no index by source id, so a search reads record after record. One call of :func:`search`
reads one page of the verdicts and one of the pending trees; the next call continues after both.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from acker_api.reading.reader import Reader
from acker_api.reading.verdicts import STREAMS, After, ReadVerdict, newest
from acker_api.reading.walk import Filter, walk
from acker_redis import BlockEntry, Outcome, PageCursor, Status, TreeState, split_anchor
from acker_redis.errors import ConfigError, InvalidBatchError
from acker_redis.operate import ShardKeys, check_anchor, check_text

Match = Literal["anchor", "message", "source_id"]

_MESSAGE = re.compile(r"([0-9]{1,19}):([0-9]{1,19})")
_DECIMAL = re.compile(r"[0-9]{1,19}")
_HEX = re.compile(r"0x([0-9a-fA-F]{1,16})|([0-9a-f]{16})")
_PLAIN = re.compile(r"[A-Za-z0-9 _.:=@#+-]+")
"""Characters that no writer of JSON escapes."""
_RESIDUAL = re.compile(rb'"[0-9a-f]{16}",[0-9]+\]')
"""The end of the row of an expired tree. A text has no quotes that are not escaped."""


@dataclass(frozen=True, slots=True)
class Sought:
    """The possible meanings of a text that a user searches for.

    >>> sought = Sought.parse("7:40", ids=True)
    >>> sought.anchor, sought.message
    (7, 40)
    >>> Sought.parse("order-17", ids=False).anchor is None
    True
    """

    text: str
    """A source id or its beginning; of a block: its label."""
    anchor: int | None = None
    message: int | None = None
    """The id of a message. Of an expired tree, the residual may be equal to it. None for a caller
    that may not see ids: matches would tell one."""

    @classmethod
    def parse(cls, text: str, ids: bool) -> "Sought":
        """Return the meanings of a text: digits may be an anchor, a message and a source id.

        ``ids``: whether the caller may see ids of messages.
        """
        text = text.strip()
        if match := _MESSAGE.fullmatch(text):
            return cls(text, _anchor(int(match[1])), int(match[2]) if ids else None)
        if _DECIMAL.fullmatch(text):
            return cls(text, _anchor(int(text)), int(text) if ids else None)
        if match := _HEX.fullmatch(text):
            number = int(match[1] or match[2], 16)
            return cls(text, _anchor(number), number if ids else None)
        return cls(text)

    @property
    def plain(self) -> bytes:
        """The longest part of the text that is the same in JSON; b'' if there is none."""
        return max(_PLAIN.findall(self.text), key=len, default="").encode()

    def match(self, outcome: Outcome) -> Match | None:
        """Return which meaning a verdict matches; None for no match."""
        if self.anchor is not None and outcome.anchor == self.anchor:
            return "anchor"
        if self.message and outcome.cause and outcome.residual == self.message:
            return "message"
        return "source_id" if outcome.source_id.startswith(self.text) else None


def _anchor(number: int) -> int | None:
    try:
        return check_anchor(number)
    except InvalidBatchError:
        return None


@dataclass
class _Picks:
    """A filter of verdicts for ``newest``.

    Of a block that is found by its label, it keeps one verdict of each kind: a block has up to 4095
    trees.
    """

    sought: Sought
    _kinds: set[str] = field(default_factory=set)

    def may_have(self, fields: Mapping[bytes, bytes]) -> bool:
        """Return whether a verdict of an entry may match, without parsing the entry."""
        self._kinds.clear()
        sought, rows = self.sought, fields.get(b"rows", b"")
        residuals = fields.get(b"residuals", b"")
        if sought.message is None:
            # `next` tells which entries were parsed, so digits of ids must not decide that.
            rows, residuals = _RESIDUAL.sub(b"]", rows), b""
        if sought.plain in rows or sought.plain in fields.get(b"label", b""):
            return True
        numbers = [b"%x" % number for number in (sought.anchor, sought.message) if number]
        if any(number in rows or number in residuals for number in numbers):
            return True
        place = split_anchor(sought.anchor) if sought.anchor is not None else None
        return place is not None and fields.get(b"block", b"").endswith(b"%x" % place[0])

    def has(self, outcome: Outcome) -> bool:
        """Return whether a verdict matches."""
        match = self.sought.match(outcome)
        if match != "source_id" or outcome.slot is None:
            return match is not None
        if outcome.verdict in self._kinds:
            return False
        self._kinds.add(outcome.verdict)
        return True


@dataclass(frozen=True, slots=True)
class Place:
    """The position in the untaken verdicts: a group of sources, and the last verdict read there."""

    after: str = ""
    """The sources of this group come after this name."""
    last: str = ""
    """The last source of the group; '' before its first page."""
    before: After | None = None

    def sources(self, status: Status) -> list[str]:
        """Return the sources of the group that have untaken verdicts, by name."""
        backlog = status.backlog
        names = sorted(name for name in backlog if backlog[name] > 0 and name > self.after)
        if self.last:
            return [name for name in names if name <= self.last]
        return names[: max(1, STREAMS // len(status.shards))]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a search continues; it has a text form for URLs. None: everything was read.

    >>> str(Position.parse("0.pending.17.4096,,shop,1700000000000-0:3:shop:17"))
    '0.pending.17.4096,,shop,1700000000000-0:3:shop:17'
    >>> str(Position(None, Place("shop")))
    '-,shop,,'
    """

    pending: PageCursor | None
    verdicts: Place | None

    def __str__(self) -> str:
        place = self.verdicts
        rest = f"{place.after},{place.last},{place.before or ''}" if place else "-"
        return f"{self.pending or '-'},{rest}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Parse the text form. Raise ConfigError for a text that no answer has returned."""
        pending, *rest = text.split(",")
        cursor = None if pending == "-" else PageCursor.parse(pending)
        if rest == ["-"]:
            return cls(cursor, None)
        if len(rest) != 3:
            raise ConfigError("cursor is invalid; give the next of an answer to this search")
        after, last, before = rest
        return cls(cursor, Place(after, last, After.parse(before) if before else None))


@dataclass
class Found:
    """The result of one call. HSCAN may return a tree twice; here it is once."""

    status: Status
    trees: dict[int, TreeState] = field(default_factory=dict)
    blocks: dict[int, BlockEntry] = field(default_factory=dict)
    verdicts: tuple[ReadVerdict, ...] = ()
    looked_pending: int = 0
    """Records and headers that this call read."""
    looked_verdicts: int = 0
    """Verdicts that this call passed."""
    next: Position | None = None


async def search(
    reader: Reader, namespace: str, sought: Sought, at: Position | None, limit: int
) -> Found:
    """Read on from a position, None for the beginning; stop at about ``limit`` matches.

    The first call also reads the tree with that anchor. Raises what the reads of a namespace raise,
    and InvalidBatchError for a text that is no source id, anchor or message id.
    """
    check_text("search text", sought.text, 1)
    status = await reader.status(namespace)
    found = Found(status)
    if at is None and sought.anchor is not None:
        anchor, acker = sought.anchor, reader.acker(namespace)
        tree = await reader.read(lambda: acker.show(anchor))
        if tree:
            found.trees[anchor] = tree
    at = at or Position(PageCursor(), Place())
    place = at.verdicts and await _verdicts(reader, found, sought, at.verdicts, limit)
    cursor = at.pending and await _pending(reader, found, sought, at.pending, limit)
    found.next = Position(cursor, place) if cursor or place else None
    return found


async def _verdicts(
    reader: Reader, found: Found, sought: Sought, place: Place, limit: int
) -> Place | None:
    """Read a page of the verdicts of a group of sources; return the next position."""
    status = found.status
    sources = place.sources(status)
    if not sources:
        # Between two calls, all verdicts of the group were taken.
        following = Place(place.last)
        return following if place.last and following.sources(status) else None
    shards = [ShardKeys(status.namespace, shard.shard) for shard in status.shards]
    flow = newest(shards, sources, limit, place.before, _Picks(sought), status.config.edges)
    page = await reader.scan_flow(flow)
    found.verdicts, found.looked_verdicts = page.verdicts, page.passed
    last = place.last or sources[-1]
    if page.next:
        return Place(place.after, last, page.next)
    following = Place(last)
    return following if following.sources(status) else None


async def _pending(
    reader: Reader, found: Found, sought: Sought, cursor: PageCursor, limit: int
) -> PageCursor | None:
    """Read some pages of the pending trees; return the next position."""
    acker = reader.scanner(found.status.namespace)
    meant = Filter(sought.text, prefix=True)

    async def read() -> PageCursor | None:
        at: PageCursor | None = cursor
        async for _, page, following in walk(acker, meant, cursor, 1000, reader.scan_within):
            found.trees.update((tree.anchor, tree) for tree in page.trees)
            found.blocks.update((block.block, block) for block in page.blocks)
            found.looked_pending += page.looked
            at = following
            if len(found.trees) + len(found.blocks) >= limit:
                break
        return at

    return await reader.scan(read)
