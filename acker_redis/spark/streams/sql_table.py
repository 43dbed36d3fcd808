"""A sink for the last job: a table of a database, into which executors upsert rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from acker_redis.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1000


class SqlTable:
    """A sink that upserts rows into a table, by any driver of Python's DB-API (PEP 249).

    Spark writes by JDBC only with INSERT, and a batch that runs again would write its rows twice.
    The executors run this statement instead, in one transaction for each partition. Rows with the
    same key as before replace them, so a batch may run again: by a retried task, by a speculative
    twin of a task, or by a query that starts again.

    Args:
        connect: A function without arguments that returns a new connection. It is pickled; a
            password in it is part of the tasks of Spark.
        upsert: The statement, with a placeholder for each column in the style of the driver.
        columns: The columns of the rows, in the order of the placeholders.

    Raises:
        ConfigError: The statement only inserts or only updates, or there are no columns.

    Examples:
        >>> table = SqlTable(
        ...     lambda: psycopg.connect("dbname=shop"),
        ...     "INSERT INTO invoices (order_id, total) VALUES (%s, %s) "
        ...     "ON CONFLICT (order_id) DO UPDATE SET total = excluded.total",
        ...     ["order_id", "total"],
        ... )

    """

    def __init__(self, connect: Callable[[], Any], upsert: str, columns: Sequence[str]) -> None:
        words = set(upsert.upper().replace("(", " (").split())
        adds = words & {"INSERT", "REPLACE"}
        replaces = words & {"UPDATE", "REPLACE"}
        if not columns or isinstance(columns, str):
            raise ConfigError("columns is a sequence of the names of columns, in order")
        if not adds or not replaces or "NOTHING" in words:
            raise ConfigError(
                "upsert adds a row, or replaces the row with the same key: INSERT .. ON CONFLICT "
                "(key) DO UPDATE SET .., INSERT .. ON DUPLICATE KEY UPDATE .., REPLACE, or MERGE "
                "that updates and inserts. With INSERT alone a batch that runs again would write "
                "its rows twice or keep old rows, with DO NOTHING it would keep old rows, and with "
                "UPDATE alone new rows would be missing"
            )
        self.connect, self.upsert, self.columns = connect, upsert, tuple(columns)

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> int:
        """Upsert the rows of a batch; the arguments are those of :class:`Queue`."""
        return self.replace(df, query_id, batch_id)

    def replace(self, df: DataFrame, query_id: str, batch_id: int) -> int:
        """Upsert the rows of a batch, and return their number; arguments as of :class:`Queue`.

        A row that an earlier run of the batch has written under another key stays.
        """
        missing = [name for name in self.columns if name not in df.columns]
        if missing:
            raise ConfigError(
                f"the rows have no column {', '.join(missing)}; their columns are "
                f"{', '.join(df.columns)}"
            )
        upsert = _upserter(self.connect, self.upsert)
        written = df.select(*self.columns).mapInArrow(upsert, "written BIGINT")
        [row] = written.agg({"written": "sum"}).collect()
        return row[0] or 0


def _upserter(
    connect: Callable[[], Any], upsert: str
) -> Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def run(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        rows = (
            tuple(row) for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)
        )
        written = 0
        first = list(islice(rows, _ROWS))
        if first:  # an empty partition needs no connection
            with closing(connect()) as connection, closing(connection.cursor()) as cursor:
                while first:
                    cursor.executemany(upsert, first)
                    written += len(first)
                    first = list(islice(rows, _ROWS))
                connection.commit()
        yield pa.RecordBatch.from_arrays([pa.array([written], pa.int64())], ["written"])

    return run
