"""Metrics of the admin service: names and labels that dashboards and alerts use."""

METRICS: dict[str, tuple[str, ...]] = {
    "acker_up": ("namespace",),
    "acker_trees_open": ("namespace", "shard"),
    "acker_trees_pending": ("namespace", "shard", "bucket"),
    "acker_trees_total": ("namespace", "dataset", "verdict", "reason"),
    "acker_trees_slow_total": ("namespace", "dataset"),
    "acker_complete_latency_seconds_bucket": ("namespace", "dataset", "le"),
    "acker_oldest_pending_age_seconds": ("namespace",),
    "acker_rotation_lag_seconds": ("namespace", "shard"),
    "acker_outcomes_backlog": ("namespace", "source"),
    "acker_outcomes_backlog_ratio": ("namespace", "source"),
    "acker_high_water_ratio": ("namespace",),
    "acker_ended_total": ("namespace", "dataset", "source"),
    "acker_good_total": ("namespace", "dataset", "source"),
    "acker_slo_target_ratio": ("namespace",),
    "acker_expired_by_edge_total": ("namespace", "dataset", "edge"),
    "acker_trees_sampled": ("namespace",),
    "acker_waiting_trees_sampled": ("namespace", "edge"),
    "acker_waiting_idle_seconds_sampled": ("namespace", "edge"),
}

OF_ALERTS = {
    "acker_outcomes_oldest_seconds": ("namespace", "source"),
    "acker_resharding": ("namespace",),
    "acker_rows_orphaned_total": ("namespace", "dataset"),
    "acker_rows_after_failure_total": ("namespace", "dataset"),
    "acker_tick_seconds": ("namespace",),
    "acker_tree_lifetime_seconds": ("namespace",),
    "acker_source_down_seconds": ("namespace", "source", "edge"),
}
"""Metrics used only by alerts; the Grafana dashboard shows all others."""

OF_PROMETHEUS = {
    "up": ("job", "instance"),
    "scrape_duration_seconds": ("job", "instance"),
}
"""Metrics that Prometheus creates for each target."""
