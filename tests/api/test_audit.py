"""The audit log has each action, before and after it; without an entry no action is executed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from acker_api.acting import audit as auditing
from acker_api.acting.audit import DAY_MS, KEPT_SURELY, REFUSALS, RESERVE, Audit, Deed
from acker_api.auth.tokens import Role, Who
from acker_api.problems import Problem
from acker_api.reading.reader import Reader
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import AUDIT, AUDITED, ShardKeys, audit_of
from acker_redis.transport.connect import connect_async
from tests.api.operations import ACTIONS
from tests.api.service import asked, bearer, is_problem
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import dump, track, track_block
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


def test_each_action_has_one_complete_entry(
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
        track(acker, 8, 40, "order-2", "shop")
        for _ in range(2):  # the second call finds no tree to fail
            await client.post(
                f"{path}/trees/fail",
                json={"filter": {"source": "shop"}, "dry_run": False},
                headers=one,
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
        assert fail_trees["before"] == {
            **{"source": "shop", "min_age_ms": 0, "state": "open", "most": 1000}
        }
        assert (fail_trees["action"], fail_trees["after"]["matched"]) == ("fail_trees", 1)
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
    streams = [acker.connection.client.xlen(audit_of(name)) for name in (ns, "made")]
    assert streams == [5, 2], "entries with a result replace those that began"


@pytest.mark.parametrize("operation", ACTIONS, ids=lambda each: each.action)
def test_refused_and_failed_actions_are_recorded(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, operation: Any
) -> None:
    acker = make_any_acker(tick_ms=77)

    async def talk(client: httpx.AsyncClient) -> None:
        await operation.ask(client, acker.namespace)  # without a token
        refused = await operation.ask(client, acker.namespace, bearer(BOB))
        is_problem(refused, 403, "forbidden")
        acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "schema", 9)
        assert (await operation.ask(client, acker.namespace, bearer(ADMIN))).status_code == 409
        failed, by_bob = await entries(client)
        assert (by_bob["who"], by_bob["action"]) == ("bob", operation.action)
        assert by_bob["result"] == "refused"
        assert "needs a token with the role" in by_bob["why"]
        assert (failed["who"], failed["action"]) == ("root", operation.action)
        assert (failed["result"], failed["namespace"]) == ("failed", acker.namespace)
        assert "schema" in failed["why"]

    asked(any_server.url, talk, tokens=TOKENS)


@pytest.mark.parametrize("operation", ACTIONS, ids=lambda each: each.action)
def test_action_without_audit_entry_is_not_executed(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, operation: Any
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)
    # A missing namespace would be created.
    name = "made" if operation.action == "create_namespace" else acker.namespace
    acker.connection.client.set(audit_of(name), "no stream")
    before = dump(acker)

    async def talk(client: httpx.AsyncClient) -> None:
        is_problem(await operation.ask(client, name), 502, "redis-refused")

    asked(any_server.url, talk)
    assert dump(acker) == before


def test_entry_stays_begun_if_its_result_cannot_be_written(
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


def test_cancelled_request_completes_its_action(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/7/fail"
        asking = asyncio.create_task(client.post(path, json={}))
        async with asyncio.timeout(LIMIT):
            while not acker.connection.client.xlen(audit_of(acker.namespace)):
                await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asked(any_server.url, talk)
    ((_, fields),) = acker.connection.client.xrange(audit_of(acker.namespace))
    assert fields[b"result"] == b"done"
    assert acker.status().counters["failed"] == 1


def test_unauthorized_requests_are_logged_and_not_stored(
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


def test_audit_pages_have_only_namespaces_of_the_token(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    one, other = make_any_acker(), make_any_acker()
    some = "some-" * 4
    more = (
        f'{TOKENS[:-2]}{{name="some",role="viewer",token="{some}",namespaces=["{one.namespace}"]}}]'
    )

    async def talk(client: httpx.AsyncClient) -> None:
        for mark, acker in enumerate((one, other, one, other, one), 1):
            path = f"{V1}/{acker.namespace}/config"
            await client.patch(path, json={"high_water": mark}, headers=bearer(ADMIN))
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
        # Not even the time of an entry of another namespace is revealed.
        await client.patch(
            f"{V1}/{other.namespace}/config", json={"high_water": 77}, headers=bearer(ADMIN)
        )
        newest = (await client.get(LOG, params={"limit": 1}, headers=bearer(some))).json()
        assert newest["entries"] == seen[:1]
        assert newest["next"] == f"{seen[0]['id']}:{one.namespace}"
        wrong = await client.get(LOG, params={"before": "x"}, headers=bearer(ADMIN))
        is_problem(wrong, 422, "bad-request")

    asked(any_server.url, talk, tokens=more)


async def auditing_of(url: str, talk: Callable[[Audit], Awaitable[None]], days: int = 90) -> None:
    reader = Reader(connect_async(url, 60.0), 60.0, 60.0)
    try:
        await talk(Audit(reader, days))
    finally:
        await reader.close()


ROOT, OPERATOR = Who("root", Role.ADMIN), Who("alice", Role.OPERATOR)


def test_audit_log_accepts_any_text(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, caplog: pytest.LogCaptureFixture
) -> None:
    # The logged text is not valid UTF-8, which pytest-xdist requires of a report.
    caplog.set_level(logging.CRITICAL, "acker_api")
    client = make_any_acker().connection.client

    async def talk(audit: Audit) -> None:
        await audit.begin(ROOT, Deed("w", "a", "n", "t" * 5000), {"text": "\U0001f600\n"})
        who = Who("bob", Role.VIEWER)
        await audit.refused(who, "\udc80", "n", "\n", Problem(403, "c", "t"))
        await audit.refused(who, "a", "\udc80", "", Problem(403, "c", "t"))
        client.xadd(AUDIT, {b"\xff": b"\xff", "before": "{", "after": "[1]"})
        client.sadd(AUDITED, b"\xff", "a b")
        (odd, by_name, refused, begun), next_ = await audit.read(ROOT, 4)
        assert (odd.deed.who, odd.before, odd.after) == ("", None, None)
        assert by_name.deed.namespace == "?"
        assert (refused.deed.action, refused.deed.target) == ("?", "\n")
        assert len(begun.deed.target) == 300
        assert begun.before == {"text": "\U0001f600\n"}
        assert next_ == f"{begun.id}:n"

    asyncio.run(auditing_of(any_server.url, talk))


def test_no_op_leaves_no_entry(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker, blocks = make_any_acker(high_water=5, shards=2), make_any_acker()
    track_block(blocks, 5, [40, 41], "page", "t")
    anchor = block_anchor(5, 0)

    async def talk(client: httpx.AsyncClient) -> None:
        one, path = bearer(ALICE), f"{V1}/{acker.namespace}"
        new = {"name": acker.namespace, "tick_ms": 3_600_000, "high_water": 5, "shards": 2}
        for _ in range(3):
            same = await client.patch(f"{path}/config", json={"high_water": 5}, headers=one)
            assert (same.status_code, same.json()["high_water"]) == (200, 5)
            again = await client.post(V1, json=new, headers=bearer(ADMIN))
            assert again.status_code == 200
            tree = f"{V1}/{blocks.namespace}/trees/{anchor}"
            fail = await client.post(f"{tree}/fail", json={}, headers=one)
            assert fail.status_code == 200
        assert [each["action"] for each in await entries(client)] == ["fail_tree"]
        # After an error one shard may lack a change: the next attempt is not a no-op.
        acker.connection.client.hset(ShardKeys(acker.namespace, 1).meta, "high_water", 4)
        await client.patch(f"{path}/config", json={"high_water": 5}, headers=one)
        assert [each["action"] for each in await entries(client)] == ["configure", "fail_tree"]

    asked(any_server.url, talk, tokens=TOKENS)


def test_log_of_concurrent_changes_explains_the_value_in_force(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """An operator repeats the value in force while an admin sets another."""
    acker = make_any_acker(high_water=1)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/config"
        for wanted in range(2, 22):
            before = (await client.get(path, headers=bearer(ADMIN))).json()["high_water"]
            await asyncio.gather(
                client.patch(path, json={"high_water": before}, headers=bearer(ALICE)),
                client.patch(path, json={"high_water": wanted}, headers=bearer(ADMIN)),
            )
            now = (await client.get(path, headers=bearer(ADMIN))).json()["high_water"]
            logged = await entries(client)
            admins = next(each for each in logged if each["who"] == "root")
            assert admins["after"] == {"high_water": wanted}, "the request"
            assert now == wanted or {"high_water": now} in [
                each["after"] for each in logged if each["who"] == "alice"
            ]

    asked(any_server.url, talk, tokens=TOKENS)


def test_change_that_was_undone_in_between_is_in_the_log(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker, begin = make_any_acker(high_water=5, shards=2), Audit.begin

    async def after_another(self: Audit, *deed: Any) -> Any:
        acker.configure(high_water=7)
        return await begin(self, *deed)

    monkeypatch.setattr(Audit, "begin", after_another)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/config"
        answer = await client.patch(path, json={"high_water": 5}, headers=bearer(ALICE))
        assert answer.json()["high_water"] == 5
        (entry,) = await entries(client)
        assert (entry["who"], entry["result"]) == ("alice", "done")
        assert entry["after"] == {"high_water": 5}

    asked(any_server.url, talk, tokens=TOKENS)


def test_retried_create_that_sets_the_objective_is_in_the_log(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()

    async def talk(client: httpx.AsyncClient) -> None:
        new = {"name": acker.namespace, "tick_ms": 3_600_000, "slo_target": 99.9}
        again = await client.post(V1, json=new, headers=bearer(ADMIN))
        assert again.status_code == 200
        (entry,) = await entries(client)
        assert (entry["action"], entry["before"]["slo_target"]) == ("create_namespace", 99.0)
        assert entry["after"]["slo_target"] == 99.9

    asked(any_server.url, talk, tokens=TOKENS)


def test_actions_in_one_namespace_push_out_no_entry_of_another(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Young entries of the same namespace stay too: further actions are refused."""
    monkeypatch.setattr(auditing, "MAX_ENTRIES", 5)
    mine, other = make_any_acker(high_water=1), make_any_acker(high_water=1)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{other.namespace}/config"
        assert (await client.patch(path, json={"high_water": 2}, headers=bearer(ADMIN))).is_success
        path = f"{V1}/{mine.namespace}/config"
        for mark in range(2, 7):
            done = await client.patch(path, json={"high_water": mark}, headers=bearer(ALICE))
            assert done.status_code == 200
        full = await client.patch(path, json={"high_water": 7}, headers=bearer(ALICE))
        is_problem(full, 429, "audit-full")
        assert "retry-after" in full.headers
        assert mine.status().config.high_water == 6
        assert [each["namespace"] for each in await entries(client)] == [
            *([mine.namespace] * 5),
            other.namespace,
        ]
        # An admin is not locked out.
        done = await client.patch(path, json={"high_water": 8}, headers=bearer(ADMIN))
        assert done.status_code == 200
        assert len(await entries(client)) == 7

    asked(any_server.url, talk, tokens=TOKENS)
    assert RESERVE > 1


def test_one_operator_cannot_fill_the_stream_of_the_others(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full stream would refuse all actions for days."""
    monkeypatch.setattr(auditing, "DAILY", 2)
    mine, other = make_any_acker(high_water=1), make_any_acker(high_water=1)
    carol = "carol-" * 4
    tokens = TOKENS.replace(
        "]\n", f'  {{name = "carol", role = "operator", token = "{carol}"}},\n]\n'
    )

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{mine.namespace}/config"
        for mark in (2, 3):
            done = await client.patch(path, json={"high_water": mark}, headers=bearer(ALICE))
            assert done.status_code == 200
        refused = await client.patch(path, json={"high_water": 4}, headers=bearer(ALICE))
        is_problem(refused, 429, "audit-full")
        assert 0 < int(refused.headers["retry-after"]) <= DAY_MS // 1000
        assert mine.status().config.high_water == 3
        elsewhere = f"{V1}/{other.namespace}/config"
        for way, who in ((path, carol), (path, ADMIN), (elsewhere, ALICE)):
            done = await client.patch(way, json={"high_water": 9}, headers=bearer(who))
            assert done.status_code == 200

    asked(any_server.url, talk, tokens=tokens)


def test_entries_expire_by_age(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "MAX_ENTRIES", 6)
    client = make_any_acker().connection.client
    now = int(client.time()[0]) * 1000
    key, deed = audit_of("n"), Deed("w", "a", "n")

    def kept() -> list[int]:
        """Return the ages of the entries in days."""
        return [round((now - int(id_.split(b"-")[0])) / DAY_MS) for id_, _ in client.xrange(key)]

    async def act(audit: Audit) -> None:
        await audit.end(await audit.begin(OPERATOR, deed, None), "done")

    async def talk(audit: Audit) -> None:
        for days in (100, 91, 89, 8, 6):
            client.xadd(key, {"who": "x"}, id=now - days * DAY_MS - 60_000)
        await act(audit)
        assert kept() == [89, 8, 6, 0], "two were too old"
        assert client.ttl(key) > 80 * 86_400, "the stream expires, too"
        for left in ([89, 8, 6, 0, 0], [89, 8, 6, 0, 0, 0], [8, 6, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0]):
            await act(audit)
            assert kept() == left, "in a full stream the oldest entries make room"
        with pytest.raises(Problem, match="429"):
            await act(audit)
        assert kept() == [6, 0, 0, 0, 0, 0], "entries of less than 7 days stay"

    asyncio.run(auditing_of(any_server.url, talk))
    assert KEPT_SURELY == 7 * DAY_MS


def test_refusals_cannot_fill_a_stream(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals for namespaces that do not exist create no stream."""
    monkeypatch.setattr(auditing, "MAX_WITH_NOTES", 3)
    acker = make_any_acker()
    client, bob = acker.connection.client, Who("bob", Role.VIEWER)

    async def talk(audit: Audit) -> None:
        for _ in range(5):
            await audit.refused(bob, "rotate", acker.namespace, "", Problem(403, "c", "t"))
        for number in range(5):
            await audit.refused(bob, "rotate", f"none-{number}", "", Problem(403, "c", "t"))
        assert client.xlen(audit_of(acker.namespace)) == 3
        assert client.xlen(AUDIT) == 3
        assert client.keys(audit_of("*")) == [audit_of(acker.namespace).encode()]

    asyncio.run(auditing_of(any_server.url, talk))


def test_pages_merge_the_streams_by_time(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """Also if entries of several namespaces have the same id."""
    client = make_any_acker().connection.client
    written: list[tuple[int, str]] = []
    for number in range(40):
        for name in ("", "a", "b", *("cd" if number > 20 else "")):
            client.xadd(audit_of(name) if name else AUDIT, {"who": "x"}, id=f"{1000 + number}-1")
            written.append((1000 + number, name))
            client.sadd(AUDITED, *([name] if name else ["gone"]))
    written.sort(key=lambda each: (-each[0], each[1]))

    async def walk(audit: Audit, who: Who, limit: int) -> list[tuple[int, str]]:
        found, before = [], ""
        while before is not None:
            records, before = await audit.read(who, limit, before)
            assert len(records) <= limit
            found += [(each.at_ms, each.deed.namespace) for each in records]
        return found

    async def talk(audit: Audit) -> None:
        for limit in (1, 7, 1000):
            assert await walk(audit, ROOT, limit) == written
            some = Who("s", Role.VIEWER, ("b", "c*"))
            assert await walk(audit, some, limit) == [
                each for each in written if each[1] in {"b", "c"}
            ]

    asyncio.run(auditing_of(any_server.url, talk))


def test_missing_rights_in_redis_are_named(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    from acker_redis.ops import acl

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


def test_unavailable_redis_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The caller does not wait for an audit log that cannot be written either."""
    caplog.set_level(logging.INFO, "acker_api")

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/orders/trees/7/fail"
        is_problem(await client.post(path, json={}), 503, "redis-unavailable")

    asked("redis://127.0.0.1:1/0", talk)
    told = [record.getMessage() for record in caplog.records if "audit" in record.name]
    assert len(told) == 1
    assert "result=failed" in told[0]
