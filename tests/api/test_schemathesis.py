"""Requests that schemathesis generates from the OpenAPI schema, to a service with a real Redis.

No answer is a 500, and each answer is documented, with its media type and its shape.
"""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from acker_api import ApiSettings, create_app
from acker_redis.embedded import EmbeddedRedis
from acker_redis.ops.settings import Settings
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.api.operations import OPERATIONS
from tests.api.service import app_of
from tests.support import fail, track, track_block

NAMESPACE = "orders"
EXAMPLES = 12
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
PLACES = [operation.key for operation in OPERATIONS]


@pytest.fixture(scope="module")
def address(any_server: EmbeddedRedis) -> Iterator[str]:
    """Run the service in a thread, because its connections belong to one event loop."""
    app = app_of(any_server.url, rate_limit=0)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


@pytest.fixture
def orders(any_server: EmbeddedRedis) -> Iterator[Acker]:
    """Yield a namespace with trees of all kinds."""
    with Acker.from_url(any_server.url, NAMESPACE, timeout=60) as acker:
        acker.connection.client.flushall()
        acker.create(AckerConfig(tick_ms=3_600_000))
        for anchor in range(1, 20):
            track(acker, anchor, 40, f"s{anchor}", "shop")
        fail(acker, 1, "no")
        fail(acker, 99, "early")
        track_block(acker, 5, [40, 0], "page", "shop")
        yield acker
        acker.connection.client.flushall()


SCHEMA = schemathesis.openapi.from_dict(create_app(Settings(), ApiSettings()).openapi())


@pytest.mark.parametrize(("method", "path"), PLACES, ids=lambda each: str(each))
def test_any_request_gets_a_documented_answer(
    orders: Acker, address: str, session: requests.Session, method: str, path: str
) -> None:
    operation = SCHEMA[path][method]
    there: dict[str, Any] = {"namespace": NAMESPACE, "anchor": "7", "block": "5"}
    fixed = {name: value for name, value in there.items() if f"{{{name}}}" in path}
    cases = [
        operation.as_strategy(GenerationMode.POSITIVE, path_parameters=fixed or None),
        operation.as_strategy(GenerationMode.POSITIVE),
        operation.as_strategy(GenerationMode.NEGATIVE, path_parameters=fixed or None),
    ]

    @given(case=st.one_of(cases))
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=address, session=session, checks=CHECKS)

    ask()
