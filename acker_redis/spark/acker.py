"""The acker in a Spark application: opens micro-batches and keeps their reports."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from acker_redis.errors import ConfigError
from acker_redis.protocol.config import AckerConfig
from acker_redis.spark.candidates import candidates
from acker_redis.spark.fold import lanes
from acker_redis.spark.fold.apply import OnChanged
from acker_redis.spark.fold.report import Report
from acker_redis.spark.fold.target import Target
from acker_redis.spark.fold.vanished import Unmentioned
from acker_redis.spark.ids import Ids
from acker_redis.spark.input_batch import InputBatch
from acker_redis.spark.ledger import Ledger
from acker_redis.spark.micro_batch import MicroBatch
from acker_redis.spark.names import Names
from acker_redis.spark.queries import query_id_of
from acker_redis.spark.shared_state import Application, Mode, SharedState
from acker_redis.spark.streams.formats import registered
from acker_redis.sync import client


class Acker:
    """A client of one namespace for the streaming queries of a Spark application.

    The constructor registers the formats ``acker`` and ``acker-outcomes`` with the session, where
    Spark has them. An ``Acker`` is thread-safe: several queries may share it. With Spark Connect a
    function of ``foreachBatch`` runs in another process with a copy of the ``Acker``, whose reports
    stay there.

    Args:
        spark: The session of the queries.
        namespace: The name of the namespace.
        app_id: The name of the application. The fences of its queries carry this name, so it must
            never change.
        url: The URL of Redis as the driver and the executors reach it; by default the value of
            ``ACKER_REDIS_URL`` in the driver.
        mode: Where a batch is folded and sent. ``driver`` collects 16 bytes per message, and texts.
            ``executors`` sends from tasks, and suits any size. ``auto`` uses the driver for up to a
            million messages.
        on_changed_batch: The reaction to a batch that Spark runs again with other content than was
            applied. ``raise`` raises ChangedBatchError at every restart until the plan is fixed.
            ``fail_trees`` nacks all trees of the batch, so that their sources replay them, and the
            query continues; :meth:`MicroBatch.write` refuses this setting.
        unmentioned: What happens to a message of a batch from which nothing was emitted, and which
            was neither acked nor failed: a join or a filter has dropped its row. ``fail`` fails its
            tree at once. ``leave`` does not ack it, so its tree expires. ``ack`` acks it like the
            others. :class:`MicroBatch` says what mentions a message.
        max_wait: Seconds for which a batch that tracks waits for room below the high-water mark.
        names: The names of the columns that acker-redis reads and adds.
        ledger: A :class:`Ledger`, or the path of its directory. With a ledger, trees with a STRING
            source id are tracked in blocks, and the ledger keeps their source ids.
        query_id: The name of the query for all batches, instead of the id that Spark gives; see
            :meth:`batch`.
        staging: The folder for rows that a batch evaluates once: a path or a URI that the driver
            and the executors share. By default it is in the query's checkpoint. Necessary outside
            of ``foreachBatch``, and with Spark Connect unless the session has
            ``spark.sql.streaming.checkpointLocation``; a local master needs none. The files hold
            whole rows: protect the folder like the checkpoint.
        timeout: Seconds to connect to Redis, and to wait for a reply.
        retry_for: Seconds for which a call is repeated while Redis does not answer.

    Raises:
        ConfigError: An argument is invalid, or the URL is missing.

    Examples:
        >>> acker = Acker(spark, "orders", app_id="price")
        >>> def job(df, batch_id):
        ...     with acker.batch(df, batch_id) as b:
        ...         messages = b.emit(b.df.where("price IS NOT NULL"), edge="invoice")
        ...         b.fail(b.df.where("price IS NULL"), "no price")
        ...     b.hand_on(messages, queue)
        >>> query = stream.writeStream.foreachBatch(job).start()

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
        unmentioned: Unmentioned = "fail",
        max_wait: float = 600.0,
        names: Names | None = None,
        ledger: "Ledger | str | None" = None,
        query_id: str | None = None,
        staging: str | None = None,
        timeout: float = 5.0,
        retry_for: float = 10.0,
    ) -> None:
        registered(spark)
        application = Application(
            target=Target.find(namespace, url, timeout, retry_for),
            app_id=app_id,
            mode=mode,
            on_changed_batch=on_changed_batch,
            max_wait=max_wait,
            names=names or Names(),
            ledger=Ledger(ledger) if isinstance(ledger, str) else ledger,
            unmentioned=unmentioned,
            staging=staging,
        )
        self.shared = SharedState(application)
        self._query_id = query_id
        self._spark: SparkSession | None = spark

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_spark": None}

    @property
    def application(self) -> Application:
        """The settings of the application."""
        return self.shared.application

    @property
    def reports(self) -> deque[Report]:
        """The reports of the last 100 batches, the latest last."""
        return self.shared.reports

    @property
    def namespace(self) -> str:
        """The name of the namespace."""
        return self.application.namespace

    @property
    def client(self) -> client.Acker:
        """The client of the driver, with ``create``, ``status``, ``show`` and ``outcomes``."""
        return self.application.client

    @property
    def ids(self) -> Ids:
        """What makes the ids of the namespace, as columns: the children of messages, for example.

        The configuration is read from Redis once.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.

        """
        # A copy in another process has no session.
        return self.shared.ids(self._spark or SparkSession.active())

    def create(self, config: AckerConfig | None = None) -> bool:
        """Create the namespace; return False if it exists with the same configuration.

        Raises:
            NamespaceExistsError: The namespace exists with another configuration.

        """
        return self.client.create(config)

    def batch(
        self,
        df: DataFrame,
        batch_id: int,
        *,
        query_id: str | None = None,
        freeze: bool = True,
        unmentioned: Unmentioned | None = None,
    ) -> MicroBatch:
        """Return a micro-batch of ``foreachBatch``; use it as ``with acker.batch(..) as b:``.

        Args:
            df: The DataFrame of the batch.
            batch_id: The number of the batch.
            query_id: The name of the query. It is necessary where Spark gives no id: outside of a
                streaming query, and with Spark Connect. No other query of this ``app_id`` may have
                the name. It belongs to one checkpoint: with a new checkpoint batch ids start again
                at 0, so the query needs a new name.
            freeze: With False, Spark caches the rows until the query's next batch begins, instead
                of keeping them in files, and computes them again if it loses them. So this is
                correct only if the plan gives the same rows each time. Offsets of Kafka and whole
                files do. A join with a table that changes does not.
            unmentioned: Replaces the setting of the ``Acker``.

        Raises:
            ConfigError: Spark gives no id of the query, and ``query_id`` is missing or invalid; or
                ``unmentioned`` is invalid.
            InvalidBatchError: A column of ``df`` has a name that begins with ``_acker_``.

        """
        given = InputBatch(
            self.shared, df, batch_id, query_id_of(df, query_id or self._query_id), freeze
        )
        return MicroBatch(given, unmentioned or self.application.unmentioned)

    def ack(
        self,
        df: DataFrame,
        batch_id: int,
        *,
        children: str | Column | None = None,
        query_id: str | None = None,
    ) -> Report:
        """Ack all messages of a batch, and return the report.

        For a last bolt, or for a bolt whose rows contain the ids of their children. Spark evaluates
        the DataFrame once and does not keep it. :meth:`MicroBatch.ack` describes ``children`` and
        the errors.
        """
        with self.batch(df, batch_id, query_id=query_id) as b:
            b.ack(df, children=children)
        if b.report is None:  # pragma: no cover - it is set whenever the block ends well
            raise ConfigError("the batch was not applied")
        return b.report

    def emitted(
        self,
        rows: DataFrame,
        *,
        edge: str,
        query_id: str,
        key: Sequence[str | Column] = (),
        batches: range | None = None,
    ) -> DataFrame:
        """Return the messages that a query may have made of these rows, for :func:`explain`.

        A message that was lost between ``emit`` and its queue is in no queue. But its id is derived
        from its input, the edge, the key, and the application, query and batch. So the result has a
        candidate for each row and batch, with the columns of the row, in ``tuple`` the id of the
        message, and ``batch_id`` BIGINT. :func:`explain` finds out which of them existed.

        Parts that :meth:`MicroBatch.split` makes are not derived.

        Args:
            rows: Rows with the ids of the messages that the query read, and all columns of ``key``,
                as ``emit`` got them. Or rows with ``anchor`` and without ids, such as verdicts:
                then the messages are those that ``track`` made; ``batch_id`` is null for trees in
                blocks. Leave out rows of other trees: the result has a row for each batch.
            edge: As in the call of ``emit`` or ``track``.
            query_id: The query of this application: Spark's id of it, or its own.
            key: As in the call of ``emit`` or ``track``.
            batches: The batches of the query; by default the last 1000 that Redis knows of.

        Raises:
            ConfigError: Redis knows no batch of the query, and ``batches`` is missing or empty.
            InvalidBatchError: A column of ids has the wrong type, or a column is called
                ``batch_id``.

        Examples:
            >>> read = FileQueue("/data/price").read(spark, schema)
            >>> read = read.join(nacks.select("anchor"), "anchor", "left_semi")
            >>> made = acker.emitted(read, edge="invoice", query_id="price")
            >>> explain(nacks, invoices.unionByName(made, allowMissingColumns=True))

        """
        application = self.application
        if batches is None:
            last = lanes.last_batch(self.client, application.lane(query_id))
            batches = range(max(0, last - 999), last + 1) if last is not None else range(0)
        if not batches:
            raise ConfigError(
                f"Redis knows no batch of query {query_id} of {application.app_id} (it forgets a "
                "query 30 days after its last batch): give batches=range(..), those that may have "
                "made the messages"
            )
        return candidates(self.ids, rows, application, edge, query_id, key, batches)

    def report(self, query_id: str, batch_id: int) -> Report | None:
        """Return the report of the last run of a batch; None if not among the last 100 reports."""
        return self.shared.report(query_id, batch_id)
