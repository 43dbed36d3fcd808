"""One row for each element of an array column, as a part of its message.

Several rows of one message mention it together, so a message counts as processed although a join or
a filter has dropped some of its rows. :meth:`MicroBatch.split` announces the rows before such a
step. Each row becomes a *part*: a message inside of the batch, with its own id, which the job
must mention like a message of the batch. Redis learns nothing of parts: the id of a part would
enter the checksum twice, once as announced and once as processed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import ArrayType

from acker_redis.errors import InvalidBatchError
from acker_redis.spark.ids import Ids
from acker_redis.spark.names import Names, check_case, need_ids

Empty = Literal["vanish", "ack"]
"""What happens to a message that has no element: nothing mentions it, or it is acked."""
_PLACE = "_acker_place"


@dataclass(frozen=True)
class Split:
    """The arguments of :meth:`MicroBatch.split`, for :class:`BoltWriter`."""

    column: str
    """The name of the array column."""
    key: str | Column | Sequence[str | Column] = ()
    """The columns that distinguish the elements of one message; by default their place."""
    edge: str = ""
    """An edge that the ids of the parts name."""
    empty: Empty = "vanish"
    """What happens to a message without elements."""


def empties(df: DataFrame, column: str) -> DataFrame:
    """Return the rows whose array is null or has no element."""
    return df.where(F.coalesce(F.size(column) < 1, F.lit(True)))


def parts(
    df: DataFrame,
    column: str,
    key: str | Column | Sequence[str | Column],
    edge: str,
    run: str,
    ids: Ids,
    names: Names,
) -> DataFrame:
    """Return a row for each element of ``column``, which then has the element, with its id.

    The id follows from the id of the message, ``run`` and the key, which may refer to the element;
    without a key, from the place of the element in its array. ``run`` names the batch and the call.

    Raises InvalidBatchError if the column is missing or is no array.
    """
    check_case(df, column)
    found = df.schema[column].dataType if column in df.columns else None
    if not isinstance(found, ArrayType):
        kind = "missing" if found is None else found.simpleString()
        raise InvalidBatchError(
            f"column {column} is {kind}, but must be an array: split() makes a row of each element"
        )
    others = [f"`{name}`" for name in df.columns if name != column]
    rows = df.select(*others, F.posexplode(f"`{column}`").alias(_PLACE, column))
    columns = [key] if isinstance(key, str | Column) else list(key)
    if need_ids(df, names):
        out = ids.children_of_many(rows, names.anchors, edge, columns or [_PLACE], run)
    else:
        out = ids.add_messages(rows, names.tuple, {names.tuple: edge}, columns or [_PLACE], run)
    return out.drop(_PLACE)


def check_empty(empty: str) -> None:
    """Raise InvalidBatchError for an unknown treatment of messages without elements."""
    if empty not in get_args(Empty):
        raise InvalidBatchError(f"empty must be 'vanish' or 'ack', not {empty!r}")
