"""Which block and slot a numbered record stands in.

Records that count, by an offset say, are cut into windows of 4095 numbers. What a batch has of a
window is a block: its base is the window's first record of the batch, its label says prefix and
base, and slot = number - base. Its number is derived from the query's lane and the batch as well:
a record has the same slot whenever its batch is run again, and no two batches share a block.

A window of which a batch has few records, or not all between the first and the last, becomes loose
trees: a slot in which no record stands would be acked with its block, and another batch or query
may have that record.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import ANCHOR_MAX, SLOTS, block_number
from acker_redis.protocol.labels import CountedLabel
from acker_redis.protocol.texts import MAX_TEXT
from acker_redis.spark.functions import anchor

SOURCE, PREFIX, NUMBER, ATTEMPT = "_acker_source", "_acker_prefix", "_acker_number", "_acker_try"
_WINDOW, _BASE, _FIRST = "_acker_window", "_acker_base", "_acker_first"
HIDDEN = (SOURCE, PREFIX, NUMBER, ATTEMPT, _WINDOW, _BASE, _FIRST)
LEAST = 16
"""Records that make a block."""
_LOOKUP = 10_000
"""Windows of one numbering that are looked up in an array."""


@dataclass(frozen=True)
class Block:
    """What a batch has of one window."""

    number: int
    label: str
    prefix: str
    attempt: int
    window: int
    base: int
    slots: int

    @property
    def first(self) -> int:
        """Anchor of its first slot."""
        return 1 << 62 | self.number << 12


@dataclass(frozen=True)
class Numbered:
    """Trees with their anchors, the blocks of some of them, and whether some are loose."""

    trees: DataFrame
    blocks: tuple[Block, ...]
    loose: bool


def number(
    trees: DataFrame, name: str, task: str, whose: tuple[str | int, ...], least: int = LEAST
) -> Numbered:
    """Give each record its anchor, in a column of this name.

    ``trees`` have the columns PREFIX (STRING), NUMBER (BIGINT) and ATTEMPT (INT); ``whose`` says of
    which query it is which batch. One job counts the records of each window. Raises
    InvalidBatchError for a number or attempt that is null or below 0.
    """
    trees = trees.withColumn(_WINDOW, F.expr(f"{NUMBER} div {SLOTS}"))
    groups = trees.groupBy(PREFIX, ATTEMPT, _WINDOW).agg(
        F.min(NUMBER).alias("least"), F.max(NUMBER).alias("most"), F.count("*").alias("rows")
    )
    found = groups.collect()
    blocks = tuple(_blocks(found, (task, *whose), least))
    if len({block.number for block in blocks}) < len(blocks):
        raise InvalidBatchError("two blocks of the batch share a number: change the prefix")
    source = F.concat(F.col(PREFIX), F.lit("/"), F.col(NUMBER).cast("string"))
    trees = trees.withColumn(SOURCE, source)
    apart = anchor(SOURCE, attempt=F.col(ATTEMPT), source=task)
    if not blocks:
        return Numbered(trees.withColumn(name, apart), blocks, loose=True)
    loose = len(blocks) < len(found)
    placed, first, base = _placed(trees, blocks, loose)
    anchors = first.bitwiseOR(F.col(NUMBER) - base)
    if loose:
        anchors = F.when(first > 0, anchors).otherwise(apart)
    return Numbered(placed.withColumn(name, anchors), blocks, loose)


def in_blocks(name: str) -> Column:
    """Whether the anchor in a column stands in a block."""
    return F.col(name) > F.lit(ANCHOR_MAX)


def _blocks(
    groups: Sequence[tuple[str, int, int, int, int, int]],
    identity: tuple[str | int, ...],
    enough: int,
) -> Iterator[Block]:
    for prefix, attempt, window, least, most, rows in groups:
        if least is None or least < 0:
            raise InvalidBatchError(
                f"{rows} records of {prefix} have no number, or one below 0: numbers are 0 to "
                "2^63-1"
            )
        if attempt < 0:
            raise InvalidBatchError(f"an attempt is 0 or more, not {attempt}")
        if len(f"{prefix}/{most}".encode()) > MAX_TEXT:
            raise InvalidBatchError(
                f"a source id {prefix[:40]!r}../{most} has more than {MAX_TEXT} bytes, of which "
                f"the prefix has {len(prefix.encode())}: take a shorter one, as by "
                "counted(lit(name), ..., number=...); nothing of this batch was tracked"
            )
        slots = most - least + 1
        if rows < enough or rows < slots:
            continue
        label = str(CountedLabel(prefix, least, attempt))
        if len(label.encode()) > MAX_TEXT:
            continue  # the attempt makes it too long; source ids of loose trees do not name it
        yield Block(block_number(*identity, label), label, prefix, attempt, window, least, slots)


def _placed(
    trees: DataFrame, blocks: Sequence[Block], loose: bool
) -> tuple[DataFrame, Column, Column]:
    """Trees, and columns of the first anchor (0: loose) and the base of the block of each."""
    begin, end = min(b.window for b in blocks), max(b.window for b in blocks)
    same = len({(block.prefix, block.attempt) for block in blocks}) == 1
    if same and end - begin < _LOOKUP:
        # Of one numbering: the window is a place in an array, which costs less than a join.
        known = {block.window: block for block in blocks}
        some = [known.get(window) for window in range(begin, end + 1)]
        mine = (F.col(PREFIX) == F.lit(blocks[0].prefix)) & (F.col(ATTEMPT) == blocks[0].attempt)
        inside = mine & F.col(_WINDOW).between(begin, end)
        place = F.col(_WINDOW) - F.lit(begin) + F.lit(1)
        place = F.when(inside, place).otherwise(F.lit(1)) if loose else place
        first = F.element_at(_constants([b.first if b else 0 for b in some]), place.cast("int"))
        base = F.element_at(_constants([b.base if b else 0 for b in some]), place.cast("int"))
        return trees, F.when(inside, first).otherwise(F.lit(0)) if loose else first, base
    rows = [(b.prefix, b.attempt, b.window, b.base, b.first) for b in blocks]
    schema = f"{PREFIX} STRING, {ATTEMPT} INT, {_WINDOW} BIGINT, {_BASE} BIGINT, {_FIRST} BIGINT"
    where = F.broadcast(trees.sparkSession.createDataFrame(rows, schema))
    joined = trees.join(where, [PREFIX, ATTEMPT, _WINDOW], "left")
    return joined, F.coalesce(F.col(_FIRST), F.lit(0)), F.col(_BASE)


def _constants(numbers: Sequence[int]) -> Column:
    # As one string, since each literal would be a call into the JVM; Spark folds it at once.
    return F.split(F.lit(",".join(map(str, numbers))), ",").cast("array<bigint>")
