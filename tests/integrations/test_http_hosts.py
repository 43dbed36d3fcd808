"""Which hosts get ids and are believed: the transports, and a function as a service."""

import asyncio
from collections.abc import Callable, Iterator
from functools import reduce
from operator import xor
from typing import Any

import httpx
import pytest

from acker_redis import ConfigError
from acker_redis.integrations.core.work import Work
from acker_redis.integrations.http import TrackedAsyncTransport, TrackedTransport
from acker_redis.integrations.http.work import Request
from acker_redis.protocol.rows import FAIL
from acker_redis.trees.message_id import MessageId

HOSTS = ["shipping", "*.shop.internal"]
Service = Callable[[httpx.Request], httpx.Response]
Get = Callable[[Service, str], None]


def get(service: Service, url: str) -> None:
    transport = TrackedTransport(httpx.MockTransport(service), hosts=HOSTS)
    with httpx.Client(transport=transport, follow_redirects=True) as client:
        client.get(url, headers={"acker-tuple": "1:2"})  # of the handler's own request


def get_async(service: Service, url: str) -> None:
    async def send() -> None:
        transport = TrackedAsyncTransport(httpx.MockTransport(service), hosts=HOSTS)
        async with httpx.AsyncClient(transport=transport, follow_redirects=True) as client:
            await client.get(url, headers={"acker-tuple": "1:2"})

    asyncio.run(send())


@pytest.fixture
def work() -> Iterator[Work[Request]]:
    """A request with the id 7:40 in process."""
    with Work(Request(None), "7:40") as found:
        yield found


@pytest.mark.parametrize("send", [get, get_async])
@pytest.mark.parametrize(
    ("host", "mark", "gets_id", "effect"),
    [
        ("shipping:8000", {"acker-tracked": "yes"}, True, "waits"),
        ("eu.shop.internal", {"acker-tracked": "yes"}, True, "waits"),
        ("shipping", {"acker-tracked": "refused"}, True, "fails"),
        ("shipping", {}, True, "done"),
        ("api.example.com", {}, False, "done"),
        ("api.example.com", {"acker-tracked": "yes"}, False, "done"),
        ("api.example.com", {"acker-tracked": "refused"}, False, "done"),
        ("notshop.internal", {"acker-tracked": "yes"}, False, "done"),
    ],
)
def test_only_named_hosts_get_ids_and_are_believed(
    work: Work[Request], send: Get, host: str, mark: dict[str, str], gets_id: bool, effect: str
) -> None:
    seen: list[MessageId] = []

    def service(request: httpx.Request) -> httpx.Response:
        seen.append(MessageId.from_headers(request.headers))
        return httpx.Response(400, headers=mark)

    send(service, f"http://{host}/parcels")
    (child,) = seen
    rows = work.rows()
    assert list(child) == ([7] if gets_id else [])
    assert (rows[0].flags == FAIL) == (effect == "fails")
    if effect != "fails":
        assert reduce(xor, (row.delta for row in rows)) == 40 ^ (
            child[7] if effect == "waits" else 0
        )


@pytest.mark.parametrize("send", [get, get_async])
def test_redirect_to_another_host_takes_no_id_along(work: Work[Request], send: Get) -> None:
    seen: dict[str, bool] = {}

    def service(request: httpx.Request) -> httpx.Response:
        seen[request.url.host] = "acker-tuple" in request.headers
        if request.url.host == "shipping":
            return httpx.Response(307, headers={"location": "http://api.example.com/"})
        return httpx.Response(200)

    send(service, "http://shipping/")
    assert seen == {"shipping": True, "api.example.com": False}
    assert [row.flags for row in work.rows()] == [0, 0, 0]


@pytest.mark.parametrize(
    "hosts",
    ["shipping", [""], ["http://shipping"], ["shipping:80"], ["a/b"], ["*.*.com"], [7], ["*x"]],
)
@pytest.mark.parametrize("kind", [TrackedTransport, TrackedAsyncTransport])
def test_list_of_hosts_with_other_values_is_refused(kind: Any, hosts: Any) -> None:
    with pytest.raises(ConfigError, match="host"):
        kind(hosts=hosts)
