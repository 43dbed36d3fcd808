"""Which shards are called, by replies that the test makes up; no Redis and no clock."""

from concurrent.futures import Future
from typing import Any

import pytest

from acker_redis.errors import AckerError, RedisRefusedError, RedisUnavailableError
from acker_redis.flows.reach import LONGEST_PAUSE, PROBE_EVERY, PROBE_LASTS, Reach
from acker_redis.flows.steps import AskEach, Begin, Places, Step

AWAY = RedisUnavailableError("no answer")
DUE = 2 * LONGEST_PAUSE


class Masters:
    """Four shards on two masters, even and odd; a probe ends when the test says so."""

    def __init__(self) -> None:
        self.reach = Reach("orders")
        self.probes: list[tuple[Any, Future[Any]]] = []
        self.now = 100.0

    def ready(self, seconds: float = 0.0) -> list[int]:
        self.now += seconds
        flow = self.reach.ready(4, self.now)
        try:
            step = next(flow)
            while True:
                step = flow.send(self._take(step))
        except StopIteration as end:
            found: list[int] = end.value
            return found

    def answer(self, *away: int) -> None:
        """End the probe that was begun first; these shards do not answer."""
        flow, future = self.probes.pop(0)
        step = next(flow)
        assert isinstance(step, AskEach)
        shards = [int(str(command[1]).split(":")[2].rstrip("}")) for command in step.commands]
        try:
            flow.send([AWAY if shard in away else b"4" for shard in shards])
        except StopIteration as end:
            future.set_result(end.value)

    def _take(self, step: Step) -> Any:
        if isinstance(step, Places):
            return ["even" if int(key[14]) % 2 == 0 else "odd" for key in step.keys]
        assert isinstance(step, Begin)
        future = Future[Any]()
        self.probes.append((step.flow, future))
        return future


def test_call_without_an_answer_leaves_out_all_shards_of_its_master() -> None:
    it = Masters()
    assert it.ready() == [0, 1, 2, 3]
    assert it.reach.failed(1, AWAY, it.now) == [1, 3]
    assert it.ready() == [0, 2]
    assert it.reach.since(3) == float("inf")


def test_refusal_leaves_out_one_shard() -> None:
    it = Masters()
    it.ready()
    assert it.reach.failed(1, RedisRefusedError("full"), it.now) == [1]
    assert it.ready() == [0, 2, 3]


def test_shard_is_called_again_after_a_probe_and_its_pause() -> None:
    it = Masters()
    it.ready()
    it.reach.failed(1, AWAY, it.now)
    assert it.ready(DUE) == [0, 2], "the pause is over, and the probe runs"
    it.answer()
    assert it.ready() == [0, 1, 2, 3]
    assert it.reach.served([0, 1, 2, 3], it.now) == [1, 3]
    assert (it.reach.since(1), it.reach.since(0)) == (it.now, 0.0)
    assert it.ready(DUE) == [0, 1, 2, 3]
    assert it.probes == []


def test_shard_that_was_only_suspected_needs_no_pause() -> None:
    it = Masters()
    it.ready()
    it.reach.failed(1, AWAY, it.now)
    it.ready()
    it.answer()
    assert it.ready() == [0, 2, 3]
    assert it.ready(DUE) == [0, 1, 2, 3]


def test_pauses_grow_until_the_shard_was_served() -> None:
    it, error = Masters(), RedisRefusedError("full")
    it.ready()
    waits = []
    for _ in range(12):
        it.reach.failed(1, error, it.now)
        began = it.now
        it.ready()
        it.answer()
        while 1 not in it.ready(0.01):
            pass
        waits.append(it.now - began)
    assert waits[0] < 0.2
    assert LONGEST_PAUSE / 2 < waits[-1] < LONGEST_PAUSE + 0.1
    it.reach.served([1], it.now)
    it.reach.failed(1, error, it.now)
    it.ready()
    it.answer()
    assert it.ready(0.2) == [0, 1, 2, 3]


def test_master_that_hangs_delays_no_probe_of_another() -> None:
    it = Masters()
    it.ready()
    it.reach.failed(1, AWAY, it.now)
    it.ready()
    it.reach.failed(0, RedisRefusedError("full"), it.now)
    it.ready()
    assert len(it.probes) == 2
    it.probes.reverse()
    it.answer()
    assert it.ready(DUE) == [0, 2], "that of the odd ones still runs"
    assert len(it.probes) == 1


def test_probes_of_a_master_that_does_not_answer_have_pauses() -> None:
    it = Masters()
    it.ready()
    it.reach.failed(1, AWAY, it.now)
    it.ready()
    for _ in range(10):
        it.answer(1, 3)
        it.ready()
        assert it.probes == []
        it.ready(PROBE_EVERY)
        assert len(it.probes) == 1
    it.answer(3)
    assert it.ready(DUE) == [0, 1, 2], "one of two shards, as while a slot moves"


def test_if_no_shard_answers_all_are_called_and_none_is_probed() -> None:
    it = Masters()
    it.ready()
    it.reach.failed(1, AWAY, it.now)
    it.reach.failed(0, AWAY, it.now)
    assert it.ready() == [0, 1, 2, 3]
    assert it.probes == []


def test_probe_that_is_cancelled_or_fails_is_repeated() -> None:
    it = Masters()
    it.ready()
    it.reach.failed(1, AWAY, it.now)
    it.ready()
    for end in (lambda future: future.cancel(), lambda future: future.set_result(ValueError())):
        end(it.probes.pop(0)[1])
        assert it.ready() == [0, 2]
        it.ready(PROBE_EVERY)
    it.answer()
    assert it.ready(DUE) == [0, 1, 2, 3]


def test_probe_that_never_ends_is_replaced() -> None:
    """Nothing runs it any more: the process was forked, or its event loop was closed."""
    it = Masters()
    it.ready()
    it.reach.failed(1, AWAY, it.now)
    it.ready()
    it.probes.pop()
    assert it.ready(PROBE_LASTS / 2) == [0, 2]
    assert it.probes == []
    assert it.ready(PROBE_LASTS) == [0, 2]
    it.answer()
    assert it.ready(DUE) == [0, 1, 2, 3]


def test_shards_that_a_reshard_removes_are_forgotten() -> None:
    it = Masters()
    it.ready()
    it.reach.failed(3, AckerError("gone"), it.now)
    flow = it.reach.ready(2, it.now)
    assert isinstance(next(flow), Places)
    with pytest.raises(StopIteration) as end:
        flow.send([None, None])
    assert (end.value.value, it.reach.away) == ([0, 1], {})
