"""The caps that only a full server meets."""

import pytest

from acker_redis.client import Acker
from tests.support import row, track

A = 0x7777_7777


def test_at_most_a_thousand_tasks(acker: Acker) -> None:
    for i in range(1, 1001):
        track(acker, i, 0, "s", f"task{i}")
    with pytest.raises(Exception, match="at most 1000 tasks"):
        track(acker, 2000, 0, "s", "one-too-many")
    track(acker, 2001, 0, "s", "task1000")
    row(acker, 2002, A)
