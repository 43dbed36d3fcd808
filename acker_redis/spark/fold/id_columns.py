"""Columns of ids in committed Parquet files, read in the driver without a Spark job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from acker_redis.protocol.ids import ANCHOR_MAX

_ROWS = 1 << 20
"""Rows that are read together."""


@dataclass(frozen=True)
class IdColumns:
    """The columns of one kind of terms, in files on this machine.

    Memory: ``_ROWS`` rows of 8 bytes a column, and the texts of TRACK terms.
    """

    files: tuple[Path, ...]
    names: Mapping[str, str]
    """The column in the files, for each column of the terms: ``anchor``, ``delta``, .."""
    unanchored: bool = False
    """Whether rows without ids are left out; else they are an error of the batch."""
    in_blocks: bool | None = None
    """True: only trees in blocks, False: only loose trees, None: all."""
    others: tuple[str, ...] = ()
    """Columns of further ids, with which the delta is XORed."""

    @property
    def rows(self) -> int:
        """The number of rows, from the footers of the files."""
        return sum(pq.read_metadata(file).num_rows for file in self.files)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows as tables with the columns of the terms.

        Raises FileNotFoundError if a file was deleted: the committed rows are incomplete.
        """
        for file in self.files:
            with pq.ParquetFile(file, pre_buffer=False) as source:
                # Spark finds a column of another case, too.
                held = {name.lower(): name for name in reversed(source.schema_arrow.names)}
                held |= {name: name for name in source.schema_arrow.names}
                used = {n: held.get(c, held.get(c.lower())) for n, c in self.names.items()}
                columns = [column for column in (*used.values(), *self.others) if column]
                for batch in source.iter_batches(_ROWS, columns=list(dict.fromkeys(columns))):
                    table = self._table(batch, used)
                    for other in self.others:
                        delta = pc.bit_wise_xor(table["delta"], batch.column(other))
                        table = table.set_column(table.column_names.index("delta"), "delta", delta)
                    yield self._selected(table)

    def _table(self, batch: pa.RecordBatch, used: Mapping[str, str | None]) -> pa.Table:
        return pa.table(
            {
                # A file of an older job may lack a column, which Spark reads as nulls, too.
                name: batch.column(column) if column else pa.nulls(len(batch), pa.int64())
                for name, column in used.items()
            }
        )

    def _selected(self, found: pa.Table) -> pa.Table:
        if self.unanchored:
            both = pc.and_(pc.is_null(found["anchor"]), pc.is_null(found["delta"]))
            found = found.filter(pc.invert(both))
        if self.in_blocks is not None:
            inside = pc.greater(found["anchor"], pa.scalar(ANCHOR_MAX, pa.int64()))
            found = found.filter(inside if self.in_blocks else pc.invert(inside))
        return found
