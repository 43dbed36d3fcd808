"""Write the reference of the metrics: ``python -m tests.docs.metrics_page``.

The table has the names, types, labels and help texts of ``acker_api/reading/metrics.py``.
"""

from acker_api.reading.metrics import families
from acker_api.reading.reader import Survey
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "reference" / "metrics.md"
HEAD = """\
# Metrics

<!-- Written by `python -m tests.docs.metrics_page` from acker_api/reading/metrics.py. -->

This page is for people who set up monitoring: it lists every metric of `/metrics`, in the formats
of Prometheus and OpenMetrics. [Alerting](../how-to/alert.md) has rules that use them.

Terms: [glossary](../glossary.md).

- **Source.** `acker-redis serve` reads all metrics from Redis at each scrape and counts nothing
  itself. Replicas of the service therefore agree, and a restart loses nothing.
- **Samples.** The metrics named `_sampled` are from a sample of the pending trees, which each
  scrape reads: about 200 trees of each namespace with edges. `acker_trees_sampled` has the exact
  number. Divide by it to get the share of the trees that wait on an edge.
- **Labels.** No label is an id. `bucket` is an age in ticks: 0 is the newest bucket. `source` is
  the name of a source; the metrics have at most 1000 of them, and gauges the sum of all others.
  `edge` is the name of an [edge](../glossary.md); a namespace has up to eight.
- **Counters go on.** A reshard carries the counts of the shards that it removes. A failover or a
  restart of Redis may lose the last writes, so the counts of the new data may be smaller. Counters
  therefore have the label `dataset`, a fingerprint of the replication ids of all masters: the new
  data has new series. Always write `sum by (namespace, ..) (rate(..))`, which is right over such a
  change. The service reads the ids by `INFO`. If its user may not (the role viewer may not), the
  label is empty, and Prometheus counts all again after a failover: `ACL SETUSER viewer +info`. A
  namespace that is dropped and created again begins at 0. If one of its shards is lost and created
  again on the same server, its counters go back by that shard.
- **Access.** When any token is set, `/metrics` needs a token with the role `metrics`, or one for
  all namespaces. `ACKER_REDIS_API_METRICS=false` switches it off.

```yaml
scrape_configs:
  - job_name: acker-redis
    authorization: {credentials_file: /etc/prometheus/acker-redis-token}
    static_configs: [{targets: ["acker-redis.internal:8000"]}]
```

## All metrics

| metric | type | labels | meaning |
|---|---|---|---|
"""
TAIL = """
## Useful queries

| question | PromQL |
|---|---|
| How many trees are pending? | `sum by (namespace) (acker_trees_open)` |
| How many trees are nacked, per second, and why? | `sum by (namespace, reason) (rate(acker_trees_total{verdict="nack"}[5m]))` |
| What share of the trees is nacked? | `sum by (namespace) (rate(acker_trees_total{verdict="nack"}[5m])) / sum by (namespace) (rate(acker_trees_total[5m]))` |
| What share of the trees completes in time? | `(sum by (namespace) (rate(acker_trees_total{verdict="ack"}[1h])) - sum by (namespace) (rate(acker_trees_slow_total[1h]))) / sum by (namespace) (rate(acker_trees_total[1h]))` |
| What share of the trees of each source completes in time? | `sum by (namespace, source) (rate(acker_good_total[1h])) / sum by (namespace, source) (rate(acker_ended_total[1h]))` |
| How fast is the error budget spent? 1: it lasts for 30 days | `(1 - (sum by (namespace) (rate(acker_trees_total{verdict="ack"}[1h])) - sum by (namespace) (rate(acker_trees_slow_total[1h]))) / sum by (namespace) (rate(acker_trees_total[1h]))) / on (namespace) (1 - max by (namespace) (acker_slo_target_ratio))` |
| On which edges are messages of expired trees unaccounted for? | `sum by (namespace, edge) (increase(acker_expired_by_edge_total[1h]))` |
| Where do pending trees wait? | `acker_waiting_trees_sampled / on (namespace) group_left () acker_trees_sampled` |
| How long do trees take, at the 99th percentile? | `histogram_quantile(0.99, sum by (namespace, le) (rate(acker_complete_latency_seconds_bucket[5m])))` |
| Which namespaces have no rotator that keeps up? | `max by (namespace) (acker_rotation_lag_seconds) > 5` |
| Which source does not take its verdicts? | `topk(5, acker_outcomes_backlog_ratio)` |

Alert rules and a Grafana dashboard are in [deploy](../../deploy/README.md).
"""  # noqa: E501 - a row of a table is one line


def page() -> str:
    """Return the page as the code has it."""
    rows = []
    for metric in families(Survey(script_seconds=0.0)):
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = [*metric._labelnames, *(["le"] if metric.type == "histogram" else [])]  # type: ignore[attr-defined]
        shown = ", ".join(f"`{label}`" for label in labels)
        rows.append(f"| `{name}` | {metric.type} | {shown} | {metric.documentation} |")
    return HEAD + "\n".join(rows) + "\n" + TAIL


if __name__ == "__main__":
    PAGE.write_text(page())
