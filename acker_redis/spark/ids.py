"""Columns of derived ids, which the author of data cannot choose: they depend on a secret salt.

A batch that runs again must get the same ids, so ids are derived. An author of data who could
compute them could choose source ids or keys whose ids cancel, which is a false ack, or which share
an anchor. So each derivation begins with a constant that follows from the salt, by SHA-256:

- The inputs of an anchor, and of a child with a key, come from data: they go through SHA-256 with
  that constant, and ``xxhash64`` only shortens the digest to 64 bits.
- The id of another message has one input that varies, the id of its parent, which the author cannot
  choose. There ``xxhash64`` of this id and the constant is enough, at the cost of a plain hash.

**An id is derived from all that makes its message distinct.** An anchor comes again whenever its
source id does, for example with an order's next version. So the ids of the first messages of loose
trees, and of emitted messages, depend on the *run* that makes them, too: application, query and
batch. Otherwise a late ack of version 1 would complete the tree of version 2. A batch that runs
again has the same run, and a new checkpoint has a new query. A tree in a block needs no run: its
anchor already depends on application, query and batch (``numbering.py``).

**The secret is in no plan.** A literal in an expression appears in ``explain()``, in the Spark UI
and in event logs. A value that was derived from the salt for one query would appear there, too, and
its reader could choose ids of that query. Therefore an expression refers to the secret by a scalar
subquery over a relation of one row. Spark prints the columns of such a relation, and never its
rows. The salt itself stays in the driver's Python: the relation holds a digest of it. Tasks receive
that digest inside of their serialized plan, as they receive the URL of Redis. A checkpoint contains
no plan.

All are plain expressions of the JVM. Spark forbids subqueries in the function of ``transform``, so
ids of arrays take the constant from a column, which is dropped again.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.ids import ANCHOR_MAX
from acker_redis.spark import id_texts
from acker_redis.spark.hidden_scalar import HiddenScalar
from acker_redis.spark.names import Names, check_hidden, need_ids

_SECRET = "_acker_secret"  # noqa: S105 - the name of a column
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PAIR = "struct<anchor:bigint,tuple:bigint>"


class Ids:
    """Makes the ids of a namespace, as columns; :attr:`Acker.ids` is one.

    The ids depend on the salt of the namespace and on the arguments only, so a batch that runs
    again gets the same ids. No column can be used in the function of ``transform`` and its like.

    Args:
        spark: The session whose DataFrames get the columns.
        maker: The edges and the salt: ``ids`` of the client of the namespace.
        names: The names of the columns.

    Examples:
        >>> acker.ack(df, batch_id, children=acker.ids.tuple_id("tuple", "invoice"))

    """

    def __init__(self, spark: SparkSession, maker: IdMaker, names: Names | None = None) -> None:
        self.maker = maker
        self._names = names or Names()
        secret = hashlib.sha256(_joined(maker.known_salt(), "spark").encode()).hexdigest()[:32]
        self._one = HiddenScalar(spark, _SECRET, secret)

    def anchor(self, *cols: str | Column, attempt: int | Column = 0, source: str = "") -> Column:
        """Return a BIGINT column with the anchor of each record's tree: ``1 .. 2**62 - 1``.

        ``MicroBatch.track`` derives anchors itself. The anchor is never null: null is a valid value
        of a key column.

        Args:
            *cols: Columns of the record's natural key.
            attempt: The attempt (INT). An anchor belongs to one attempt: a replay with the same
                ``attempt`` would get the rest of the first attempt's tree.
            source: The name of the source. Records of two sources may have the same key.

        """
        if isinstance(attempt, Column):
            tried = _sized(F.coalesce(attempt.cast("int"), F.lit(0)))
        else:
            tried = [F.lit(_joined(str(attempt)))]
        hashed = _sha(self._constant("anchor", source), [*tried, *_parts(cols)])
        return _positive(hashed.bitwiseAND(F.lit(ANCHOR_MAX)))

    def tuple_id(self, parent: str | Column, edge: str, *key: str | Column) -> Column:
        """Return a BIGINT column with the id of a message that another caused: ``1 .. 2**63 - 1``.

        The id repeats only when the same message repeats: it depends on ``parent``, ``edge`` and
        ``key``. It is null if ``parent`` is null. In a namespace with edges it carries the code of
        its edge. Ids of first messages depend on the query and the batch, too, as do those of
        messages that :meth:`MicroBatch.emit` returns: only ``track`` and ``emit`` make them.

        Args:
            parent: The id of the message that caused the new one. The anchor is none: it comes
                again with its source id.
            edge: The name of the edge that the message takes.
            *key: Columns that distinguish several children of one parent on one edge.

        Examples:
            >>> acker.ack(df, batch_id, children=acker.ids.tuple_id("tuple", "invoice"))

        """
        cause = (F.col(parent) if isinstance(parent, str) else parent).cast("bigint")
        return self._id(cause, self._way(edge, "", key), key, F.lit(self._code(edge)))

    def add_messages(
        self,
        df: DataFrame,
        parent: str,
        made: Mapping[str, str],
        key: Sequence[str | Column] = (),
        run: str | Column = "",
        alone: Column | None = None,
    ) -> DataFrame:
        """Return the rows with the ids of new messages.

        Args:
            df: The rows.
            parent: The column with the id of the message that caused the new ones; of first
                messages, with the anchor.
            made: The edge of each new column. A column of the name is replaced.
            key: As in :meth:`tuple_id`.
            run: The application, query and batch that make the messages, also as a column; ``""``
                if their ids do not depend on it, as in :meth:`tuple_id`.
            alone: Whether the parent of a row is of this run alone. Then its ids depend on no run.

        """
        keys = _given(key)
        constants = {
            f"{_SECRET}_{n}": self._way(edge, run, key, alone)
            for n, edge in enumerate(made.values())
        }
        ids = {
            name: id_texts.message(
                f"`{parent}`", constant, id_texts.sized(keys), self.maker.low, self._code(edge)
            )
            for constant, (name, edge) in zip(constants, made.items(), strict=True)
        }
        return _with_texts(df, {**keys, **constants}, ids)

    def add_anchor(
        self, df: DataFrame, name: str, column: str, attempt: str, source: str, sql: str = "{}"
    ) -> DataFrame:
        """Return the rows with the anchors of their records, as :meth:`anchor` makes them.

        ``column`` has the source ids, and ``attempt`` the attempts (INT, not null). ``sql`` is an
        expression with the anchor at ``{}``.
        """
        text = id_texts.anchor(_SECRET, id_texts.sized([attempt, column]))
        helpers = {_SECRET: self._constant("anchor", source)}
        return _with_texts(df, helpers, {name: sql.format(text)})

    def with_children(
        self,
        df: DataFrame,
        edge: str,
        *,
        key: Sequence[str | Column] = (),
        column: str = "children",
    ) -> DataFrame:
        """Return the rows with the ids of the messages that they cause, one for each row.

        For rows of ``format("acker")``. The column is a BIGINT for rows with ``anchor`` and
        ``tuple``. For rows with ``anchors`` it is an array like it: the message belongs to all
        trees of the row.

        Args:
            df: Rows with the ids of the messages that they came from.
            edge: The name of the edge that the messages take.
            key: Columns that distinguish several rows of one message on one edge.
            column: The name of the new column.

        Raises:
            InvalidBatchError: A column of ids is missing or has the wrong type, or a column's name
                is reserved.

        Examples:
            >>> done = acker.ids.with_children(joined, "invoice")
            >>> rows = done.select("anchors", "children").writeStream.format("acker")

        """
        check_hidden(df)
        if need_ids(df, self._names):
            return self.children_of_many(df, column, edge, key)
        return self.add_messages(df, self._names.tuple, {column: edge}, key)

    def children_of_many(
        self,
        df: DataFrame,
        column: str,
        edge: str,
        key: Sequence[str | Column],
        run: str | Column = "",
    ) -> DataFrame:
        """Return rows of many inputs with the pairs (anchor, id) of one child each.

        In each tree one id carries the code of the edge: that of the input with the least id. So
        the XOR of the ids, which is the id of the child in that tree, has the code once.
        """
        code = self._code(edge)
        name = self._names.anchors
        df = df.withColumn(_SECRET, self._way(edge, run, key))

        def made(pair: Column, carried: Column) -> Column:
            id_ = self._id(pair["tuple"], F.col(_SECRET), key, carried)
            return F.struct(pair["anchor"].alias("anchor"), id_.alias("tuple"))

        if not code:
            children = F.transform(name, lambda pair: made(pair, F.lit(0)))
        else:
            # Sorted by anchor and id. Each pair is compared with the one before it, because a
            # search for the least id of each tree would take quadratic time in a large window.
            pairs = F.array_sort(name)
            shifted = F.concat(F.array(F.lit(None).cast(_PAIR)), pairs)
            before = F.slice(shifted, 1, F.array_size(pairs))
            children = F.zip_with(
                pairs,
                before,
                lambda pair, last: made(
                    pair,
                    F.when(pair["anchor"].eqNullSafe(last["anchor"]), F.lit(0)).otherwise(code),
                ),
            )
        return df.withColumn(column, children).drop(_SECRET)

    def _id(
        self, cause: Column, constant: Column, key: Sequence[str | Column], code: Column
    ) -> Column:
        if key:
            hashed = _sha(constant, [cause.cast("string"), F.lit(":"), *_parts(key)])
        else:
            hashed = F.xxhash64(cause, constant)
        low = _positive(hashed.bitwiseAND(F.lit(self.maker.low)))
        return F.when(cause.isNotNull(), low.bitwiseOR(code.cast("bigint")))

    def _code(self, edge: str) -> int:
        # In Spark each message has a named edge, also in a namespace that lists none.
        return self.maker.code(edge) if self.maker.edges else 0

    def _way(
        self,
        edge: str,
        run: str | Column,
        key: Sequence[str | Column],
        alone: Column | None = None,
    ) -> Column:
        """Return the constant of messages of an edge and a run; see :meth:`add_messages`."""
        kind = "child" if key else "message"
        if isinstance(run, Column):
            made = self._constant_of_row(_joined(kind, edge), run)
        elif run:
            made = self._constant(kind, edge, run)
        else:
            return self._constant(kind, edge)
        return made if alone is None else F.when(alone, self._constant(kind, edge)).otherwise(made)

    def _constant(self, *parts: str) -> Column:
        """Return 22 characters, 128 bits, that depend on the secret and these parts."""
        # Spark computes it once, when it plans the subquery. With a short constant most inputs fit
        # into one block of SHA-256.
        text = id_texts.text(_joined(*parts))
        digest = f"base64(unhex(sha2(concat({_SECRET}, {text}), 256)))"
        return self._one.scalar(f"left({digest}, 22)")

    def _constant_of_row(self, first: str, last: Column) -> Column:
        """Return the same, where the last part is a column."""
        joined = F.concat(self._one.scalar(_SECRET), F.lit(first), *_sized(last))
        return F.substring(F.base64(F.unhex(F.sha2(joined, 256))), 1, 22)


def _joined(*parts: str) -> str:
    return "".join(f"{len(part.encode())}:{part}" for part in parts)


def _sha(constant: Column, parts: Sequence[Column]) -> Column:
    # A hash of 64 bits of the digest. XXH64 could be inverted, but its input cannot be chosen.
    return F.xxhash64(F.sha2(F.concat(constant, *parts), 256))


def _parts(cols: Sequence[str | Column]) -> list[Column]:
    """Return the inputs, each with its length."""
    names = [c for c in cols if isinstance(c, str) and _PLAIN.fullmatch(c)]
    if not cols or len(names) < len(cols):
        each = (_sized(F.col(c) if isinstance(c, str) else c) for c in cols)
        return [part for parts in each for part in parts]
    return [F.expr(f"concat({id_texts.sized(names)})")]


def _given(key: Sequence[str | Column]) -> dict[str, Column]:
    """Return the columns of a key under names of ours."""
    return {
        f"_acker_key_{n}": F.col(each) if isinstance(each, str) else each
        for n, each in enumerate(key)
    }


def _with_texts(
    df: DataFrame, helpers: Mapping[str, Column], texts: Mapping[str, str]
) -> DataFrame:
    """Return the rows with the columns of SQL texts, which may refer to the helper columns."""
    helped = _with_columns(df, helpers)
    return _with_columns(helped, {n: F.expr(t) for n, t in texts.items()}).drop(*helpers)


def _with_columns(df: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    if len(columns) == 1:
        # Four calls into the JVM instead of sixteen.
        return df.withColumn(*next(iter(columns.items())))
    return df.withColumns(dict(columns))


def _sized(column: Column) -> list[Column]:
    """Return the length of a column's text, and the text; null differs from each text."""
    # xxhash64 ignores nulls and hashes 0.0 and -0.0 alike; their texts are distinct.
    text = column.cast("string")
    size = F.octet_length(text).cast("string")
    return [F.coalesce(size, F.lit("-")), F.lit(":"), F.coalesce(text, F.lit(""))]


def _positive(hashed: Column) -> Column:
    return F.greatest(hashed, F.lit(1).cast("bigint"))
