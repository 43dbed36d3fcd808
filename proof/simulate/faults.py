"""The faults by name, and the rate of each in one history."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from acker_redis.errors import ConfigError

FAULTS = {
    "requests": "requests are lost",
    "replies": "replies are lost",
    "duplicates": "requests arrive twice, the copy later",
    "reorder": "some requests, replies and messages are slow, and others overtake them",
    "redelivery": "messages are processed twice, with the same ids, by two bolts",
    "pause": "producers pause between deciding to send and sending, past the fence's horizon",
    "failover": "the shard returns to an earlier state, and old batches are sent again",
    "clock": "the server's clock is set forward or back",
    "rotators": "all rotators are away for some ticks, or die before a drain or in it",
    "rerun": "batches run again: with the same or other content, or a TRACK by another lane",
    "deaths": "bolts die and lose their rows, and messages are lost",
    "overflow": "the high-water mark is low",
    "backlog": "the limit of waiting verdicts is low, and sources are slow to take them",
    "losses": "keys of blocks are deleted: checksums, failed slots, present slots",
}
"""Name and description of each fault."""

BREAKS = {
    "split": "rule 1: a row is sent as an announcement and an ack, in two batches",
    "shared": "rule 2: a joined message has one id for all its inputs",
    "late": "rule 3: all first messages but one are announced after the track",
    "parted": "a failure and its delta are sent in two batches, and a failover loses one of them",
}
"""The rules of lua/README.md and of docs/explanation/failover.md that a history can break."""

_RATES = {"requests": 0.1, "replies": 0.12, "duplicates": 0.1, "reorder": 0.12}
_RATES |= {"redelivery": 0.04, "pause": 0.05, "rerun": 0.06, "deaths": 0.02}


@dataclass(frozen=True, slots=True)
class Faults:
    """Probability of each fault per occasion, 0 to 1, in one history."""

    requests: float = 0
    replies: float = 0
    duplicates: float = 0
    reorder: float = 0
    redelivery: float = 0
    pause: float = 0
    failover: float = 0
    clock: float = 0
    rotators: float = 0
    rerun: float = 0
    deaths: float = 0
    overflow: float = 0
    backlog: float = 0
    losses: float = 0


def parse(text: str) -> tuple[str, ...]:
    """Return the names from ``all``, ``none`` or a comma list; raise ConfigError if unknown."""
    if text in ("all", "none"):
        return tuple(FAULTS) if text == "all" else ()
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in FAULTS:
            raise ConfigError(
                f"unknown fault {name!r}; use all, none, or names from: {', '.join(FAULTS)}"
            )
    return names


def draw(chance: random.Random, names: Iterable[str], losses: random.Random) -> Faults:
    """Draw the rate of each of these faults for one history.

    ``losses`` is the random stream for the fault of this name: it does not change other histories.

    About every third history omits a given fault: with all faults at once few trees get far.
    """
    rates = {}
    wanted = set(names)
    for name in FAULTS:  # always in this order, for the same random stream
        stream = losses if name == "losses" else chance
        used, strength = stream.random() < 0.67, stream.uniform(0.3, 1.5)
        if name in wanted and (used or len(wanted) == 1):
            rates[name] = _RATES.get(name, 0.6) * strength
    return Faults(**rates)
