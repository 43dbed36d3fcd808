"""The acker in a Spark application: opens a micro-batch, and keeps what became of it."""

from collections import deque

from pyspark.sql import Column, DataFrame, SparkSession

from acker_redis.errors import ConfigError
from acker_redis.protocol.config import AckerConfig
from acker_redis.spark.fold.apply import OnChanged
from acker_redis.spark.fold.report import Report
from acker_redis.spark.fold.target import Target
from acker_redis.spark.ledger import Ledger
from acker_redis.spark.memory import Application, Memory, Mode
from acker_redis.spark.micro_batch import MicroBatch
from acker_redis.spark.names import Names
from acker_redis.spark.queries import query_id_of
from acker_redis.spark.streams.formats import register
from acker_redis.sync import client


class Acker:
    """A namespace, for the streaming queries of one application.

    ``app_id`` names the application for ever: its queries' lanes are called after it. ``url`` is
    that of Redis, as the executors reach it; by default that in ``ACKER_REDIS_URL``.

    ``mode`` says where a batch is folded and sent: ``driver`` collects 16 bytes a message (and
    texts), ``executors`` sends from tasks, whatever the size; ``auto`` takes the driver for up to a
    million messages. ``on_changed_batch`` says what to do with a batch that comes back with other
    content than it was applied with: ``raise``, at every restart until the plan is mended, or
    ``fail_trees``: nack all its trees, so that their sources replay them, and go on (refused for a
    query that writes to a sink before its ack). ``max_wait``
    is for how many seconds a batch waits for room below the high-water mark. ``names`` are those of
    the columns, and ``ledger`` is where the source ids of trees in blocks are kept, if they do not
    count.

    Thread-safe, for several queries at once. With Spark Connect a function of ``foreachBatch`` runs
    in another process, and has a copy there that keeps its reports to itself. Raises ConfigError
    for what cannot be.
    """

    def __init__(
        self,
        spark: SparkSession,
        namespace: str,
        *,
        app_id: str,
        url: str | None = None,
        mode: Mode = "auto",
        on_changed_batch: OnChanged = "raise",
        max_wait: float = 600.0,
        names: Names | None = None,
        ledger: "Ledger | str | None" = None,
        query_id: str | None = None,
        timeout: float = 5.0,
        retry_for: float = 10.0,
    ) -> None:
        register(spark)
        application = Application(
            target=Target.find(namespace, url, timeout, retry_for),
            app_id=app_id,
            mode=mode,
            on_changed_batch=on_changed_batch,
            max_wait=max_wait,
            names=names or Names(),
            ledger=Ledger(ledger) if isinstance(ledger, str) else ledger,
        )
        self.memory = Memory(application)
        self._query_id = query_id

    @property
    def application(self) -> Application:
        """The settings."""
        return self.memory.application

    @property
    def reports(self) -> deque[Report]:
        """What became of the last 100 batches, the latest last."""
        return self.memory.reports

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self.application.namespace

    @property
    def client(self) -> client.Acker:
        """The driver's client: create, status, show, outcomes."""
        return self.application.client

    def create(self, config: AckerConfig | None = None) -> bool:
        """Create the namespace; False if it exists with this very configuration."""
        return self.client.create(config)

    def batch(
        self, df: DataFrame, batch_id: int, *, query_id: str | None = None, freeze: bool = True
    ) -> MicroBatch:
        """A micro-batch, as ``foreachBatch`` gives it; use it as ``with acker.batch(..) as b:``.

        With ``freeze=False`` rows are read again for each thing that is made of them, rather than
        kept: quicker, and right only where the plan gives the same rows each time, as offsets of
        Kafka or whole files do, and a join with a table that changes does not.

        ``query_id`` names the query where Spark does not (outside of a streaming query, and with
        Spark Connect): a name that no other query of this app id has, and that goes with one
        checkpoint: with a new checkpoint batch ids start over, and it needs a new name.
        """
        return MicroBatch(
            self.memory, df, batch_id, query_id_of(df, query_id or self._query_id), freeze
        )

    def ack(
        self,
        df: DataFrame,
        batch_id: int,
        *,
        children: str | Column | None = None,
        query_id: str | None = None,
    ) -> Report:
        """Ack all messages of a batch: the last bolt, or one whose children stand in their rows.

        The DataFrame is evaluated once, and not kept. See :meth:`MicroBatch.ack`.
        """
        with self.batch(df, batch_id, query_id=query_id) as b:
            b.ack(df, children=children)
        if b.report is None:  # pragma: no cover - it is set whenever the block ends well
            raise ConfigError("the batch was not applied")
        return b.report

    def report(self, query_id: str, batch_id: int) -> Report | None:
        """Return what became of a batch when it last ran; None if it is none of the last 100."""
        return self.memory.report(query_id, batch_id)
