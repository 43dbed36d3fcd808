"""Which attempt of a record a verdict is about.

Redis holds no attempt, and needs none. The label of a block of numbered records ends in its attempt
(``orders/3@1000~2``). The anchor of a loose tree is derived from source, source id and attempt, so
one of the first attempts gives this anchor, or none. A suffix of the source id would take some of
its 255 bytes, and could not be told from a source id that ends like it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.protocol.labels import COUNTED
from acker_redis.spark.acker import Acker
from acker_redis.spark.names import check_hidden

_INT_MAX = 2**31 - 1


def with_attempt(
    verdicts: DataFrame, acker: Acker, source: str, attempts: int = 10, column: str = "attempt"
) -> DataFrame:
    """Return verdicts with the attempt that each is about: an INT from 0.

    The attempt of a row that stands for several trees of a block is that of all these trees. It is
    null for a tree that is none of the first attempts of a record that :meth:`MicroBatch.track` has
    tracked for this source.

    Args:
        verdicts: Rows of ``format("acker-outcomes")``, or of :func:`read_outcomes`.
        acker: An acker of the namespace, which knows the salt of its ids.
        source: The source that tracked the trees.
        attempts: The number of attempts that are tried for a loose tree. Each costs a hash of the
            source id.
        column: The name of the new column.

    Raises:
        InvalidBatchError: A column has a name that begins with ``_acker_``.

    Examples:
        >>> failed = with_attempt(verdicts, acker, "shop").where("verdict = 'nack'")
        >>> failed.groupBy("attempt").count().show()

    """
    check_hidden(verdicts)
    label = F.col("label")
    said = F.nullif(F.regexp_extract(label, f"^{COUNTED}$", 3), F.lit("")).cast("bigint")
    counted = F.least(F.coalesce(said, F.lit(0)), F.lit(_INT_MAX)).cast("int")
    in_block = F.when(label.rlike(f"^{COUNTED}$"), counted)
    anchor = F.col("anchor")

    def loose(attempt: int) -> Column:
        made = acker.ids.anchor("source_id", attempt=attempt, source=source)
        return F.when(anchor == made, F.lit(attempt))

    tried = F.coalesce(*map(loose, range(attempts)))
    return verdicts.withColumn(column, F.when(label.isNull(), tried).otherwise(in_block))
