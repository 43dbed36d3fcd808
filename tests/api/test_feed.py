"""The subscription is renewed at once, and with growing pauses while Redis ends it each time."""

import asyncio
from types import SimpleNamespace

import pytest

from acker_api.live import feed as live_feed
from acker_api.live.feed import PAUSES, STEADY, Feed
from acker_redis.errors import AckerError, RedisUnavailableError


class _Hears:
    def heard(self, channel: bytes, message: bytes) -> None: ...
    def changed(self) -> None: ...
    def late(self, error: AckerError) -> None: ...


@pytest.mark.parametrize(
    ("steady", "pauses"),
    [(STEADY + 1, [PAUSES[0]] * 6), (0.1, [0.1, 0.2, 0.4, 0.8, 1.6, PAUSES[1]])],
)
def test_subscription_that_ends_again_and_again_pauses_longer(
    monkeypatch: pytest.MonkeyPatch, steady: float, pauses: list[float]
) -> None:
    clock, slept, sleep = [100.0], list[float](), asyncio.sleep

    async def listen(self: Feed) -> None:
        self._tell("")
        clock[0] += steady
        raise RedisUnavailableError("Redis closed the connection")

    async def pause(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(Feed, "_listen", listen)
    monkeypatch.setattr(live_feed, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(live_feed, "random", SimpleNamespace(uniform=lambda least, most: most))

    async def run() -> None:
        monkeypatch.setattr("asyncio.sleep", pause)
        feed = Feed(None, _Hears())
        while len(slept) < len(pauses):
            await sleep(0)
        await feed.close()

    asyncio.run(run())
    assert slept[: len(pauses)] == pytest.approx(pauses)
