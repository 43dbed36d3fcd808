"""Who may not end trees sees no id of a message, and no XOR of ids.

A checksum is the XOR of all outstanding ids. One row of that number completes the tree, so it is
worth as much as all of its messages.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest

from acker_api.dashboard.site import LATEST
from acker_api.http.access import _names
from acker_api.live.stream import EventStream
from acker_redis.embedded import EmbeddedRedis
from tests.api.service import HOST, bearer
from tests.api.streams import Stream, streaming
from tests.conftest import MakeAcker
from tests.outstanding import World, leaks

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


async def act(client: httpx.AsyncClient, trees: str) -> None:
    """Touch and fail trees as an operator, for the audit log."""
    for path, body in (
        (f"{trees}/7/touch", None),
        (f"{trees}/20/fail", {"why": "by hand"}),
        (f"{trees}/fail", {"filter": {"source_id": "open-21"}, "dry_run": False}),
    ):
        answer = await client.post(path, json=body, headers=bearer(ROLES["operator"]))
        assert answer.status_code == 200, answer.text


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
            await act(client, f"/api/v1/namespaces/{namespace}/trees")
            for template, path in requests:
                answer = await client.get(path)
                assert answer.status_code == 200, (path, answer.text)
                found[template] = found.get(template, "") + f"{answer.headers}\n{answer.text}\n"
        assert set(found) == {template for template, _ in all_}
        return found


def test_no_answer_event_or_log_line_shows_a_viewer_ids_of_messages(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world = World(make_any_acker(edges=("mill", "shop"), slo_ms=1000))
    found = asyncio.run(walk(any_server.url, world, "viewer"))
    found["log"] = "\n".join(f"{each.getMessage()} {each.__dict__}" for each in caplog.records)
    for word in (
        "open-7",
        "expired block",
        '"idle"',
        '"shop"',
        "torn",
        "fail_trees",
        "acker_trees_total",
    ):
        assert any(word in text for text in found.values()), word
    assert not leaks(found, world.needles())


def test_operators_see_checksums_and_residuals(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    world = World(make_any_acker(edges=("mill", "shop"), slo_ms=1000))
    found = asyncio.run(walk(any_server.url, world, "operator"))
    assert leaks(found, world.needles()) == SHOWN
