"""The canary: it detects lost and false verdicts, and leaves no key."""

from collections.abc import Callable
from typing import Any

import pytest

from acker_redis.doctor import Finding, canary
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import RedisRefusedError, RedisUnavailableError
from acker_redis.ops import acl
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call
from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from acker_redis.sync.client import Acker
from acker_redis.sync.connection import Connection
from tests.conftest import MakeAcker
from tests.support import dump, track

Run = Callable[[Connection, Call], Any]
SHARDS = 2


@pytest.fixture
def other(make_any_acker: MakeAcker) -> Acker:
    """Create another namespace with a pending tree."""
    acker = make_any_acker(shards=SHARDS)
    track(acker, 2, 7)
    return acker


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], list[Call]]:
    """Return a function that wraps every call of a script and returns the list of calls."""

    def put(between: Callable[[Connection, Call], Any]) -> list[Call]:
        made: list[Call] = []

        def run(self: Connection, call: Call) -> Any:
            made.append(call)
            return between(self, call)

        monkeypatch.setattr(Connection, "run", run)
        return made

    return put


run_really: Run = Connection.run


def fly(acker: Acker, shards: int = SHARDS) -> dict[str, Finding]:
    found = canary.examine(acker.connection, shards)
    assert [finding.id for finding in found] == ["canary", "pubsub", "latency"]
    return {finding.id: finding for finding in found}


@pytest.mark.parametrize("shards", [1, 4])
def test_the_canary_succeeds_and_leaves_no_key(make_acker: MakeAcker, shards: int) -> None:
    acker = make_acker()
    track(acker, 2, 7)
    before = dump(acker)
    found = fly(acker, shards)
    assert (found["canary"].level, found["pubsub"].level) == ("ok", "ok")
    assert f"on {shards} shard{'s' * (shards > 1)} a tree" in found["canary"].detail
    assert f"{canary.ROUNDS} calls each" in found["latency"].detail
    assert dump(acker) == before


def test_the_canary_has_a_bounded_number_of_shards(other: Acker, calls: Any) -> None:
    made = calls(run_really)
    fly(other, 1024)
    assert sum(call.script == "create" for call in made) == canary.MAX_SHARDS


@pytest.mark.parametrize("error", [RedisRefusedError, KeyboardInterrupt])
def test_a_canary_that_fails_at_any_step_leaves_no_key(
    other: Acker, calls: Any, error: type[BaseException]
) -> None:
    before, steps, seen = dump(other), 0, set()
    while True:
        left = steps

        def between(connection: Connection, call: Call) -> Any:
            nonlocal left
            left -= call.script != "drop"
            if left == 0 and call.script != "drop":
                seen.add(call.script)
                raise error("enough")
            return run_really(connection, call)

        steps += 1
        left = steps
        calls(between)
        try:
            found = fly(other)
        except KeyboardInterrupt:
            assert error is KeyboardInterrupt
        else:
            if left > 0:
                break  # no call failed
            assert error is RedisRefusedError
            late = found["canary"].level == "ok"
            assert found["latency" if late else "canary"].level != "ok"
            assert not late or seen >= {"create", "apply", "rotate", "expire", "take"}
        assert dump(other) == before, f"after {steps} calls"
        if steps > 30:
            break  # the remaining calls repeat the latency measurement
    assert seen == {"status", "create", "apply", "rotate", "expire", "expire_blocks", "take"}


def test_the_canary_is_removed_after_a_short_outage(other: Acker, calls: Any) -> None:
    before, away = dump(other), 3

    def between(connection: Connection, call: Call) -> Any:
        nonlocal away
        if call.script == "drop" and away:
            away -= 1
            raise RedisUnavailableError("away")
        return run_really(connection, call)

    calls(between)
    assert fly(other)["canary"].level == "ok"
    assert not away
    assert dump(other) == before


def test_a_canary_that_cannot_be_removed_is_named(other: Acker, calls: Any) -> None:
    def between(connection: Connection, call: Call) -> Any:
        if call.script == "drop":
            raise RedisRefusedError("no")
        return run_really(connection, call)

    calls(between)
    found = fly(other)["canary"]
    [name] = [
        each.decode()
        for each in other.connection.client.smembers(NAMESPACES)
        if each.startswith(canary.PREFIX.encode())
    ]
    assert found.level == "error"
    assert found.fix == f"acker-redis drop {name} --yes"


def test_a_rotator_of_all_namespaces_does_not_disturb_the_canary(other: Acker, calls: Any) -> None:
    before = dump(other)

    def between(connection: Connection, call: Call) -> Any:
        reply = run_really(connection, call)
        if call.script != "drop":
            namespace, shard = call.keys[0].removeprefix("acker:{").removesuffix("}").split(":")
            keys = ShardKeys(namespace, int(shard))
            run_really(connection, commands.rotate(keys, force=False))
            run_really(connection, commands.expire(keys, 500))
        return reply

    calls(between)
    assert fly(other)["canary"].level == "ok"
    assert dump(other) == before


def _steal(connection: Connection, keys: ShardKeys) -> None:
    connection.command("DEL", keys.outcomes(canary.SOURCE))


def _lie(connection: Connection, keys: ShardKeys) -> None:
    rows = '[["%016x", "acked", 0, ""]]' % (2**40 + keys.shard)
    fields = ("verdict", "ack", "reason", "completed", "n", 1, "rows", rows)
    connection.command("XADD", keys.outcomes(canary.SOURCE), "*", *fields)


@pytest.mark.parametrize(
    ("harm", "after", "says"),
    [
        (_steal, "apply", "expected 2 verdicts ack completed, received 0: none"),
        (_steal, "expire", "expected 2 verdicts nack expired, received 0: none"),
        (_lie, "apply", "expected 2 verdicts ack completed, received 6"),
    ],
)
def test_the_canary_detects_lost_and_false_verdicts(
    other: Acker, calls: Any, harm: Any, after: str, says: str
) -> None:
    before = dump(other)

    def between(connection: Connection, call: Call) -> Any:
        reply = run_really(connection, call)
        if call.script == after:
            name, shard = call.keys[0][7:-1].split(":")
            harm(connection, ShardKeys(name, int(shard)))
        return reply

    calls(between)
    found = fly(other)
    assert found["canary"].level == "error"
    assert says in found["canary"].detail
    assert dump(other) == before


def test_the_canary_detects_a_shard_that_does_not_tick(other: Acker, calls: Any) -> None:
    def between(connection: Connection, call: Call) -> Any:
        reply = run_really(connection, call)
        return [0, *reply[1:]] if call.script == "rotate" else reply

    calls(between)
    found = fly(other)["canary"]
    assert found.level == "error"
    assert "does not tick" in found.detail


def test_the_canary_detects_verdicts_that_are_not_deleted(other: Acker, calls: Any) -> None:
    def between(connection: Connection, call: Call) -> Any:
        # The reply claims that the verdicts were taken.
        return [1, 1, 0, 1] if call.script == "take" else run_really(connection, call)

    calls(between)
    found = fly(other)["canary"]
    assert (found.level, found.detail) == ("error", "verdicts were taken, but not deleted")


def _user(server: EmbeddedRedis, admin: Any, *more: str) -> Acker:
    rule = acl.rule("admin", None, "boss", "pw").split()[1:]
    admin.execute_command("ACL", "SETUSER", *rule, *more)
    return Acker.from_url(f"redis://boss:pw@127.0.0.1:{server.port}/0", "any", timeout=60)


def test_the_canary_reports_missing_pubsub_rights(
    server: EmbeddedRedis, make_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_acker()
    admin, before = acker.connection.client, dump(acker)
    try:
        with _user(server, admin, "-publish") as boss, monkeypatch.context() as patch:
            patch.setattr(canary, "_HEARD_WITHIN", 0.05)
            found = fly(boss)
            assert (found["canary"].level, found["pubsub"].level) == ("ok", "warning")
        with _user(server, admin, "-subscribe") as boss:
            found = fly(boss)
            assert (found["canary"].level, found["pubsub"].level) == ("ok", "skipped")
        with _user(server, admin, "-rename") as boss:
            found = fly(boss)
            assert (found["canary"].level, found["latency"].level) == ("skipped", "skipped")
            assert "RENAME" in found["canary"].detail
        assert dump(acker) == before
    finally:
        admin.execute_command("ACL", "DELUSER", "boss")


def test_the_canary_reports_that_memory_is_used_up(make_acker: MakeAcker) -> None:
    acker = make_acker()
    client, before = acker.connection.client, dump(acker)
    client.config_set("maxmemory", 1)
    try:
        found = fly(acker)
    finally:
        client.config_set("maxmemory", 0)
    assert found["canary"].level == "error"
    assert "maxmemory" in found["canary"].detail
    assert dump(acker) == before
