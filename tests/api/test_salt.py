"""The salt of a namespace is secret: no answer, event, metric, log line or audit entry has it."""

import asyncio
import json
import logging

import httpx
import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.keys import AUDIT
from acker_redis.sync.client import Acker
from tests.api.operations import NEW, OPERATIONS, Operation
from tests.api.service import asked
from tests.api.streams import streaming
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import fail, tick, track, track_block


def salt_of(acker: Acker) -> str:
    salt = acker.status().shards[0].salt.reveal()
    assert len(salt) == 32
    return salt


def test_no_answer_log_or_audit_entry_has_the_salt(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    acker, dropped = make_any_acker(edges=("mill",)), make_any_acker(edges=("mill",))
    track_block(acker, 5, [1 << 55 | 40])
    salts, found = [salt_of(acker), salt_of(dropped)], list[str]()

    async def ask(client: httpx.AsyncClient, operation: Operation, anchor: int) -> httpx.Response:
        name = dropped.namespace if operation.action == "drop_namespace" else acker.namespace
        name = NEW if operation.action == "create_namespace" else name
        return await operation.ask(client, name, anchor=str(anchor))

    async def talk(client: httpx.AsyncClient) -> None:
        for anchor, operation in enumerate(OPERATIONS, 1):
            track(acker, anchor, 1 << 55 | 40)
            track(acker, 1000 + anchor, 40)
            fail(acker, 1000 + anchor, "no")
            answers = [await ask(client, operation, anchor) for _ in range(2)]
            found.extend(f"{each.headers} {each.text}" for each in answers)
        # Another configuration than that of the namespace, and an invalid one.
        other = {"name": acker.namespace, "edges": ["shop"]}
        for answer in (
            await client.post(V1, json=other),
            await client.patch(f"{V1}/{acker.namespace}/config", json={"deadline_ms": 5}),
            await client.get("/metrics"),
            await client.get("/readyz"),
            await client.get("/openapi.json"),
        ):
            found.append(f"{answer.headers} {answer.text}")

    asked(any_server.url, talk, docs=True)
    with Acker.from_url(any_server.url, NEW, timeout=60) as made:
        salts.append(salt_of(made))
    client = acker.connection.client
    for key in client.scan_iter(f"{AUDIT}*"):
        found.append(str(client.xrange(key) if client.type(key) == b"stream" else ""))
    found.extend(f"{each.getMessage()} {each.__dict__}" for each in caplog.records)
    text = "\n".join(found)
    for expected in (acker.namespace, "create_namespace", "acker_trees_total", "openapi"):
        assert expected in text
    assert not [salt for salt in salts if salt in text]
    assert '"salt"' not in text


def test_no_event_has_the_salt(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(edges=("mill",))

    async def talk() -> str:
        async with streaming(any_server.url) as service:
            streams = [
                await service.open(f"{V1}/{acker.namespace}/events"),
                await service.open("/api/v1/events"),
            ]
            found = [await streams[0].wait_for("status"), await streams[1].wait_for("namespaces")]
            track(acker, 7, 1 << 55 | 40)
            tick(acker, 3)
            found.append(await streams[0].wait_for("outcome"))
            return json.dumps([each.data for each in found])

    text = asyncio.run(talk())
    assert "expired" in text
    assert salt_of(acker) not in text
    assert '"salt"' not in text
