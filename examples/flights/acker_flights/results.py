"""The end of the line: verdicts become two tables, what is done and what must be replayed."""

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from acker_redis.client import Acker
from acker_redis.errors import AckerError
from acker_redis.outcome import Entry

SCHEMA = pa.schema(
    [
        ("source_id", pa.string()),
        ("anchor", pa.int64()),
        ("reason", pa.string()),
        ("why", pa.string()),
        ("age_ms", pa.int64()),
        ("at_ms", pa.int64()),
    ]
)
_TABLES = {"ack": "done", "nack": "replay"}
_IDLE_SECONDS = 0.2


class Results:
    """Takes the outcomes of a task and writes them to ``done`` and ``replay`` as Parquet.

    Runs in a thread between ``start()`` and ``finish()``. An entry is one file, named by
    its id, and is taken after it was written: read twice, it is written over, not doubled.
    """

    def __init__(self, acker: Acker, task: str, path: Path) -> None:
        self.path = path
        self.counts = {"ack": 0, "nack": 0}
        for table in _TABLES.values():
            (path / table).mkdir(parents=True, exist_ok=True)
        self._outcomes = acker.outcomes(task)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acker-results", daemon=True)
        self._error: AckerError | OSError | None = None

    def start(self) -> "Results":
        """Begin to read."""
        self._thread.start()
        return self

    def finish(self) -> None:
        """Take what still waits, then end; raises what went wrong in the thread."""
        self.abandon()
        while self._error is None and self._take_some():
            pass
        if self._error:
            raise self._error

    def abandon(self) -> None:
        """End without taking what still waits."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def read(self, table: str) -> pa.Table:
        """The table ``done`` or ``replay``, whole."""
        return ds.dataset(self.path / table, schema=SCHEMA, format="parquet").to_table()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._take_some():
                    self._stop.wait(_IDLE_SECONDS)
        except (AckerError, OSError) as error:
            self._error = error

    def _take_some(self) -> bool:
        entries = self._outcomes.read()
        for entry in entries:
            self._write(entry)
        if entries:
            self._outcomes.take(entries)
        return bool(entries)

    def _write(self, entry: Entry) -> None:
        verdict = entry.outcomes[0].verdict
        if verdict not in _TABLES:
            return
        rows = [
            (o.source_id, o.anchor, o.reason, o.why, o.age_ms, entry.at_ms) for o in entry.outcomes
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        file = self.path / _TABLES[verdict] / f"{entry.shard}-{entry.id}.parquet"
        # Written aside: readers pass over names with a leading underscore.
        aside = file.with_name(f"_{file.name}")
        pq.write_table(pa.table(columns, schema=SCHEMA), aside)
        aside.replace(file)
        self.counts[verdict] += len(rows)
