"""Writes prometheus/alerts.yml; run it after a change of acker_redis/doctor/health.py.

    python deploy/alerts.py

What the doctor, /readyz and the dashboard call wrong is an alert from the same thresholds on. The
other rules are about the admin service itself.
"""

from dataclasses import dataclass
from pathlib import Path

from acker_redis.doctor.health import THRESHOLDS, Thresholds

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Alert:
    """A rule, and the finding that it stands for; "" for a rule about the service."""

    name: str
    finding: str
    expr: str
    lasts: str
    severity: str
    summary: str
    description: str

    def __str__(self) -> str:
        """As YAML."""
        lines = [f"- alert: {self.name}", "  expr: |", *(f"    {e}" for e in self.expr.split("\n"))]
        lines += [f"  for: {self.lasts}"] if self.lasts else []
        lines += [
            f"  labels: {{severity: {self.severity}}}",
            "  annotations:",
            f'    summary: "{self.summary}"',
            f'    description: "{self.description}"',
        ]
        return "\n".join(f"      {line}" for line in lines)


NOT_ALERTS = {
    "drain": "no tick comes before the drain has ended: AckerRotationLate tells",
    "tasks": "the metric counts the names of a namespace, not those of its fullest shard",
    "reshard": "an operator has just asked for it, and waits for its end",
}
"""Findings without an alert, and why."""


def alerts(limits: Thresholds = THRESHOLDS) -> list[Alert]:
    """Return all rules."""
    nacks = 'acker_trees_total{verdict="nack"}[15m]'
    return [
        Alert(
            "AckerScrapeFails",
            "",
            'up{job="acker"} == 0 or absent(up{job="acker"})',
            "2m",
            "critical",
            "The admin service does not answer",
            "The state of the namespaces is unknown. Is the service `api` running, and is its "
            "token right?",
        ),
        Alert(
            "AckerUnreadable",
            "",
            "acker_up == 0",
            "1m",
            "critical",
            "Namespace {{ $labels.namespace }} cannot be read",
            "Redis is away, or refuses the viewer. Producers wait; nothing is lost. See "
            "acker-redis doctor.",
        ),
        Alert(
            "AckerRotationLate",
            "rotator",
            "max by (namespace) (acker_rotation_lag_seconds)\n"
            f"  > clamp_min(max by (namespace) (acker_tick_seconds), {limits.late_ms / 1000:g})",
            "1m",
            "critical",
            "No rotator runs for {{ $labels.namespace }}",
            "The next tick is {{ $value | humanizeDuration }} late. Nothing expires, so sources "
            "are not told of lost messages. Start a rotator.",
        ),
        Alert(
            "AckerHighWater",
            "high-water",
            "acker_high_water_ratio >= 1",
            "5m",
            "warning",
            "{{ $labels.namespace }} is above its high-water mark",
            "Pending trees are at {{ $value | humanizePercentage }} of the mark, and sources wait. "
            "Bolts are slower than sources, or do not ack.",
        ),
        Alert(
            "AckerOverflow",
            "high-water",
            "max by (namespace) (acker_high_water_ratio) >= 2\n"
            '  or sum by (namespace) (rate(acker_trees_total{reason="overflow"}[5m])) > 0',
            "1m",
            "critical",
            "{{ $labels.namespace }} rejects trees",
            "Twice the high-water mark is reached, and new trees are nacked at once. Slow the "
            "sources down, or raise high_water.",
        ),
        Alert(
            "AckerBacklog",
            "outcomes",
            f"acker_outcomes_backlog_ratio >= {limits.full:g}",
            "5m",
            "warning",
            "The verdicts of {{ $labels.task }} in {{ $labels.namespace }} are not taken",
            "They fill {{ $value | humanizePercentage }} of what may wait on a shard. At the limit "
            "new trees of the source are refused. Start it.",
        ),
        Alert(
            "AckerSourceRefused",
            "outcomes",
            "acker_outcomes_backlog_ratio >= 1",
            "1m",
            "critical",
            "{{ $labels.task }} in {{ $labels.namespace }} can track no more",
            "So many of its verdicts wait that its new trees are refused. Start the source.",
        ),
        Alert(
            "AckerNobodyReads",
            "",
            "acker_outcomes_backlog > 10000 and delta(acker_outcomes_backlog[10m]) >= 0",
            "10m",
            "warning",
            "The verdicts of {{ $labels.task }} in {{ $labels.namespace }} are not read",
            "{{ $value }} verdicts wait, and they get no fewer. Its source has stopped.",
        ),
        Alert(
            "AckerManyNacks",
            "nacks",
            f"sum by (namespace) (rate({nacks}))\n"
            f"  > {limits.nacked:g} * sum by (namespace) (rate(acker_trees_total[15m]))\n"
            f"  and sum by (namespace) (increase({nacks})) >= {limits.least_nacks}",
            "15m",
            "warning",
            f"More than {limits.nacked:.0%} of the trees of {{{{ $labels.namespace }}}} are nacked",
            "Bolts fail them, or messages are lost on their way, or take longer than a tree lives. "
            "See acker-redis status, find and outcomes.",
        ),
        Alert(
            "AckerStalled",
            "acks",
            # Several scrapes must fall into the window.
            "sum by (namespace) (increase("
            f'acker_trees_total{{verdict="ack"}}[{limits.stalled_ms // 150}s])) == 0\n'
            "  and max by (namespace) (acker_oldest_pending_age_seconds)\n"
            "    > max by (namespace) (acker_tree_lifetime_seconds) / 2\n"
            "  unless max by (namespace) (acker_resharding) == 1",
            "2m",
            "warning",
            "Nothing is acked in {{ $labels.namespace }}",
            "Trees have used half of their time. Do the bolts run?",
        ),
        Alert(
            "AckerConflicts",
            "counters",
            'sum by (namespace) (increase(acker_trees_total{reason="conflict"}[15m])) > 0',
            "",
            "warning",
            "Anchors are tracked twice in {{ $labels.namespace }}",
            "Two sources share an id, or one does not draw a new anchor for a replay. Their trees "
            "are nacked.",
        ),
        Alert(
            "AckerOrphans",
            "counters",
            "increase(acker_rows_orphaned_total[15m]) > 0",
            "",
            "warning",
            "Rows without a tree come to {{ $labels.namespace }}",
            "{{ $value }} in 15 minutes. Bolts ack late, or ack what was never tracked.",
        ),
        Alert(
            "AckerOldTree",
            "oldest",
            "acker_oldest_pending_age_seconds\n"
            "  > clamp_min(acker_tree_lifetime_seconds + acker_tick_seconds, "
            f"{limits.old_ms / 1000:g})",
            "5m",
            "warning",
            "A tree of {{ $labels.namespace }} is far older than trees live",
            "It is {{ $value | humanizeDuration }} old. It is touched again and again, or no "
            "rotator runs.",
        ),
    ]


def text(limits: Thresholds = THRESHOLDS) -> str:
    """Return the file."""
    rules = "\n\n".join(map(str, alerts(limits)))
    return (
        "# Alerts for acker-redis; docs/how-to/troubleshoot.md has the steps.\n"
        "# Written by deploy/alerts.py.\n"
        f"groups:\n  - name: acker\n    rules:\n{rules}\n"
    )


if __name__ == "__main__":
    (HERE / "prometheus" / "alerts.yml").write_text(text())
