"""The state of the namespaces as Prometheus metrics.

Everything is read first, and then converted by functions without I/O. This process counts nothing,
so replicas agree, and a restart loses nothing. Only the metrics named ``_sampled`` are estimates.
No label is an id; the numbers of sources and of edges are bounded.
"""

import logging
from collections.abc import Iterable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from acker_api.reading.counted import NO_EDGE, counters
from acker_api.reading.reader import ReadStatus, Survey
from acker_redis import Status
from acker_redis.operate import MAX_SOURCES, OTHERS, Event, backlog_ratio, most_waiting

log = logging.getLogger(__name__)


def encode(survey: Survey, accept: str) -> tuple[bytes, str]:
    """Return the text of all metrics, and the media type that an Accept header prefers."""
    encoder, media_type = choose_encoder(accept)
    return encoder(_Families(families(survey))), media_type


class _Families:
    """Metrics in the form of a registry, for an encoder."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def families(survey: Survey) -> Iterator[Metric]:
    """Yield all metrics. A namespace whose metrics cannot be built has only ``acker_up``, 0."""
    up = _gauge("acker_up", "1 if the namespace could be read, else 0", "namespace")
    found = {family.name: family for family in _of({}, "")}
    for name, each in survey.found.items():
        own = _sound(name, each, survey.dataset) if isinstance(each, ReadStatus) else None
        up.add_metric([name], float(own is not None))
        for family in own or ():
            found[family.name].samples += family.samples
    yield up
    answers = "1 if the list of namespaces could be read from Redis, else 0"
    yield GaugeMetricFamily("acker_redis_up", answers, float(survey.error is None))
    yield GaugeMetricFamily(
        "acker_scrape_seconds", "Seconds that this scrape took to read from Redis", survey.seconds
    )
    if survey.script_seconds is not None:
        yield CounterMetricFamily(
            "acker_redis_script_seconds",
            "Seconds that Redis has spent on scripts, of all its users",
            survey.script_seconds,
        )
    yield from found.values()


def _sound(name: str, seen: ReadStatus, dataset: str | None) -> list[Metric] | None:
    """Return the metrics of one namespace; None if a value has no place among them."""
    try:
        own = list(_of({name: seen}, dataset))
        for family in own:
            for sample in family.samples:
                float(sample.value)
    except Exception:
        # With any content of the keys of one namespace, the others have their metrics.
        log.exception(Event("no_metrics", namespace=name))
        return None
    return own


def _of(seen: dict[str, ReadStatus], dataset: str | None) -> Iterator[Metric]:
    """Yield the metrics of namespaces; without a dataset no counters, as none is known to go on."""
    states = {name: each.status for name, each in seen.items()}
    yield from _trees(states)
    yield from counters({} if dataset is None else states, dataset or "")
    yield from _edges(seen)
    yield from _marks(states)
    yield from _rotation(states)
    yield from _backlog(seen)
    yield from _windows(states)
    age = _gauge(
        "acker_oldest_pending_age_seconds",
        "Seconds since the first row of the oldest pending tree; 0 if none is pending. It is found "
        "in a sample of the oldest bucket, so it may be older by one tick",
        "namespace",
    )
    for name, each in seen.items():
        if each.oldest_ms is not None:
            age.add_metric([name], each.oldest_ms / 1000)
    yield age


def _trees(states: dict[str, Status]) -> Iterator[Metric]:
    open_trees = _gauge(
        "acker_trees_open",
        "Trees without a verdict, also those that wait to be drained",
        *("namespace", "shard"),
    )
    pending = _gauge(
        "acker_trees_pending",
        "Places in the buckets, which count toward the high-water mark: records of trees, of rows "
        "that came early or late, and all slots of blocks; bucket is their age in ticks, 0 the "
        "newest",
        *("namespace", "shard", "bucket"),
    )
    in_blocks = _gauge(
        "acker_trees_pending_in_blocks",
        "Slots of pending blocks, also those without a tree",
        *("namespace", "shard"),
    )
    expiring = _gauge(
        "acker_trees_expiring",
        "Records and blocks that have expired and wait to be drained",
        *("namespace", "shard"),
    )
    for name, status in states.items():
        for shard in status.shards:
            number = str(shard.shard)
            open_trees.add_metric([name, number], shard.open)
            for age, count in enumerate(shard.pending):
                pending.add_metric([name, number, str(age)], count)
            in_blocks.add_metric([name, number], sum(shard.in_blocks))
            expiring.add_metric([name, number], shard.expiring)
    yield from (open_trees, pending, in_blocks, expiring)


def _edges(seen: dict[str, ReadStatus]) -> Iterator[Metric]:
    """Yield the metrics of namespaces with edges."""
    sampled = _gauge(
        "acker_trees_sampled",
        "Pending trees that this scrape has read for the two metrics by edge",
        "namespace",
    )
    waiting = _gauge(
        "acker_waiting_trees_sampled",
        "Sampled trees with an odd number of messages outstanding on an edge; a tree may wait on "
        f"several. {NO_EDGE}: on none of the named edges",
        *("namespace", "edge"),
    )
    idle = _gauge(
        "acker_waiting_idle_seconds_sampled",
        "Median of the seconds since the last row of the sampled trees that wait on an edge",
        *("namespace", "edge"),
    )
    for name, each in seen.items():
        if each.waits is None:
            continue
        sampled.add_metric([name], each.waits.sampled)
        found = {one.edge: one for one in each.waits.edges}
        for edge in (*each.status.config.edges, ""):
            one = found.get(edge)
            waiting.add_metric([name, edge or NO_EDGE], one.trees if one else 0)
            if one:
                idle.add_metric([name, edge or NO_EDGE], one.idle_ms / 1000)
    yield from (sampled, waiting, idle)


def _marks(states: dict[str, Status]) -> Iterator[Metric]:
    mark = _gauge(
        "acker_high_water", "The high-water mark: pending trees at which sources wait", "namespace"
    )
    ratio = _gauge(
        "acker_high_water_ratio",
        "Pending trees of the fullest shard, as a ratio of its share of the high-water mark; "
        "from 1 on sources should wait, from 2 on new trees are nacked",
        "namespace",
    )
    target = _gauge(
        "acker_slo_target_ratio",
        "Share of the trees that must be good, as configured: slo_target / 100",
        "namespace",
    )
    for name, status in states.items():
        target.add_metric([name], status.config.slo_target / 100)
        mark.add_metric([name], status.config.high_water)
        ratio.add_metric([name], status.high_water_ratio)
    yield from (mark, ratio, target)


def _rotation(states: dict[str, Status]) -> Iterator[Metric]:
    lag = _gauge(
        "acker_rotation_lag_seconds",
        "Seconds by which the next tick is overdue; 0 while a rotator keeps up",
        *("namespace", "shard"),
    )
    tick = _gauge("acker_tick_seconds", "Seconds between two ticks, as configured", "namespace")
    reshard = _gauge("acker_resharding", "1 while the namespace is resharding, else 0", "namespace")
    life = _gauge(
        "acker_tree_lifetime_seconds",
        "Maximum age of a tree in seconds while a rotator is on time, touches aside, as configured",
        "namespace",
    )
    for name, status in states.items():
        for shard in status.shards:
            lag.add_metric([name, str(shard.shard)], shard.lag_ms / 1000)
        tick.add_metric([name], status.config.tick_ms / 1000)
        life.add_metric([name], status.config.lifetime_ms / 1000)
        reshard.add_metric([name], float(status.reshard is not None))
    yield from (lag, tick, life, reshard)


def _backlog(seen: dict[str, ReadStatus]) -> Iterator[Metric]:
    backlog = _gauge(
        "acker_outcomes_backlog",
        f"Untaken verdicts; beyond {MAX_SOURCES} sources, {OTHERS} has the sum of the others",
        *("namespace", "source"),
    )
    ratio = _gauge(
        "acker_outcomes_backlog_ratio",
        "Untaken verdicts of the fullest shard, as a ratio of its share of the limit; at 1 the "
        "source can track no more there",
        *("namespace", "source"),
    )
    limit = _gauge(
        "acker_outcomes_limit",
        "Maximum of untaken verdicts for one source, at which the source can track no more",
        "namespace",
    )
    oldest = _gauge(
        "acker_outcomes_oldest_seconds",
        "Seconds that the oldest untaken verdict of a source has waited, if a minute or more. "
        "Verdicts that a Spark query keeps until its next micro-batch do not count",
        *("namespace", "source"),
    )
    for name, each in seen.items():
        status = each.status
        for source, ms in most_waiting(dict(each.untaken or {}), max).items():
            oldest.add_metric([name, source], ms / 1000)
        for source, count in most_waiting(status.backlog).items():
            backlog.add_metric([name, source], count)
        for source, part in backlog_ratio(status).items():
            ratio.add_metric([name, source], part)
        limit.add_metric([name], status.config.outcomes_limit)
    yield from (backlog, ratio, limit, oldest)


def _windows(states: dict[str, Status]) -> Iterator[Metric]:
    """Yield what sources have reported of their edges: at most 64 sources, of 8 edges each."""
    labels = ("namespace", "source", "edge")
    size = _gauge(
        "acker_source_window",
        "Records that a source may have in flight on an edge; missing without a window. It is in "
        f"the last report of the source, of three minutes ago at most. {NO_EDGE}: no named edge",
        *labels,
    )
    in_flight = _gauge(
        "acker_source_in_flight",
        "Records that a source has sent on an edge, and that have no verdict yet",
        *labels,
    )
    waiting = _gauge(
        "acker_source_waiting",
        "Records of a source that wait for the window of an edge, or for their back-off",
        *labels,
    )
    down = _gauge(
        "acker_source_down_seconds",
        "Seconds since which a source gets no answer on an edge, so that it sends only probes; 0 "
        "if it gets answers",
        *labels,
    )
    for name, status in states.items():
        for source, report in status.reports.items():
            for each in report.windows:
                values = [name, source, each.edge or NO_EDGE]
                if each.window is not None:
                    size.add_metric(values, each.window)
                in_flight.add_metric(values, each.in_flight)
                waiting.add_metric(values, each.waiting)
                down.add_metric(values, (report.down_ms(each) or 0) / 1000)
    yield from (size, in_flight, waiting, down)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)
