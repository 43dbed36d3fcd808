"""The verdict on an expired tree has its residual, and names the edges with odd numbers."""

import pytest

from acker_redis.protocol.outcome import Outcome
from proof.reference.acker import Reference
from tests.conformance.conftest import MakeTarget
from tests.support import (
    Target,
    block_outcomes,
    block_row,
    fail_slot,
    outcomes,
    row,
    tick,
    track,
    track_block,
)

EDGES = ("mill", "shop", "farm")
MILL, SHOP, FARM = (1 << 55 + k for k in range(3))


def expired(acker: Target) -> list[Outcome]:
    tick(acker, 3)
    found = outcomes(acker)
    assert all(outcome.cause == "idle" for outcome in found if outcome.reason == "expired")
    return found


def odd(acker: Target) -> dict[str, int]:
    """Return the expired trees by edge, '' for none, that the acker has counted."""
    if isinstance(acker, Reference):
        names = (*acker.config.edges, "")
        return {names[edge]: count for edge, count in acker.odd.items()}
    return {edge: count for edge, count in acker.status().odd.items() if count}


@pytest.mark.parametrize(
    ("missing", "edges"),
    [
        ([SHOP | 40], ("shop",)),
        ([40], ()),
        ([MILL | 40, MILL | 41], ()),
        ([MILL | 40, FARM | 41], ("mill", "farm")),
        ([MILL | 40, FARM | 41, MILL | 42, 43], ("farm",)),
        ([MILL | 40, SHOP | 41, FARM | 42], EDGES),
        ([1 << 58 | 40], ()),
    ],
)
@pytest.mark.parametrize("in_block", [False, True])
def test_residual_is_that_of_all_missing_messages(
    make_acker: MakeTarget, missing: list[int], edges: tuple[str, ...], in_block: bool
) -> None:
    acker = make_acker(edges=EDGES)
    residual = 0
    for tuple_id in missing:
        residual ^= tuple_id
    first = FARM | 99
    if in_block:
        track_block(acker, 7, [0, first, 0])
        block_row(acker, 7, {1: first ^ residual})
    else:
        track(acker, 7, first)
        row(acker, 7, first ^ residual)
    (verdict,) = [o for o in expired(acker) if o.verdict == "nack"]
    assert (verdict.reason, verdict.residual, verdict.edges) == ("expired", residual, edges)
    assert odd(acker) == dict.fromkeys(edges or [""], 1)


def test_namespace_without_edges_names_none(make_acker: MakeTarget) -> None:
    acker = make_acker()
    track(acker, 7, MILL | 40)
    (verdict,) = expired(acker)
    assert (verdict.residual, verdict.edges) == (MILL | 40, ())
    assert odd(acker) == {}


def test_block_has_the_residual_of_each_nacked_slot(make_acker: MakeTarget) -> None:
    acker = make_acker(edges=EDGES)
    track_block(acker, 7, [MILL | 1, SHOP | 2, FARM | 3, MILL | 4, 5])
    fail_slot(acker, 7, 3, "torn")
    block_row(acker, 7, {2: FARM | 3})
    block_outcomes(acker)
    tick(acker, 3)
    (block,) = block_outcomes(acker)
    assert (block.nacked, block.failed) == ((0, 1, 4), (3,))
    assert block.residuals == (MILL | 1, SHOP | 2, 5)
    assert [o.edges for o in block.expand() if o.verdict == "nack"] == [("mill",), ("shop",), ()]
    assert odd(acker) == {"mill": 1, "shop": 1, "": 1}


def test_other_verdicts_have_no_residual(make_acker: MakeTarget) -> None:
    acker = make_acker(edges=EDGES)
    track(acker, 7, MILL | 40)
    row(acker, 7, MILL | 40)
    track(acker, 8, SHOP | 40)
    track(acker, 8, SHOP | 41)
    found = outcomes(acker)
    assert [o.reason for o in found] == ["completed", "conflict"]
    assert all((o.cause, o.residual, o.idle_ms, o.edges) == ("", 0, 0, ()) for o in found)
