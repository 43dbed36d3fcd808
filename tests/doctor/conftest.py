"""Long timeouts for the doctor, so that a slow machine fails no test."""

import pytest

from acker_redis.doctor import canary, reading_namespaces
from tests.waiting import LIMIT


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the timeouts of retries and of published verdicts."""
    monkeypatch.setattr(canary, "_HEARD_WITHIN", LIMIT)
    for module in (canary, reading_namespaces):
        monkeypatch.setattr(module, "_RETRY_FOR", LIMIT)
