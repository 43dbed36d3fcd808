"""Checks of a namespace: two looks at it, some time apart. No I/O."""

from collections.abc import Iterator, Set

from acker_redis.doctor.facts import Missing, NamespaceFacts
from acker_redis.doctor.finding import Finding, error, ok, skipped, warning
from acker_redis.protocol.config import SCHEMA
from acker_redis.protocol.status import Status

FULL = 0.8
"""Share of a limit from which on there is too little room left."""
MOST_FENCES = 100_000
"""Per shard in the buckets, and as many durable ones."""
MAX_TASKS = 1000
"""Per shard."""
SOONEST_LATE = 1000
"""Milliseconds that a rotator may always be late: it looks once a second."""
_CONFIG = ("shards", "buckets", "tick_ms", "high_water", "refresh", "outcomes_limit", "publish")
_CHANGEABLE = ("tick_ms", "high_water", "outcomes_limit")
_WRONG = ("overflow", "conflict", "orphaned")
_SHOWN = 4


def check(
    first: NamespaceFacts,
    second: NamespaceFacts,
    retry_for: float,
    readers: Set[tuple[str, str]] = frozenset(),
) -> Iterator[Finding]:
    """All checks of a namespace; ``retry_for`` is that of its clients, in seconds.

    ``readers`` are namespace and source of the Spark queries that wait for verdicts.
    """
    yield namespace(second)
    if not second.known:
        return
    yield rotator(second)
    yield drain(first, second)
    yield high_water(second)
    yield outcomes(second, frozenset(task for name, task in readers if name == second.name))
    yield counters(first, second)
    yield fences(second)
    yield tasks(second)
    yield tick(second, retry_for)


def namespace(facts: NamespaceFacts) -> Finding:
    """Check that all shards are there, and have the same configuration."""
    found = _incomplete(facts) or _damaged(facts) or _unequal(facts)
    if found:
        return found
    name = facts.name
    if facts.listed is False:
        return warning(
            "namespace",
            "it does not stand in acker:namespaces: a rotator --all passes it over",
            f"redis-cli SADD acker:namespaces {name}",
            name,
        )
    config = facts.known[0].config
    return ok(
        "namespace",
        f"{config.shards} shards, trees live up to {config.timeout_ms / 1000:,.1f} s "
        f"({config.buckets} buckets of {config.tick_ms / 1000:,.1f} s)",
        name,
    )


def _incomplete(facts: NamespaceFacts) -> Finding | None:
    """Find a namespace of which some or all shards are deleted."""
    name, target = facts.name, _target(facts)
    gone = [shard.keys.shard for shard in facts.shards if shard.dropping or not shard.meta]
    if target and gone:
        return error(
            "namespace",
            f"a move to {target} shards was interrupted, or set back by a failover: {_some(gone)} "
            "are gone, and what belongs there is refused",
            f"complete it: acker-redis migrate {name} --shards {target}",
            name,
        )
    if any(shard.dropping for shard in facts.shards):
        return warning(
            "namespace",
            "it is being dropped; what its producers send is refused",
            f"wait for that, or if nobody drops it any more go on: acker-redis drop {name} --yes",
            name,
        )
    if not any(shard.meta for shard in facts.shards):
        if facts.listed is True:
            return error(
                "namespace",
                "it is listed, and does not exist: its create or drop was interrupted",
                f"create it, acker-redis create {name}, or strike it off: "
                f"redis-cli SREM acker:namespaces {name}",
                name,
            )
        return error("namespace", "it does not exist", f"acker-redis create {name}", name)
    return None


def _damaged(facts: NamespaceFacts) -> Finding | None:
    """Find shards of another version, shards that are missing, and shards that cannot be read."""
    name, metas = facts.name, [shard.meta for shard in facts.shards]
    schemas = {meta["schema"] for meta in metas if "schema" in meta} - {str(SCHEMA)}
    if schemas:
        return error(
            "namespace",
            f"its schema is {', '.join(sorted(schemas))}, and this version knows {SCHEMA}",
            "use the version of acker-redis that wrote it, or that which migrates it",
            name,
        )
    away = [shard.keys.shard for shard in facts.shards if not shard.meta]
    if away:
        return error(
            "namespace",
            f"{len(away)} of {len(metas)} shards do not exist: {_some(away)}; what belongs there "
            "is refused",
            f"create it again with its settings, which makes what is missing: {_create(facts)}",
            name,
        )
    damaged = [shard for shard in facts.shards if not shard.status]
    if damaged:
        return error(
            "namespace",
            f"shard {damaged[0].keys.shard}: {damaged[0].error}",
            f"drop it and create it anew, sources replay: acker-redis drop {name}",
            name,
        )
    return None


def _unequal(facts: NamespaceFacts) -> Finding | None:
    """Find shards that differ, because of a move or of an interrupted change."""
    name, target = facts.name, _target(facts)
    metas = [shard.meta for shard in facts.shards]
    move = facts.known[0].moving
    if target and not move:
        return error(
            "namespace",
            f"its shards differ, a move was interrupted, or set back by a failover: shards is "
            f"{_values(facts, 'shards')}",
            f"bring all to what shard 0 says: acker-redis migrate {name} --shards {target}",
            name,
        )
    if move:
        return warning(
            "namespace",
            f"it moves from {move.source} to {move.target} shards ({move.phase}), and nothing is "
            "tracked until that is done",
            "wait for that, or if nobody moves it any more go on: acker-redis migrate "
            f"{name} --shards {move.target}",
            name,
        )
    differing = [field for field in _CONFIG if len({meta.get(field) for meta in metas}) > 1]
    if differing:
        said = "; ".join(f"{field} is {_values(facts, field)}" for field in differing)
        return error(
            "namespace",
            f"its shards differ, a change was interrupted: {said}",
            _make_equal(name, differing),
            name,
        )
    return None


def rotator(facts: NamespaceFacts) -> Finding:
    """Ticks come when they are due."""
    late = {shard.shard: shard.lag_ms for shard in facts.known}
    ahead = max(shard.ticked_ms - shard.now_ms for shard in facts.known)
    worst = max(late.values())
    tick_ms = max(shard.config.tick_ms for shard in facts.known)
    fix = f"run one, better two: acker-redis rotator {facts.name}; and look into its log"
    if worst > max(tick_ms, SOONEST_LATE):
        shards = [shard for shard, ms in late.items() if ms > max(tick_ms, SOONEST_LATE)]
        return error(
            "rotator",
            f"the tick is {worst / 1000:,.1f} s late on {len(shards)} of {len(late)} shards "
            f"({_some(shards)}), by ticks of {tick_ms / 1000:,.1f} s: does no rotator run? Trees "
            "live for longer than configured",
            fix,
            facts.name,
        )
    if ahead > SOONEST_LATE:
        return warning(
            "rotator",
            f"the last tick is {ahead / 1000:,.1f} s in the future: the clock went back, and no "
            "rotator has noticed yet",
            fix,
            facts.name,
        )
    if not any(shard.ticks for shard in facts.known):
        due = max(shard.ticked_ms + tick_ms - shard.now_ms for shard in facts.known)
        return ok(
            "rotator",
            f"no tick yet, the first one is due in {max(0, due) / 1000:,.0f} s: whether a rotator "
            "runs is not known before",
            facts.name,
        )
    return ok("rotator", f"on time; the latest tick is {worst / 1000:,.1f} s late", facts.name)


def drain(first: NamespaceFacts, second: NamespaceFacts) -> Finding:
    """What has expired is told of soon."""
    left = sum(shard.expiring for shard in second.known)
    old = [
        shard.shard
        for shard in second.known
        if shard.expiring and shard.now_ms - shard.ticked_ms > shard.config.tick_ms / 2
    ]
    if not old:
        return ok("drain", f"{left:,} records and blocks wait to be drained", second.name)
    before = sum(shard.expiring for shard in first.known)
    return warning(
        "drain",
        f"{left:,} records and blocks still wait half a tick after they expired (shards "
        f"{_some(old)}), {before:,} when looked at before; no tick comes before they are drained",
        f"run more rotators: acker-redis rotator {second.name}; or a longer tick_ms",
        second.name,
    )


def high_water(facts: NamespaceFacts) -> Finding:
    """Room for new trees."""
    status = _status(facts)
    share = status.config.share
    text = (
        f"{status.pending:,} pending, the mark is {status.config.high_water:,} ({share:,} a shard)"
    )
    fix = (
        "let the sources wait for room, look for bolts that do not ack, or raise it: acker-redis "
        f"config set {facts.name} high_water N"
    )
    if status.high_water == "over":
        return error("high-water", f"{text}: new trees are nacked at once", fix, facts.name)
    if status.high_water == "high":
        return warning(
            "high-water", f"{text}: rows that come before their TRACK are dropped", fix, facts.name
        )
    return ok("high-water", text, facts.name)


def outcomes(facts: NamespaceFacts, kept_by: Set[str] = frozenset()) -> Finding:
    """The verdicts are read.

    ``kept_by`` are sources whose reader waits for more, and keeps what it has read last.
    """
    config = facts.known[0].config
    limit = config.backlog_share
    worst: dict[str, int] = {}
    for shard in facts.known:
        for task, count in shard.backlog.items():
            worst[task] = max(count, worst.get(task, 0))
    full = {task: count for task, count in worst.items() if count > FULL * limit}
    totals = _status(facts).backlog
    fix = (
        "start its source. If the source is gone for good, take its verdicts: "
        f"acker-redis outcomes {facts.name} TASK --take; never beside a source that runs, which "
        "would lose them"
    )
    if any(count >= limit for count in full.values()):
        return error(
            "outcomes",
            f"at outcomes_limit, so that their batches are refused: {_tasks(full, totals)}",
            fix,
            facts.name,
        )
    if full:
        return warning(
            "outcomes",
            f"over {FULL:.0%} of outcomes_limit: {_tasks(full, totals)}",
            fix,
            facts.name,
        )
    if isinstance(facts.waiting, Missing):
        return facts.waiting.finding("outcomes", facts.name)
    ages: dict[str, int] = {}
    for each in facts.waiting:
        if each.task in kept_by or each.oldest_ms is None:
            continue
        if each.oldest_ms > config.timeout_ms:
            ages[each.task] = max(each.oldest_ms, ages.get(each.task, 0))
    if ages:
        text = ", ".join(
            f"{task} ({totals[task]:,}, the oldest for {ms / 1000:,.0f} s)"
            for task, ms in sorted(ages.items(), key=lambda item: -item[1])[:_SHOWN]
        )
        return warning(
            "outcomes",
            f"verdicts of {len(ages)} sources wait for longer than a tree lives: {text}",
            "nothing, if a Spark query (acker-outcomes) reads them: it keeps those of its last "
            f"micro-batch until the next one. Otherwise {fix}",
            facts.name,
        )
    more = f"; {facts.unseen} streams were not looked at" if facts.unseen else ""
    kept = sum(totals.get(task, 0) for task in kept_by)
    if kept:
        more += f"; {kept:,} of them are kept by Spark queries until their next micro-batch"
    return ok("outcomes", f"{sum(totals.values()):,} wait, none for long{more}", facts.name)


def counters(first: NamespaceFacts, second: NamespaceFacts) -> Finding:
    """Overflows, conflicts and orphans do not grow while one looks."""
    before, after = _status(first).counters if first.known else {}, _status(second).counters
    grown = {name: after[name] - before.get(name, after[name]) for name in _WRONG}
    totals = ", ".join(f"{name} {after[name]:,}" for name in _WRONG)
    if not any(count > 0 for count in grown.values()):
        return ok("counters", f"since the namespace was created: {totals}", second.name)
    what = {
        "overflow": "let sources wait for room, or raise high_water",
        "conflict": "draw an anchor anew for each attempt, at random",
        "orphaned": "look for bolts that ack late, or that ack what was never tracked",
    }
    fixes = "; ".join(what[name] for name, count in grown.items() if count > 0)
    text = ", ".join(f"{name} +{count:,}" for name, count in grown.items() if count > 0)
    return warning(
        "counters", f"grew while looked at: {text} (in all: {totals})", fixes, second.name
    )


def fences(facts: NamespaceFacts) -> Finding:
    """Room for more producers."""
    lanes = max(shard.lanes for shard in facts.shards)
    durable = max(shard.durable for shard in facts.shards)
    text = f"{lanes:,} in the buckets of the fullest shard, {durable:,} durable, of {MOST_FENCES:,}"
    fix = (
        "keep producers for long instead of one for each request; fences in buckets end after "
        "N-1 ticks, durable ones after 30 days"
    )
    if max(lanes, durable) >= MOST_FENCES:
        return error("fences", f"{text}: new producers are refused", fix, facts.name)
    if max(lanes, durable) > FULL * MOST_FENCES:
        return warning("fences", text, fix, facts.name)
    return ok("fences", text, facts.name)


def tasks(facts: NamespaceFacts) -> Finding:
    """Room for sources under other names."""
    most = max(len(shard.backlog) for shard in facts.known)
    text = f"{most:,} on the fullest shard, of {MAX_TASKS:,}"
    fix = (
        "let sources reuse their names; a name is forgotten 100 ticks after its last tree, once "
        f"its verdicts are taken: acker-redis outcomes {facts.name} TASK --take"
    )
    if most >= MAX_TASKS:
        return error("tasks", f"{text}: sources under new names are refused", fix, facts.name)
    if most > FULL * MAX_TASKS:
        return warning("tasks", text, fix, facts.name)
    return ok("tasks", text, facts.name)


def tick(facts: NamespaceFacts, retry_for: float) -> Finding:
    """A fence holds for as long as clients send a batch again."""
    config = facts.known[0].config
    horizon = config.fence_ms / 1000
    if horizon < retry_for:
        return warning(
            "tick",
            f"fences hold for {horizon:,.1f} s (N-1 ticks), and clients would send a batch again "
            f"for {retry_for:,.1f} s: after a longer outage it is given up, and its trees expire",
            f"acker-redis config set {facts.name} tick_ms "
            f"{round(retry_for * 1000 / (config.buckets - 1)) + 1}",
            facts.name,
        )
    return ok(
        "tick",
        f"fences hold for {horizon:,.1f} s, clients send a batch again for {retry_for:,.1f} s",
        facts.name,
    )


def canaries(names: tuple[str, ...]) -> Finding:
    """None that a doctor was killed over."""
    if names:
        return warning(
            "canaries",
            f"left behind by a doctor that was killed: {', '.join(names)}",
            f"acker-redis drop {names[0]} --yes",
        )
    return ok("canaries", "none is left behind")


def refused(name: str, missing: Missing) -> Finding:
    """Instead of all checks of a namespace that this user may not read."""
    if missing.denied:
        return skipped(
            "namespace",
            "this user may not read its status",
            "run the doctor as a user of the role viewer or admin",
            name,
        )
    return error(
        "namespace",
        missing.why,
        "see whether Redis answers: redis-cli PING",
        name,
    )


def _status(facts: NamespaceFacts) -> Status:
    return Status(facts.name, facts.known[0].config, facts.known)


def _create(facts: NamespaceFacts) -> str:
    config = facts.known[0].config if facts.known else None
    if config is None:
        return f"acker-redis create {facts.name}"
    options = [f"--{field.replace('_', '-')} {getattr(config, field)}" for field in _CONFIG[:-1]]
    options += [] if config.publish else ["--no-publish"]
    return f"acker-redis create {facts.name} {' '.join(options)}"


def _target(facts: NamespaceFacts) -> int | None:
    """To how many shards all are to be brought: by a move, or because a failover set some back."""
    first = facts.shards[0].status
    if first and first.moving:
        return first.moving.target
    if first and any(s.moving or s.config.shards != first.config.shards for s in facts.known):
        return first.config.shards
    return None


def _make_equal(name: str, differing: list[str]) -> str:
    if set(differing) <= set(_CHANGEABLE):
        return "change it again: " + "; ".join(
            f"acker-redis config set {name} {field} VALUE" for field in differing
        )
    return f"no command does that; drop it and create it anew: acker-redis drop {name}"


def _values(facts: NamespaceFacts, field: str) -> str:
    found: dict[str, list[int]] = {}
    for shard in facts.shards:
        found.setdefault(shard.meta.get(field, "not set"), []).append(shard.keys.shard)
    return ", ".join(f"{value} on {_some(shards)}" for value, shards in found.items())


def _tasks(counts: dict[str, int], totals: dict[str, int]) -> str:
    worst = sorted(counts, key=lambda task: -counts[task])[:_SHOWN]
    return ", ".join(f"{task} ({totals[task]:,})" for task in worst)


def _some(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:_SHOWN])) + (", .." if len(numbers) > _SHOWN else "")
