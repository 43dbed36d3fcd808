"""Trees with a source in Python, and with bolts in all languages that are installed."""

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.sync.client import Acker
from acker_redis.trees import processing as tuple_tree
from acker_redis.trees.message_id import MessageId
from tests.conftest import CI, MakeAcker, missing
from tests.languages.clients import Client
from tests.languages.conftest import SIDES, MakeDriver, name_of
from tests.languages.driver import Driver
from tests.support import tick, total, verdicts

Side = tuple[Client, str]
NEVER = 3_600_000
"""ms"""


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=4)


class Bolts:
    """All installed clients, each as a bolt."""

    def __init__(self, acker: Acker, port: int, drivers: MakeDriver, here: list[Side]) -> None:
        self.acker, self.here = acker, here
        self._port, self._drivers = port, drivers
        self._known: set[Driver] = set()

    def work(
        self, side: Side, *inputs: str, emit: tuple[tuple[int, ...], ...] = (), end: str = "ack",
        why: str = "", flush: bool = True,
    ) -> list[str]:  # fmt: skip
        """Let a client process messages; return the ids of the messages that it emits."""
        driver = self.driver(side)
        emitted: list[str] = driver.ask(
            "work", inputs=inputs, emit=emit, end=end, why=why, flush=flush
        )["emitted"]
        return emitted

    def driver(self, side: Side) -> Driver:
        """Return the connected driver of a side."""
        driver = self._drivers(*side)
        if driver not in self._known:
            driver.connect(self._port)
            driver.begin(self.acker.namespace, retry_ms=120_000, linger_ms=NEVER)
            self._known.add(driver)
        return driver

    def along(self, message: str, sides: list[Side]) -> str:
        """Let each side process the message of the previous side and emit one; return the last."""
        for side in sides:
            (message,) = self.work(side, message, emit=((0,),))
        return message


@pytest.fixture
def bolts(acker: Acker, any_server: EmbeddedRedis, drivers: MakeDriver) -> Bolts:
    here = [side for side in SIDES if not side[0].lacks()]
    if CI:
        assert here == SIDES, "all clients must be installed on CI"
    if not here:
        missing("any client")
    return Bolts(acker, any_server.port, drivers, here)


def track(acker: Acker, *source_ids: str) -> list[str]:
    """Track a tree with one message for each record; return the message ids."""
    batch, messages = Batch("t"), []
    for source_id in source_ids:
        tree = tuple_tree.emit(source_id)
        batch.add(tree.row)
        messages.append(str(tree.ids[0]))
    acker.apply(batch)
    return messages


def taken(acker: Acker) -> list[tuple[str, str, str, str]]:
    """Take the waiting outcomes; return verdict, reason, source id and why of each, sorted."""
    return sorted((v[0], v[1], v[3], v[4]) for v in verdicts(acker))


def test_one_tree_through_all_languages(bolts: Bolts, acker: Acker) -> None:
    """A chain through all clients, then a diamond that joins a message of another tree."""
    first, second = track(acker, "order-1", "order-2")
    sides = bolts.here
    message = bolts.along(first, sides)
    left, right = bolts.work(sides[0], message, emit=((0,), (0,)))
    (left,) = bolts.work(sides[-1], left, emit=((0,),))
    (right,) = bolts.work(sides[len(sides) // 2], right, emit=((0,),))
    # A join of three messages of two trees: its first child belongs to both trees.
    (both, alone) = bolts.work(sides[0], left, right, second, emit=((0, 1, 2), (2,)))
    assert len(MessageId.parse(both)) == 2
    both = bolts.along(both, sides[::-1])
    assert taken(acker) == []
    assert total(acker)["pending"] == 2
    bolts.work(sides[-1], both)
    assert taken(acker) == [("ack", "completed", "order-1", "")]
    bolts.work(sides[0], alone)
    assert taken(acker) == [("ack", "completed", "order-2", "")]
    assert total(acker)["pending"] == 0


def test_each_client_at_each_corner_of_a_diamond(bolts: Bolts, acker: Acker) -> None:
    sides = bolts.here
    for turn in range(len(sides)):
        a, b, c, d = (sides[(turn + corner) % len(sides)] for corner in range(4))
        (message,) = track(acker, f"diamond-{turn}")
        left, right = bolts.work(a, message, emit=((0,), (0,)))
        (left,) = bolts.work(b, left, emit=((0,),))
        (right,) = bolts.work(c, right, emit=((0,),))
        (last,) = bolts.work(d, left, right, emit=((0, 1),))
        assert taken(acker) == []
        bolts.work(a, last)
        assert taken(acker) == [("ack", "completed", f"diamond-{turn}", "")]


def test_trees_of_a_block(bolts: Bolts, acker: Acker) -> None:
    """One tree for each client, all in one block."""
    sides = bolts.here
    ids = list(range(101, 101 + len(sides)))
    anchors = acker.track_block("t", "page 1", ids)
    messages = [f"{anchor}:{id_}" for anchor, id_ in zip(anchors, ids, strict=True)]
    for place, side in enumerate(sides):
        assert taken(acker) == []
        (message,) = bolts.work(side, messages[place], emit=((0,),))
        bolts.work(sides[place - 1], message)
    assert taken(acker) == [("ack", "completed", "page 1", "")] * len(sides)


def test_each_client_fails_a_tree(bolts: Bolts, acker: Acker) -> None:
    for side in bolts.here:
        name = name_of(side)
        (message,) = track(acker, name)
        message = bolts.along(message, bolts.here)
        bolts.work(side, message, emit=((0,),), end="fail", why=f"{name} says no")
        assert taken(acker) == [("nack", "failed", name, f"{name} says no")]
    assert total(acker)["acked"] == 0


def test_each_client_resets_a_timeout(bolts: Bolts, acker: Acker) -> None:
    for side in bolts.here:
        (message,) = track(acker, "slow")
        tick(acker, 2)
        bolts.work(side, message, end="touch")
        assert taken(acker) == [("touch", "reset", "slow", "")]
        tick(acker, 2)
        bolts.work(side, message)
        assert taken(acker) == [("ack", "completed", "slow", "")]


def test_each_client_is_killed_and_its_trees_expire(bolts: Bolts, acker: Acker) -> None:
    """A client is killed between emit and ack, and with an ack that it has not sent."""
    for side in bolts.here:
        name, others = name_of(side), [one for one in bolts.here if one != side]
        messages = track(acker, f"{name} in between", f"{name} holds an ack")
        between, held = (bolts.along(message, others) for message in messages)
        expected = [f"{name} in between"]
        (child,) = bolts.work(side, between, emit=((0,),), end="none")
        if "linger" in side[0].can:
            (other,) = bolts.work(side, held, emit=((0,),), flush=False)
            expected.append(f"{name} holds an ack")
        else:
            other = held
        bolts.driver(side).kill()
        # Other clients process the messages that it had emitted.
        healthy = others[0] if others else side
        bolts.work(healthy, child)
        bolts.work(healthy, other)
        if "linger" not in side[0].can:
            assert taken(acker) == [("ack", "completed", f"{name} holds an ack", "")]
        assert taken(acker) == []
        tick(acker, 3)
        assert taken(acker) == [("nack", "expired", source, "") for source in sorted(expected)]


def test_each_client_is_a_source(bolts: Bolts, acker: Acker) -> None:
    """A client tracks, another one processes, and the first one reads and takes the verdicts."""
    sides = bolts.here
    for place, side in enumerate(sides):
        task = name_of(side)
        driver = bolts.driver(side)
        one, two = driver.ask("track", task=task, source_id="one / ü", emit=2)["emitted"]
        bolts.work(sides[(place + 1) % len(sides)], one)
        assert driver.ask("read", task=task)["outcomes"] == []
        bolts.work(side, two, emit=((0,),), end="fail", why="„no“")
        (outcome,) = driver.ask("take", task=task)["outcomes"]
        anchor = str(*MessageId.parse(one))
        assert outcome[:5] == ["nack", "failed", anchor, "one / ü", "„no“"]
        assert driver.ask("read", task=task)["outcomes"] == []
        assert acker.status().backlog[task] == 0
