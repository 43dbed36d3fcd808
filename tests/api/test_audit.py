"""Who did what: all of it is written, before and after; and what cannot be written is not done."""

import asyncio
import logging
from typing import Any

import httpx
import pytest

from acker_api.audit import KEPT, REFUSALS, Audit, Deed
from acker_api.problems import Problem
from acker_api.reader import Reader
from acker_api.tokens import Role, Who
from acker_redis.connecting import connect_async
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import RedisUnavailableError
from acker_redis.keys import AUDIT, ShardKeys
from tests.api.operations import ACTIONS
from tests.api.service import asked, bearer, is_problem
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import dump, track
from tests.waiting import LIMIT

LOG = "/api/v1/audit"
ALICE, BOB, ADMIN = "alice-" * 4, "bob-" * 5, "root-" * 4
TOKENS = f"""
tokens = [
  {{name = "alice", role = "operator", token = "{ALICE}"}},
  {{name = "bob", role = "viewer", token = "{BOB}"}},
  {{name = "root", role = "admin", token = "{ADMIN}"}},
]
"""


async def entries(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    body = (await client.get(LOG, params=query, headers=bearer(ADMIN))).json()
    found: list[dict[str, Any]] = body["entries"]
    return found


def test_each_action_is_written_once_with_all_about_it(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(high_water=5)
    track(acker, 7, 40, "order-1")
    ns = acker.namespace

    async def talk(client: httpx.AsyncClient) -> None:
        one, root = bearer(ALICE), bearer(ADMIN)
        path = f"{V1}/{ns}"
        await client.post(f"{path}/trees/7/touch", headers=one)
        await client.post(f"{path}/trees/7/fail", json={"why": "by hand"}, headers=one)
        await client.post(
            f"{path}/trees/fail", json={"filter": {"task": "t"}, "dry_run": False}, headers=one
        )
        await client.patch(f"{path}/config", json={"high_water": 9}, headers=one)
        await client.post(f"{path}/rotate", headers=one)
        await client.post(V1, json={"name": "made", "tick_ms": 3_600_000}, headers=root)
        await client.delete(f"{V1}/made?confirm=made", headers=root)

        found = await entries(client)
        assert [each["result"] for each in found] == ["done"] * 7
        drop, create, rotate, configure, fail_trees, fail, touch = found
        assert (touch["who"], touch["action"], touch["target"]) == ("alice", "touch_tree", "7")
        assert touch["before"]["source_id"] == "order-1"
        assert fail["before"]["state"] == "open"
        assert fail["after"] == {"why": "by hand", "failed": 1}
        assert fail_trees["before"] == {"task": "t", "min_age_ms": 0, "state": "open", "most": 1000}
        assert (fail_trees["action"], fail_trees["after"]["matched"]) == ("fail_trees", 0)
        assert (configure["before"], configure["after"]) == ({"high_water": 5}, {"high_water": 9})
        assert rotate["before"] == {"pending_by_bucket": [0, 0, 0]}
        assert rotate["after"]["ticked"] == 1
        assert (create["who"], create["namespace"]) == ("root", "made")
        assert (create["before"], create["after"]["tick_ms"]) == (None, 3_600_000)
        assert (drop["before"]["pending"], drop["after"]) == (0, None)
        assert {each["namespace"] for each in found[2:]} == {ns}
        now = acker.status().shards[0].now_ms
        assert all(now - 60_000 < each["at_ms"] <= now for each in found)

    asked(any_server.url, talk, tokens=TOKENS)
    assert acker.connection.client.xlen(AUDIT) == 7, "what was begun has ended, and is told once"


@pytest.mark.parametrize("operation", ACTIONS, ids=lambda each: each.action)
def test_what_is_refused_and_what_fails_is_written_too(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, operation: Any
) -> None:
    acker = make_any_acker(tick_ms=77)

    async def talk(client: httpx.AsyncClient) -> None:
        await operation.ask(client, acker.namespace)  # a stranger
        refused = await operation.ask(client, acker.namespace, bearer(BOB))
        is_problem(refused, 403, "forbidden")
        acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "schema", 2)
        assert (await operation.ask(client, acker.namespace, bearer(ADMIN))).status_code == 409
        failed, by_bob = await entries(client)
        assert (by_bob["who"], by_bob["action"]) == ("bob", operation.action)
        assert by_bob["result"] == "refused"
        assert "it needs the role" in by_bob["why"]
        assert (failed["who"], failed["action"]) == ("root", operation.action)
        assert (failed["result"], failed["namespace"]) == ("failed", acker.namespace)
        assert "schema" in failed["why"]

    asked(any_server.url, talk, tokens=TOKENS)


@pytest.mark.parametrize("operation", ACTIONS, ids=lambda each: each.action)
def test_what_cannot_be_written_is_not_done(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, operation: Any
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)
    acker.connection.client.set(AUDIT, "no stream")
    before = dump(acker)

    async def talk(client: httpx.AsyncClient) -> None:
        # One that is not there yet would be created.
        name = "made" if operation.action == "create_namespace" else acker.namespace
        is_problem(await operation.ask(client, name), 502, "redis-refused")

    asked(any_server.url, talk)
    assert dump(acker) == before


def test_what_was_begun_and_broke_off_stays_begun(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)
    end = Audit.end

    async def away(self: Audit, *args: Any, **more: Any) -> None:
        async def command(*words: Any) -> Any:
            raise RedisUnavailableError("away")

        monkeypatch.setattr(self._reader, "command", command)
        await end(self, *args, **more)

    monkeypatch.setattr(Audit, "end", away)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/7/fail"
        assert (await client.post(path, json={})).json()["failed"] == 1
        (entry,) = await entries(client)
        assert (entry["result"], entry["after"]) == ("begun", None)
        assert entry["before"]["source_id"] == "s"

    asked(any_server.url, talk)


def test_an_action_ends_also_when_nobody_waits_for_it(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/7/fail"
        asking = asyncio.create_task(client.post(path, json={}))
        async with asyncio.timeout(LIMIT):
            while not acker.connection.client.xlen(AUDIT):
                await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asked(any_server.url, talk)
    ((_, fields),) = acker.connection.client.xrange(AUDIT)
    assert fields[b"result"] == b"done"
    assert acker.status().counters["failed"] == 1


def test_strangers_are_in_the_log_and_push_nothing_out(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, caplog: pytest.LogCaptureFixture
) -> None:
    acker = make_any_acker()
    caplog.set_level(logging.INFO, "acker_api")

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/rotate"
        for _ in range(3):
            is_problem(await client.post(path), 401, "unauthorized")
        for _ in range(40):
            is_problem(await client.post(path, headers=bearer(BOB)), 403, "forbidden")
        assert len(await entries(client)) == REFUSALS

    asked(any_server.url, talk, tokens=TOKENS)
    audited = [r.getMessage() for r in caplog.records if r.name == "acker_api.audit"]
    assert len([line for line in audited if "who=bob action=rotate" in line]) == 40


def test_pages_and_what_a_token_for_some_sees(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    one, other = make_any_acker(), make_any_acker()
    some = "some-" * 4
    more = (
        f'{TOKENS[:-2]}{{name="some",role="viewer",token="{some}",namespaces=["{one.namespace}"]}}]'
    )

    async def talk(client: httpx.AsyncClient) -> None:
        for acker in (one, other, one, other, one):
            path = f"{V1}/{acker.namespace}/config"
            await client.patch(path, json={"high_water": 9}, headers=bearer(ADMIN))
        whole = await entries(client)
        found: list[Any] = []
        before = ""
        while before is not None:
            query = {"limit": 2, "before": before}
            page = (await client.get(LOG, params=query, headers=bearer(ADMIN))).json()
            assert len(page["entries"]) <= 2
            found, before = found + page["entries"], page["next"]
        assert found == whole
        assert len(whole) == 5
        seen = (await client.get(LOG, headers=bearer(some))).json()["entries"]
        assert [each["namespace"] for each in seen] == [one.namespace] * 3
        wrong = await client.get(LOG, params={"before": "x"}, headers=bearer(ADMIN))
        is_problem(wrong, 422, "bad-request")

    asked(any_server.url, talk, tokens=more)


def test_it_is_bounded_and_takes_any_text(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, caplog: pytest.LogCaptureFixture
) -> None:
    # What is logged here is no UTF-8, and a report of pytest-xdist has to be.
    caplog.set_level(logging.CRITICAL, "acker_api")
    client = make_any_acker().connection.client
    pipe = client.pipeline(transaction=False)
    for _ in range(KEPT + 200):
        pipe.xadd(AUDIT, {"who": "x"})
    pipe.execute()

    async def run() -> None:
        reader = Reader(connect_async(any_server.url, 60.0), 60.0, 60.0)
        audit = Audit(reader)
        await audit.begin(Deed("w", "a", "n", "t" * 5000), {"text": "\U0001f600\n"})
        who = Who("bob", Role.VIEWER)
        await audit.refused(who, "\udc80", "n", "\n", Problem(403, "c", "t"))
        client.xadd(AUDIT, {b"\xff": b"\xff", "before": "{", "after": "[1]"})
        (odd, refused, begun), next_ = await audit.read(3)
        assert (odd.deed.who, odd.before, odd.after) == ("", None, None)
        assert (refused.deed.action, refused.deed.target) == ("?", "\n")
        assert len(begun.deed.target) == 300
        assert begun.before == {"text": "\U0001f600\n"}
        assert next_ == begun.id
        await reader.close()

    asyncio.run(run())
    assert client.xlen(AUDIT) < KEPT + 150


def test_a_user_without_rights_is_told_which(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    from acker_redis import acl

    acker = make_any_acker()
    track(acker, 7, 40)
    admin = acker.connection.client
    words = acl.rule("viewer", None, "looker", "a-password").split(" ")
    admin.execute_command("ACL", "SETUSER", *words[1:])
    url = any_server.url.replace("redis://", "redis://looker:a-password@")
    before = dump(acker)

    async def talk(client: httpx.AsyncClient) -> None:
        for path in (LOG, V1, f"{V1}/{acker.namespace}", f"{V1}/{acker.namespace}/trees/7"):
            assert (await client.get(path)).status_code == 200, path
        for operation in ACTIONS:
            name = "made" if operation.action == "create_namespace" else acker.namespace
            body = is_problem(await operation.ask(client, name), 502, "redis-refused")
            assert "acker-redis acl admin" in body["detail"]
            assert "a-password" not in str(body)

    try:
        asked(url, talk)
        assert dump(acker) == before
        words = acl.rule("admin", None, "looker", "a-password").split(" ")
        admin.execute_command("ACL", "SETUSER", *words[1:])
        asked(url, lambda client: _all_work(client, acker.namespace))
    finally:
        admin.acl_deluser("looker")


async def _all_work(client: httpx.AsyncClient, namespace: str) -> None:
    for operation in sorted(ACTIONS, key=lambda each: each.action == "drop_namespace"):
        name = "made" if operation.action == "create_namespace" else namespace
        answer = await operation.ask(client, name)
        assert answer.status_code in (200, 201, 204, 404), answer.text


def test_a_redis_that_is_away_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for an audit log that cannot be written either."""
    caplog.set_level(logging.INFO, "acker_api")

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/orders/trees/7/fail"
        is_problem(await client.post(path, json={}), 503, "redis-unavailable")

    asked("redis://127.0.0.1:1/0", talk)
    told = [record.getMessage() for record in caplog.records if "audit" in record.name]
    assert len(told) == 1
    assert "result=failed" in told[0]
