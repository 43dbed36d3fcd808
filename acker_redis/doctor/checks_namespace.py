"""Checks of a namespace: two looks at it, some time apart. No I/O."""

from collections.abc import Iterator, Set

from acker_redis.doctor import health
from acker_redis.doctor.facts import Missing, NamespaceFacts
from acker_redis.doctor.finding import Finding, error, ok, skipped, warning
from acker_redis.doctor.words import SHOWN, some
from acker_redis.protocol.config import SCHEMA
from acker_redis.protocol.growth import Growth
from acker_redis.protocol.status import Status

MAX_FENCES = 100_000
"""Per shard in the buckets, and as many durable ones."""
_CONFIG = ("shards", "buckets", "tick_ms", "high_water", "refresh", "outcomes_limit", "publish")
_CHANGEABLE = ("tick_ms", "high_water", "outcomes_limit")


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
    status = _status(second)
    growth = Growth.between(_status(first), status) if first.known else None
    kept_by = frozenset(task for name, task in readers if name == second.name)
    for judged in health.judge(status, growth):
        if judged.id == "outcomes":
            yield waiting(second, judged, kept_by)
        elif judged.id != "reshard":  # which the check of the shards has said
            yield judged
    yield fences(second)
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
            f"a move to {target} shards was interrupted, or set back by a failover: {some(gone)} "
            "are gone, and what belongs there is refused",
            f"complete it: acker-redis reshard {name} --shards {target}",
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
            f"{len(away)} of {len(metas)} shards do not exist: {some(away)}; what belongs there "
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
    """Find shards that differ, because of a reshard or of an interrupted change."""
    name, target = facts.name, _target(facts)
    metas = [shard.meta for shard in facts.shards]
    reshard = facts.known[0].reshard
    if target and not reshard:
        return error(
            "namespace",
            f"its shards differ, a move was interrupted, or set back by a failover: shards is "
            f"{_values(facts, 'shards')}",
            f"bring all to what shard 0 says: acker-redis reshard {name} --shards {target}",
            name,
        )
    if reshard:
        return warning(
            "namespace",
            f"a reshard from {reshard.source} to {reshard.target} shards is running "
            f"({reshard.phase}); nothing is tracked until it ends",
            "wait until it ends; if its command was killed, run it again: acker-redis reshard "
            f"{name} --shards {reshard.target}",
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


def waiting(facts: NamespaceFacts, judged: Finding, kept_by: Set[str] = frozenset()) -> Finding:
    """The verdicts are read soon.

    ``judged`` is what there is to say of how many there are. ``kept_by`` are sources whose reader
    waits for more, and keeps what it has read last.
    """
    if judged.level != "ok":
        return judged
    if isinstance(facts.waiting, Missing):
        return facts.waiting.finding("outcomes", facts.name)
    totals, lifetime = _status(facts).backlog, facts.known[0].config.timeout_ms
    ages: dict[str, int] = {}
    for each in facts.waiting:
        if each.task in kept_by or each.oldest_ms is None:
            continue
        if each.oldest_ms > lifetime:
            ages[each.task] = max(each.oldest_ms, ages.get(each.task, 0))
    if ages:
        text = ", ".join(
            f"{task} ({totals[task]:,}, the oldest for {ms / 1000:,.0f} s)"
            for task, ms in sorted(ages.items(), key=lambda item: -item[1])[:SHOWN]
        )
        return warning(
            "outcomes",
            f"verdicts of {len(ages)} sources wait for longer than a tree lives: {text}",
            "nothing, if a Spark query (acker-outcomes) reads them: it keeps those of its last "
            "micro-batch until the next one. Otherwise start the source. If it is gone for good, "
            f"take its verdicts: acker-redis outcomes {facts.name} TASK --take; never beside a "
            "source that runs, which would lose them",
            facts.name,
        )
    more = f"; {facts.unseen} streams were not looked at" if facts.unseen else ""
    kept = sum(totals.get(task, 0) for task in kept_by)
    if kept:
        more += f"; {kept:,} of them are kept by Spark queries until their next micro-batch"
    return ok("outcomes", f"{sum(totals.values()):,} wait, none for long{more}", facts.name)


def fences(facts: NamespaceFacts) -> Finding:
    """Room for more producers."""
    lanes = max(shard.lanes for shard in facts.shards)
    durable = max(shard.durable for shard in facts.shards)
    text = f"{lanes:,} in the buckets of the fullest shard, {durable:,} durable, of {MAX_FENCES:,}"
    fix = (
        "keep producers for long instead of one for each request; fences in buckets end after "
        "N-1 ticks, durable ones after 30 days"
    )
    if max(lanes, durable) >= MAX_FENCES:
        return error("fences", f"{text}: new producers are refused", fix, facts.name)
    if max(lanes, durable) >= health.THRESHOLDS.full * MAX_FENCES:
        return warning("fences", text, fix, facts.name)
    return ok("fences", text, facts.name)


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
    """Return the number of shards that a reshard, or the repair after a failover, must reach."""
    first = facts.shards[0].status
    if first and first.reshard:
        return first.reshard.target
    if first and any(s.reshard or s.config.shards != first.config.shards for s in facts.known):
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
    return ", ".join(f"{value} on {some(shards)}" for value, shards in found.items())
