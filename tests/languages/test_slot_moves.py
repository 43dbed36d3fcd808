"""A slot of a cluster migrates while a client works: the client waits on TRYAGAIN, and follows."""

from collections.abc import Iterator

import pytest

from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.cluster.servers import Cluster, slot_of
from tests.languages.driver import Driver
from tests.support import total, verdicts
from tests.waiting import wait_until


@pytest.fixture
def acker(masters: Cluster) -> Iterator[Acker]:
    masters.repair()
    with Acker(masters.client(), "moving") as acker:
        acker.create(AckerConfig(tick_ms=3_600_000))
        yield acker
    masters.flush()


def postponed_calls(masters: Cluster) -> int:
    """Return the number of calls that no master has run, because their slot was migrating.

    From 7.0 on the old master replies TRYAGAIN. 6.2 replies ASK there, and the new master replies
    TRYAGAIN, if the library follows ASK: phpredis 5 does not.
    """
    met = masters.redirections()
    return met["ASK"] + met["TRYAGAIN"]


def test_a_call_on_a_migrating_slot_is_retried(
    driver: Driver, masters: Cluster, acker: Acker
) -> None:
    driver.connect(*(node.server.port for node in masters.nodes), cluster=True)
    driver.begin(acker.namespace, retry_ms=120_000)
    (message,) = driver.ask("track", task="t", source_id="s", emit=1)["emitted"]
    slot = slot_of(ShardKeys(acker.namespace, 0))
    source = masters.owner(slot)
    to = masters.others(source)[0]
    before = postponed_calls(masters)
    masters.begin_move(slot, to)
    driver.send("work", inputs=[message], emit=[[0]], end="ack", why="", flush=True)
    wait_until(lambda: postponed_calls(masters) > before, "a call that has to wait")
    masters.migrate(source, to, source.keys_in(slot))
    masters.end_move(slot, source, to)
    (child,) = driver.answer()["emitted"]
    counters = total(acker)
    assert (counters["tracked"], counters["acked"], counters["pending"]) == (1, 0, 1)
    driver.ask("work", inputs=[child], emit=[], end="ack", why="", flush=True)
    assert [verdict[:2] for verdict in verdicts(acker)] == [("ack", "completed")]
