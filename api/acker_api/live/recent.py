"""Search of the verdicts that this process has received lately: of one ring, in memory."""

import json
from dataclasses import dataclass, field
from typing import Any

from acker_api.live.ring import Ring
from acker_api.reading.search import Sought
from acker_redis import split_anchor


@dataclass
class Recent:
    """The verdicts of a ring that match, newest first."""

    outcomes: list[dict[str, Any]] = field(default_factory=list)
    """Each as in the event."""
    blocks: list[dict[str, Any]] = field(default_factory=list)
    """Verdicts on whole blocks, each as in the event."""
    looked: int = 0
    """Verdicts that the ring has."""
    left_out: int = 0
    """Verdicts that its events left out."""


def recent(ring: Ring, sought: Sought, limit: int, ids: bool) -> Recent:
    """Return up to ``limit`` verdicts that match, and as many of blocks.

    ``ids``: whether the caller may see ids of messages.
    """
    found = Recent()
    for event, data in reversed(ring.kept(ids)):
        if event == "outcome":
            _look(found, json.loads(data), sought, limit)
    return found


def _look(found: Recent, told: dict[str, Any], sought: Sought, limit: int) -> None:
    outcomes, blocks = told["outcomes"], told["blocks"]
    found.looked += len(outcomes) + sum(each["count"] for each in blocks)
    found.left_out += told["dropped"]
    found.outcomes += [each for each in reversed(outcomes) if _is(each, sought)]
    place = None if sought.anchor is None else split_anchor(sought.anchor)
    found.blocks += [
        each
        for each in reversed(blocks)
        if each["label"].startswith(sought.text) or (place and each["block"] == str(place[0]))
    ]
    del found.outcomes[limit:], found.blocks[limit:]


def _is(outcome: dict[str, Any], sought: Sought) -> bool:
    if sought.anchor is not None and outcome["anchor"] == str(sought.anchor):
        return True
    residual = outcome["residual"]
    if sought.message and residual and int(residual, 16) == sought.message:
        return True
    return bool(outcome["source_id"].startswith(sought.text))
