"""Whether a namespace is healthy: the one judgement of it. No I/O.

The doctor, ``acker-redis status``, ``/readyz``, REST and the dashboard show these findings. The
alert rules in ``deploy/prometheus`` are made from the same thresholds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from acker_redis.doctor.finding import Finding, error, ok, warning
from acker_redis.doctor.words import SHOWN, some, span
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.growth import NACKS, Growth
from acker_redis.protocol.status import Status

MAX_TASKS = 1000
"""Names of sources that a shard can hold."""
SOONEST_LATE_MS = 1000
"""A tick that is less late is on time: a rotator looks once a second."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on something is wrong."""

    late_ms: int = 5_000
    """A tick may be late by one tick, and by so many milliseconds in any case."""
    drain: float = 0.5
    """Share of a tick after which all that expired should have been drained."""
    full: float = 0.8
    """Share of a limit from which on there is too little room left."""
    nacked: float = 0.05
    """Share of nacks among the trees that ended lately."""
    least_nacks: int = 10
    """Fewer nacks are no sign of anything."""
    stalled_ms: int = 45_000
    """For so long no tree was acked, though some wait."""
    old_ms: int = 3_600_000
    """Age of the oldest tree, if it has also outlived its time by a tick."""


THRESHOLDS = Thresholds()

Rotation = Literal["on_time", "late", "away", "unknown"]
"""How the rotator does; ``unknown`` before the first tick is due."""


def judge(
    status: Status,
    growth: Growth | None = None,
    oldest_ms: int | None = None,
    thresholds: Thresholds | None = None,
) -> tuple[Finding, ...]:
    """Return what there is to say of a namespace, good and bad; see ``wrong``.

    ``growth`` is what its counters grew by lately, and ``oldest_ms`` the age of its oldest pending
    tree in ms. What needs them is not judged without them.
    """
    limits = thresholds or THRESHOLDS
    found = [
        rotator(status, limits),
        drain(status, limits),
        high_water(status, growth),
        outcomes(status, limits),
        tasks(status, limits),
    ]
    if growth:
        found += [nacks(status, growth, limits), acks(status, growth, limits)]
        found.append(counters(status, growth))
    if oldest_ms is not None:
        found.append(oldest(status, oldest_ms, limits))
    if status.reshard:
        found.append(reshard(status))
    return tuple(found)


def wrong(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return those that are warnings or errors, errors first."""
    bad = [finding for finding in findings if finding.level in ("warning", "error")]
    return tuple(sorted(bad, key=lambda finding: finding.level != "error"))


def rotation(shards: Sequence[ShardStatus], thresholds: Thresholds | None = None) -> Rotation:
    """Return how the rotator does, by the worst of some shards."""
    limits = thresholds or THRESHOLDS
    if any(shard.lag_ms > _allowed(shard.config.tick_ms, limits) for shard in shards):
        return "away"
    if any(shard.lag_ms > SOONEST_LATE_MS for shard in shards):
        return "late"
    return "on_time" if any(shard.ticks for shard in shards) else "unknown"


def rotator(status: Status, thresholds: Thresholds | None = None) -> Finding:
    """Ticks come when they are due."""
    limits, name, tick_ms = thresholds or THRESHOLDS, status.namespace, status.config.tick_ms
    state = rotation(status.shards, limits)
    fix = f"run one, better two: acker-redis rotator {name}; and look at its log"
    ahead = max(shard.ticked_ms - shard.now_ms for shard in status.shards)
    if state == "away":
        allowed = _allowed(tick_ms, limits)
        shards = [shard.shard for shard in status.shards if shard.lag_ms > allowed]
        return error(
            "rotator",
            f"a tick is {span(status.lag_ms)} late on {len(shards)} of {len(status.shards)} shards "
            f"({some(shards)}); {span(allowed)} are allowed. Nothing expires meanwhile: trees live "
            "longer than configured, and sources are not told of lost messages",
            fix,
            name,
            headline=f"No rotator runs: a tick is {span(status.lag_ms)} late",
        )
    if ahead > SOONEST_LATE_MS:
        return warning(
            "rotator",
            f"the last tick is {span(ahead)} in the future: the clock of Redis went back, and no "
            "rotator has noticed yet",
            fix,
            name,
            headline="The last tick is in the future",
        )
    if state == "unknown":
        due = max(shard.ticked_ms + tick_ms - shard.now_ms for shard in status.shards)
        return ok(
            "rotator",
            f"no tick yet, the first one is due in {span(max(0, due))}: whether a rotator runs is "
            "not known before",
            name,
        )
    return ok("rotator", f"on time; the latest tick is {span(status.lag_ms)} late", name)


def drain(status: Status, limits: Thresholds) -> Finding:
    """Expired records and blocks are drained soon."""
    left = status.expiring
    slow = [
        shard.shard
        for shard in status.shards
        if shard.expiring and shard.now_ms - shard.ticked_ms > limits.drain * shard.config.tick_ms
    ]
    if not slow:
        return ok("drain", f"{left:,} records and blocks wait to be drained", status.namespace)
    return warning(
        "drain",
        f"{left:,} records and blocks still wait {limits.drain:g} ticks after they expired (shards "
        f"{some(slow)}); the next tick waits for them",
        f"run more rotators: acker-redis rotator {status.namespace}; or use a longer tick_ms",
        status.namespace,
        headline=f"The drain is slow: {left:,} expired records and blocks wait",
    )


def high_water(status: Status, growth: Growth | None) -> Finding:
    """There is room for new trees."""
    mark, ratio, level = status.config.high_water, status.high_water_ratio, status.high_water
    text = f"{status.pending:,} trees are pending, the mark is {mark:,}"
    if status.config.shards > 1:
        text += f"; the fullest shard is at {ratio:.0%} of its share"
    if level == "ok":
        return ok("high-water", text, status.namespace)
    fix = (
        "look for bolts that hang or do not ack, and let sources wait for room; or raise it: "
        f"acker-redis config set {status.namespace} high_water N"
    )
    if level == "over":
        return error(
            "high-water",
            f"{text}. New trees are nacked at once{_reaches(growth, 2 - ratio, mark, 'twice')}",
            fix,
            status.namespace,
            headline="Over twice the high-water mark: new trees are nacked",
        )
    line = 1 - ratio if growth and growth.pending < 0 else 2 - ratio
    which = "once" if growth and growth.pending < 0 else "twice"
    return warning(
        "high-water",
        f"{text}. Sources should wait, and rows that come before their TRACK are dropped. At twice "
        f"the mark new trees are nacked{_reaches(growth, line, mark, which)}",
        fix,
        status.namespace,
        headline="Above the high-water mark: sources wait",
    )


def outcomes(status: Status, limits: Thresholds) -> Finding:
    """Sources take their verdicts."""
    share = status.config.backlog_share
    near, full = limits.full * share, dict[str, float]()
    if any(max(shard.backlog.values(), default=0) >= near for shard in status.shards):
        full = {task: count / share for task, count in status.fullest.items() if count >= near}
    if not full:
        total = sum(sum(shard.backlog.values()) for shard in status.shards)
        return ok("outcomes", f"{total:,} verdicts wait", status.namespace)
    totals = status.backlog
    worst = sorted(full, key=lambda task: -full[task])
    text = ", ".join(f"{task} ({totals[task]:,})" for task in worst[:SHOWN])
    fix = (
        "start its source, which takes them. If the source is gone for good, take them for it: "
        f"acker-redis outcomes {status.namespace} TASK --take; never beside a source that runs, "
        "which would lose them"
    )
    if full[worst[0]] >= 1:
        refused = [task for task in worst if full[task] >= 1]
        return error(
            "outcomes",
            f"so many verdicts wait that new trees are refused: {text}; a shard holds {share:,}",
            fix,
            status.namespace,
            headline=f"Source {some(refused)} can track no more: its verdicts are not taken",
        )
    return warning(
        "outcomes",
        f"{limits.full:.0%} of outcomes_limit or more wait: {text}; at the limit new trees are "
        "refused",
        fix,
        status.namespace,
        headline=f"Source {some(worst)} falls behind: its verdicts are not taken",
    )


def tasks(status: Status, limits: Thresholds) -> Finding:
    """There is room for sources under other names."""
    most = max(len(shard.backlog) for shard in status.shards)
    text = f"{most:,} on the fullest shard, of {MAX_TASKS:,}"
    fix = (
        "let sources reuse their names; a name is forgotten 100 ticks after its last tree, once "
        f"its verdicts are taken: acker-redis outcomes {status.namespace} TASK --take"
    )
    if most >= MAX_TASKS:
        head = "No source under a new name can track"
        return error("tasks", f"{text}: new names are refused", fix, status.namespace, head)
    if most >= limits.full * MAX_TASKS:
        head = f"Sources use {most:,} names, of {MAX_TASKS:,}"
        return warning("tasks", text, fix, status.namespace, head)
    return ok("tasks", text, status.namespace)


def nacks(status: Status, growth: Growth, limits: Thresholds) -> Finding:
    """Few of the trees that end are nacked."""
    share = growth.nacked / growth.ended if growth.ended else 0.0
    counts = {name: growth.counts[name] for name in NACKS if growth.counts[name]}
    kinds = ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none nacked"
    text = f"in the last {span(growth.over_ms)}: {kinds}; {growth.counts['acked']:,} acked"
    if growth.nacked < limits.least_nacks or share <= limits.nacked:
        return ok("nacks", text, status.namespace)
    return warning(
        "nacks",
        f"{text}; more than {limits.nacked:.0%} are a sign of a fault",
        f"the verdicts say why: acker-redis outcomes {status.namespace} TASK; in the dashboard, "
        "Recent failures",
        status.namespace,
        headline=f"{share:.0%} of the trees that end are nacked",
    )


def acks(status: Status, growth: Growth, limits: Thresholds) -> Finding:
    """Trees are acked, if some have used half of their time."""
    half = (status.config.buckets + 1) // 2
    waiting = sum(status.pending_by_bucket[half:])
    text = f"{growth.counts['acked']:,} in the last {span(growth.over_ms)}"
    # A namespace that moves takes no new trees.
    stalls = waiting and not growth.counts["acked"] and not status.reshard
    if not stalls or growth.over_ms < limits.stalled_ms:
        return ok("acks", text, status.namespace)
    return warning(
        "acks",
        f"{status.pending:,} trees are pending, {waiting:,} of them for more than half of the time "
        f"that trees live, and none was acked in the last {span(growth.over_ms)}",
        f"see whether the bolts run, and look at the oldest trees: acker-redis find "
        f"{status.namespace}",
        status.namespace,
        headline="Nothing is acked",
    )


def counters(status: Status, growth: Growth) -> Finding:
    """Overflows, conflicts and orphans do not grow."""
    what = {
        "overflow": "let sources wait for room, or raise high_water",
        "conflict": "draw a new random anchor for each attempt",
        "orphaned": "look for bolts that ack late, or that ack what was never tracked",
    }
    grown = [name for name in what if growth.counts[name]]
    totals = ", ".join(f"{name} {status.counters[name]:,}" for name in what)
    if not grown:
        text = f"since the namespace was created: {totals}"
        return ok("counters", text, status.namespace)
    text = ", ".join(f"{name} +{growth.counts[name]:,}" for name in grown)
    return warning(
        "counters",
        f"grew in the last {span(growth.over_ms)}: {text} (in all: {totals})",
        "; ".join(what[name] for name in grown),
        status.namespace,
        headline=f"These counters grow: {', '.join(grown)}",
    )


def oldest(status: Status, age_ms: int, limits: Thresholds) -> Finding:
    """No tree is far older than trees live."""
    config = status.config
    text = f"{span(age_ms)}; a tree lives up to {span(config.timeout_ms)}"
    if age_ms <= max(limits.old_ms, config.timeout_ms + config.tick_ms):
        return ok("oldest", text, status.namespace)
    return warning(
        "oldest",
        f"{text}: it is touched again and again, or no rotator runs",
        f"look at it: acker-redis find {status.namespace}",
        status.namespace,
        headline=f"A tree is {span(age_ms)} old",
    )


def reshard(status: Status) -> Finding:
    """A namespace that moves tracks nothing."""
    reshard = status.reshard
    target = reshard.target if reshard else 0
    waits = f"it waits for the verdicts of {status.pending:,} pending trees, and " * bool(
        status.pending
    )
    return warning(
        "reshard",
        f"{waits}sources wait for it",
        f"if it does not go on, run it again: acker-redis reshard {status.namespace} --shards "
        f"{target}; to call it off: acker-redis reshard {status.namespace} --cancel",
        status.namespace,
        headline=f"Moves to {target} {'shard' if target == 1 else 'shards'}: nothing is tracked "
        "until then",
    )


def _allowed(tick_ms: int, limits: Thresholds) -> int:
    return max(tick_ms, limits.late_ms)


def _reaches(growth: Growth | None, ratio: float, mark: int, which: str) -> str:
    """When so much of the mark will have been filled or freed, at the present rate."""
    if not growth or not growth.pending:
        return ""
    ms = ratio * mark * growth.over_ms / growth.pending
    if ms < SOONEST_LATE_MS:
        return ""
    line = "twice the mark" if which == "twice" else "the mark"
    how = "it reaches" if growth.pending > 0 else "it is below"
    return f"; at this rate {how} {line} in about {span(ms)}"
