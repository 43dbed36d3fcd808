"""The block and slot of a numbered record.

The numbers (offsets, for example) are cut into windows of 4095. The records of a batch in one
window form a block. The block's base is the lowest of their numbers, its label consists of prefix
and base, and slot = number - base. The block's number is derived from the label, the source, the
query's lane and the batch. So a record has the same slot when its batch runs again, and no two
batches share a block.

A number between them without a record leaves an absent slot, which holds no tree and gets no
verdict: another batch or query may have the record of that number. If a batch has few records of a
window, or the window is mostly gaps, these records are loose trees, which then cost less.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import ANCHOR_MAX, SLOTS
from acker_redis.protocol.labels import CountedLabel
from acker_redis.protocol.texts import MAX_TEXT
from acker_redis.spark import id_texts
from acker_redis.spark.fold.terms import ELSEWHERE
from acker_redis.spark.ids import Ids

SOURCE, PREFIX, NUMBER, ATTEMPT = "_acker_source", "_acker_prefix", "_acker_number", "_acker_try"
_WINDOW, _OFFSET, _PLACE = "_acker_window", "_acker_offset", "_acker_place"
_WINDOW_OF = f"({NUMBER} div {SLOTS})"
HIDDEN = (SOURCE, PREFIX, NUMBER, ATTEMPT, _WINDOW, _OFFSET, _PLACE)
LEAST = 16
"""Minimum number of records in a block."""
MAX_SPREAD = 8
"""Maximum number of slots of a block for each of its records. A slot takes 8 bytes and a bit, with
a tree or without; a loose tree takes some 100 bytes. Memory alone would allow 12 slots, but absent
slots count as pending, too, and a call carries at most 4096 of them."""
_LOOKUP = 10_000
"""Maximum number of windows of one numbering that are looked up in an array."""
_PREFIXES = 64
"""Highest number of numberings whose windows are looked up in an array."""
_ALIGNED = 64
"""The first window of the array is a multiple of it, so that few batches change the number."""
_LOOSE = -(2**62)
"""The offset of a loose tree; no block has it."""

Group = tuple[str, int, int, int, int]
"""A numbering of a batch: prefix, attempt, least number, highest number, and how many records."""


@dataclass(frozen=True)
class Block:
    """The records of a batch in one window.

    A slot without a record is absent; the deltas of the records tell which slots have one.
    """

    number: int
    label: str
    prefix: str
    attempt: int
    window: int
    base: int
    slots: int

    @property
    def first(self) -> int:
        """Anchor of the first slot."""
        return 1 << 62 | self.number << 12

    @property
    def offset(self) -> int:
        """What to add to a record's number to get its anchor: more than -2^62."""
        return self.first - self.base


@dataclass(frozen=True)
class Numbered:
    """Trees with their anchors, their blocks, and whether some of the trees are loose."""

    trees: DataFrame
    blocks: tuple[Block, ...]
    loose: bool


def number(
    trees: DataFrame,
    name: str,
    source: str,
    whose: tuple[str | int, ...],
    ids: Ids,
    least: int = LEAST,
    large: bool = False,
    known: Sequence[Group] | None = None,
) -> Numbered:
    """Return the records with their anchors in the column ``name``.

    Runs one Spark job. For a ``large`` batch this job costs half as much if the numbers have no
    gaps, and if they have, a second job follows it. If all numberings are ``known``, a job runs
    only for numbers with gaps.

    ``trees`` has the columns PREFIX (STRING), NUMBER (BIGINT) and ATTEMPT (INT). ``whose`` is the
    query's lane and the batch's number. A window with fewer than ``least`` records, or with more
    than MAX_SPREAD slots for each of them, gives loose trees. Raises InvalidBatchError for an
    invalid number, attempt or source id.
    """
    found = None
    if known or large:
        found = _without_gaps(known or _grouped(trees, PREFIX, ATTEMPT))
    if found is None:
        found = _grouped(_with_windows(trees), PREFIX, ATTEMPT, _WINDOW)
    blocks = tuple(_blocks(found, partial(ids.maker.block, source, *whose), least))
    if len({block.number for block in blocks}) < len(blocks):
        raise InvalidBatchError(
            "two blocks of the batch have the same number by chance: change the prefix of the "
            "source ids"
        )
    loose = len(blocks) < len(found)
    if loose or not blocks:
        source_id = F.expr(f"concat({PREFIX}, '/', cast({NUMBER} AS STRING))")
        trees = trees.withColumn(SOURCE, source_id)
    if not blocks:
        apart = ids.add_anchor(trees, name, SOURCE, ATTEMPT, source)
        return Numbered(apart, blocks, loose=True)
    placed, offset = _placed(trees, blocks, loose)
    anchor = f"{NUMBER} + {offset}"
    if not loose:
        return Numbered(placed.withColumn(name, F.expr(anchor)), blocks, loose)
    anchor = f"CASE WHEN {offset} <> {_LOOSE} THEN {anchor} ELSE {{}} END"
    return Numbered(ids.add_anchor(placed, name, SOURCE, ATTEMPT, source, anchor), blocks, loose)


def _with_windows(trees: DataFrame) -> DataFrame:
    return trees.withColumn(_WINDOW, F.expr(_WINDOW_OF))


def _grouped(trees: DataFrame, *keys: str) -> Sequence[tuple[Any, ...]]:
    """Return the keys of each group, its least number, its highest number, and its records."""
    # A record without a number counts as -1, which is refused.
    least = f"min(coalesce({NUMBER}, -1)) AS least"
    counts = (least, f"max({NUMBER}) AS most", "count(*) AS rows")
    return trees.groupBy(*keys).agg(*map(F.expr, counts)).collect()


def _without_gaps(groups: Iterable[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]] | None:
    """Return a group for each window of these numberings, if none has a gap; else None.

    If a number that occurs twice hides a gap, the windows are not exact, and the batch is refused.
    """
    found: list[tuple[Any, ...]] = []
    for prefix, attempt, least, most, rows in groups:
        if least < 0 or most - least + 1 != rows:
            return None
        for window in range(least // SLOTS, most // SLOTS + 1):
            first, last = max(least, window * SLOTS), min(most, window * SLOTS + SLOTS - 1)
            found.append((prefix, attempt, window, first, last, last - first + 1))
    return found


def in_blocks(name: str) -> Column:
    """Return a column that says whether the anchor in column ``name`` is in a block."""
    return F.col(name) > F.lit(ANCHOR_MAX)


def _blocks(
    groups: Sequence[tuple[str, int, int, int, int, int]],
    number_of: Callable[[str], int],
    enough: int,
) -> Iterator[Block]:
    for prefix, attempt, window, least, most, rows in groups:
        if least < 0:
            raise InvalidBatchError(
                f"of {rows} records of {prefix} at least one has no number, or a number below 0: "
                f"numbers must be 0 to 2^63-1; {ELSEWHERE}"
            )
        if attempt < 0:
            raise InvalidBatchError(f"an attempt must be 0 or more, not {attempt}")
        if len(f"{prefix}/{most}".encode()) > MAX_TEXT:
            raise InvalidBatchError(
                f"the source id {prefix[:40]!r}../{most} has more than {MAX_TEXT} bytes, "
                f"{len(prefix.encode())} of them in the prefix: use a shorter prefix, for example "
                "counted(lit(name), ..., number=...); nothing of this batch was tracked"
            )
        slots = most - least + 1
        if rows < enough or slots > MAX_SPREAD * rows:
            continue
        label = str(CountedLabel(prefix, least, attempt))
        if len(label.encode()) > MAX_TEXT:
            # The attempt makes the label too long. Source ids of loose trees do not contain it.
            continue
        yield Block(number_of(label), label, prefix, attempt, window, least, slots)


def _placed(trees: DataFrame, blocks: Sequence[Block], loose: bool) -> tuple[DataFrame, str]:
    """Return the trees, and the SQL of their offset: anchor minus number; _LOOSE for a loose tree.

    Its text has no number that each batch changes: Spark writes numbers into the code that it
    compiles, and does not compile a text again.
    """
    begin, end = min(b.window for b in blocks), max(b.window for b in blocks)
    attempts = {block.attempt for block in blocks}
    prefixes = sorted({block.prefix for block in blocks})
    if len(attempts) == len(prefixes) == 1 and end - begin < _LOOKUP:
        # One numbering: the window is an index of an array, and a lookup costs less than a join.
        known = {block.window: block.offset for block in blocks}
        begin -= begin % _ALIGNED
        array = _array(known.get(each, _LOOSE) for each in range(begin, end + 1))
        offset = f"element_at({array}, cast({_WINDOW_OF} - {begin} + 1 AS INT))"
        if loose:
            mine = (
                f"{PREFIX} = {id_texts.text(blocks[0].prefix)} AND {ATTEMPT} = {blocks[0].attempt}"
            )
            inside = f"{mine} AND {_WINDOW_OF} BETWEEN {begin} AND {end}"
            offset = f"CASE WHEN {inside} THEN {offset} ELSE {_LOOSE} END"
        return trees, offset
    if len(attempts) == 1 and len(prefixes) <= _PREFIXES:
        found = _in_one_array(trees, blocks, prefixes)
        if found:
            return found
    rows = [(b.prefix, b.attempt, b.window, b.offset) for b in blocks]
    schema = f"{PREFIX} STRING, {ATTEMPT} INT, {_WINDOW} BIGINT, {_OFFSET} BIGINT"
    where = F.broadcast(trees.sparkSession.createDataFrame(rows, schema))
    joined = _with_windows(trees).join(where, [PREFIX, ATTEMPT, _WINDOW], "left")
    return joined, f"coalesce({_OFFSET}, {_LOOSE})"


def _in_one_array(
    trees: DataFrame, blocks: Sequence[Block], prefixes: list[str]
) -> tuple[DataFrame, str] | None:
    """Return what :func:`_placed` does, for a few numberings of one attempt.

    The offsets of all windows are in one array, one numbering after the other. Three arrays have
    the first window of each, the last one, and what to add to a window to get its index. The first
    entry of each is for other records: no window is in it.
    """
    offsets: list[int] = []
    begins, ends, adds = [1], [0], [0]
    for prefix in prefixes:
        known = {block.window: block.offset for block in blocks if block.prefix == prefix}
        begin, end = min(known), max(known)
        if end - begin + len(offsets) >= _LOOKUP:
            return None
        begins.append(begin)
        ends.append(end)
        adds.append(len(offsets) + 1 - begin)
        offsets += [known.get(each, _LOOSE) for each in range(begin, end + 1)]
    texts = ", ".join(map(id_texts.text, prefixes))
    mine = f"{ATTEMPT} = {blocks[0].attempt}"
    place = f"CASE WHEN {mine} THEN 1 + array_position(array({texts}), {PREFIX}) ELSE 1 END"
    placed = trees.withColumn(_PLACE, F.expr(f"cast({place} AS INT)"))
    placed = _with_windows(placed)
    inside = f"{_WINDOW} BETWEEN {_at(begins, _PLACE)} AND {_at(ends, _PLACE)}"
    found = _at(offsets, f"cast({_WINDOW} + {_at(adds, _PLACE)} AS INT)")
    return placed, f"CASE WHEN {inside} THEN {found} ELSE {_LOOSE} END"


def _at(values: Iterable[int], place: str) -> str:
    return f"element_at({_array(values)}, {place})"


def _array(values: Iterable[int]) -> str:
    # Not array(1, 2, ..): each literal would cost time. Spark folds the text at planning.
    return f"cast(split('{','.join(map(str, values))}', ',') AS ARRAY<BIGINT>)"
