"""The expected diagnosis of an expired tree: cause, edges and residual, from sets of links."""

from collections import Counter
from collections.abc import Mapping, Sequence

from acker_redis.protocol.outcome import Outcome
from proof.oracle.facts import Link, Part
from proof.oracle.records import Record
from proof.oracle.violations import Violation


def check(record: Record, outcome: Outcome, edges: Sequence[str]) -> str:
    """Check the verdict on an expired tree, and return the state that it shows.

    Raises:
        Violation: The verdict names an edge that lost nothing or does not name one that lost an odd
            number of messages, its residual is not the id of the one missing message, or its cause
            is not the one expected.

    """
    cause = "deadline" if record.place.capped else "idle"
    if outcome.cause != cause:
        words = f"{outcome} has not the cause {cause!r}"
        raise Violation("cause", words, outcome.anchor)
    wanted = odd_edges(record, edges)
    if outcome.edges != wanted:
        words = f"{outcome.edges} named, expected {wanted}; unaccounted for: {sorted(record.links)}"
        raise Violation("edges", words, outcome.anchor)
    missing = one_missing(record)
    if missing and outcome.residual != missing.id:
        words = f"{outcome.residual:x}, but one message is missing: {missing.id:x}"
        raise Violation("residual", words, outcome.anchor)
    if bool(outcome.residual) != bool(record.links):
        words = f"{outcome.residual:x}; unaccounted for: {sorted(record.links)}"
        raise Violation("residual", words, outcome.anchor)
    if missing:
        return "expired with one message missing"
    return f"expired with {'some' if wanted else 'no'} edge named"


def odd_edges(record: Record, edges: Sequence[str]) -> tuple[str, ...]:
    """Return the edges on which an odd number of messages is unaccounted for.

    A message is unaccounted for if its own row has come and the rows that announce it have not, or
    the other way round. If a part of its announcements has come, that of its least cause decides.
    """
    parts = record.tree.parts
    odd = Counter(part.edge for part in parts.values() if _carrier(part, parts) in record.links)
    return tuple(edge for edge in edges if odd[edge] % 2)


def one_missing(record: Record) -> Part | None:
    """Return the message that alone is unaccounted for, with all its announcements; else None."""
    for part in record.tree.parts.values():
        if record.links and part.links == record.links:
            return part
    return None


def _carrier(part: Part, parts: Mapping[int, Part]) -> Link | None:
    """Return the link whose edge id carries the code: to the cause with the least id."""
    return min(part.links, key=lambda link: parts[link[1]].id if link[1] else 0, default=None)
