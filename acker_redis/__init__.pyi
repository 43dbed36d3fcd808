"""The public names: ``__init__.py`` imports each on first use."""

# ruff: noqa: I001 - all names of a module together

from acker_redis.batching.batch import Batch as Batch
from acker_redis.batching.column_batch import ColumnBatch as ColumnBatch
from acker_redis.batching.sent import Applied as Applied
from acker_redis.doctor.examination import examine as examine
from acker_redis.doctor.finding import Report as Report
from acker_redis.errors import (
    AckerError as AckerError,
    BacklogError as BacklogError,
    BufferFullError as BufferFullError,
    ChangedBatchError as ChangedBatchError,
    ClosedError as ClosedError,
    ConfigError as ConfigError,
    DataLossError as DataLossError,
    DuplicateMessageError as DuplicateMessageError,
    EmbeddedServerError as EmbeddedServerError,
    FenceError as FenceError,
    FenceFullError as FenceFullError,
    HighWaterError as HighWaterError,
    InvalidBatchError as InvalidBatchError,
    LaneError as LaneError,
    MissingExtraError as MissingExtraError,
    NamespaceExistsError as NamespaceExistsError,
    NamespaceNotFoundError as NamespaceNotFoundError,
    RedisRefusedError as RedisRefusedError,
    RedisUnavailableError as RedisUnavailableError,
    RejectedError as RejectedError,
    ReshardError as ReshardError,
    SchemaError as SchemaError,
    WrongShardError as WrongShardError,
)
from acker_redis.flows.browse import (
    BlockEntry as BlockEntry,
    Found as Found,
    OldestTree as OldestTree,
    PageCursor as PageCursor,
    TreePage as TreePage,
)
from acker_redis.flows.lost import StoredVerdicts as StoredVerdicts
from acker_redis.flows.waits import (
    EdgeWaits as EdgeWaits,
    Waits as Waits,
)
from acker_redis.missing.explain import (
    Explanation as Explanation,
    explain as explain,
)
from acker_redis.protocol.config import AckerConfig as AckerConfig
from acker_redis.protocol.functions import use_functions as use_functions
from acker_redis.protocol.id_maker import IdMaker as IdMaker
from acker_redis.protocol.ids import (
    block_anchor as block_anchor,
    format_tuple as format_tuple,
    new_anchor as new_anchor,
    new_tuple_id as new_tuple_id,
    parse_tuple as parse_tuple,
    split_anchor as split_anchor,
)
from acker_redis.protocol.outcome import (
    BlockOutcome as BlockOutcome,
    Entry as Entry,
    Outcome as Outcome,
)
from acker_redis.protocol.reports import SourceEdge as SourceEdge
from acker_redis.protocol.status import Status as Status
from acker_redis.protocol.tree import (
    BlockState as BlockState,
    TreeState as TreeState,
)
from acker_redis.rotator.rotator import Rotator as Rotator
from acker_redis.sync.bolt import (
    Bolt as Bolt,
    Handle as Handle,
)
from acker_redis.sync.bolt_batch import BatchHandle as BatchHandle
from acker_redis.sync.client import Acker as Acker
from acker_redis.sync.outcomes import Outcomes as Outcomes
from acker_redis.sync.producer import Producer as Producer
from acker_redis.sync.source import Source as Source
from acker_redis.trees.frontier import (
    Failures as Failures,
    Frontier as Frontier,
    Pin as Pin,
    Quarantined as Quarantined,
)
from acker_redis.trees.group import GroupResult as GroupResult
from acker_redis.trees.lost import (
    StoredVerdict as StoredVerdict,
    TrackedTree as TrackedTree,
)
from acker_redis.trees.message_id import MessageId as MessageId
from acker_redis.trees.record import Backoff as Backoff, Record as Record, Verdict as Verdict
from acker_redis.trees.processing import (
    OpenTree as OpenTree,
    Processing as Processing,
    emit as emit,
)
from acker_redis.trees.rotating_map import RotatingMap as RotatingMap
