"""The sentence about an expired tree."""

from typing import Any

import pytest

from acker_redis.protocol.outcome import Outcome
from acker_redis.protocol.why import why_expired


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"edges": ("plane",)}, "no ack on edge plane; last row 41 s ago, of 90 s"),
        (
            {"edges": ("mill", "plane"), "idle_ms": 999, "age_ms": 1_000},
            "no ack on edges mill, plane; last row 999 ms ago, of 1 s",
        ),
        ({}, "no ack; last row 41 s ago, of 90 s"),
        (
            {"cause": "deadline", "edges": ("plane",), "idle_ms": 1_540, "age_ms": 3_600_400},
            "deadline reached, no ack on edge plane; last row 1.54 s ago, of 3600 s",
        ),
    ],
)
def test_why_expired(fields: dict[str, Any], words: str) -> None:
    given = {"cause": "idle", "residual": 40, "idle_ms": 41_000, "age_ms": 90_000, **fields}
    assert why_expired(Outcome("nack", "expired", 7, "order-1", why="", **given)) == words


def test_another_outcome_did_not_expire() -> None:
    assert why_expired(Outcome("nack", "failed", 7, "order-1", 5, "no such address")) == ""
