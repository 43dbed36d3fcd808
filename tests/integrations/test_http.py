"""Requests between real servers: acks, failures, children, services without the middleware."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from acker_redis import Acker, AckerConfig, Batch, ConfigError, Record, Source, emit
from acker_redis.aio import AsyncAcker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.http import TrackedRequests, TrackedTransport, current_handle
from tests.integrations import http


class Shop(NamedTuple):
    """A running service, and the acker of its namespace."""

    acker: Acker
    client: httpx.Client
    file: Path

    def run(self, path: str) -> tuple[str, str, list[str]]:
        """Send a request as a source; return the verdict, the reason and the steps done."""

        def send(_: Record, ids: Any) -> None:
            with suppress(httpx.HTTPError):  # the verdict is then that of the service
                self.client.post(path, headers=ids[0].to_headers())

        source = Source(self.acker, "shop", send, attempts=1)
        source.emit(uuid.uuid4().hex)
        (verdict,) = source.verdicts(until_closed=True)
        return verdict.verdict, verdict.why or verdict.reason, self.steps(verdict.anchor)

    def steps(self, anchor: int | str) -> list[str]:
        lines = [line.split(" ", 1) for line in self.file.read_text().splitlines()]
        return sorted(step for who, step in lines if who == str(anchor))


@pytest.fixture(scope="module")
def shop(any_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    file, namespace = tmp_path_factory.mktemp("http") / "done", f"http-{uuid.uuid4().hex[:8]}"
    file.touch()
    port, other = http.free_port(), http.free_port()
    base = f"http://127.0.0.1:{port}"
    app = http.make(any_server.url, namespace, file, base, f"http://127.0.0.1:{other}")
    with Acker.from_url(any_server.url, namespace, timeout=60) as acker:
        acker.create(AckerConfig(edges=("price", "ship")))
        with (
            http.running(app, port),
            http.running(http.untracked(), other),
            httpx.Client(base_url=base, timeout=60) as client,
        ):
            yield Shop(acker, client, file)


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("/ship", ["shipped"]),
        ("/price/hat", ["priced", "shipped", "shipped"]),
        ("/blocking", ["blocking", "shipped"]),
        ("/later", ["later", "shipped"]),
        ("/moved", ["moved", "shipped"]),
        ("/calls?path=/ship", ["called", "shipped"]),  # it passes all of its headers on
        ("/elsewhere", ["asked"]),
        ("/mounted/ship", ["shipped"]),  # both applications have the middleware
        ("/elsewhere?path=/nowhere", ["asked"]),
    ],
)
def test_request_is_acked_when_it_and_its_children_are_processed(
    shop: Shop, path: str, steps: list[str]
) -> None:
    assert shop.run(path) == ("ack", "completed", steps)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/price/poison", "ValueError: no such address"),
        ("/refused", "POST /refused: 422 Unprocessable"),
        ("/nowhere", "POST /nowhere: 404 Not Found"),
        ("/late-failure", "ValueError: no ink"),
        ("/settled", "no such address"),
        ("/calls?path=/refused", "POST /refused: 422 Unprocessable"),
        ("/torn", "ValueError: torn"),
        ("/careless?at=http://127.0.0.1:1/", "POST http://127.0.0.1:1/: ConnectError:"),
        ("/elsewhere?path=/torn", "RemoteProtocolError"),
        ("/elsewhere?path=/gateway", "/gateway: 502 Bad Gateway"),
        ("/impatient", "/slow: CancelledError"),
    ],
)
def test_request_that_fails_fails_its_tree_by_name(shop: Shop, path: str, why: str) -> None:
    verdict, found, _ = shop.run(path)
    assert verdict == "nack"
    assert why in found


def test_request_without_an_answer_fails_although_its_handler_goes_on(shop: Shop) -> None:
    verdict, why, steps = shop.run("/careless?at=/slow")
    assert (verdict, steps) == ("nack", ["careless"])
    assert "/slow: ReadTimeout" in why


def test_request_whose_client_leaves_in_mid_stream_fails(shop: Shop) -> None:
    def send(_: Record, ids: Any) -> None:
        with shop.client.stream("POST", "/cut", headers=ids[0].to_headers()) as answer:
            assert next(answer.iter_raw()) == b"x"

    source = Source(shop.acker, "shop", send, attempts=1)
    source.emit("order-1")
    (verdict,) = source.verdicts(until_closed=True)
    assert verdict.verdict == "nack"
    assert "ended early" in verdict.why
    assert not shop.steps(verdict.anchor)


def test_requests_without_an_id_are_not_tracked(shop: Shop) -> None:
    answer = shop.client.post("/price/hat")
    assert answer.status_code == 200
    assert "acker-tracked" not in answer.headers
    assert shop.steps("untracked") == ["priced", "shipped", "shipped"]


def test_malformed_header_and_one_with_too_many_ids_are_refused(shop: Shop) -> None:
    answer = shop.client.post("/ship", headers={"acker-tuple": "7"})
    assert answer.status_code == 400
    assert answer.text.startswith("Bad request: ")
    many = ",".join(f"{n}:1" for n in range(1, 102))
    answer = shop.client.post("/ship", headers={"acker-tuple": many})
    assert (answer.status_code, answer.headers["acker-tracked"]) == (400, "refused")
    assert "at most 100 trees, not 101" in answer.text
    with pytest.raises(ConfigError, match="max_trees"):
        TrackedRequests(http.untracked(), AsyncAcker.from_url("redis://", "a"), max_trees=0)


def test_tracked_client_outside_of_a_request_is_a_plain_client(shop: Shop) -> None:
    with httpx.Client(
        base_url=shop.client.base_url, transport=TrackedTransport(hosts=[])
    ) as client:
        assert client.post("/ship").status_code == 200
    with pytest.raises(ConfigError, match="handler of a request"):
        current_handle()


def test_middleware_needs_an_asyncio_acker(shop: Shop) -> None:
    with pytest.raises(ConfigError):
        TrackedRequests(http.untracked(), shop.acker)  # type: ignore[arg-type]


@pytest.mark.parametrize("loops", ["one event loop", "an event loop for each start"])
def test_app_that_starts_again_acks_its_requests(
    any_server: EmbeddedRedis, orders: Acker, tmp_path: Path, loops: str
) -> None:
    """As with two test clients of one app. Many requests compete for the locks of a client."""
    app = http.make(any_server.url, orders.namespace, tmp_path / "done", "http://unused")
    names = [str(n) for n in range(50)]

    async def serve() -> None:
        batch, trees = Batch("shop"), [emit(name, ids=orders.ids) for name in names]
        for tree in trees:
            batch.add(tree.row)
        orders.apply(batch)
        transport = httpx.ASGITransport(app)
        async with (
            http.started(app),
            httpx.AsyncClient(base_url="http://app", transport=transport) as client,
        ):
            headers = [tree.ids[0].to_headers() for tree in trees]
            sent = [client.post("/ship", headers=each) for each in headers]
            assert all(answer.is_success for answer in await asyncio.gather(*sent))
        found = {each.source_id: each.verdict for each in orders.outcomes("shop")}
        assert found == dict.fromkeys(names, "ack")

    async def serve_again() -> None:
        await serve()
        await serve()

    if loops == "one event loop":
        asyncio.run(serve_again())
    else:
        asyncio.run(serve())
        asyncio.run(serve())
