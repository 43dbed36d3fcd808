"""acker-redis: Apache Storm's acker as a service on Redis.

A source tracks a record under a random *anchor*. All messages that follow from the record form
the anchor's *tuple tree*. A bolt that processes a message of the tree acks it and names the
messages it caused. When all messages are acked, the source receives the verdict ``ack``. If one
fails, or the timeout passes first, the source receives ``nack``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acker_redis.batching.batch import Batch
    from acker_redis.batching.column_batch import ColumnBatch
    from acker_redis.batching.sent import Applied
    from acker_redis.doctor.examination import examine
    from acker_redis.doctor.finding import Report
    from acker_redis.errors import (
        AckerError,
        BacklogError,
        BufferFullError,
        ChangedBatchError,
        ClosedError,
        ConfigError,
        DataLossError,
        DuplicateMessageError,
        EmbeddedServerError,
        FenceError,
        FenceFullError,
        HighWaterError,
        InvalidBatchError,
        LaneError,
        MissingExtraError,
        NamespaceExistsError,
        NamespaceNotFoundError,
        RedisRefusedError,
        RedisUnavailableError,
        RejectedError,
        ReshardError,
        SchemaError,
        WrongShardError,
    )
    from acker_redis.flows.browse import BlockEntry, Found, OldestTree, PageCursor, TreePage
    from acker_redis.flows.waits import EdgeWaits, Waits
    from acker_redis.missing.explain import Explanation, explain
    from acker_redis.protocol.config import AckerConfig
    from acker_redis.protocol.functions import use_functions
    from acker_redis.protocol.id_maker import IdMaker
    from acker_redis.protocol.ids import (
        block_anchor,
        format_tuple,
        new_anchor,
        new_tuple_id,
        parse_tuple,
        split_anchor,
    )
    from acker_redis.protocol.outcome import BlockOutcome, Entry, Outcome
    from acker_redis.protocol.status import Status
    from acker_redis.protocol.tree import BlockState, TreeState
    from acker_redis.rotator.rotator import Rotator
    from acker_redis.sync.bolt import Bolt, Handle
    from acker_redis.sync.bolt_batch import BatchHandle
    from acker_redis.sync.client import Acker
    from acker_redis.sync.outcomes import Outcomes
    from acker_redis.sync.producer import Producer
    from acker_redis.sync.source import Source
    from acker_redis.trees.frontier import Failures, Frontier, Pin, Quarantined
    from acker_redis.trees.group import GroupResult
    from acker_redis.trees.message_id import MessageId
    from acker_redis.trees.pending import Backoff, Record, Verdict
    from acker_redis.trees.processing import OpenTree, Processing, emit
    from acker_redis.trees.rotating_map import RotatingMap

__all__ = [
    "Acker",
    "AckerConfig",
    "AckerError",
    "Applied",
    "BacklogError",
    "Backoff",
    "Batch",
    "BatchHandle",
    "BlockEntry",
    "BlockOutcome",
    "BlockState",
    "Bolt",
    "BufferFullError",
    "ChangedBatchError",
    "ClosedError",
    "ColumnBatch",
    "ConfigError",
    "DataLossError",
    "DuplicateMessageError",
    "EdgeWaits",
    "EmbeddedServerError",
    "Entry",
    "Explanation",
    "Failures",
    "FenceError",
    "FenceFullError",
    "Found",
    "Frontier",
    "GroupResult",
    "Handle",
    "HighWaterError",
    "IdMaker",
    "InvalidBatchError",
    "LaneError",
    "MessageId",
    "MissingExtraError",
    "NamespaceExistsError",
    "NamespaceNotFoundError",
    "OldestTree",
    "OpenTree",
    "Outcome",
    "Outcomes",
    "PageCursor",
    "Pin",
    "Processing",
    "Producer",
    "Quarantined",
    "Record",
    "RedisRefusedError",
    "RedisUnavailableError",
    "RejectedError",
    "Report",
    "ReshardError",
    "RotatingMap",
    "Rotator",
    "SchemaError",
    "Source",
    "Status",
    "TreePage",
    "TreeState",
    "Verdict",
    "Waits",
    "WrongShardError",
    "block_anchor",
    "emit",
    "examine",
    "explain",
    "format_tuple",
    "new_anchor",
    "new_tuple_id",
    "parse_tuple",
    "split_anchor",
    "use_functions",
]

_MODULES = {
    "Acker": "sync.client",
    "AckerConfig": "protocol.config",
    "AckerError": "errors",
    "Applied": "batching.sent",
    "BacklogError": "errors",
    "Backoff": "trees.pending",
    "Batch": "batching.batch",
    "BatchHandle": "sync.bolt_batch",
    "BlockEntry": "flows.browse",
    "BlockOutcome": "protocol.outcome",
    "BlockState": "protocol.tree",
    "Bolt": "sync.bolt",
    "BufferFullError": "errors",
    "ChangedBatchError": "errors",
    "ClosedError": "errors",
    "ColumnBatch": "batching.column_batch",
    "ConfigError": "errors",
    "DataLossError": "errors",
    "DuplicateMessageError": "errors",
    "EmbeddedServerError": "errors",
    "Entry": "protocol.outcome",
    "Failures": "trees.frontier",
    "FenceError": "errors",
    "FenceFullError": "errors",
    "Found": "flows.browse",
    "Frontier": "trees.frontier",
    "GroupResult": "trees.group",
    "Handle": "sync.bolt",
    "HighWaterError": "errors",
    "InvalidBatchError": "errors",
    "LaneError": "errors",
    "MissingExtraError": "errors",
    "MessageId": "trees.message_id",
    "ReshardError": "errors",
    "NamespaceExistsError": "errors",
    "NamespaceNotFoundError": "errors",
    "OldestTree": "flows.browse",
    "OpenTree": "trees.processing",
    "Outcome": "protocol.outcome",
    "Outcomes": "sync.outcomes",
    "PageCursor": "flows.browse",
    "Pin": "trees.frontier",
    "Processing": "trees.processing",
    "Producer": "sync.producer",
    "Quarantined": "trees.frontier",
    "Record": "trees.pending",
    "RedisRefusedError": "errors",
    "RedisUnavailableError": "errors",
    "RejectedError": "errors",
    "Report": "doctor.finding",
    "RotatingMap": "trees.rotating_map",
    "Rotator": "rotator.rotator",
    "SchemaError": "errors",
    "Source": "sync.source",
    "Status": "protocol.status",
    "TreePage": "flows.browse",
    "TreeState": "protocol.tree",
    "Verdict": "trees.pending",
    "WrongShardError": "errors",
    "block_anchor": "protocol.ids",
    "emit": "trees.processing",
    "examine": "doctor.examination",
    "format_tuple": "protocol.ids",
    "new_anchor": "protocol.ids",
    "new_tuple_id": "protocol.ids",
    "parse_tuple": "protocol.ids",
    "split_anchor": "protocol.ids",
    "EdgeWaits": "flows.waits",
    "Explanation": "missing.explain",
    "IdMaker": "protocol.id_maker",
    "Waits": "flows.waits",
    "explain": "missing.explain",
    "use_functions": "protocol.functions",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that ``acker-redis --help`` imports no redis-py."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
