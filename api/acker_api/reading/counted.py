"""The counters among the metrics: numbers that Redis counts, and that only ever grow in a series.

A sum over shards or sources that come and go would go back, and Prometheus takes a counter that
goes back for one that began again at 0: it would count the whole sum once more. So

- the counts of shards that a reshard removes go on in shard 0 (``lua/configure.lua``);
- the label ``dataset`` changes with a failover or a restart of Redis, which may lose the last
  writes: a series of the new data begins, and its first value is no growth;
- each source has its series, and no series has the sum of "all others".

A namespace that is dropped and created again begins at 0, as Prometheus expects.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from acker_redis import Status
from acker_redis.operate import MAX_SOURCES, OTHERS, most_waiting

NO_EDGE = "(none)"
"""Label for trees that are odd on none of the named edges; it is not a valid name of an edge."""
LATENCY_DIGITS = 23
"""Buckets of the latency: up to 2^22 ms, 70 minutes. A fixed number, so no series begins late."""

VERDICTS = (
    ("ack", "completed", "acked"),
    ("nack", "failed", "failed"),
    ("nack", "expired", "expired"),
    ("nack", "overflow", "overflow"),
    ("nack", "conflict", "conflict"),
)
"""A verdict, its reason, and the counter of ``status`` that counts them."""


def counters(states: dict[str, Status], dataset: str) -> Iterator[Metric]:
    """Yield the counters of namespaces, by the fingerprint of the data that was read."""
    yield from _trees(states, dataset)
    yield _latency(states, dataset)
    yield from _sources(states, dataset)
    yield _expired(states, dataset)


def _trees(states: dict[str, Status], dataset: str) -> Iterator[Metric]:
    ended = _counter(
        "acker_trees", "Verdicts on trees", "verdict", "reason"
    )  # exposed as acker_trees_total, like every counter
    slow = _counter("acker_trees_slow", "Acked trees that took longer than slo_ms")
    tracked = _counter("acker_trees_tracked", "Trees that were tracked")
    orphaned = _counter(
        "acker_rows_orphaned",
        "Records that expired without a tree, and rows that were dropped above the high-water "
        "mark, during a reshard, or because their block was missing",
    )
    after_failure = _counter(
        "acker_rows_after_failure",
        "Those of the orphaned records that late rows of failed trees explain",
    )
    repeated = _counter("acker_batches_repeated", "Repeated batches, which were not applied again")
    for name, status in states.items():
        counts = status.counters
        for verdict, reason, counter in VERDICTS:
            ended.add_metric([name, dataset, verdict, reason], counts[counter])
        slow.add_metric([name, dataset], status.slow)
        tracked.add_metric([name, dataset], counts["tracked"])
        orphaned.add_metric([name, dataset], counts["orphaned"])
        after_failure.add_metric([name, dataset], status.after_failure)
        repeated.add_metric([name, dataset], counts["repeated"])
    yield from (ended, slow, tracked, orphaned, after_failure, repeated)


def _latency(states: dict[str, Status], dataset: str) -> Metric:
    found = HistogramMetricFamily(
        "acker_complete_latency_seconds",
        "Seconds from the first row of a tree to its ack",
        labels=("namespace", "dataset"),
    )
    for name, status in states.items():
        counts, below = status.latency.counts, 0
        buckets = []
        for digits in range(LATENCY_DIGITS):
            below += counts[digits] if digits < len(counts) else 0
            buckets.append((str(2**digits / 1000), below))
        buckets.append(("+Inf", status.latency.count))
        found.add_metric([name, dataset], buckets, status.latency.sum_ms / 1000)
    return found


def _sources(states: dict[str, Status], dataset: str) -> Iterator[Metric]:
    ended = _counter(
        "acker_ended",
        f"Trees of a source that were acked or nacked, for the {MAX_SOURCES} sources with most. A "
        "source that is idle for 100 ticks begins again at 0",
        "source",
    )
    good = _counter(
        "acker_good",
        "Trees that were acked within slo_ms, or with slo_ms 0 before they expired; sources as of "
        "acker_ended_total",
        "source",
    )
    for name, status in states.items():
        made = status.good
        for source, count in most_waiting(status.ended).items():
            if source != OTHERS:
                ended.add_metric([name, dataset, source], count)
                good.add_metric([name, dataset, source], made.get(source, 0))
    yield from (ended, good)


def _expired(states: dict[str, Status], dataset: str) -> Metric:
    expired = _counter(
        "acker_expired_by_edge",
        "Expired trees by the edges on which an odd number of their messages is unaccounted for: "
        f"with two such edges, a tree counts for both. {NO_EDGE}: on none of the named edges",
        "edge",
    )
    for name, status in states.items():
        for edge, count in status.odd.items():
            expired.add_metric([name, dataset, edge or NO_EDGE], count)
    return expired


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=("namespace", "dataset", *labels))
