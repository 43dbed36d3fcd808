"""The metrics of traced sources, by the API of OpenTelemetry. No attribute names a record."""

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from opentelemetry.metrics import (
    CallbackOptions,
    Meter,
    MeterProvider,
    Observation,
    get_meter_provider,
)

from acker_redis.flows.source import SourceFlows
from acker_redis.integrations.otel.spans import Names, began_ns, verdict_attributes
from acker_redis.trees.record import Verdict

BOUNDARIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds that divide the buckets of the histogram; those of OpenTelemetry are milliseconds."""


class Meters:
    """The instruments of one provider of meters."""

    def __init__(self, provider: MeterProvider) -> None:
        meter: Meter = provider.get_meter("acker_redis")
        self._sources: WeakKeyDictionary[SourceFlows, Names] = WeakKeyDictionary()
        self._seconds = meter.create_histogram(
            "acker.source.duration", "s", "Time from the emit of a record to each verdict on it.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )  # fmt: skip
        meter.create_observable_up_down_counter(
            "acker.source.pending", [self._observe], "{record}", "Open records of a source."
        )

    def watch(self, source: SourceFlows, names: Names) -> None:
        """Observe the open records of a source for as long as it exists."""
        self._sources[source] = names

    def count(self, names: Names, verdict: Verdict, ended_ns: int) -> None:
        """Count a verdict, and how long it has taken: as long as its span."""
        seconds = (ended_ns - began_ns(verdict, ended_ns)) / 1e9
        self._seconds.record(seconds, verdict_attributes(names, verdict))

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        # keyrefs() is a list: another thread may add a source during the loop.
        for ref in self._sources.keyrefs():
            source = ref()
            if source is not None:
                yield Observation(source.live(), self._sources[source])


_global: list[Meters] = []
_given: "WeakKeyDictionary[MeterProvider, Meters]" = WeakKeyDictionary()


def meters_of(provider: MeterProvider | None) -> Meters:
    """Return the instruments of a provider; without one, of the global provider.

    A provider has them once: it ignores the callback of an observable instrument that is created a
    second time.
    """
    if provider is None or provider is get_meter_provider():
        if not _global:
            # Before the program sets its provider, this is a proxy, which passes them on then.
            _global.append(Meters(get_meter_provider()))
        return _global[0]
    if provider not in _given:
        _given[provider] = Meters(provider)
    return _given[provider]
