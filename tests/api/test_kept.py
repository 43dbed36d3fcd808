"""A single-flight cache, with a clock of the test."""

import asyncio

import pytest

from acker_api.http.services import kept_longer
from acker_api.reading.canary import Flight
from acker_api.reading.health import Readiness
from acker_api.reading.kept import Kept, KeptEach


class Made:
    """A counter; each value is made when ``go`` is set."""

    def __init__(self) -> None:
        self.count, self.now, self.go = 0, 0.0, asyncio.Event()
        self.fail = False

    async def __call__(self) -> int:
        self.count += 1
        await self.go.wait()
        if self.fail:
            raise ValueError("not this time")
        return self.count


def test_concurrent_callers_share_one_call() -> None:
    async def run() -> None:
        made = Made()
        kept = Kept(made)
        asking = [asyncio.create_task(kept.get()) for _ in range(5)]
        await asyncio.sleep(0)
        asking[0].cancel()
        made.go.set()
        assert await asyncio.gather(*asking[1:]) == [1] * 4
        assert asking[0].cancelled(), "its cancellation does not affect the others"
        assert await kept.get() == 2, "nothing is cached after the call"

    asyncio.run(run())


def test_value_is_cached_for_its_time() -> None:
    async def run() -> None:
        made = Made()
        made.go.set()
        kept = Kept(made, 1.0, lambda: made.now)
        assert [await kept.get(), await kept.get()] == [1, 1]
        made.now = 0.99
        assert await kept.get() == 1
        made.now = 1.0
        assert await kept.get() == 2

    asyncio.run(run())


def test_error_goes_to_all_callers_and_is_not_cached() -> None:
    async def run() -> None:
        made = Made()
        made.fail = True
        kept = Kept(made, 1000.0)
        asking = [asyncio.create_task(kept.get()) for _ in range(2)]
        made.go.set()
        for each in asking:
            with pytest.raises(ValueError, match="not this time"):
                await each
        made.fail = False
        assert await kept.get() == 2

    asyncio.run(run())


def test_stale_value_is_returned_during_the_next_call() -> None:
    async def run() -> None:
        made = Made()
        made.go.set()
        kept = Kept(made, 1.0, lambda: made.now, stale=5.0)
        assert await kept.get() == 1
        made.now = 1.0
        made.go.clear()
        assert await kept.get() == 1
        await asyncio.sleep(0)
        assert (await kept.get(), made.count) == (1, 2)
        made.go.set()
        for _ in range(3):
            await asyncio.sleep(0)
        assert await kept.get() == 2
        made.now = 8.0
        assert await kept.get() == 3, "too old to be returned"

    asyncio.run(run())


def test_expensive_value_is_cached_longer() -> None:
    async def run() -> None:
        made = Made()
        kept = Kept(made, 1.0, clock=lambda: made.now, longer=lambda _, took: 10 * took)
        asking = asyncio.create_task(kept.get())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        made.now = 0.5  # the duration of the call
        made.go.set()
        assert await asking == 1
        made.now = 5.4
        assert await kept.get() == 1
        made.now = 5.6
        assert await kept.get() == 2
        made.now = 6.7
        assert await kept.get() == 3, "a fast call is cached for a second"

    asyncio.run(run())


def test_only_good_readiness_is_cached_longer() -> None:
    """After a hang of seconds Redis may be back: a bad answer is not cached ten times as long."""
    assert kept_longer(Readiness(1, Flight("ok")), 0.3) == 3
    assert kept_longer(Readiness(1, Flight("ok")), 5) == 10
    assert kept_longer(Readiness(1, Flight("ok"), redis="it hangs"), 5) == 0
    assert kept_longer(Readiness(1, Flight("failed", "no verdict")), 5) == 0
    assert kept_longer(Readiness(1, Flight("ok"), wrong=(("orders", "late"),)), 5) == 0


def test_least_recent_names_are_evicted() -> None:
    asked: list[str] = []

    async def make(name: str) -> str:
        asked.append(name)
        return name.upper()

    async def run() -> None:
        kept = KeptEach(make, 1000.0, most=2)
        for name in ("a", "b", "a", "c", "a", "b"):
            assert await kept.get(name) == name.upper()
        assert asked == ["a", "b", "c", "b"]
        await kept.close()

    asyncio.run(run())


def test_close_cancels_the_running_call() -> None:
    async def run() -> None:
        made = Made()
        kept = Kept(made)
        asking = asyncio.create_task(kept.get())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await kept.close()
        assert made.count == 1
        with pytest.raises(asyncio.CancelledError):
            await asking
        await Kept(made).close()

    asyncio.run(run())
