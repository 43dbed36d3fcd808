"""Some shards do not answer, as those of one master of a cluster: rows of the others are sent."""

from typing import Any

import pytest

from acker_redis.flows.delivery import MAX_SENDERS
from acker_redis.protocol.rows import track_row
from tests.producer.conftest import MakeRig
from tests.producer.rig import Awaited, Rig
from tests.source.masters import Masters
from tests.waiting import wait_until

SHARDS = 16
LIVE = SHARDS - 2 * MAX_SENDERS


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    return make_rig(shards=SHARDS)


class Scene:
    """A producer that knows its shards, on masters that can be cut."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.producer = rig, rig.producer(linger=0)
        inner = self.producer.producer if isinstance(self.producer, Awaited) else self.producer
        self.masters = Masters(inner.acker.connection)  # type: ignore[attr-defined]
        self.next = SHARDS
        self.add()
        self.producer.flush()

    @property
    def tracked(self) -> int:
        return self.rig.direct.status().counters["tracked"]

    def add(self) -> None:
        """Track a tree on each shard."""
        anchors = range(self.next, self.next + SHARDS)
        self.next += SHARDS
        self.producer.add([track_row(anchor, str(anchor), [1]) for anchor in anchors])

    def drive(self, flow: Any) -> Any:
        """Run a flow on the connection of the producer."""
        if isinstance(self.producer, Awaited):
            connection = self.producer.producer.acker.connection
            return self.producer._loop.run(connection.drive(flow))
        return self.producer.acker.connection.drive(flow)  # type: ignore[attr-defined]

    def called(self) -> list[int]:
        return [shard for shard, script in self.masters.calls if script == "apply"]

    def finish(self) -> None:
        self.masters.cut, self.masters.lost = set(), set()
        self.producer.flush()
        counters = self.rig.direct.status().counters
        assert (counters["tracked"], counters["conflict"]) == (self.next - SHARDS, 0)
        assert self.rig.given_up == []


def test_rows_of_shards_that_answer_are_applied(rig: Rig) -> None:
    """More shards do not answer than there are senders."""
    it = Scene(rig)
    it.masters.cut = set(range(2 * MAX_SENDERS))
    for number in range(1, 10):
        it.add()
        applied = SHARDS + number * LIVE
        wait_until(lambda: it.tracked == applied, f"rows {number}")  # noqa: B023 - called at once
    it.masters.cut, it.masters.lost = set(), {0, SHARDS - 1}
    it.add()
    wait_until(lambda: (SHARDS - 1, "status") in it.masters.calls, "a reply that is lost")
    it.finish()
    assert rig.direct.status().counters["repeated"] > 0


def test_shards_that_hang_keep_one_sender(rig: Rig) -> None:
    """The first calls of these shards may occupy all senders, once."""
    it, dead = Scene(rig), set(range(2 * MAX_SENDERS))
    it.masters.cut = dead
    it.add()
    wait_until(lambda: it.tracked == SHARDS + LIVE, "the rows of the other shards")
    wait_until(lambda: dead <= set(it.called()), "a call of each")
    it.masters.cut, it.masters.hanging = set(), dead
    wait_until(lambda: it.masters.hung, "a call that hangs")
    it.add()
    wait_until(lambda: it.tracked == SHARDS + 2 * LIVE, "the next rows of the others")
    assert it.masters.hung == 1
    it.masters.hanging = set()
    it.finish()


def test_bolts_do_not_wait_for_shard_0_again_and_again(rig: Rig) -> None:
    """It holds edges and salt, which a bolt reads from time to time."""
    it = Scene(rig)
    inner = it.producer.producer if isinstance(it.producer, Awaited) else it.producer
    flows, drive = inner.acker.flows, it.drive  # type: ignore[attr-defined]
    ids = drive(flows.fresh_ids())
    it.masters.cut = {0}
    flows.ids_due = 0.0
    assert drive(flows.fresh_ids()) is ids
    it.masters.cut, it.masters.hanging = set(), {0}
    flows.ids_due = 0.0
    for _ in range(3):
        assert drive(flows.fresh_ids()) is ids, "while it hangs"
    wait_until(lambda: it.masters.hung == 1, "one attempt in the background")
    it.masters.hanging = set()
    wait_until(lambda: not it.masters.hung, "its end")
    flows.ids_due = 0.0
    drive(flows.fresh_ids())
    wait_until(lambda: flows._away is None, "an answer")
