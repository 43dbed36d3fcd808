"""Plays random histories of a state machine, until what is interesting was met."""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from acker_redis.embedded import EmbeddedRedis


def share(server: EmbeddedRedis, histories: int) -> int:
    """How many of so many histories to play on a server: all on one, a quarter on the other.

    What is random is what a history does, and both servers run the same scripts.
    """
    return histories if "PATH" in server.description else histories // 4


def play(kind: type[RuleBasedStateMachine], histories: int, steps: int, **fields: Any) -> None:
    """Play histories of this machine; ``fields`` are set on its class."""
    machine = type(kind.__name__, (kind,), fields)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            derandomize=False,  # else Hypothesis plays the same ones each time on CI
        ),
    )


def play_until_met(
    kind: type[RuleBasedStateMachine],
    reached: Counter[str],
    interesting: tuple[str, ...],
    least: int,
) -> None:
    """Play some hundred histories, and more if a state was met too rarely to prove anything."""
    reached.clear()
    missed: list[str] = []
    for _ in range(6):
        play(kind, 200, 80)
        missed = [name for name in interesting if reached[name] < least]
        if not missed:
            break
    for name in interesting:
        print(f"{reached[name]:8} {name}")
    assert not missed, f"too rare to prove anything: {missed}, of {dict(reached)}"
