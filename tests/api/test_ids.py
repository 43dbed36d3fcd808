"""Who may not end trees sees no id of a message, and no XOR of ids.

A checksum is the XOR of all outstanding ids. One row of that number completes the tree, so it is
worth as much as all of its messages.
"""

import asyncio
import base64
import logging
import random
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import combinations
from operator import xor
from typing import Any

import httpx
import pytest

from acker_api.dashboard.site import LATEST
from acker_api.http.access import _names
from acker_api.live.stream import EventStream
from acker_redis.embedded import EmbeddedRedis
from acker_redis.sync.client import Acker
from tests.api.service import HOST, bearer
from tests.api.streams import Stream, streaming
from tests.conftest import MakeAcker
from tests.support import block_row, fail, fail_slot, row, tick, track, track_block

ROLES = {role: role[0] * 20 for role in ("viewer", "operator")}
TOKENS = "".join(
    f'[[tokens]]\nname = "{role}"\nrole = "{role}"\ntoken = "{token}"\n'
    for role, token in ROLES.items()
)
SHOWN = {
    "/api/v1/namespaces/{namespace}/trees",
    "/api/v1/namespaces/{namespace}/trees/{anchor}",
    "/api/v1/namespaces/{namespace}/blocks/{block}",
    "/api/v1/namespaces/{namespace}/outcomes",
    "/api/v1/namespaces/{namespace}/search",
    "/api/v1/namespaces/{namespace}/events",
    "/api/v1/events",
}
"""Routes that show ids to operators."""


class World:
    """A namespace with trees in every state, and the ids of their messages."""

    def __init__(self, acker: Acker) -> None:
        self.acker = acker
        self.draws = random.Random(45)
        self.trees: list[list[int]] = []
        """Of each tree, the ids of which some are outstanding."""

    def ids(self, count: int) -> list[int]:
        """Draw the ids of a tree: on edges, as the clients draw them."""
        ids = [1 << 55 + k % 2 | self.draws.getrandbits(55) for k in range(count)]
        self.trees.append(ids)
        return ids

    def sum(self, count: int) -> int:
        """Return the XOR of the ids of a new tree."""
        return reduce(xor, self.ids(count))

    def expire(self) -> None:
        """Let a loose tree and a block expire, and rows of the former come late."""
        late = self.ids(3)
        track(self.acker, 17, reduce(xor, late), "expired-17")
        track_block(self.acker, 6, [self.sum(1), self.sum(2)], "expired block")
        tick(self.acker, 3)
        row(self.acker, 17, late[0])

    def fill(self) -> None:
        """Leave pending trees, and verdicts of the other kinds."""
        acker = self.acker
        ids = self.ids(4)
        track(acker, 7, reduce(xor, ids[:3]), "open-7")
        row(acker, 7, ids[2] ^ ids[3])
        row(acker, 8, self.sum(2))
        fail(acker, 9, "early", self.sum(1))
        block = [*self.ids(3), self.sum(2)]
        track_block(acker, 5, [block[0], block[1], 0, block[3]], "open block")
        block_row(acker, 5, {0: block[0] ^ block[2]})
        fail_slot(acker, 5, 1, "torn")
        track(acker, 18, self.sum(2), "failed-18")
        fail(acker, 18, "no")
        track(acker, 19, 0, "acked-19")

    def needles(self) -> set[str]:
        """Return all ids, and all XORs of ids of one tree, in many forms."""
        return {
            form.lower()
            for ids in self.trees
            for size in range(1, len(ids) + 1)
            for some in combinations(ids, size)
            for form in forms(reduce(xor, some))
        }


def forms(number: int) -> Iterator[str]:
    """Yield parts of a number in each form: enough digits, as a number may be cut or rounded."""
    digits = str(number)
    yield from (digits[:12], f"{digits[0]}.{digits[1:12]}", f"{number:x}"[:12], f"{number:b}"[:48])
    for order in ("big", "little"):
        data = number.to_bytes(8, order)  # type: ignore[arg-type]
        yield from (data.hex()[:12], data.decode("latin-1"), repr(data)[2:-1])
        for shift in range(3):
            text = base64.b64encode(bytes(shift) + data)[-(-8 * shift // 6) : 8 * (shift + 8) // 6]
            yield from (text.decode(), text.decode().translate({43: "-", 47: "_"}))


def reads(routes: Iterable[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and route of all routes of an app that read; FastAPI may keep them in routers."""
    for route in routes:
        if hasattr(route, "original_router"):
            yield from reads(route.original_router.routes, prefix + route.include_context.prefix)
        elif "GET" in (route.methods or ()):
            yield prefix + route.path, route


def paths(template: str, route: Any, namespace: str) -> Iterator[str]:
    """Yield requests for a route: each parameter of its query once with each value.

    A new parameter needs values here, because what it shows is not tested otherwise.
    """
    places = {
        "anchor": ["7", "8", "9", "17", str(1 << 62 | 5 << 12), str(1 << 62 | 5 << 12 | 3)],
        "block": ["5"],
    }
    others = {"namespace": namespace, "version": LATEST, "path": "icon.svg", "name": "begin.js"}
    texts = ["open", "expired", "7", "17", "7:40", "failed-18", str(1 << 62 | 5 << 12)]
    values = {
        "q": texts,
        "search": [namespace],
        "namespace": [namespace],
        "source_id": ["open-7"],
        "state": ["open", "failed", "untracked", "complete"],
        "kind": ["tree", "block"],
        "verdict": ["ack", "nack"],
        "reason": ["expired", "failed"],
        "range": ["15m", "30d"],
        "format": ["json", "csv"],
        "limit": ["1"],
        "source": ["t"],
        "bucket": ["0"],
        "min_age_ms": ["0"],
        "tracked": ["true"],
        "sample": ["1000"],
        "overview": ["false"],
        "after": ["a"],
        "cursor": [],
        "before": [],
    }
    names = list(_names(route.dependant)) if hasattr(route, "dependant") else []
    required = "q=open" if "q" in names else ""
    queries = [f"?{required}", *(f"?{required}&{n}={value}" for n in names for value in values[n])]
    template = template.replace(":path}", "}")
    named = [name for name in places if f"{{{name}}}" in template]
    for value in places[named[0]] if named else [""]:
        path = template.format(**others, **dict.fromkeys(named, value))
        yield from (f"{path}{query}" for query in queries)


async def heard(stream: Stream, wanted: bool) -> str:
    """Return the events of a stream so far; if ``wanted``, up to the verdicts of what expired."""
    found = ""
    while not stream.chunks.empty() or (wanted and not is_told(found)):
        found += ((await stream.chunks.get()) or b"").decode()
    return found


def is_told(events: str) -> bool:
    return '"source_id":"expired-17"' in events and '"label":"expired block"' in events


async def walk(url: str, world: World, role: str) -> dict[str, str]:
    """Send all requests that read, and return the answers, by route."""
    found: dict[str, str] = {}
    namespace = world.acker.namespace
    async with streaming(url, tokens=TOKENS, docs=True, rate_limit=0) as service:
        all_ = list(reads(service.app.routes))
        headers = bearer(ROLES[role])
        streams, requests = list[tuple[str, str, Stream]](), list[tuple[str, str]]()
        for template, route in all_:
            for path in paths(template, route, namespace):
                if getattr(route, "response_class", None) is EventStream:
                    stream = await service.open(path, authorization=headers["Authorization"])
                    assert stream.status == 200, path
                    streams.append((template, path, stream))
                else:
                    requests.append((template, path))
        world.expire()
        world.fill()
        for template, path, stream in streams:
            events = await heard(stream, wanted=namespace in path)
            found[template] = found.get(template, "") + events
        transport = httpx.ASGITransport(service.app)
        async with httpx.AsyncClient(transport=transport, base_url=HOST, headers=headers) as client:
            for template, path in requests:
                answer = await client.get(path)
                assert answer.status_code == 200, (path, answer.text)
                found[template] = found.get(template, "") + f"{answer.headers}\n{answer.text}\n"
        assert set(found) == {template for template, _ in all_}
        return found


def leaks(texts: dict[str, str], needles: set[str]) -> set[str]:
    """Return the names of the texts that have an id."""
    return {
        name
        for name, text in texts.items()
        for low in [text.lower()]
        if any(needle in low for needle in needles)
    }


def test_no_answer_event_or_log_line_shows_a_viewer_ids_of_messages(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world = World(make_any_acker(edges=("mill", "shop"), slo_ms=1000))
    found = asyncio.run(walk(any_server.url, world, "viewer"))
    found["log"] = "\n".join(f"{each.getMessage()} {each.__dict__}" for each in caplog.records)
    for word in ("open-7", "expired block", '"idle"', '"shop"', "torn", "acker_trees_total"):
        assert any(word in text for text in found.values()), word
    assert not leaks(found, world.needles())


def test_operators_see_checksums_and_residuals(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    world = World(make_any_acker(edges=("mill", "shop"), slo_ms=1000))
    found = asyncio.run(walk(any_server.url, world, "operator"))
    assert leaks(found, world.needles()) == SHOWN
