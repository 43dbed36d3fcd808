"""The expected diagnosis of an expired tree: cause, edges and residual, from sets of links."""

from collections import Counter
from collections.abc import Sequence

from acker_redis.protocol.outcome import Outcome
from proof.simulate.records import Pending
from proof.simulate.trees import Part
from proof.simulate.violations import Violation


def check(slot: Pending, outcome: Outcome, edges: Sequence[str]) -> str:
    """Check the verdict on an expired tree, and return the state that it shows.

    Raises:
        Violation: The verdict names an edge that lost nothing or does not name one that lost an odd
            number of messages, its residual is not the id of the one missing message, or its cause
            is not the one expected.

    """
    cause = "deadline" if slot.place.capped else "idle"
    if outcome.cause != cause:
        words = f"{outcome} has not the cause {cause!r}"
        raise Violation("cause", words, outcome.anchor)
    wanted = odd_edges(slot, edges)
    if outcome.edges != wanted:
        words = f"{outcome.edges} named, expected {wanted}; unaccounted for: {sorted(slot.links)}"
        raise Violation("edges", words, outcome.anchor)
    missing = one_missing(slot)
    if missing and outcome.residual != missing.id:
        words = f"{outcome.residual:x}, but message {missing.number} is missing: {missing.id:x}"
        raise Violation("residual", words, outcome.anchor)
    if bool(outcome.residual) != bool(slot.links):
        words = f"{outcome.residual:x}; unaccounted for: {sorted(slot.links)}"
        raise Violation("residual", words, outcome.anchor)
    if missing:
        return "expired with one message missing"
    return f"expired with {'some' if wanted else 'no'} edge named"


def odd_edges(slot: Pending, edges: Sequence[str]) -> tuple[str, ...]:
    """Return the edges on which an odd number of messages is unaccounted for.

    A message is unaccounted for if its own row has come and the rows that announce it have not, or
    the other way round. If a part of its announcements has come, that of its least cause decides.
    """
    odd: Counter[str] = Counter()
    for number in {number for number, _ in slot.links}:
        part = slot.tree.parts.get(number)
        if part and (number, _carrier(part)) in slot.links:
            odd[part.edge] += 1
    return tuple(edge for edge in edges if odd[edge] % 2)


def one_missing(slot: Pending) -> Part | None:
    """Return the message that alone is unaccounted for, with all its announcements; else None."""
    number = min((number for number, _ in slot.links), default=0)
    part = slot.tree.parts.get(number)
    return part if part and slot.links == part.links else None


def _carrier(part: Part) -> int:
    """Return the cause whose edge id carries the code: that with the least id in this tree."""
    parts = part.tree.parts
    return min(part.causes, key=lambda cause: parts[cause].id if cause else 0)
