"""RotatingMap: vectors for ports to all languages, a naive model, and callbacks that raise."""

import doctest
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from acker_redis.errors import ConfigError
from acker_redis.trees import rotating_map
from acker_redis.trees.rotating_map import RotatingMap
from tests.properties.play import play
from tests.tiers import examples

FILE = json.loads(Path(__file__).with_name("vectors_rotating_map.json").read_bytes())
KEYS = st.integers(0, 5)


def test_vectors_have_different_names() -> None:
    names = [vector["name"] for vector in FILE["vectors"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda vector: vector["name"])
def test_vector(vector: dict[str, Any]) -> None:
    if vector.get("refused"):
        with pytest.raises(ConfigError, match="at least 2"):
            RotatingMap(vector["buckets"])
        return
    called: list[tuple[str, int]] = []
    pending = RotatingMap[str, int](vector["buckets"], lambda *entry: called.append(entry))
    for number, step in enumerate(vector["steps"]):
        verb, given = next(iter(step.items()))
        called.clear()
        gives: Any = None
        if verb == "put":
            pending[given[0]] = given[1]
        elif verb == "get":
            gives = pending.get(given)
        elif verb == "has":
            gives = given in pending
        elif verb == "remove":
            gives = pending.pop(given, None)
        elif verb == "size":
            gives = len(pending)
        else:
            assert verb == "rotate"
            assert all(pending.rotate() == {} for _ in range(given - 1)), number
            gives = pending.rotate()
            assert sorted(called) == sorted(gives.items()), number
        assert gives == step.get("gives"), number


class Machine(RuleBasedStateMachine):
    """A RotatingMap and its model: a dict of values with their age in rotations."""

    @initialize(buckets=st.integers(2, 5))
    def begin(self, buckets: int) -> None:
        self.buckets = buckets
        self.pending = RotatingMap[int, int](buckets, self.expired)
        self.model: dict[int, tuple[int, int]] = {}
        self.called: dict[int, int] = {}
        self.broken: set[int] = set()
        self.put_again: set[int] = set()

    def expired(self, key: int, value: int) -> None:
        assert key not in self.pending
        assert key not in self.called
        self.called[key] = value
        if key in self.put_again:
            self.pending[key] = -value
        if key in self.broken:
            raise RuntimeError(key)

    @rule(key=KEYS, value=st.integers())
    def put(self, key: int, value: int) -> None:
        self.pending[key] = value
        self.model[key] = value, 0

    @rule(key=KEYS)
    def pop(self, key: int) -> None:
        value, _ = self.model.pop(key, (None, 0))
        assert self.pending.pop(key, None) == value

    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        if self.model.pop(key, None):
            del self.pending[key]
        else:
            with pytest.raises(KeyError):
                del self.pending[key]

    @rule(broken=st.just(set()) | st.sets(KEYS), put_again=st.just(set()) | st.sets(KEYS))
    def rotate(self, broken: set[int], put_again: set[int]) -> None:
        self.broken, self.put_again = broken, put_again
        self.called.clear()
        self.model = {key: (value, age + 1) for key, (value, age) in self.model.items()}
        dead = {key: value for key, (value, age) in self.model.items() if age == self.buckets}
        for key, value in dead.items():
            if key in put_again:
                self.model[key] = -value, 0
            elif key in broken:
                self.model[key] = value, self.buckets - 1
            else:
                del self.model[key]
        if dead.keys() & broken:
            with pytest.raises(RuntimeError) as caught:
                self.pending.rotate()
            first_called = next(key for key in self.called if key in broken)
            assert caught.value.args == (first_called,)
        else:
            assert self.pending.rotate() == dead
        assert self.called == dead

    @precondition(lambda self: hasattr(self, "model"))
    @invariant()
    def contents_match_the_model(self) -> None:
        values = {key: value for key, (value, _) in self.model.items()}
        assert dict(self.pending.items()) == values == self.pending
        assert len(self.pending) == len(values)
        ages = [self.model[key][1] for key in self.pending]
        assert ages == sorted(ages, reverse=True)
        for key in range(6):
            assert (key in self.pending) == (key in values)
            assert self.pending.get(key, 0.5) == values.get(key, 0.5)


def test_random_histories_match_a_dict_with_ages() -> None:
    play(Machine, histories=examples(), steps=40)


def filled(*keys: int, **arguments: Any) -> RotatingMap[int, str]:
    """Return a map with two buckets whose keys expire at the next rotation."""
    pending = RotatingMap[int, str](2, **arguments)
    pending.update({key: f"record {key}" for key in keys})
    pending.rotate()
    return pending


def test_raising_callback_loses_no_entry() -> None:
    called: list[int] = []
    broken = {1, 3}

    def expired(key: int, record: str) -> None:
        called.append(key)
        if key in broken:
            raise OSError(record)

    pending = filled(0, 1, 2, 3, expired=expired)
    pending[4] = "record 4"
    with pytest.raises(OSError, match="record 1") as caught:
        pending.rotate()
    assert caught.value.__notes__ == ["2 of 4 callbacks of a rotation raised"]
    assert called == [0, 1, 2, 3]
    assert dict(pending) == {4: "record 4", 1: "record 1", 3: "record 3"}
    broken.clear()
    assert pending.rotate().keys() == {1, 3, 4}
    assert called == [0, 1, 2, 3, 4, 1, 3]
    assert len(pending) == 0


def test_entry_put_again_by_a_raising_callback_stays_newest() -> None:
    def expired(key: int, record: str) -> None:
        pending[key] = "replayed"
        raise OSError(record)

    pending = filled(7, expired=expired)
    with pytest.raises(OSError, match="record 7"):
        pending.rotate()
    assert dict(pending) == {7: "replayed"}
    assert pending.rotate() == {}


def test_interrupt_stops_callbacks_and_keeps_the_uncalled_entries() -> None:
    called: list[int] = []

    def expired(key: int, record: str) -> None:
        called.append(key)
        if key == 1 and len(called) < 3:
            raise KeyboardInterrupt

    pending = filled(0, 1, 2, expired=expired)
    with pytest.raises(KeyboardInterrupt):
        pending.rotate()
    assert called == [0, 1]
    assert pending.keys() == {1, 2}
    assert pending.rotate().keys() == {1, 2}
    assert called == [0, 1, 1, 2]


def test_a_callback_may_replay_at_once() -> None:
    def expired(key: int, record: str) -> None:
        pending[key + 1] = record

    pending = filled(7, expired=expired)
    assert pending.rotate() == {7: "record 7"}
    assert dict(pending) == {8: "record 7"}


def test_returned_entries_belong_to_the_caller() -> None:
    pending = filled(7)
    dead = pending.rotate()
    dead[8] = "mine"
    assert len(pending) == 0


def test_missing_key_raises_or_gives_the_default() -> None:
    pending = filled(7)
    for look in (pending.__getitem__, pending.pop):
        with pytest.raises(KeyError):
            look(8)
    assert pending.get(8) is None
    assert pending.get(8, "none") == pending.pop(8, "none") == "none"


def test_none_is_a_value() -> None:
    pending = RotatingMap[int, None]()
    pending[7] = None
    assert 7 in pending
    assert pending[7] is None
    assert pending.pop(7) is None
    assert 7 not in pending


def test_repr_shows_buckets_newest_first() -> None:
    pending = filled(7)
    pending[8] = "record 8"
    assert repr(pending) == "RotatingMap({8: 'record 8'}, {7: 'record 7'})"


def test_the_example_in_its_docstring() -> None:
    assert doctest.testmod(rotating_map).failed == 0
