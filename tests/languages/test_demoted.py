"""A master is demoted and its address changes, but no connection breaks: clients reconnect."""

from collections.abc import Iterator

import pytest

from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.conftest import OLDEST_AND_NEWEST, binary_of
from tests.languages.driver import Driver
from tests.support import total, verdicts
from tests.transport.address import TwoServers
from tests.waiting import wait_until


@pytest.fixture(scope="module", params=OLDEST_AND_NEWEST)
def two(request: pytest.FixtureRequest) -> Iterator[TwoServers]:
    """Yield two servers. Redis 6.2 has READONLY in the middle of the error of a script."""
    with TwoServers(binary_of(request.param)) as running:
        yield running


def test_client_reconnects_after_its_master_is_demoted(
    driver: Driver, two: TwoServers, request: pytest.FixtureRequest
) -> None:
    namespace = f"{driver.client.name}-{driver.library}"
    with Acker.from_url(two.url, namespace) as acker:
        acker.create(AckerConfig(tick_ms=3_600_000))
    others = two.connected(two.old)  # idle drivers of other clients
    driver.connect(two.address.port)
    driver.begin(namespace, retry_ms=120_000)
    (message,) = driver.ask("track", task="t", source_id="s", emit=1)["emitted"]
    assert driver.ask("read", task="t")["outcomes"] == []
    two.catch_up()
    two.fail_over()
    request.addfinalizer(two.swap)
    driver.ask("work", inputs=[message], emit=[], end="ack", why="", flush=True)
    wait_until(lambda: two.connected(two.old) <= others, "a demoted master without this client")
    ((verdict, reason, *_),) = driver.ask("take", task="t")["outcomes"]
    assert (verdict, reason) == ("ack", "completed")
    with Acker.from_url(two.new.url, namespace) as direct:
        assert (total(direct)["acked"], verdicts(direct)) == (1, [])
