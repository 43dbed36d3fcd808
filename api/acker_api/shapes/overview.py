"""Shapes of the overview: the health of all namespaces in one answer."""

from typing import Literal

from pydantic import BaseModel, Field

from acker_api.shapes.problem import ProblemDetails
from acker_redis.operate import HighWater, health
from acker_redis.operate.status import Counters, Finding


class Health(BaseModel):
    """A namespace in the overview; without ``up``, only its name, level and problem are known."""

    name: str = Field(examples=["orders"])
    up: bool = Field(description="Whether the namespace can be read")
    level: Literal["error", "warning", "ok"] = Field(
        description="The worst level of its findings; `error` if it cannot be read"
    )
    problem: ProblemDetails | None = Field(default=None, description="Why it cannot be read")
    findings: list[Finding] = Field(default=[], description="Problems, errors first")
    open: int = Field(default=0, description="Trees without a verdict", examples=[9])
    pending: int = Field(default=0, description="Places in the buckets", examples=[12])
    expiring: int = Field(
        default=0, description="Records and blocks that wait to be drained", examples=[0]
    )
    untaken: int = Field(default=0, description="Untaken verdicts", examples=[5])
    oldest_ms: int | None = Field(
        default=None,
        description="Age of the oldest pending tree, cached; 0: none; null: unknown",
        examples=[1200],
    )
    rotator: health.Rotation = "unknown"
    high_water: HighWater = "ok"
    high_water_ratio: float = Field(default=0.0, examples=[0.00012])
    lag_ms: int = Field(default=0, description="Time by which the next tick is overdue")
    resharding_to: int | None = Field(default=None, examples=[None])
    counters: Counters | None = None
    now_ms: int = Field(default=0, description="Redis's clock at its reading")


class Counts(BaseModel):
    """Namespaces by level."""

    error: int = Field(examples=[1])
    warning: int = Field(examples=[2])
    ok: int = Field(examples=[41])


class Overview(BaseModel):
    """The health of all namespaces, the worst first, then by name."""

    namespaces: list[Health]
    total: int = Field(description="Number of namespaces that match, listed or not", examples=[44])
    counts: Counts = Field(description="These by level")
    every_ms: int = Field(
        description="A judgement may become as old as this: the next survey begins after ten times "
        "the duration of the last one",
        examples=[1000],
    )
