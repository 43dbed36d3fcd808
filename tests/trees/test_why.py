"""The sentence about an expired tree."""

import doctest
from typing import Any

import pytest

from acker_redis.protocol.outcome import Outcome
from acker_redis.trees import why
from acker_redis.trees.why import why_expired


def expired(**fields: Any) -> Outcome:
    """Return the verdict of a tree that expired after 90 s, 41 s after its last row."""
    given = {"cause": "idle", "residual": 40, "idle_ms": 41_000, "age_ms": 90_000, **fields}
    return Outcome("nack", "expired", 7, "order-1", why="", **given)


def test_examples() -> None:
    assert doctest.testmod(why).failed == 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"edges": ("plane",)}, "no ack on edge plane; last row 41 s ago, of 90 s"),
        (
            {"edges": ("mill", "plane"), "idle_ms": 999, "age_ms": 1_000},
            "no ack on edges mill and plane; last row 999 ms ago, of 1 s",
        ),
        (
            {"edges": ("mill", "plane", "shop"), "idle_ms": 0},
            "no ack on edges mill, plane and shop; last row 0 ms ago, of 90 s",
        ),
        ({}, "not all messages were acked; last row 41 s ago, of 90 s"),
        ({"residual": 0}, "the block has lost its checksums; last row 41 s ago, of 90 s"),
        (
            {"cause": "deadline", "edges": ("plane",), "idle_ms": 1_540, "age_ms": 3_600_400},
            "deadline reached; no ack on edge plane; last row 1.5 s ago, of 3,600 s",
        ),
    ],
)
def test_why_expired(fields: dict[str, Any], words: str) -> None:
    assert why_expired(expired(**fields)) == words


def test_of_another_outcome_it_is_the_why_of_the_bolt() -> None:
    assert why_expired(Outcome("nack", "failed", 7, "order-1", 5, "no such address")) == (
        "no such address"
    )
    assert why_expired(Outcome("ack", "completed", 7, "order-1", 5, "")) == ""
