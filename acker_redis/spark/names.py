"""Names of the columns that acker-redis reads and adds, and checks of a DataFrame's columns."""

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
    """Names of the columns that acker-redis reads and adds.

    The names must be distinct, and must differ by more than case.

    Raises:
        ConfigError: Two names are equal, or a name is empty or has a quote or a backslash.

    Examples:
        >>> Names(tuple="msg_id").tuple
        'msg_id'

    """

    anchor: str = "anchor"
    """BIGINT: the tree that a message belongs to."""
    tuple: str = "tuple"
    """BIGINT: the message's id in its tree."""
    anchors: str = "anchors"
    """ARRAY<STRUCT<anchor BIGINT, tuple BIGINT>>, instead of these two columns: the trees of a
    message that belongs to several, and its id in each."""
    edge: str = "edge"
    """STRING: the edge of a first message; ``track`` adds the column."""
    why: str = "why"
    """STRING: why a row failed; null if it did not."""

    def __post_init__(self) -> None:
        names = [getattr(self, field.name) for field in fields(self)]
        if len({name.lower() for name in names}) < len(names) or not all(names):
            raise ConfigError(
                f"names of columns must be distinct, also without case, and not empty; these are "
                f"{', '.join(map(repr, names))}"
            )
        if any(set("'`\\") & set(name) for name in names):
            raise ConfigError(
                f"a column's name must have no quote and no backslash: {', '.join(names)}"
            )


PAIRS = ArrayType(StructType().add("anchor", LongType()).add("tuple", LongType()))
"""Type of the column ``anchors``."""


def need(df: DataFrame, name: str, kind: type[DataType], fix: str) -> None:
    """Raise InvalidBatchError unless the column exists once, with this exact name and type.

    The error names the column and ends with ``fix``. Spark takes ``Why`` and ``why`` for one
    column, Python for two: such a name is refused instead of ignored.
    """
    check_case(df, name)
    if name not in df.columns:
        raise InvalidBatchError(
            f"column {name} is missing; the columns are {', '.join(df.columns) or 'none'}. {fix}"
        )
    if df.columns.count(name) > 1:
        raise InvalidBatchError(
            f"column {name} occurs more than once, as after a join: drop or rename one. {fix}"
        )
    found = df.schema[name].dataType
    if not isinstance(found, kind):
        raise InvalidBatchError(
            f"column {name} is {found.simpleString()}, but must be {kind().simpleString()}. {fix}"
        )


def need_ids(df: DataFrame, names: Names) -> bool:
    """Check the columns of ids; return True for ``anchors``, False for ``anchor`` and ``tuple``."""
    both = [name for name in (names.anchor, names.tuple) if name in df.columns]
    if names.anchors in df.columns and both:
        raise InvalidBatchError(
            f"the columns {names.anchors} and {', '.join(both)} both name the trees of a row: drop "
            "one or the other"
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
                f"column {names.anchors} is {found.simpleString()}, but must be "
                f"{PAIRS.simpleString()}; make it with anchors_of() or collect_anchors()"
            )
        return True
    fix = (
        "Keep the columns of ids that a message came with, or set your names: "
        "Acker(.., names=Names(..))"
    )
    need(df, names.anchor, LongType, fix)
    need(df, names.tuple, LongType, fix)
    return False


def optional_why(df: DataFrame, names: Names) -> bool:
    """Return whether a column says why a row fails."""
    check_case(df, names.why)
    if names.why not in df.columns:
        return False
    if not isinstance(df.schema[names.why].dataType, NullType):
        need(df, names.why, StringType, "Null if the row is done, else why it failed")
    return True


def check_hidden(df: DataFrame) -> None:
    """Raise InvalidBatchError for a column named like the internal columns."""
    for column in df.columns:
        if column.lower().startswith("_acker_"):
            raise InvalidBatchError(
                f"column {column}: names that begin with _acker_ are reserved; rename it"
            )


def check_case(df: DataFrame, name: str) -> None:
    """Raise InvalidBatchError for a column whose name differs from this one in case only."""
    for column in df.columns:
        if column != name and column.lower() == name.lower():
            raise InvalidBatchError(f"column {column} must be written {name}")
