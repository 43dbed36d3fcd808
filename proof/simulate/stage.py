"""The interface of the world that the actors use."""

import random
from collections import Counter
from typing import Protocol

from acker_redis.protocol.config import AckerConfig
from proof.simulate.clock import Clock
from proof.simulate.network import Network
from proof.simulate.service import Service
from proof.simulate.trees import Forest, Message


class Stage(Protocol):
    """The world, as sources, bolts, rotators and lanes use it; ``World`` is the only one."""

    config: AckerConfig
    chance: random.Random
    clock: Clock
    network: Network
    service: Service
    forest: Forest
    counts: Counter[str]
    """How often each fault and each interesting state occurred."""
    breaks: str
    """The rule that is broken on purpose; '' for none."""
    fails: float
    """Share of messages that fail."""
    touches: float
    """Share of messages that reset their tree's timeout."""
    rotators_back: int
    """When the rotators return, in ms of the simulated clock."""

    def happens(self, fault: str, share: float = 1) -> bool:
        """Draw whether a fault occurs here."""

    def linger(self) -> int:
        """Draw for how many ms a lane waits for more rows."""

    def pause(self, again: bool) -> int:
        """Draw for how many ms a producer pauses before it sends."""

    def in_blocks(self, share: float) -> float:
        """Return the share of a source's trees that it tracks in blocks."""

    def lane_name(self, name: str) -> str:
        """Draw the name of a lane; some are durable."""

    def deliver(self, message: Message) -> None:
        """Bring a message to a bolt, or to two."""

    def rotators_leave(self, ticks: int) -> None:
        """Let no rotator tick for up to ``ticks`` ticks."""

    def take(self, task: str) -> None:
        """Let a source take its verdicts."""
