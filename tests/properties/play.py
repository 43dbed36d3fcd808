"""Play random histories of a state machine, until all interesting states were reached."""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.binary import find_server
from tests.tiers import FULL, examples, is_later

MAX_ROUNDS = 50
"""At most this many rounds of the tier's histories, until all interesting states were reached."""


def share(server: EmbeddedRedis, histories: int) -> int:
    """Return the number of histories for a server: all on the default one, a quarter on others.

    Only the histories are random, and all servers run the same scripts.
    """
    default = find_server()
    is_default = default is not None and default.description == server.description
    return histories if is_default else max(1, histories // 4)


def play(kind: type[RuleBasedStateMachine], histories: int, steps: int, **fields: Any) -> None:
    """Play histories of this machine; ``fields`` are set on its class."""
    machine = type(kind.__name__, (kind,), fields)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
        ),
    )


def play_until_met(
    kind: type[RuleBasedStateMachine],
    reached: Counter[str],
    interesting: tuple[str, ...],
    least: int,
) -> None:
    """Play the tier's histories, and more while a state was reached fewer than ``least`` times.

    The quick tier has too few histories to reach every state, so there they are only played.
    """
    if is_later(FULL):
        play(kind, examples(2), 80)
        return
    reached.clear()
    missed: list[str] = []
    for _ in range(MAX_ROUNDS):
        play(kind, examples(2), 80)
        missed = [name for name in interesting if reached[name] < least]
        if not missed:
            break
    for name in interesting:
        print(f"{reached[name]:8} {name}")
    assert not missed, f"too rare to prove anything: {missed}, of {dict(reached)}"
