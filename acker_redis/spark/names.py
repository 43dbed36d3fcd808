"""Names of the columns that acker-redis reads and adds, and checks of what a DataFrame has."""

from dataclasses import dataclass, fields

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    NullType,
    StringType,
    StructType,
)

from acker_redis.errors import ConfigError, InvalidBatchError


@dataclass(frozen=True, slots=True)
class Names:
    """Names of columns. They are distinct, also where case does not count.

    >>> Names(tuple="msg_id").tuple
    'msg_id'
    """

    anchor: str = "anchor"
    """BIGINT: the tree that a message belongs to."""
    tuple: str = "tuple"
    """BIGINT: the message's id in its tree."""
    anchors: str = "anchors"
    """ARRAY<STRUCT<anchor BIGINT, tuple BIGINT>>, instead of both: a message of many trees."""
    edge: str = "edge"
    """STRING: the way a first message takes; ``track`` adds it."""
    why: str = "why"
    """STRING: not null where a bolt has failed."""

    def __post_init__(self) -> None:
        names = [getattr(self, field.name) for field in fields(self)]
        if len({name.lower() for name in names}) < len(names) or not all(names):
            raise ConfigError(f"columns have names of their own, not {', '.join(names)}")
        if any(set("'`\\") & set(name) for name in names):
            raise ConfigError(f"no quotes and backslashes in a column's name: {', '.join(names)}")


PAIRS = ArrayType(StructType().add("anchor", LongType()).add("tuple", LongType()))
"""Type of ``anchors``."""


def need(df: DataFrame, name: str, kind: type[DataType], fix: str) -> None:
    """Check that a column is there, by this very name, and of this type.

    Raises InvalidBatchError that names the column and says how to get it right. For Spark ``Why``
    and ``why`` are one column, for Python two: such a name is refused rather than overlooked.
    """
    check_case(df, name)
    if name not in df.columns:
        raise InvalidBatchError(
            f"column {name} is missing; there are {', '.join(df.columns) or 'none'}. {fix}"
        )
    if df.columns.count(name) > 1:
        raise InvalidBatchError(
            f"column {name} is there twice, as after a join: drop or rename one. {fix}"
        )
    found = df.schema[name].dataType
    if not isinstance(found, kind):
        raise InvalidBatchError(
            f"column {name} is {found.simpleString()}, it must be {kind().simpleString()}. {fix}"
        )


def need_ids(df: DataFrame, names: Names) -> bool:
    """Check that messages have their ids; whether as ``anchors``, one array for many trees."""
    both = [name for name in (names.anchor, names.tuple) if name in df.columns]
    if names.anchors in df.columns and both:
        raise InvalidBatchError(
            f"there are columns {names.anchors} and {', '.join(both)}, and it is not clear which "
            "trees a row belongs to: drop one or the other"
        )
    if names.anchors in df.columns:
        check_case(df, names.anchors)
        found = df.schema[names.anchors].dataType
        pair = found.elementType if isinstance(found, ArrayType) else None
        right = isinstance(pair, StructType) and [
            (each.name, each.dataType) for each in pair.fields
        ] == [("anchor", LongType()), ("tuple", LongType())]
        if not right:
            raise InvalidBatchError(
                f"column {names.anchors} is {found.simpleString()}, it must be "
                f"{PAIRS.simpleString()}; make it with anchors_of() or collect_anchors()"
            )
        return True
    fix = "Keep the columns that a message came with, or name yours: Acker(.., names=Names(..))"
    need(df, names.anchor, LongType, fix)
    need(df, names.tuple, LongType, fix)
    return False


def optional_why(df: DataFrame, names: Names) -> bool:
    """Whether there is a column that says why a row fails."""
    check_case(df, names.why)
    if names.why not in df.columns:
        return False
    if not isinstance(df.schema[names.why].dataType, NullType):
        need(df, names.why, StringType, "null where the row is done, else why it failed")
    return True


def check_hidden(df: DataFrame) -> None:
    """Refuse columns that are called like those which come and go in here."""
    for column in df.columns:
        if column.lower().startswith("_acker_"):
            raise InvalidBatchError(f"column {column}: names that begin with _acker_ are taken")


def check_case(df: DataFrame, name: str) -> None:
    """Refuse a column that is this one to Spark and another to us."""
    for column in df.columns:
        if column != name and column.lower() == name.lower():
            raise InvalidBatchError(f"column {column} must be written {name}")
