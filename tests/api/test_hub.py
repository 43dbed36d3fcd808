"""The hub of live events without Redis: when a stream counts on a poll, and on which."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from acker_api.auth.tokens import ANYBODY
from acker_api.live import hub as live
from acker_api.live import watch as live_watch
from acker_api.live.board import Listener
from acker_api.live.hub import Hub
from acker_api.live.watch import NamespaceWatch
from acker_redis.errors import NamespaceNotFoundError
from tests.waiting import wait_until_async

STATUS: Any = SimpleNamespace(
    config=SimpleNamespace(edges=(), publish=True),
    shards=[SimpleNamespace(now_ms=1)],
    feed_tag="0" * 16,
    model_dump_json=lambda: "{}",
)


class Feed:
    """A subscription that has begun."""

    def __init__(self, *_: object) -> None:
        self.why = ""
        self.tried = asyncio.Event()
        self.tried.set()

    async def close(self) -> None:
        """Do nothing."""


class Rig:
    """A hub, and the answers of its polls."""

    def __init__(self) -> None:
        self.exists = True
        self.held = asyncio.Event()
        """While it is cleared, polls wait after they have read."""
        self.held.set()
        self.reading = 0
        self.hub = Hub(None, self._status, None)  # type: ignore[arg-type]

    async def _status(self, _: str) -> Any:
        exists = self.exists
        self.reading += 1
        await self.held.wait()
        self.reading -= 1
        if not exists:
            raise NamespaceNotFoundError("there is no namespace orders")
        return STATUS

    async def listen(self, client: str) -> Listener:
        return await self.hub.listen("orders", ANYBODY, client)

    @property
    def watch(self) -> NamespaceWatch:
        watch = self.hub.watch_of("orders")
        assert watch
        return watch

    async def drop(self) -> None:
        """Drop the namespace; return when a poll has noticed."""
        self.exists = False
        self.watch.poke()
        await wait_until_async(lambda: self.watch.error is not None)

    async def read(self) -> None:
        """Return when a poll has read, and waits with its answer."""
        self.held.clear()
        self.watch.poke()
        await wait_until_async(lambda: self.reading)


def run(talk: Callable[[Rig], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        rig = Rig()
        await talk(rig)
        await rig.hub.close()

    # Polls only when they are asked for; no stream begins without its poll.
    monkeypatch.setattr(live_watch, "PERIOD", 3600.0)
    monkeypatch.setattr(live, "FIRST", 3600.0)
    monkeypatch.setattr(live, "Feed", Feed)
    asyncio.run(main())


def events(listener: Listener) -> list[str]:
    """Return the names of the events that wait for a listener."""
    found = []
    while frame := listener.take():
        found.append(frame.partition(b"\n")[0].decode().removeprefix("event: "))
    return found


def test_poll_that_read_before_a_stream_came_does_not_answer_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def talk(rig: Rig) -> None:
        first = await rig.listen("first")
        await rig.drop()
        await rig.read()
        rig.exists = True
        second = asyncio.create_task(rig.listen("second"))
        await asyncio.sleep(0)
        rig.held.set()
        assert events(await second) == ["hello", "status"]
        assert events(first) == ["hello", "status"]

    run(talk, monkeypatch)


def test_no_stream_of_a_race_begins_without_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second stream comes when the poll of the first has ended, before the first hears so."""

    async def talk(rig: Rig) -> None:
        await rig.listen("before")
        await rig.drop()
        streams: list[asyncio.Task[Listener]] = []
        problem = rig.watch._problem

        def polled(found: Any) -> None:
            problem(found)
            if len(streams) < 2:
                streams.append(asyncio.create_task(rig.listen("second")))

        monkeypatch.setattr(rig.watch, "_problem", polled)
        streams.append(asyncio.create_task(rig.listen("first")))
        await wait_until_async(lambda: len(streams) == 2 and all(each.done() for each in streams))
        assert [type(each.exception()) for each in streams] == [NamespaceNotFoundError] * 2

    run(talk, monkeypatch)


def test_open_stream_gets_a_gap_while_another_waits_for_a_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def talk(rig: Rig) -> None:
        opened = await rig.listen("opened")
        await rig.drop()
        rig.watch.hears("the subscription failed")
        events(opened)
        rig.exists = True
        new = asyncio.create_task(rig.listen("new"))
        await asyncio.sleep(0)
        rig.watch.hears("")
        assert "gap" in events(opened)
        await new

    run(talk, monkeypatch)


def test_stream_that_waits_too_long_does_not_get_the_old_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def talk(rig: Rig) -> None:
        await rig.listen("before")
        await rig.drop()
        rig.exists = True
        rig.held.clear()
        monkeypatch.setattr(live, "FIRST", 0.01)
        stream = await rig.listen("stream")
        assert events(stream) == ["hello"]
        rig.held.set()
        await wait_until_async(lambda: rig.watch.error is None)
        assert events(stream) == ["status"]

    run(talk, monkeypatch)
