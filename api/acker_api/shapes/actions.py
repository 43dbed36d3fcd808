"""Shapes of requests and responses: namespaces, ticks, sessions and the audit log."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from acker_api.acting.audit import Record
from acker_api.acting.drain import Ticked
from acker_api.auth.tokens import Who
from acker_redis import AckerConfig
from acker_redis.operate import MAX_EDGES, NAME, RANGES, Refresh
from acker_redis.operate.status import Configuration

_DEFAULTS = AckerConfig()
_TARGET = "Percentage of trees that must complete in time, with at most 3 decimals"
_WITHIN = "Time in which a tree must complete to count as good; 0: before it expires"
EdgeName = Annotated[str, Field(pattern=rf"^{NAME}$")]


def _new(name: str, **more: Any) -> Any:
    """Return the field of a whole number, with its default and its range."""
    low, high = RANGES[name]
    return Field(default=getattr(_DEFAULTS, name), ge=low, le=high, **more)


def _change(name: str, low: int = 1, **more: Any) -> Any:
    """Return the field of a whole number that a request may change."""
    return Field(default=None, ge=low, le=RANGES[name][1], **more)


class NewNamespace(BaseModel):
    """A namespace to create; an omitted field has its default, or is as it is if it exists."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "example": {
                "name": "orders",
                "shards": 4,
                "tick_ms": 60000,
                "edges": ["paid", "packed"],
            }
        },
    )

    name: str = Field(pattern=rf"^{NAME}$")
    shards: int = _new("shards", description="A power of two")
    buckets: int = _new("buckets")
    tick_ms: int = _new("tick_ms")
    high_water: int = _new("high_water")
    refresh: Refresh = Field(
        default="never", description="`update`: every row resets the timeout, up to the deadline"
    )
    deadline_ms: int = _new(
        "deadline_ms",
        description="With `refresh` `update`: maximum age of a tree, at least `buckets` ticks",
    )
    outcomes_limit: int = _new("outcomes_limit")
    publish: bool = True
    edges: list[EdgeName] = Field(
        default=[],
        max_length=MAX_EDGES,
        description="Different names of the ways on which messages go from one step to the next; "
        "they cannot be changed later",
    )
    slo_target: float = Field(default=_DEFAULTS.slo_target, ge=50, lt=100, description=_TARGET)
    slo_ms: int = _new("slo_ms", description=_WITHIN)

    def given(self) -> dict[str, Any]:
        """Return the settings in the request, as fields of AckerConfig."""
        given = self.model_dump(exclude={"name"}, exclude_unset=True)
        return {**given, "edges": tuple(self.edges)} if "edges" in given else given


class Created(BaseModel):
    """A namespace that exists now."""

    name: str = Field(examples=["orders"])
    href: str = Field(description="Path of its state", examples=["/api/v1/namespaces/orders"])
    created: bool = Field(description="false: it existed already, with this configuration")
    config: Configuration


class Changes(BaseModel):
    """Settings to change of a namespace in use; an omitted one stays as it is."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,  # true must not count as 1: a high-water mark of 1 would stop everything
        json_schema_extra={"example": {"high_water": 2_000_000}},
    )

    high_water: int | None = _change("high_water")
    tick_ms: int | None = _change("tick_ms")
    outcomes_limit: int | None = _change("outcomes_limit")
    deadline_ms: int | None = _change(
        "deadline_ms",
        description="Only with `refresh` `update`; it holds from the next row of each tree on",
    )
    slo_target: float | None = Field(default=None, ge=50, lt=100, description=_TARGET)
    slo_ms: int | None = _change(
        "slo_ms", 0, description=f"{_WITHIN}; for trees that end from now on"
    )


class Rotation(BaseModel):
    """The result of a forced tick."""

    shards: int = Field(examples=[4])
    ticked: int = Field(
        description="Shards that ticked; the others have too much left to drain", examples=[4]
    )
    expired: int = Field(description="Trees that were nacked", examples=[12])
    acked: int = Field(description="Trees of blocks that were complete", examples=[0])
    orphaned: int = Field(description="Records without a tree that were deleted", examples=[0])
    left: int = Field(description="Records and blocks left to the rotators", examples=[0])

    @classmethod
    def of(cls, ticked: Ticked) -> "Rotation":
        """Convert a result."""
        return cls(**asdict(ticked))


class Session(BaseModel):
    """The caller, and its rights."""

    needed: bool = Field(description="Whether the service requires a token")
    role: Literal["metrics", "viewer", "operator", "admin"] | None = Field(
        description="null: no token yet; log in first"
    )
    namespaces: list[str] | None = Field(
        description="Names, and prefixes that end with *; null: all, if there is a role",
        examples=[["orders", "shop-*"]],
    )
    who: str | None = Field(description="Name of the token", examples=["alice"])

    @classmethod
    def of(cls, who: Who | None, needed: bool) -> "Session":
        """Convert a caller; None for an unknown one."""
        if not who:
            return cls(needed=needed, role=None, namespaces=None, who=None)
        names = None if who.namespaces is None else list(who.namespaces)
        return cls(needed=needed, role=who.role.value, namespaces=names, who=who.name)


class Login(BaseModel):
    """A token that begins a session."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    token: SecretStr = Field(max_length=1000)


class AuditEntry(BaseModel):
    """An action that was done, failed or was refused."""

    id: str = Field(description="Unique in its namespace", examples=["1700000000000-0"])
    at_ms: int = Field(description="By Redis's clock", examples=[1_700_000_000_000])
    who: str = Field(description="Name of the token", examples=["alice"])
    action: str = Field(examples=["fail_tree"])
    namespace: str = Field(examples=["orders"])
    target: str = Field(description="Anchor, or another target", examples=["4711"])
    before: dict[str, Any] | None = Field(description="State before", examples=[{"state": "open"}])
    after: dict[str, Any] | None = Field(description="Result", examples=[{"failed": 1}])
    result: str = Field(
        description="done, failed or refused; begun: the action is running, or its result is "
        "unknown because the service or Redis ended in between",
        examples=["done"],
    )
    why: str = Field(description="Why it was refused or failed", examples=[""])

    @classmethod
    def of(cls, record: Record) -> "AuditEntry":
        """Convert a record."""
        return cls(
            id=record.id,
            at_ms=record.at_ms,
            **asdict(record.deed),
            before=None if record.before is None else dict(record.before),
            after=None if record.after is None else dict(record.after),
            result=record.result,
            why=record.why,
        )


class AuditLog(BaseModel):
    """Entries, newest first; each is kept for 7 days at least, and for 90 by default."""

    entries: list[AuditEntry]
    next: str | None = Field(
        description="`before` of the next page, with older entries; null: there are none",
        examples=["1700000000000-0:orders"],
    )
