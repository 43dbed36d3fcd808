"""The doctor on a master, its replica and their sentinels."""

from collections.abc import Iterator

import pytest

from acker_redis.doctor import Finding, examine
from acker_redis.embedded.binary import find_server
from tests.conftest import missing
from tests.sentinel.servers import Watched


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Start a master, a replica and three sentinels; no failover happens."""
    binary = find_server()
    if binary is None:
        missing("redis-server")
    with Watched(binary, tmp_path_factory.mktemp("sentinels")) as running:
        yield running


def look(url: str) -> dict[str, Finding]:
    return {finding.id: finding for finding in examine(url, [], interval=0)}


def test_a_master_found_by_sentinels_is_examined(watched: Watched) -> None:
    found = look(watched.url)
    assert (found["sentinels"].level, found["role"].level) == ("ok", "ok")
    assert f"3 agree on 127.0.0.1:{watched.master}" in found["sentinels"].detail
    assert found["reachable"].where == f"127.0.0.1:{watched.master}"
    assert found["replicas"].level == "warning"
    assert "min-replicas-to-write 1" in found["replicas"].fix
    assert found["canary"].level == "ok"
    watched.ask(watched.master, "CONFIG", "SET", "min-replicas-to-write", 1)
    watched.ask(watched.master, "CONFIG", "SET", "min-replicas-max-lag", 2)
    assert look(watched.url)["replicas"].level == "ok"
    one = watched.sentinels[0].port
    assert look(f"redis+sentinel://127.0.0.1:{one}/svc")["sentinels"].level == "warning"


def test_a_connection_to_a_replica_is_an_error(watched: Watched) -> None:
    found = look(f"redis://127.0.0.1:{watched.replica}/0")
    assert found["role"].level == "error"
    assert f"connect to 127.0.0.1:{watched.master}" in found["role"].fix
    assert not {"canary", "pubsub", "latency"} & found.keys()
