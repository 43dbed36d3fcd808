"""Each role can do its work and nothing else, on real servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from acker_redis import Acker, AckerConfig, Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import RedisRefusedError
from acker_redis.ops import acl
from acker_redis.protocol.keys import AUDIT, AUDITED, NAMESPACES, ShardKeys, audit_of, channel
from tests.cluster.servers import Cluster
from tests.conftest import binary_of
from tests.deploy import work
from tests.deploy.compose import ROOT
from tests.deploy.users import Login, Users, is_refusal, own_key, users
from tests.support import dump
from tests.tiers import servers

# Subcommands of 6.2, which does not report them.
SUBCOMMANDS = """
    acl cat|deluser|genpass|getuser|list|load|log|save|setuser|users|whoami|dryrun
    client caching|getname|getredir|id|info|kill|list|no-evict|pause|reply|setname|tracking|unblock
    cluster addslots|bumpepoch|countkeysinslot|delslots|failover|flushslots|forget|getkeysinslot
    cluster info|keyslot|links|meet|myid|nodes|replicas|replicate|reset|saveconfig
    cluster set-config-epoch|setslot|shards|slaves|slots
    config get|resetstat|rewrite|set
    latency doctor|graph|histogram|history|latest|reset
    memory doctor|malloc-stats|purge|stats|usage
    module list|load|unload
    object encoding|freq|idletime|refcount
    pubsub channels|numpat|numsub
    script debug|exists|flush|kill|load
    slowlog get|len|reset
    xgroup create|createconsumer|delconsumer|destroy|setid
    xinfo consumers|groups|stream
"""


def every_command(client: redis.Redis) -> dict[str, tuple[int, set[str], int]]:
    """Return every command of the server: arity, flags and position of the first key."""
    found = {}

    def add(entries: list[list[object]]) -> None:
        for name, arity, flags, first_key, *more in entries:
            what = {flag.decode().lstrip("+") for flag in flags}
            found[name.decode().upper()] = (arity, what, first_key)
            if len(more) > 5:  # from 7.0 on
                add(more[5])

    with redis.Redis(port=client.connection_pool.connection_kwargs["port"], protocol=2) as plain:
        plain.response_callbacks.clear()
        add(plain.execute_command("COMMAND"))
    if any("|" in name for name in found):
        return found
    for line in SUBCOMMANDS.split("\n"):
        parent, _, subs = line.strip().partition(" ")
        for sub in filter(None, subs.split("|")):
            _, flags, _ = found[parent.upper()]
            found.setdefault(f"{parent}|{sub}".upper(), (-3, flags, 0))
    return found


ON_CHANNELS = {"PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"}


def call(name: str, arity: int, argument: str) -> list[str]:
    """Return a call of a command with as many arguments as it needs."""
    words = name.split("|")
    return [*words, *[argument] * (abs(arity) - len(words))]


@pytest.fixture(params=["one", "all"])
def some_users(request: pytest.FixtureRequest, server: EmbeddedRedis) -> Iterator[Users]:
    with redis.Redis(port=server.port) as client:
        client.flushall()
        with users([server.port], [client], everywhere=request.param == "all") as made:
            yield made
        client.flushall()


@pytest.fixture
def one(server: EmbeddedRedis) -> Iterator[Users]:
    """Create users of one namespace; the namespace and others with similar names exist."""
    with redis.Redis(port=server.port) as client:
        client.flushall()
        with users([server.port], [client]) as made:
            for name in (made.namespace, f"{made.namespace}2", made.namespace[:-1]):
                with Acker(client, name) as acker:
                    acker.create(AckerConfig(tick_ms=3_600_000))
            yield made
        client.flushall()


def test_each_role_can_do_its_work(some_users: Users) -> None:
    work.all_roles(some_users)
    # Also no PUBLISH was refused, which the scripts would ignore.
    assert some_users.refusals() == set()


@pytest.mark.parametrize("kind", servers())
def test_a_server_loads_the_files(tmp_path: Path, kind: str) -> None:
    binary = binary_of(kind)
    lines = []
    for path in sorted((ROOT / "deploy" / "acl").glob("*.acl")):
        lines += path.read_text().splitlines()
    file = tmp_path / "users.acl"
    # The test connects without a password, by a socket.
    file.write_text("\n".join(line for line in lines if not line.startswith("user default ")))
    with (
        EmbeddedRedis(binary=binary, extra_args=("--aclfile", str(file))) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        assert len(client.acl_users()) == len(lines) == len(set(lines))
        assert client.acl_getuser("orders-viewer")["passwords"] == []


def test_on_a_cluster_too() -> None:
    """The users must exist on each node."""
    with Cluster(binary_of("default")) as cluster:
        ports = [node.server.port for node in cluster.nodes]
        clients = [node.redis for node in cluster.nodes]
        with users(ports, clients, everywhere=True) as everywhere:
            work.all_roles(everywhere)
            assert everywhere.refusals() == set()


@pytest.mark.parametrize("role", acl.roles())
def test_a_role_may_run_its_commands_and_no_other(one: Users, role: str) -> None:
    known = every_command(one.clients[0])
    assert len(known) > 290
    # Redis refuses these commands to no user, because they log in.
    always = {name for name, (_, flags, _) in known.items() if "no_auth" in flags}
    containers = {name.split("|")[0] for name in known if "|" in name}
    granted, tried = acl.commands(role), 0
    key, channels = own_key(one.namespace), acl.channels(one.namespace)
    with Login(one.ports[0], one.name(role)) as login:
        for name, (arity, _, _) in known.items():
            if name in always or name in containers - granted:
                continue
            tried += 1
            arguments = call(name, arity, channels if name in ON_CHANNELS else key)
            if granted & {name, name.split("|")[0]}:
                assert not login.refused(*arguments), arguments
                login.reconnect()
            elif "not allowed. If the enable-" in str(reply := login.send(*arguments)):
                # 7.0 refuses this command to every user, before it checks rights.
                dry = one.clients[0].execute_command("ACL", "DRYRUN", one.name(role), *arguments)
                assert b"no permissions" in dry, arguments
            else:
                assert is_refusal(reply), arguments
    assert tried > 270
    # Commands that this server does not have are those of a later version.
    later = {"CLUSTER|SHARDS", "LATENCY|HISTOGRAM", "ACL|DRYRUN"}
    assert granted - set(known) <= later


@pytest.mark.parametrize("role", acl.roles())
def test_keys_of_others_are_refused(one: Users, role: str) -> None:
    """Also keys of namespaces whose name begins or ends like this one."""
    name, before = one.namespace, dump(Acker(one.clients[0], one.namespace))
    others = [f"{name}2", name[:-1], f"x-{name}", name.upper(), f"{name}.a", f"{name}-"]
    keys = [key for other in others for key in (ShardKeys(other, 0).meta, own_key(other))]
    keys += [
        "other",
        f"acker:{name}:0",
        f"{{{name}:0}}",
        *(AUDIT, AUDITED, audit_of(name), audit_of("other")),
        *([NAMESPACES] if role != "admin" else []),
    ]
    known, own = every_command(one.clients[0]), own_key(name)
    with Login(one.ports[0], one.name(role)) as login:
        for key in keys:
            tried = 0
            for command in sorted(acl.commands(role) & set(known)):
                arity, _, first_key = known[command]
                if not first_key:
                    continue
                tried += 1
                arguments = call(command, arity, key)
                assert login.refused(*arguments), arguments
                # Also inside a script that does not declare the key.
                words = ",".join(f"'{word}'" for word in arguments)
                assert login.refused("EVAL", f"return redis.call({words})", 1, own), arguments
                assert login.refused("EVAL", "return 1", 1, key)
            assert tried >= 6
        if "RENAME" in acl.commands(role):
            assert login.refused("RENAME", own, keys[0])
        if "BITOP" in acl.commands(role):
            assert login.refused("BITOP", "XOR", own, own, keys[0])
    assert dump(Acker(one.clients[0], name)) == before


@pytest.mark.parametrize("role", acl.roles())
def test_channels_of_others_are_refused(one: Users, role: str) -> None:
    granted, known = acl.commands(role), every_command(one.clients[0])
    mine = channel(one.namespace, "ack", "t")
    theirs = [channel(f"{one.namespace}2", "ack", "t"), channel(one.namespace[:-1], "ack", "t")]
    with Login(one.ports[0], one.name(role)) as login:
        for one_of_theirs in [*theirs, f"acker:{one.namespace}", "other"]:
            assert login.refused("PUBLISH", one_of_theirs, "x")
            publish = f"return redis.call('PUBLISH', '{one_of_theirs}', 'x')"
            assert login.refused("EVAL", publish, 1, own_key(one.namespace))
            assert login.refused("SUBSCRIBE", one_of_theirs)
        for pattern in ("*", "acker:*", f"acker:{one.namespace}2:*", f"acker:{one.namespace}*"):
            assert login.refused("PSUBSCRIBE", pattern)
        assert login.refused("PUBLISH", mine, "x") == ("PUBLISH" not in granted)
        assert login.refused("SUBSCRIBE", mine) == ("SUBSCRIBE" not in granted)
        login.reconnect()
        whole = acl.channels(one.namespace)
        assert login.refused("PSUBSCRIBE", whole) == ("PSUBSCRIBE" not in granted)
    assert "PUBLISH" in known


def test_a_viewer_cannot_write(one: Users) -> None:
    known = every_command(one.clients[0])
    writing = {name for name, (_, flags, _) in known.items() if "write" in flags}
    assert len(writing) > 80
    assert not writing & acl.commands("viewer")
    before = dump(Acker(one.clients[0], one.namespace))
    meta = ShardKeys(one.namespace, 0).meta
    with Login(one.ports[0], one.name("viewer")) as login:
        for words in (
            f"'HSET', '{meta}', 'schema', '2'",
            f"'UNLINK', '{meta}'",
            f"'PUBLISH', '{channel(one.namespace, 'ack', 't')}', 'x'",
        ):
            assert login.refused("EVAL", f"return redis.call({words})", 1, meta)
            assert login.refused("EVAL", f"return redis.call({words})", 0)
    with Acker.from_url(one.url("viewer"), one.namespace, timeout=60) as acker:
        batch = Batch("t")
        batch.track(7, "s", [])
        with pytest.raises(RedisRefusedError):
            acker.apply(batch)
        with pytest.raises(RedisRefusedError):
            acker.create(AckerConfig(tick_ms=3_600_000))
    assert dump(Acker(one.clients[0], one.namespace)) == before


def test_a_producer_reads_and_takes_no_verdict(one: Users) -> None:
    with Acker.from_url(one.url("producer"), one.namespace, timeout=60) as acker:
        batch = Batch("t")
        batch.track(7, "s", [])
        assert acker.apply(batch).acked == 1
        with pytest.raises(RedisRefusedError):
            acker.outcomes("t").read()
    with Acker(one.clients[0], one.namespace) as trusted:
        entries = trusted.outcomes("t").read()
        assert [outcome.source_id for entry in entries for outcome in entry] == ["s"]
        with (
            Acker.from_url(one.url("producer"), one.namespace, timeout=60) as acker,
            pytest.raises(RedisRefusedError),
        ):
            acker.outcomes("t").take(entries)
        assert trusted.outcomes("t").read() == entries


def test_a_producer_can_write_without_the_scripts(one: Users) -> None:
    """Roles separate namespaces; they do not make a producer honest (deploy/acl/README.md)."""
    stream = ShardKeys(one.namespace, 0).outcomes("t")
    with Login(one.ports[0], one.name("producer")) as login:
        assert not login.refused("XADD", stream, "*", "verdict", "ack")
        assert not login.refused("HSET", ShardKeys(one.namespace, 0).meta, "acked", 7)
        assert not login.refused("UNLINK", stream)


def test_an_old_password_is_refused(one: Users) -> None:
    client, name = one.clients[0], one.name("viewer")
    rule = acl.rule("viewer", one.namespace, name, "another").split(" ")
    client.execute_command("ACL", "SETUSER", *rule[1:])
    with pytest.raises(redis.AuthenticationError):
        Login(one.ports[0], name)
    Login(one.ports[0], name, "another").close()
    without_password = acl.rule("viewer", one.namespace, name).split(" ")
    client.execute_command("ACL", "SETUSER", *without_password[1:])
    for password in ("another", "x", " "):
        with pytest.raises(redis.AuthenticationError):
            Login(one.ports[0], name, password)
