"""Play random histories of a state machine; the share of them for each server."""

from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.binary import find_server


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
