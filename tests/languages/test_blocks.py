"""Blocks in every language, beyond the cases: labels of Spark, and a damaged entry."""

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.languages.driver import Driver, DriverError
from tests.support import total


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker()


@pytest.fixture
def begun(driver: Driver, any_server: EmbeddedRedis, acker: Acker) -> Driver:
    """Return the driver with a client of the namespace."""
    driver.connect(any_server.port)
    driver.begin(acker.namespace, retry_ms=120_000)
    return driver


@pytest.fixture
def tracking(begun: Driver) -> Driver:
    """Return the driver; skip clients that track no blocks."""
    if "blocks" not in begun.client.can:
        pytest.skip("this client tracks no blocks")
    return begun


@pytest.mark.parametrize("label", ["orders/3@1000", "@0", "pagé@7~2"])
def test_label_of_spark_is_refused(tracking: Driver, acker: Acker, label: str) -> None:
    with pytest.raises(DriverError) as refused:
        tracking.ask("track_block", task="t", label=label, deltas=["40"])
    assert refused.value.code == "REFUSED"
    assert total(acker)["tracked"] == 0


def test_empty_bitmap_of_present_slots_is_an_error(begun: Driver, acker: Acker) -> None:
    """A script writes the field only if some slots are absent, so this entry is damaged."""
    stream = ShardKeys(acker.namespace, 0).outcomes("t")
    entry = {
        "verdict": "ack", "reason": "completed", "n": "2", "block": "0000000000001",
        "label": "page", "age": "9", "slots": "2", "failed": "",
    }  # fmt: skip
    acker.connection.client.xadd(stream, {**entry})
    assert len(begun.ask("read", task="t")["outcomes"]) == 2
    acker.connection.client.xadd(stream, {**entry, "present": ""})
    with pytest.raises(DriverError) as refused:
        begun.ask("read", task="t")
    assert refused.value.code == "SCHEMA"
