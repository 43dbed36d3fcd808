"""The operator's API, by topic: ``__init__.py`` imports each name on first use."""

# ruff: noqa: I001 - by topic
# Status and health
from acker_redis.doctor import health as health
from acker_redis.doctor.readings import Readings as Readings
from acker_redis.doctor.backlog import (
    MAX_SOURCES as MAX_SOURCES,
    OTHERS as OTHERS,
    backlog_ratio as backlog_ratio,
    most_waiting as most_waiting,
)
from acker_redis.flows.namespace_list import read_names as read_names, valid_names as valid_names
from acker_redis.protocol.growth import Growth as Growth
from acker_redis.protocol.reshard import Phase as Phase
from acker_redis.protocol.status import HighWater as HighWater

# Trees, and the edges on which they wait
from acker_redis.flows.waits import MAX_SAMPLE as MAX_SAMPLE, read_waits as read_waits
from acker_redis.protocol.ids import check_anchor as check_anchor, check_block as check_block
from acker_redis.protocol.slots import count_slots as count_slots, slots_of_hex as slots_of_hex
from acker_redis.protocol.tree import State as State

# Verdicts, and who has not taken them
from acker_redis.flows.untaken import read_untaken as read_untaken
from acker_redis.protocol.outcome import (
    Cause as Cause,
    Reason as Reason,
    VerdictKind as VerdictKind,
    odd_edges as odd_edges,
    parse_entry as parse_entry,
)
from acker_redis.transport.readers import (
    kept_by as kept_by,
    waiting_readers as waiting_readers,
)

# History and objectives
from acker_redis.flows.history import (
    History as History,
    history_of as history_of,
    losses_of as losses_of,
    objectives_of as objectives_of,
    read_base as read_base,
    read_history as read_history,
    read_slo as read_slo,
)
from acker_redis.protocol.history import Point as Point
from acker_redis.protocol.losses import Losses as Losses
from acker_redis.protocol.series import (
    Bucket as Bucket,
    Mark as Mark,
    Range as Range,
    merged_buckets as merged_buckets,
)
from acker_redis.protocol.slo import Objective as Objective
from acker_redis.protocol.tables import (
    bucket_json as bucket_json,
    history_csv as history_csv,
    objective_json as objective_json,
    objectives_csv as objectives_csv,
)

# Actions
from acker_redis.flows.drain import (
    DRAIN_RECORDS as DRAIN_RECORDS,
    Round as Round,
    ShardRotation as ShardRotation,
)
from acker_redis.flows.lane import Lane as Lane
from acker_redis.protocol.config import (
    MAX_EDGES as MAX_EDGES,
    RANGES as RANGES,
    Refresh as Refresh,
    SCHEMA as SCHEMA,
    requested_config as requested_config,
)
from acker_redis.protocol.texts import check_text as check_text

# Calls, and how they fail: flows run on AsyncConnection.drive()
from acker_redis.aio.connection import AsyncConnection as AsyncConnection
from acker_redis.flows.steps import (
    AskAll as AskAll,
    Flow as Flow,
    Pauses as Pauses,
    Run as Run,
    ask_until as ask_until,
)
from acker_redis.ops.acl import channels as channels
from acker_redis.protocol import commands as commands
from acker_redis.protocol.commands import Call as Call
from acker_redis.protocol.keys import (
    AUDIT as AUDIT,
    AUDITED as AUDITED,
    DOTS as DOTS,
    NAME as NAME,
    NAMESPACES as NAMESPACES,
    RESERVED as RESERVED,
    ShardKeys as ShardKeys,
    audit_of as audit_of,
    feed_tag as feed_tag,
)
from acker_redis.transport.bounded import is_too_large as is_too_large
from acker_redis.transport.errors import (
    FAILED as FAILED,
    code_of as code_of,
    is_denied as is_denied,
    translate as translate,
)

# The program itself
from acker_redis import logs as logs
from acker_redis.logs import Event as Event
from acker_redis.ops.settings import (
    Settings as Settings,
    read_secret as read_secret,
    settings_error as settings_error,
)
from acker_redis.terminal import complete_streams as complete_streams, plain as plain
from acker_redis.transport.urls import redact as redact
