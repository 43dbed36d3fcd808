"""Rows of ``format("acker")``: what columns they have, and what each says.

A row is a message that was processed, whole by itself: its ids, and those of all messages that it
caused. Children stay terms of their own until all of a batch's are together: two of one id in a
tree would cancel, and the tree be complete without them. :class:`Content` refuses such a batch, and
one in which a child's own row is missing. Ids that :func:`tuple_id` makes of the message's own id
differ from row to row; those that are made in another way may not. What it cannot see is a child
that shares its id with a message of another batch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import ArrayType, DataType, LongType, NullType, StringType, StructType

from acker_redis.errors import ConfigError, InvalidBatchError
from acker_redis.protocol.arrays import Ints
from acker_redis.spark.fold.terms import Kind, Packed, Packer
from acker_redis.spark.names import PAIRS

COLUMNS = ("anchor", "tuple", "anchors", "children", "why")
_ID_BYTES = 16
"""Of a child: its anchor and its id. Of a failure as well: its anchor, and where its why ends."""
_IDS = ArrayType(LongType())
_Term = tuple[Kind, Ints, Ints | None, pa.Array | None]


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task has to say; it travels through the driver, and is applied there."""

    shards: int
    """Of the namespace, as the task knew it."""
    rows: tuple[Packed, ...]
    size: int
    """Bytes of ids and whys."""


def too_much(what: str, size: int, most: int) -> ConfigError:
    """The error for more than may travel through the driver."""
    return ConfigError(
        f"{what} stages {size} bytes, which go through the driver, and maxStagedBytes is {most}. "
        "Make the batches smaller (maxFilesPerTrigger, maxOffsetsPerTrigger), or raise it if the "
        "driver has the memory; or use foreachBatch with BoltWriter, or Acker.batch: they send "
        "from the executors, whatever the size. Nothing was applied"
    )


@dataclass(frozen=True)
class Shape:
    """Which columns a row has, and where."""

    places: Mapping[str, int]

    @classmethod
    def of(cls, schema: StructType) -> "Shape":
        """Shape of rows with this schema.

        Raises InvalidBatchError that names the column and says how to get it right.
        """
        names = schema.names
        for name in names:
            _check_name(name, names)
        many = "anchors" in names
        if many and ("anchor" in names or "tuple" in names):
            raise InvalidBatchError(
                "a row has anchor and tuple, or it has anchors, and not both: drop what it came "
                "with before"
            )
        if many:
            _check_type(
                schema, "anchors", (PAIRS,), "make it with anchors_of() or collect_anchors()"
            )
            _check_type(
                schema,
                "children",
                (PAIRS,),
                "a message of many trees has an id of its own in each, and is written with the "
                "same array as its anchors: transform(anchors, p -> (p.anchor, tuple_id(p.tuple, "
                "edge)))",
            )
        else:
            came = "keep the columns that a message came with, through joins too"
            for name in ("anchor", "tuple"):
                if name not in names:
                    raise InvalidBatchError(
                        f"column {name} is missing; there are {', '.join(names) or 'none'}: {came}"
                    )
                _check_type(schema, name, (LongType(),), came)
            _check_type(schema, "children", (LongType(), _IDS), "its ids come from tuple_id()")
        _check_type(
            schema, "why", (StringType(), NullType()), "null where it is done, else why it failed"
        )
        places = {name: names.index(name) for name in names}
        if "why" in places and isinstance(schema["why"].dataType, NullType):
            del places["why"]
        return cls(places)

    def terms(self, batch: pa.RecordBatch) -> Iterator[_Term]:
        """What the rows say. Raises InvalidBatchError for an id that is null or cannot be one."""
        columns = {name: batch.column(place) for name, place in self.places.items()}
        rows = None
        if "anchors" in columns:
            column = _present(columns["anchors"], "anchors")
            rows = pc.list_parent_indices(column)
            anchors, ids = _pairs(pc.list_flatten(column), "anchors")
        else:
            anchors, ids = _ids(columns["anchor"], "anchor"), _ids(columns["tuple"], "tuple")
        yield Kind.INPUT, anchors, ids, None
        if "children" in columns:
            if "anchors" in columns:
                children = _pairs(pc.list_flatten(columns["children"]), "children")
            else:
                children = _children(columns["children"], anchors, ids)
            yield Kind.CHILD, *children, None
        if "why" in columns:
            whys = columns["why"] if rows is None else columns["why"].take(rows)
            failed = pc.is_valid(whys)
            places = np.flatnonzero(failed.to_numpy(zero_copy_only=False))
            yield Kind.FAIL, anchors[places], None, whys.filter(failed)


def stage(batches: Iterable[pa.RecordBatch], shape: Shape, shards: int, most: int) -> Staged:
    """Pack the rows of a task.

    Raises InvalidBatchError for rows that cannot be, and ConfigError above ``most`` bytes.
    """
    packer, rows, size = Packer(shards), list[Packed](), 0

    def keep(packed: Iterable[Packed]) -> int:
        """Keep packed rows, and say the bytes of them that were not counted yet."""
        more = 0
        for row in packed:
            rows.append(row)
            ids = len(row.anchors) + len(row.deltas) if row.kind is Kind.INPUT else 0
            more += ids + len(row.texts)
        return more

    for batch in batches:
        for kind, anchors, deltas, texts in shape.terms(batch):
            # Inputs fold to less; of the others each stays, and takes memory from now on.
            size += 0 if kind is Kind.INPUT else _ID_BYTES * len(anchors)
            size += keep(packer.add(kind, anchors, deltas, texts))
        if size > most:
            raise too_much("a task", size, most)
    size += keep(packer.finish())
    if size > most:
        raise too_much("a task", size, most)
    return Staged(shards, tuple(rows), size)


def _check_name(name: str, names: list[str]) -> None:
    if name.lower() == "source_id":
        raise InvalidBatchError(
            "column source_id: acker does not track, for a source has to know the reply before it "
            "emits anything; use foreachBatch with TrackWriter, or Acker.batch and track()"
        )
    if name.lower() in COLUMNS and name not in COLUMNS:
        raise InvalidBatchError(f"column {name} must be written {name.lower()}")
    if name not in COLUMNS:
        # It may be what the children are called; a tree that does not know of them ends early.
        raise InvalidBatchError(
            f"column {name}: acker knows {', '.join(COLUMNS)} and passes over none; select those "
            "of them that you mean"
        )
    if names.count(name) > 1:
        raise InvalidBatchError(f"column {name} is there twice, as after a join: drop one")


def _check_type(schema: StructType, name: str, kinds: tuple[DataType, ...], fix: str) -> None:
    if name not in schema.names:
        return
    found = schema[name].dataType
    # Without what may be null: that is seen in the rows.
    if found.simpleString() not in [kind.simpleString() for kind in kinds]:
        wanted = " or ".join(
            kind.simpleString() for kind in kinds if not isinstance(kind, NullType)
        )
        raise InvalidBatchError(
            f"column {name} is {found.simpleString()}, it must be {wanted}: {fix}"
        )


def _present(column: pa.Array, name: str) -> pa.Array:
    if column.null_count:
        raise InvalidBatchError(
            f"column {name} is null in {column.null_count} rows: keep the ids that a message came "
            "with, through joins too, and leave out rows that belong to no tree"
        )
    return column


def _pairs(pairs: pa.Array, name: str) -> tuple[Ints, Ints]:
    fields = (pc.struct_field(_present(pairs, name), [place]) for place in (0, 1))
    anchors, ids = (_ids(field, name) for field in fields)
    return anchors, ids


def _children(column: pa.Array, anchors: Ints, ids: Ints) -> tuple[Ints, Ints]:
    """Anchors and ids of children; a message that was not caused is null, as tuple_id() of null."""
    if pa.types.is_integer(column.type):
        rows, children = np.arange(len(column)), column
    else:
        rows, children = pc.list_parent_indices(column).to_numpy(), pc.list_flatten(column)
    rows = rows[pc.is_valid(children).to_numpy(zero_copy_only=False)]
    found = _ids(children.drop_null(), "children")
    same = rows[found == ids[rows]]
    if len(same):
        raise InvalidBatchError(
            f"{len(same)} rows have their own tuple among their children (anchor "
            f"{anchors[same[0]]}): a message that is caused has an id of its own, "
            "tuple_id('tuple', edge)"
        )
    return anchors[rows], found


def _ids(column: pa.Array, name: str) -> Ints:
    ids = np.asarray(_present(column, name).to_numpy(zero_copy_only=False), dtype=np.int64)
    if len(ids) and ids.min() < 1:
        raise InvalidBatchError(
            f"column {name} has {int((ids < 1).sum())} values below 1, which are no ids: they come "
            "from track() and tuple_id()"
        )
    return ids
