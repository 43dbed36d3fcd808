"""Health of a namespace: the single source of its findings. No I/O.

The doctor, ``acker-redis status``, ``/readyz``, REST and the dashboard show these findings. The
alert rules in ``deploy/prometheus`` use the same thresholds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from acker_redis.doctor import outages
from acker_redis.doctor.finding import Finding, Level, error, ok, warning
from acker_redis.doctor.words import SHOWN, some, span
from acker_redis.protocol.commands import NACKS, ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.growth import Growth
from acker_redis.protocol.status import Status
from acker_redis.terminal import count_of

MAX_SOURCES = 1000
"""Maximum number of source names per shard."""
MINUTE_MS = 60_000
SOONEST_LATE_MS = 1000
"""A tick up to this late is on time, because a rotator checks once a second."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits beyond which a finding is a warning or an error."""

    late_ms: int = 5_000
    """Milliseconds by which a tick may be late; one tick if that is longer."""
    drain: float = 0.5
    """Share of a tick after which all expired records and blocks should be drained."""
    full: float = 0.8
    """Share of a limit from which on it is a warning."""
    burn: float = 10.0
    """Multiple of the permitted share of nacks from which on it is an error; a namespace permits
    100 % minus its ``slo_target``, and 1 % unless it is changed."""
    least_nacks: int = 10
    """Fewer nacks than this are no warning, and fewer ended trees are no recent share."""
    stalled_ms: int = 45_000
    """Milliseconds without an ack, although trees wait."""
    old_ms: int = 3_600_000
    """Maximum age of the oldest tree, or its timeout plus one tick if that is longer."""
    untaken_ms: int = 300_000
    """Milliseconds that a verdict may wait for its source, or the lifetime of a tree if that is
    longer."""


THRESHOLDS = Thresholds()

Rotation = Literal["on_time", "late", "away", "unknown"]
"""State of the rotator; ``unknown`` before the first tick."""


def judge(
    status: Status,
    growth: Growth | None = None,
    oldest_ms: int | None = None,
    thresholds: Thresholds | None = None,
    untaken: Mapping[str, int] | None = None,
    recent: Growth | None = None,
    stands: Sequence[str] = (),
) -> tuple[Finding, ...]:
    """Return all findings about a namespace, good and bad; see ``wrong``.

    ``growth`` is the recent growth of its counters. ``oldest_ms`` is the age of its oldest pending
    tree in ms, ``untaken`` the age of the oldest untaken verdict in ms by source. ``recent`` is the
    growth over some 15 minutes, from the history. ``stands`` are the edges on which the oldest tree
    waits. Checks that need a missing value are left out.
    """
    limits = thresholds or THRESHOLDS
    found = [
        rotator(status, limits),
        drain(status, limits),
        high_water(status, growth),
        outcomes(status, limits, untaken or {}),
        sources(status, limits),
        nacks(status, growth, limits, recent),
    ]
    if growth or recent:
        found.append(outages.acks(status, growth, limits.stalled_ms, recent, stands))
    if growth:
        found.append(counters(status, growth))
    more = outages.congestion(status, growth, recent), outages.window(status)
    found += [each for each in more if each]
    if oldest_ms is not None:
        found.append(oldest(status, oldest_ms, limits))
    if status.reshard:
        found.append(reshard(status))
    return tuple(found)


def wrong(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the warnings and errors, errors first."""
    bad = [finding for finding in findings if finding.level in ("warning", "error")]
    return tuple(sorted(bad, key=lambda finding: finding.level != "error"))


def level(findings: Sequence[Finding]) -> Level:
    """Return the worst level of some findings; ``ok`` if there is none."""
    bad = wrong(findings)
    return bad[0].level if bad else "ok"


def permitted(config: AckerConfig) -> float:
    """Return the share of nacks among ended trees up to which a namespace is healthy."""
    return round(1 - config.slo_target / 100, 5)


def rotation(shards: Sequence[ShardStatus], thresholds: Thresholds | None = None) -> Rotation:
    """Return the state of the rotator, which is that of the worst shard."""
    limits = thresholds or THRESHOLDS
    if any(shard.lag_ms > _allowed(shard.config.tick_ms, limits) for shard in shards):
        return "away"
    if any(shard.lag_ms > SOONEST_LATE_MS for shard in shards):
        return "late"
    return "on_time" if any(shard.ticks for shard in shards) else "unknown"


def rotator(status: Status, thresholds: Thresholds | None = None) -> Finding:
    """Check that ticks are on time."""
    limits, name, tick_ms = thresholds or THRESHOLDS, status.namespace, status.config.tick_ms
    state = rotation(status.shards, limits)
    fix = f"start a rotator, better two: acker-redis rotator {name}; if one runs, read its log"
    ahead = max(shard.ticked_ms - shard.now_ms for shard in status.shards)
    if state == "away":
        allowed = _allowed(tick_ms, limits)
        shards = [shard.shard for shard in status.shards if shard.lag_ms > allowed]
        return error(
            "rotator",
            f"a tick is {span(status.lag_ms)} late on {len(shards)} of "
            f"{count_of(len(status.shards), 'shard')} ({some(shards)}); "
            f"{span(allowed)} are allowed. Without ticks no tree expires: trees live "
            "longer than configured, and sources are not notified of lost messages",
            fix,
            name,
            headline=f"No rotator runs: a tick is {span(status.lag_ms)} late",
        )
    if ahead > SOONEST_LATE_MS:
        return warning(
            "rotator",
            f"the last tick is {span(ahead)} in the future: the clock of Redis went back, and no "
            "rotator has corrected the time of the tick yet",
            fix,
            name,
            headline="The last tick is in the future",
        )
    if state == "unknown":
        due = max(shard.ticked_ms + tick_ms - shard.now_ms for shard in status.shards)
        return ok(
            "rotator",
            f"no tick yet, the first one is due in {span(max(0, due))}: until then it is unknown "
            "whether a rotator runs",
            name,
        )
    return ok("rotator", f"on time; the latest tick is {span(status.lag_ms)} late", name)


def drain(status: Status, limits: Thresholds) -> Finding:
    """Check that expired records and blocks are drained in time."""
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
        f"{left:,} records and blocks still wait to be drained {limits.drain:g} ticks after they "
        f"expired (shards {some(slow)}); the next tick waits for them",
        f"run more rotators: acker-redis rotator {status.namespace}; or set a longer tick_ms",
        status.namespace,
        headline=f"The drain is slow: {left:,} expired records and blocks wait",
    )


def high_water(status: Status, growth: Growth | None) -> Finding:
    """Check that pending trees are below the high-water mark."""
    mark, ratio, level = status.config.high_water, status.high_water_ratio, status.high_water
    text = f"{count_of(status.pending, 'tree')} pending, the mark is {mark:,}"
    if status.config.shards > 1:
        text += f"; the fullest shard is at {ratio:.0%} of its share"
    if level == "ok":
        return ok("high-water", text, status.namespace)
    fix = (
        "find bolts that hang or do not ack, and let sources wait for room; or raise the mark: "
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
        f"{text}. Sources should wait, and rows that arrive before their track are dropped. At "
        f"twice the mark new trees are nacked{_reaches(growth, line, mark, which)}",
        fix,
        status.namespace,
        headline="Above the high-water mark: sources wait",
    )


def outcomes(status: Status, limits: Thresholds, untaken: Mapping[str, int]) -> Finding:
    """Check that sources take their verdicts, and in time."""
    share = status.config.backlog_share
    near, full = limits.full * share, dict[str, float]()
    if any(max(shard.backlog.values(), default=0) >= near for shard in status.shards):
        full = {source: count / share for source, count in status.fullest.items() if count >= near}
    if not full:
        return _late(status, limits, untaken) or ok(
            "outcomes",
            f"{count_of(sum(status.backlog.values()), 'verdict')} waiting",
            status.namespace,
        )
    totals = status.backlog
    worst = sorted(full, key=lambda source: -full[source])
    text = ", ".join(f"{source} ({totals[source]:,})" for source in worst[:SHOWN])
    fix = (
        "start the source, which takes its verdicts. If it will never run again, take them: "
        f"acker-redis outcomes {status.namespace} SOURCE --take; never while the source runs, "
        "because it would lose them"
    )
    if full[worst[0]] >= 1:
        refused = [source for source in worst if full[source] >= 1]
        return error(
            "outcomes",
            f"too many verdicts wait, new trees are refused: {text}; a shard holds {share:,}",
            fix,
            status.namespace,
            headline=f"Source {some(refused)} cannot track new trees: its verdicts are not taken",
        )
    return warning(
        "outcomes",
        f"waiting verdicts fill {limits.full:.0%} or more of outcomes_limit: {text}; at the limit "
        "new trees are refused",
        fix,
        status.namespace,
        headline=f"Source {some(worst)} falls behind: its verdicts are not taken",
    )


def _late(status: Status, limits: Thresholds, untaken: Mapping[str, int]) -> Finding | None:
    """Find sources whose oldest verdict has waited for too long, however few wait."""
    most, backlog = max(limits.untaken_ms, status.config.lifetime_ms), status.backlog
    late = {name: ms for name, ms in untaken.items() if ms > most and backlog.get(name)}
    if not late:
        return None
    worst = sorted(late, key=lambda name: -late[name])
    minutes = late[worst[0]] // MINUTE_MS
    text = ", ".join(
        f"{name} ({backlog[name]:,}, the oldest for {span(late[name])})" for name in worst[:SHOWN]
    )
    return warning(
        "outcomes",
        f"verdicts have waited for longer than {span(most)} for {len(late)} "
        f"{'source' if len(late) == 1 else 'sources'}: {text}",
        "start the source, which takes its verdicts. Do nothing if a Spark query (acker-outcomes) "
        "reads them: it keeps those of its last micro-batch until the next one. If the source will "
        f"never run again, take them: acker-redis outcomes {status.namespace} SOURCE --take; never "
        "while the source runs, because it would lose them",
        status.namespace,
        headline=f"Source {some(worst)} has not taken a verdict for {span(minutes * MINUTE_MS)}",
    )


def sources(status: Status, limits: Thresholds) -> Finding:
    """Check that shards have room for more source names."""
    most = max(len(shard.backlog) for shard in status.shards)
    text = f"{most:,} source names on the fullest shard, of {MAX_SOURCES:,}"
    fix = (
        "let sources reuse their names; a name is removed 100 ticks after its last tree, once its "
        f"verdicts are taken: acker-redis outcomes {status.namespace} SOURCE --take"
    )
    if most >= MAX_SOURCES:
        head = "A source with a new name cannot track trees"
        return error("sources", f"{text}: new names are refused", fix, status.namespace, head)
    if most >= limits.full * MAX_SOURCES:
        head = f"Sources use {most:,} of {MAX_SOURCES:,} names"
        return warning("sources", text, fix, status.namespace, head)
    return ok("sources", text, status.namespace)


def nacks(
    status: Status, growth: Growth | None, limits: Thresholds, recent: Growth | None = None
) -> Finding:
    """Check that few trees are nacked: of those that ended lately, or else of all that ended."""
    ever, most = Growth(1, status.counters), permitted(status.config)
    failing = min(1.0, limits.burn * most)
    if ever.nacked and not ever.counts["acked"] and _tells(ever, limits):
        text = f"since the namespace was created: {_ended(ever)}"
        severe = ever.nacked >= limits.least_nacks
        return _nacked(status, text, "Nothing was ever acked", severe)
    if growth and growth.ended >= limits.least_nacks:
        text = f"in the last {span(growth.over_ms)}: {_ended(growth)}"
        share = growth.nacked / growth.ended
        if growth.nacked >= limits.least_nacks and share > most:
            head = f"{share:.{int(share < 0.1)}%} of the trees that ended were nacked"
            return _nacked(status, text, head, share >= failing)
    if recent and recent.nacked >= limits.least_nacks and recent.nacked > most * recent.ended:
        share = recent.nacked / recent.ended
        lately = f"the last {max(1, round(recent.over_ms / MINUTE_MS))} min"
        head = f"{share:.{int(share < 0.1)}%} of the trees that ended in {lately} were nacked"
        return _nacked(status, f"in {lately}: {_ended(recent)}", head, severe=False)
    if growth and growth.ended >= limits.least_nacks:
        return ok("nacks", text, status.namespace)
    text = f"since the namespace was created: {_ended(ever)}"
    # A small share may be that of an old incident.
    if ever.nacked >= limits.least_nacks and ever.nacked >= failing * ever.ended:
        head = f"{ever.nacked / ever.ended:.0%} of all trees that ever ended were nacked"
        return _nacked(status, text, head, severe=False)
    return ok("nacks", text, status.namespace)


def _nacked(status: Status, text: str, headline: str, severe: bool) -> Finding:
    most = 100 * permitted(status.config)
    return (error if severe else warning)(
        "nacks",
        f"{text}; slo_target permits {most:g} % nacks",
        f"read the reasons: acker-redis outcomes {status.namespace} SOURCE; if so many nacks are "
        "normal, lower slo_target",
        status.namespace,
        headline=headline,
    )


def _tells(ever: Growth, limits: Thresholds) -> bool:
    """Return whether the nacks are more than noise: a tree that expired had its whole lifetime."""
    return ever.counts["expired"] > 0 or ever.nacked >= limits.least_nacks


def _ended(growth: Growth) -> str:
    counts = {name: growth.counts[name] for name in NACKS if growth.counts[name]}
    kinds = ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none nacked"
    return f"{kinds}; {growth.counts['acked']:,} acked"


def counters(status: Status, growth: Growth) -> Finding:
    """Check that overflows, conflicts, and orphans that no failure explains do not grow."""
    what = {
        "overflow": "let sources wait for room, or raise high_water",
        "conflict": "draw a new random anchor for each attempt",
        "orphaned": "find bolts that ack late, or that ack trees that were never tracked",
    }
    counts = {**growth.counts, "orphaned": growth.orphaned}
    grown = [name for name in what if counts[name]]
    totals = ", ".join(f"{name} {status.counters[name]:,}" for name in what)
    if status.after_failure:
        totals += f", {status.after_failure:,} of them late rows of failed trees"
    if not grown:
        text = f"since the namespace was created: {totals}"
        return ok("counters", text, status.namespace)
    text = ", ".join(f"{name} +{counts[name]:,}" for name in grown)
    return warning(
        "counters",
        f"grew in the last {span(growth.over_ms)}: {text} (in all: {totals})",
        "; ".join(what[name] for name in grown),
        status.namespace,
        headline=f"Counters grow: {', '.join(grown)}",
    )


def oldest(status: Status, age_ms: int, limits: Thresholds) -> Finding:
    """Check that no tree is much older than its timeout."""
    config = status.config
    text = f"the oldest tree is {span(age_ms)} old; a tree lives up to {span(config.lifetime_ms)}"
    if age_ms <= max(limits.old_ms, config.lifetime_ms + config.tick_ms):
        return ok("oldest", text, status.namespace)
    return warning(
        "oldest",
        f"{text}: a bolt keeps resetting its timeout, or no rotator runs",
        f"inspect it: acker-redis find {status.namespace}",
        status.namespace,
        headline=f"A tree is {span(age_ms)} old",
    )


def reshard(status: Status) -> Finding:
    """Report a reshard, during which no new tree is tracked."""
    reshard = status.reshard
    target = reshard.target if reshard else 0
    waits = f"; it waits for the verdicts of {count_of(status.pending, 'pending tree')}" * bool(
        status.pending
    )
    return warning(
        "reshard",
        f"sources wait for the end of the reshard{waits}",
        f"if it makes no progress, run it again: acker-redis reshard {status.namespace} --shards "
        f"{target}; to cancel it: acker-redis reshard {status.namespace} --cancel",
        status.namespace,
        headline=f"Resharding to {target} {'shard' if target == 1 else 'shards'}: no new tree is "
        "tracked until it ends",
    )


def _allowed(tick_ms: int, limits: Thresholds) -> int:
    return max(tick_ms, limits.late_ms)


def _reaches(growth: Growth | None, ratio: float, mark: int, which: str) -> str:
    """Return words for the time until the mark is reached or left at the present rate."""
    if not growth or not growth.pending:
        return ""
    ms = ratio * mark * growth.over_ms / growth.pending
    if ms < SOONEST_LATE_MS:
        return ""
    line = "twice the mark" if which == "twice" else "the mark"
    how = "it reaches" if growth.pending > 0 else "it falls below"
    return f"; at this rate {how} {line} in about {span(ms)}"
