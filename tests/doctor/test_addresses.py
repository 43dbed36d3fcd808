"""A fix names the server that it changes."""

import pytest

from acker_redis.doctor.addresses import addressed, redis_cli
from acker_redis.doctor.finding import warning
from tests.doctor.made import node

ONE, TWO = node(name="10.0.0.1:6379"), node(name="10.0.0.2:6380", tls=True)
NODES = {each.name: each for each in (ONE, TWO)}


@pytest.mark.parametrize(
    ("where", "fix", "wanted"),
    [
        ("10.0.0.1:6379", "redis-cli PING", "redis-cli -h 10.0.0.1 -p 6379 PING"),
        ("10.0.0.2:6380", "redis-cli PING", "redis-cli -h 10.0.0.2 -p 6380 --tls PING"),
        (
            "10.0.0.1:6379, 10.0.0.2:6380",
            "raise it: redis-cli CONFIG SET maxmemory 2gb, and redis-cli BGSAVE",
            "raise it: redis-cli -h 10.0.0.1 -p 6379 CONFIG SET maxmemory 2gb, and "
            "redis-cli -h 10.0.0.1 -p 6379 BGSAVE; the same on 10.0.0.2:6380",
        ),
        ("orders", "redis-cli SREM a b", "redis-cli -h 10.0.0.1 -p 6379 SREM a b"),
        ("", "redis-cli --cluster fix HOST:PORT", "redis-cli --cluster fix 10.0.0.1:6379"),
        (
            "",
            "redis-cli --cluster add-node NEW_HOST:PORT HOST:PORT --cluster-slave",
            "redis-cli --cluster add-node NEW_HOST:PORT 10.0.0.1:6379 --cluster-slave",
        ),
        (
            "10.0.0.1:6379",
            "redis-cli CLIENT KILL ADDR HOST:PORT",
            "redis-cli -h 10.0.0.1 -p 6379 CLIENT KILL ADDR HOST:PORT",
        ),
        ("", "redis-cli -p 26379 SENTINEL RESET x", "redis-cli -p 26379 SENTINEL RESET x"),
        ("10.0.0.1:6379", "add memory", "add memory"),
    ],
)
def test_a_command_names_its_server(where: str, fix: str, wanted: str) -> None:
    found = addressed(warning("memory", "little", fix, where), NODES, clustered=False)
    assert found.fix == wanted
    assert (found.detail, found.where) == ("little", where)


def test_a_fix_for_a_namespace_of_a_cluster_names_any_master() -> None:
    """Any node redirects to the node that has the key."""
    found = addressed(warning("namespace", "x", "redis-cli SREM a b", "orders"), NODES, True)
    assert found.fix == "redis-cli -h 10.0.0.1 -p 6379 -c SREM a b"


def test_a_fix_names_the_unix_socket() -> None:
    path = node(name="/run/my redis.sock", socket=True)
    assert redis_cli(path) == "redis-cli -s '/run/my redis.sock'"


def test_a_fix_without_known_servers_is_unchanged() -> None:
    finding = warning("namespace", "x", "redis-cli SREM a b", "orders")
    assert addressed(finding, {}, clustered=False) == finding
