"""Rules that no case covers: ids are random, and a row is complete when it is sent."""

from collections.abc import Iterable

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import BacklogError
from acker_redis.sync.client import Acker
from acker_redis.trees.message_id import MessageId
from tests.conftest import MakeAcker
from tests.languages.driver import Driver, DriverError
from tests.support import track, verdicts


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker()


@pytest.fixture
def begun(driver: Driver, any_server: EmbeddedRedis, acker: Acker) -> Driver:
    """Return the driver with a client of the namespace."""
    driver.connect(any_server.port)
    driver.begin(acker.namespace, retry_ms=120_000)
    return driver


def look_random(ids: Iterable[int], bits: int) -> bool:
    """Return whether all ids differ, and no bit is the same in all of them."""
    seen = list(ids)
    ones, zeros = 0, 0
    for each in seen:
        ones, zeros = ones | each, zeros | ~each
    full = 2**bits - 1
    return len(set(seen)) == len(seen) and ones == full and zeros & full == full


def test_check_of_random_ids_detects_a_counter() -> None:
    assert not look_random(range(1, 100), 63)
    assert not look_random([5, 5], 63)


def test_ids_are_random(begun: Driver) -> None:
    """A counter would pass every case, but 1 ^ 2 ^ 3 is 0."""
    first = begun.ask("track", task="t", source_id="s", emit=48)["emitted"]
    more = [begun.ask("track", task="t", source_id="s", emit=1)["emitted"][0] for _ in range(3)]
    children = begun.ask(
        "work", inputs=[first[0]], emit=[[0]] * 48, end="none", why="", flush=False
    )["emitted"]
    anchors = {anchor for text in (*first, *more) for anchor in MessageId.parse(text)}
    assert len(anchors) == 4
    assert min(anchors) > 2**30
    drawn = [MessageId.parse(text).values() for text in (*first, *more, *children)]
    assert look_random([id_ for (id_,) in drawn], 63)


def test_edges_of_one_message_are_distinct(begun: Driver) -> None:
    (both,) = begun.ask(
        "work", inputs=["7:40", "8:41"], emit=[[0, 1]], end="none", why="", flush=False
    )["emitted"]
    assert len(set(MessageId.parse(both).values())) == 2


def test_emit_after_an_ack_is_refused(begun: Driver, acker: Acker) -> None:
    """No row would contain an id emitted after the ack, so the tree would not wait for it."""
    (message,) = begun.ask("track", task="t", source_id="s", emit=1)["emitted"]
    with pytest.raises(DriverError) as refused:
        begun.ask("work", inputs=[message], emit=[], end="late", why="", flush=True)
    assert refused.value.code == "CLOSED"
    begun.ask("flush")
    assert [verdict[:2] for verdict in verdicts(acker)] == [("ack", "completed")]


@pytest.mark.parametrize(
    "inputs", [["7:{id}x"], ["7;{id}"], ["{id}"], ["7:{id}", "7:{id}"], ["7:{id},7:{id}"]]
)
def test_error_of_a_malformed_message_shows_no_id(begun: Driver, inputs: list[str]) -> None:
    """Errors reach logs, and an id is enough to ack its message."""
    id_ = str(1 << 62 | 0x1234_5678_9ABC)
    texts = [text.format(id=id_) for text in inputs]
    with pytest.raises(DriverError) as refused:
        begun.ask("work", inputs=texts, emit=[], end="ack", why="", flush=True)
    assert id_[:9] not in str(refused.value)


def test_refusal_of_a_script_is_reported_in_its_words(
    driver: Driver, any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """The script says what to do. Only it knows which of several causes a code has here."""
    acker = make_any_acker(outcomes_limit=1)
    driver.connect(any_server.port)
    driver.begin(acker.namespace)
    driver.ask("track", task="t", source_id="s", emit=0)
    with pytest.raises(DriverError) as refused:
        driver.ask("track", task="t", source_id="s", emit=1)
    with pytest.raises(BacklogError) as wanted:
        track(acker, 7, 0)
    assert refused.value.code == "BACKLOG"
    assert str(refused.value).splitlines()[0].endswith(f" {wanted.value}")
