"""Shapes of answers that are no status of a namespace: problems, probes, lists of names."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ProblemDetails(BaseModel):
    """A problem (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "urn:acker-redis:problem:namespace-not-found",
                "title": "Not Found",
                "status": 404,
                "detail": "not created: acker:{orders:0}; create it (acker-redis create), or "
                "finish dropping it (acker-redis drop)",
            }
        }
    )

    type: str = Field(description="URN that stays the same for this kind of problem")
    title: str = Field(description="The kind of problem, in words")
    status: int = Field(description="Status code of the response")
    detail: str | None = Field(default=None, description="The cause, and what to do about it")
    errors: list[dict[str, str]] | None = Field(
        default=None, description="The single errors: where, and what"
    )


class Live(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Redis accepts trees and returns verdicts, and a rotator runs."""

    status: Literal["ok"] = "ok"
    namespaces: int = Field(description="Number of namespaces", examples=[3])
    canary: Literal["ok", "denied", "off"] = Field(
        description="`ok`: a canary tree got its verdict; `denied`: the user in Redis may "
        "only read; `off`: it is switched off"
    )


class Named(BaseModel):
    """A namespace."""

    name: str = Field(examples=["orders"])
    href: str = Field(description="Path of its state", examples=["/api/v1/namespaces/orders"])


class Namespaces(BaseModel):
    """A page of namespaces, by name."""

    namespaces: list[Named]
    total: int = Field(description="Number of namespaces on all pages", examples=[1])
    next: str | None = Field(
        description="`after` of the next page; null on the last", examples=[None]
    )
