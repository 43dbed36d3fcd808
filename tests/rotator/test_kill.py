"""Rotators are killed at random moments of their drains, under load: one verdict per tree."""

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker
from tests.rotator.reckoning import Reckoning, kill_rotators


def play(make: MakeAcker, server: EmbeddedRedis, kind: str, **how: int | bool) -> Reckoning:
    acker = make(shards=2, buckets=2, high_water=10**7)
    return kill_rotators(server, acker, kind=kind, **how)


def test_two_hundred_kills_lose_and_double_no_verdict(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    found = play(make_any_acker, any_server, "service", count=2, kills=200)
    assert found.trees > 200
    assert found.told == {1}
    assert not found.differences


@pytest.mark.parametrize("kind", ["tells_first", "removes_first"])
def test_a_drain_in_steps_is_found_out(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, kind: str
) -> None:
    """What a rotator without scripts would do: killed between two steps, it tells twice or never.

    It is the kill that it cannot stand.
    """
    told = play(make_any_acker, any_server, kind, count=1, kills=10).told
    least, most = min(told), max(told)
    assert (least, most > 1) == (1, True) if kind == "tells_first" else (least, most) == (0, 1)
    assert play(make_any_acker, any_server, kind, count=1, kills=3, spare=True).told == {1}
