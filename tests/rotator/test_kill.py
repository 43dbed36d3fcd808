"""Rotators are killed at random moments of their drains, under load: one verdict per tree."""

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker
from tests.rotator.reckoning import Reckoning, kill_rotators
from tests.tiers import budget
from tests.waiting import wait_until


def play(make: MakeAcker, server: EmbeddedRedis, kind: str, **how: int | bool) -> Reckoning:
    acker = make(shards=2, buckets=2, high_water=10**7)
    return kill_rotators(server, acker, kind=kind, **how)


def test_killed_rotators_lose_and_double_no_verdict(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    found = play(make_any_acker, any_server, "service", count=2, kills=budget().kills)
    assert found.trees > budget().kills
    assert found.told == {1}
    assert not found.differences


@pytest.mark.parametrize("kind", ["tells_first", "removes_first"])
def test_drain_without_scripts_fails_this_test(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, kind: str
) -> None:
    """A rotator without scripts that is killed between two steps gives two verdicts or none.

    The kill is the cause: without kills it passes.
    """

    def wrong() -> bool:
        told = play(make_any_acker, any_server, kind, count=1, kills=10).told
        least, most = min(told), max(told)
        assert least == 1 if kind == "tells_first" else most == 1
        return least == 0 or most > 1

    # A slow machine may miss the moment between the steps several times.
    wait_until(wrong, "a kill between two steps")
    assert play(make_any_acker, any_server, kind, count=1, kills=3, spare=True).told == {1}
