"""The public names: ``__init__.py`` imports each on first use."""

# ruff: noqa: I001 - all names of a module together

from acker_redis.spark.acker import Acker as Acker
from acker_redis.spark.fold.report import Report as Report
from acker_redis.spark.functions import (
    Counted as Counted,
    anchors_of as anchors_of,
    collect_anchors as collect_anchors,
    counted as counted,
    kafka_source_id as kafka_source_id,
    source_id as source_id,
)
from acker_redis.spark.headers import (
    from_headers as from_headers,
    to_headers as to_headers,
)
from acker_redis.spark.ids import Ids as Ids
from acker_redis.spark.ledger import Ledger as Ledger
from acker_redis.spark.listener import AckerListener as AckerListener
from acker_redis.spark.lost_rows import explain as explain
from acker_redis.spark.lost_trees import lost as lost
from acker_redis.spark.micro_batch import MicroBatch as MicroBatch
from acker_redis.spark.names import Names as Names
from acker_redis.spark.queries import query_id_of as query_id_of
from acker_redis.spark.replays.attempts import with_attempt as with_attempt
from acker_redis.spark.replays.writer import ReplayWriter as ReplayWriter
from acker_redis.spark.splitting import Split as Split
from acker_redis.spark.streams.delta_queue import DeltaQueue as DeltaQueue
from acker_redis.spark.streams.formats import register as register
from acker_redis.spark.streams.outcome_batches import OutcomeBatches as OutcomeBatches
from acker_redis.spark.streams.outcome_frames import read_outcomes as read_outcomes
from acker_redis.spark.streams.queue import (
    FileQueue as FileQueue,
    Queue as Queue,
)
from acker_redis.spark.streams.sql_table import SqlTable as SqlTable
from acker_redis.spark.writers import (
    BoltWriter as BoltWriter,
    TrackWriter as TrackWriter,
)
