"""Rows of ``format("acker")``: their columns, and the terms of each row.

A row is one whole processed message: its ids, and the ids of all messages that it caused.

**No false ack by equal ids.** Two children of one tree with the same id would cancel, and the tree
would be complete without them. So children stay separate terms until all children of the batch are
together. :class:`Content` refuses a batch with two equal ids in a tree, and a batch in which the
row of a child's parent is missing. Ids of :class:`Ids` differ from row to
row. Ids that are made in another way may be equal. The check cannot see a child whose id is equal
to that of a message in another batch.
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
"""Bytes of a child (its anchor and its id), and of a failure (its anchor, and the end of its
reason)."""
_IDS = ArrayType(LongType())
_Term = tuple[Kind, Ints, Ints | None, pa.Array | None]


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The packed rows of a task. They are sent to the driver, which applies them."""

    shards: int
    """The namespace's number of shards when the write was planned."""
    rows: tuple[Packed, ...]
    size: int
    """Bytes of ids and reasons."""


def too_much(what: str, size: int, most: int) -> ConfigError:
    """Return the error for more bytes than may go through the driver."""
    return ConfigError(
        f"{what} stages {size} bytes, which go through the driver, and maxStagedBytes is {most}. "
        "Nothing was applied. Make the batches smaller (maxFilesPerTrigger, maxOffsetsPerTrigger), "
        "or raise maxStagedBytes if the driver has the memory. Or use foreachBatch with BoltWriter "
        "or Acker.batch, which send batches of any size from the executors"
    )


@dataclass(frozen=True)
class Shape:
    """The columns of a row, and their positions."""

    places: Mapping[str, int]

    @classmethod
    def of(cls, schema: StructType) -> "Shape":
        """Return the shape of rows with this schema.

        Raises InvalidBatchError that names the wrong column and says how to fix it.
        """
        names = schema.names
        for name in names:
            _check_name(name, names)
        many = "anchors" in names
        if many and ("anchor" in names or "tuple" in names):
            raise InvalidBatchError(
                "a row must have either anchor and tuple, or anchors, and not both: drop the "
                "columns anchor and tuple"
            )
        if many:
            _check_type(
                schema, "anchors", (PAIRS,), "make it with anchors_of() or collect_anchors()"
            )
            _check_type(
                schema,
                "children",
                (PAIRS,),
                "a message of many trees has one id in each, so its children are an array like its "
                "anchors: acker.ids.with_children(rows, edge)",
            )
        else:
            came = "keep the columns that a message came with, also through joins"
            for name in ("anchor", "tuple"):
                if name not in names:
                    raise InvalidBatchError(
                        f"column {name} is missing; the columns are {', '.join(names) or 'none'}: "
                        f"{came}"
                    )
                _check_type(schema, name, (LongType(),), came)
            _check_type(schema, "children", (LongType(), _IDS), "make its ids with acker.ids")
        _check_type(
            schema, "why", (StringType(), NullType()), "null if the row is done, else why it failed"
        )
        places = {name: names.index(name) for name in names}
        if "why" in places and isinstance(schema["why"].dataType, NullType):
            del places["why"]
        return cls(places)

    def terms(self, batch: pa.RecordBatch) -> Iterator[_Term]:
        """Yield the terms of the rows. Raises InvalidBatchError for an id that is null or invalid.

        A term consists of kind, anchors, deltas and texts.
        """
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
    """Return the packed rows of a task.

    Raises InvalidBatchError for invalid rows, and ConfigError above ``most`` bytes.
    """
    packer, rows, size = Packer(shards), list[Packed](), 0

    def keep(packed: Iterable[Packed]) -> int:
        """Keep packed rows; return their bytes that were not counted yet."""
        more = 0
        for row in packed:
            rows.append(row)
            ids = len(row.anchors) + len(row.deltas) if row.kind is Kind.INPUT else 0
            more += ids + len(row.texts)
        return more

    for batch in batches:
        for kind, anchors, deltas, texts in shape.terms(batch):
            # Inputs fold to fewer bytes. Each other term stays in memory from now on.
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
            "column source_id: this sink does not track, because a source needs the reply before "
            "it emits; use foreachBatch with TrackWriter, or Acker.batch and track()"
        )
    if name.lower() in COLUMNS and name not in COLUMNS:
        raise InvalidBatchError(f"column {name} must be written {name.lower()}")
    if name not in COLUMNS:
        # It may be the column of children under another name. Without them a tree would be
        # complete too early.
        raise InvalidBatchError(
            f"column {name} is unknown: acker has {', '.join(COLUMNS)}, and ignores no column; "
            "select only these"
        )
    if names.count(name) > 1:
        raise InvalidBatchError(f"column {name} occurs more than once, as after a join: drop one")


def _check_type(schema: StructType, name: str, kinds: tuple[DataType, ...], fix: str) -> None:
    if name not in schema.names:
        return
    found = schema[name].dataType
    # Types are compared without nullability; nulls are found in the rows.
    if found.simpleString() not in [kind.simpleString() for kind in kinds]:
        wanted = " or ".join(
            kind.simpleString() for kind in kinds if not isinstance(kind, NullType)
        )
        raise InvalidBatchError(
            f"column {name} is {found.simpleString()}, but must be {wanted}: {fix}"
        )


def _present(column: pa.Array, name: str) -> pa.Array:
    if column.null_count:
        raise InvalidBatchError(
            f"column {name} is null in {column.null_count} rows: keep the ids that a message came "
            "with, also through joins, and leave out rows that belong to no tree"
        )
    return column


def _pairs(pairs: pa.Array, name: str) -> tuple[Ints, Ints]:
    fields = (pc.struct_field(_present(pairs, name), [place]) for place in (0, 1))
    anchors, ids = (_ids(field, name) for field in fields)
    return anchors, ids


def _children(column: pa.Array, anchors: Ints, ids: Ints) -> tuple[Ints, Ints]:
    """Return the anchors and ids of children, without nulls: the id of a child of null is null."""
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
            f"{anchors[same[0]]}): give each child a new id, acker.ids.tuple_id('tuple', edge)"
        )
    return anchors[rows], found


def _ids(column: pa.Array, name: str) -> Ints:
    ids = np.asarray(_present(column, name).to_numpy(zero_copy_only=False), dtype=np.int64)
    if len(ids) and ids.min() < 1:
        raise InvalidBatchError(
            f"column {name} has {int((ids < 1).sum())} values below 1, which are no ids: use those "
            "of track() and of acker.ids"
        )
    return ids
