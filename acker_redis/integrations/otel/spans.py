"""The content of the span of a verdict, and whether it has one. Pure functions.

Names in ``messaging.*`` and ``error.type`` are those of OpenTelemetry's semantic conventions.
"""

from hashlib import blake2b
from typing import NamedTuple

from opentelemetry.trace import SpanContext
from opentelemetry.util.types import AttributeValue

from acker_redis.errors import ConfigError
from acker_redis.integrations.otel.records import TracedRecord
from acker_redis.protocol.texts import clipped
from acker_redis.trees.record import Record, Verdict

Names = dict[str, str]
"""The attributes that all verdicts of a source share."""
Attributes = dict[str, AttributeValue]

_NUMBERS = 1 << 64


class Shares(NamedTuple):
    """Which verdicts have a span: the shares of acks and of nacks, from 0 to 1.

    Verdicts of records that were emitted in one trace have spans together, as the decision depends
    on the id of that trace alone. It is the decision that ``TraceIdRatioBased`` of the SDK takes.
    Of a record without a trace, the source id decides in its place.
    """

    acks: float
    nacks: float

    def check(self) -> None:
        """Raise ConfigError unless both are shares.

        >>> Shares(acks=2.0, nacks=1.0).check()
        Traceback (most recent call last):
        acker_redis.errors.ConfigError: acks= is a share from 0 to 1, not 2.0
        """
        for name, share in self._asdict().items():
            if not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ConfigError(f"{name}= is a share from 0 to 1, not {share!r}")

    def include(self, verdict: Verdict) -> bool:
        """Return whether a verdict has a span.

        An ack has none if its record was emitted in a trace that is not sampled.
        """
        emitted_in = context_of(verdict.record)
        ack = verdict.verdict == "ack"
        if ack and emitted_in is not None and not emitted_in.trace_flags.sampled:
            return False
        share = self.acks if ack else self.nacks
        if share in (0, 1):
            return share == 1
        if emitted_in is not None:
            number = emitted_in.trace_id % _NUMBERS
        else:
            digest = blake2b(verdict.record.source_id.encode(), digest_size=8).digest()
            number = int.from_bytes(digest, "big")
        return number < share * _NUMBERS


def context_of(record: Record) -> SpanContext | None:
    """Return the span in which a record was emitted; None if there was none, or none is known."""
    return record.emitted_in if isinstance(record, TracedRecord) else None


def began_ns(verdict: Verdict, ended_ns: int) -> int:
    """Return when the span of a verdict begins, in nanoseconds since 1970.

    This is when the record was emitted. For a record of an earlier program, it is when the attempt
    was tracked.
    """
    record = verdict.record
    if isinstance(record, TracedRecord):
        return min(record.emitted_ns, ended_ns)  # the clock may have gone back
    return ended_ns - verdict.age_ms * 1_000_000


def why_of(verdict: Verdict) -> str:
    """Return why a tree was nacked, in up to 255 bytes."""
    return clipped(verdict.why or verdict.reason)


def names_of(namespace: str, source: str) -> Names:
    """Return the attributes that all verdicts of a source share."""
    return {
        "messaging.system": "acker_redis",
        "messaging.destination.name": namespace,
        "acker.source": source,
    }


def verdict_attributes(names: Names, verdict: Verdict) -> Attributes:
    """Return the attributes of a verdict in metrics and spans. None of them names the record.

    >>> verdict = Verdict(Record("order-1"), "nack", "expired", "", 9, final=False, anchor=7)
    >>> verdict_attributes({}, verdict)
    {'messaging.operation.name': 'nack', 'acker.final': False, 'error.type': 'expired'}
    """
    found: Attributes = {
        **names,
        "messaging.operation.name": verdict.verdict,
        "acker.final": verdict.final,
    }
    if verdict.verdict == "nack":
        found["error.type"] = verdict.reason
    return found


def span_attributes(names: Names, verdict: Verdict) -> Attributes:
    """Return the attributes of the span of a verdict."""
    record, outcome = verdict.record, verdict.outcome
    found: Attributes = {
        **verdict_attributes(names, verdict),
        "messaging.operation.type": "settle",
        "messaging.message.id": str(verdict.anchor),
        "acker.source_id": record.source_id,
        "acker.attempt": record.attempt,
    }
    if verdict.verdict == "nack":
        found["acker.why"] = why_of(verdict)
        if outcome and outcome.cause:
            found["acker.cause"] = outcome.cause
        if outcome and outcome.edges:
            found["acker.edges"] = outcome.edges
    return found
