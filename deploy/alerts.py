"""Write prometheus/alerts.yml; run this after a change of acker_redis/doctor/health.py.

    python deploy/alerts.py

The findings of the doctor, /readyz and the dashboard are alerts at the same thresholds. The other
rules are about the admin service itself.
"""

from dataclasses import dataclass
from pathlib import Path

from acker_redis.doctor.health import THRESHOLDS, Thresholds
from acker_redis.doctor.outages import LEAST_USELESS, USELESS

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Alert:
    """An alert rule, and the id of its finding; "" for a rule about the service."""

    name: str
    finding: str
    expr: str
    lasts: str
    severity: str
    summary: str
    description: str

    def __str__(self) -> str:
        """Return the rule as YAML."""
        lines = [f"- alert: {self.name}", "  expr: |", *(f"    {e}" for e in self.expr.split("\n"))]
        lines += [f"  for: {self.lasts}"] if self.lasts else []
        lines += [
            f"  labels: {{severity: {self.severity}}}",
            "  annotations:",
            f'    summary: "{self.summary}"',
            f'    description: "{self.description}"',
        ]
        return "\n".join(f"      {line}" for line in lines)


BURNS = (
    ("AckerBudgetBurnsFast", "1h", "5m", 14.4, "critical", "2 % of it are gone in an hour"),
    ("AckerBudgetBurns", "6h", "30m", 6, "critical", "5 % of it are gone in 6 hours"),
    ("AckerBudgetBurnsSlowly", "3d", "6h", 1, "warning", "it will not last for 30 days"),
)
"""Name, long and short window, burn rate, severity, and what that means for the budget of 30 days.

The windows and rates are those of Google, The Site Reliability Workbook, chapter 5, table 5-8: the
long window proves that it matters, the short one that it is still going on.
"""


def _burns(window: str, rate: float) -> str:
    """Return a query for the namespaces whose burn rate in a window is above a rate."""
    acked, slow, ended = (
        f"sum by (namespace) (rate(acker_trees_{name}[{window}]))"
        for name in ('total{verdict="ack"}', "slow_total", "total")
    )
    target = "max by (namespace) (acker_slo_target_ratio)"
    good = f"({acked}\n      - {slow})"
    return f"(1 - {good}\n    / {ended})\n  > {rate:g} * (1 - {target})"


def _grown(name: str) -> str:
    """Return a query for the growth of a counter in 15 minutes, by namespace."""
    return f"sum by (namespace) (increase(acker_{name}[15m]))"


NOT_ALERTS = {
    "drain": "no tick happens before the drain has ended, so AckerRotationLate fires",
    "sources": "the metric counts the source names of a namespace, not of its fullest shard",
    "reshard": "an operator has started the reshard and waits for its end",
}
"""Findings without an alert, and the reasons."""


def alerts(limits: Thresholds = THRESHOLDS) -> list[Alert]:
    """Return all rules."""
    nacks, soon = (f'acker_trees_total{{verdict="nack"}}[{time}]' for time in ("15m", "5m"))
    acked, expired, useful = (
        _grown(f"trees_total{{{which}}}")
        for which in ('verdict="ack"', 'reason="expired"', 'reason=~"completed|failed"')
    )
    useless = f"{_grown('rows_orphaned_total')}\n      - {_grown('rows_after_failure_total')}"
    permitted = "(1 - max by (namespace) (acker_slo_target_ratio))"
    return [
        Alert(
            "AckerScrapeFails",
            "",
            'up{job="acker"} == 0 or absent(up{job="acker"})',
            "2m",
            "critical",
            "The admin service does not answer",
            "Prometheus cannot scrape the admin service, so the state of all namespaces is "
            "unknown. Check that the service `api` runs and accepts the metrics token. Run first: "
            "docker compose logs api",
        ),
        Alert(
            "AckerUnreadable",
            "",
            "acker_up == 0",
            "1m",
            "critical",
            "The admin service cannot read namespace {{ $labels.namespace }}",
            "Redis does not answer, refuses the user of the service, or keys of the namespace are "
            "damaged. If Redis is unavailable, producers wait, and nothing is lost. Run first: "
            "acker-redis doctor {{ $labels.namespace }}",
        ),
        Alert(
            "AckerRotationLate",
            "rotator",
            "max by (namespace) (acker_rotation_lag_seconds)\n"
            f"  > clamp_min(max by (namespace) (acker_tick_seconds), {limits.late_ms / 1000:g})",
            "1m",
            "critical",
            "No rotator runs for namespace {{ $labels.namespace }}",
            "The next tick is {{ $value | humanizeDuration }} late. Until a rotator runs, no tree "
            "expires, and sources are not notified of lost messages. Run first: "
            "acker-redis rotator {{ $labels.namespace }}",
        ),
        Alert(
            "AckerHighWater",
            "high-water",
            "acker_high_water_ratio >= 1",
            "5m",
            "warning",
            "Namespace {{ $labels.namespace }} is above its high-water mark",
            "Pending trees are at {{ $value | humanizePercentage }} of the mark, and sources wait. "
            "Bolts are slower than sources, or do not ack. At twice the mark new trees are nacked. "
            "Run first: acker-redis status {{ $labels.namespace }}",
        ),
        Alert(
            "AckerOverflow",
            "high-water",
            "max by (namespace) (acker_high_water_ratio) >= 2\n"
            '  or sum by (namespace) (rate(acker_trees_total{reason="overflow"}[5m])) > 0',
            "1m",
            "critical",
            "Namespace {{ $labels.namespace }} rejects new trees",
            "Pending trees are at twice the high-water mark, and new trees are nacked at once. "
            "Slow the sources down, or raise high_water. Run first: "
            "acker-redis status {{ $labels.namespace }}",
        ),
        Alert(
            "AckerBacklog",
            "outcomes",
            f"acker_outcomes_backlog_ratio >= {limits.full:g}",
            "5m",
            "warning",
            "Source {{ $labels.source }} in {{ $labels.namespace }} does not take its verdicts",
            "Waiting verdicts are at {{ $value | humanizePercentage }} of the limit of a shard. At "
            "the limit, new trees of the source are refused. Start the source. Run first: "
            "acker-redis status {{ $labels.namespace }}",
        ),
        Alert(
            "AckerSourceRefused",
            "outcomes",
            "acker_outcomes_backlog_ratio >= 1",
            "1m",
            "critical",
            "Source {{ $labels.source }} in {{ $labels.namespace }} cannot track new trees",
            "Its waiting verdicts have reached the limit of a shard, so its new trees are refused. "
            "Start the source, which takes its verdicts. Run first: "
            "acker-redis status {{ $labels.namespace }}",
        ),
        Alert(
            "AckerNobodyReads",
            "",
            "acker_outcomes_backlog > 10000 and delta(acker_outcomes_backlog[10m]) >= 0",
            "10m",
            "warning",
            "Source {{ $labels.source }} in {{ $labels.namespace }} has stopped taking verdicts",
            "{{ $value }} verdicts wait, and their number does not fall: the source has stopped. "
            "At outcomes_limit its new trees are refused. Start the source. Run first: "
            "acker-redis outcomes {{ $labels.namespace }} {{ $labels.source }} --limit 5",
        ),
        Alert(
            "AckerVerdictsWait",
            "outcomes",
            "acker_outcomes_oldest_seconds\n"
            "  > on (namespace) group_left\n"
            "    clamp_min(max by (namespace) (acker_tree_lifetime_seconds), "
            f"{limits.untaken_ms / 1000:g})",
            "1m",
            "warning",
            "Source {{ $labels.source }} in {{ $labels.namespace }} has stopped taking verdicts",
            "Its oldest verdict has waited for {{ $value | humanizeDuration }}. Failed records are "
            "not replayed until the source takes it: start the source. Run first: "
            "acker-redis outcomes {{ $labels.namespace }} {{ $labels.source }} --limit 5",
        ),
        Alert(
            "AckerManyNacks",
            "nacks",
            f"sum by (namespace) (rate({nacks}))\n"
            f"  > {permitted} * sum by (namespace) (rate(acker_trees_total[15m]))\n"
            f"  and sum by (namespace) (increase({nacks})) >= {limits.least_nacks}",
            "15m",
            "warning",
            "More trees in {{ $labels.namespace }} are nacked than slo_target permits",
            "Sources replay these records. Bolts fail messages, messages are lost, or processing "
            "takes longer than a tree lives. acker-redis outcomes shows the reasons. Run first: "
            "acker-redis status {{ $labels.namespace }}",
        ),
        Alert(
            "AckerMostNacks",
            "nacks",
            f"sum by (namespace) (rate({soon}))\n"
            f"  >= clamp_max({limits.burn:g} * {permitted}, 1)\n"
            "    * sum by (namespace) (rate(acker_trees_total[5m]))\n"
            f"  and sum by (namespace) (increase({soon})) >= {limits.least_nacks}",
            "5m",
            "critical",
            f"{{{{ $labels.namespace }}}} nacks {limits.burn:g} times what slo_target permits",
            "Sources replay these records. A bolt fails nearly everything, or loses messages: "
            "acker-redis outcomes shows the reasons. Run first: "
            "acker-redis status {{ $labels.namespace }}",
        ),
        Alert(
            "AckerNeverAcked",
            "nacks",
            'sum by (namespace) (acker_trees_total{verdict="ack"}) == 0\n'
            '  and (sum by (namespace) (acker_trees_total{reason="expired"}) > 0\n'
            '    or sum by (namespace) (acker_trees_total{verdict="nack"}) '
            f">= {limits.least_nacks})",
            "5m",
            "warning",
            "Nothing was ever acked in namespace {{ $labels.namespace }}",
            "All trees that ended were nacked. The bolts do not run, ack other anchors, or use "
            "another namespace. Run first: acker-redis status {{ $labels.namespace }}",
        ),
        Alert(
            "AckerStalled",
            "acks",
            # The window must contain several scrapes.
            "sum by (namespace) (increase("
            f'acker_trees_total{{verdict="ack"}}[{limits.stalled_ms // 150}s])) == 0\n'
            "  and max by (namespace) (acker_oldest_pending_age_seconds)\n"
            "    > max by (namespace) (acker_tree_lifetime_seconds) / 2\n"
            "  unless max by (namespace) (acker_resharding) == 1",
            "2m",
            "warning",
            "Nothing is acked in namespace {{ $labels.namespace }}",
            "Trees have used half of their lifetime, and no tree is acked. If this continues, they "
            "expire, and sources replay them. Check that the bolts run. Run first: "
            "acker-redis find {{ $labels.namespace }}",
        ),
        Alert(
            "AckerStopped",
            "acks",
            f"{acked} == 0\n"
            f"  and {expired} > 0\n"
            "  and max by (namespace) (acker_tree_lifetime_seconds) <= 900",
            "1m",
            "critical",
            "Nothing was acked for a whole lifetime in namespace {{ $labels.namespace }}",
            "Trees expire, and none was acked for 15 minutes. The bolts do not run, or cannot "
            "reach Redis or their queue; sources of the class Source go on by themselves when the "
            "bolts are back. Run first: acker-redis status {{ $labels.namespace }} --edges",
        ),
        Alert(
            "AckerCongested",
            "congestion",
            f"({useless})\n"
            f"    * {1 - USELESS:g} >= {USELESS:g}\n"
            f"    * {useful}\n"
            f"  and {useless} >= {LEAST_USELESS}\n"
            f"  and {expired} > 0",
            "2m",
            "warning",
            "Bolts of namespace {{ $labels.namespace }} process messages of expired trees",
            f"{100 * USELESS:g} % of the work or more is useless: messages wait for longer than "
            "their trees live, and replays make the queue longer. Use a Source with "
            "adaptive=True, let its consumers skip_ended, add consumers, or set a longer tick_ms. "
            "Run first: acker-redis status {{ $labels.namespace }} --edges",
        ),
        Alert(
            "AckerSourceDown",
            "window",
            "acker_source_down_seconds > 0",
            "2m",
            "warning",
            "Source {{ $labels.source }} in {{ $labels.namespace }} gets no answer on edge "
            "{{ $labels.edge }}",
            "Its window has collapsed: for {{ $value | humanizeDuration }} nothing was answered, "
            "and it sends one probe a lifetime. Start the consumers of the edge. Run first: "
            "acker-redis status {{ $labels.namespace }}",
        ),
        Alert(
            "AckerConflicts",
            "counters",
            'sum by (namespace) (increase(acker_trees_total{reason="conflict"}[15m])) > 0',
            "",
            "warning",
            "Anchors are tracked twice in namespace {{ $labels.namespace }}",
            "The trees of these anchors are nacked. Two sources share an id, or a source does not "
            "draw a new anchor for a replay. Run first: acker-redis status {{ $labels.namespace }}",
        ),
        Alert(
            "AckerOrphans",
            "counters",
            "sum by (namespace) (increase(acker_rows_orphaned_total[15m]))\n"
            "  - sum by (namespace) (increase(acker_rows_after_failure_total[15m])) > 0",
            "",
            "warning",
            "Namespace {{ $labels.namespace }} receives rows without a tree",
            "{{ $value }} rows in 15 minutes had no tree. Bolts ack after their tree has ended, or "
            "ack trees that were never tracked. Run first: "
            "acker-redis status {{ $labels.namespace }}",
        ),
        Alert(
            "AckerOldTree",
            "oldest",
            "acker_oldest_pending_age_seconds\n"
            "  > clamp_min(acker_tree_lifetime_seconds + acker_tick_seconds, "
            f"{limits.old_ms / 1000:g})",
            "5m",
            "warning",
            "A tree in namespace {{ $labels.namespace }} is older than its lifetime",
            "The oldest tree is {{ $value | humanizeDuration }} old: a bolt keeps resetting its "
            "timeout, or no rotator runs. Its source gets no verdict until the tree ends. "
            "Run first: acker-redis find {{ $labels.namespace }}",
        ),
        *(
            Alert(
                name,
                "",
                f"{_burns(long, rate)}\n  and\n{_burns(short, rate)}",
                "",
                severity,
                "Too few trees of namespace {{ $labels.namespace }} complete in time",
                f"The error budget of slo_target burns at {rate:g} times the rate that it allows: "
                f"{meaning}. {{{{ $value | humanizePercentage }}}} of the trees of {long} were not "
                "acked in time. Bolts fail or lose messages, or are too slow. Run first: "
                "acker-redis slo {{ $labels.namespace }}",
            )
            for name, long, short, rate, severity, meaning in BURNS
        ),
    ]


def text(limits: Thresholds = THRESHOLDS) -> str:
    """Return the text of alerts.yml."""
    rules = "\n\n".join(map(str, alerts(limits)))
    return (
        "# Alerts for acker-redis; docs/how-to/troubleshoot.md has the steps.\n"
        "# Generated by deploy/alerts.py.\n"
        f"groups:\n  - name: acker\n    rules:\n{rules}\n"
    )


if __name__ == "__main__":
    (HERE / "prometheus" / "alerts.yml").write_text(text())
