"""The doctor waits for as long as it takes: how fast the machine is says nothing about a test."""

import pytest

from acker_redis.doctor import canary, reading_namespaces
from tests.waiting import LIMIT


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent again, and a verdict that is to be heard, may take longer than in earnest."""
    monkeypatch.setattr(canary, "_HEARD_WITHIN", LIMIT)
    for module in (canary, reading_namespaces):
        monkeypatch.setattr(module, "_RETRY_FOR", LIMIT)
