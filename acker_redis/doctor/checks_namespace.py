"""Checks of a namespace, from two readings some time apart. No I/O."""

from collections.abc import Iterator, Set

from acker_redis.doctor import health
from acker_redis.doctor.facts import Missing, NamespaceFacts
from acker_redis.doctor.finding import Finding, error, ok, skipped, warning
from acker_redis.doctor.words import some
from acker_redis.protocol.config import CHANGEABLE, CREATED, OPTIONAL, SCHEMA
from acker_redis.protocol.growth import Growth
from acker_redis.protocol.status import Status
from acker_redis.terminal import count_of
from acker_redis.transport.readers import kept_by

# From lua/spec.json, by python -m proof.spec
MAX_FENCES = 100_000
"""Maximum number of fences per shard in the buckets, and of durable fences per shard."""
_FIELDS = (*CREATED, *OPTIONAL)
_SECRET = ("salt",)
"""Fields that are compared and never shown."""


def check(
    first: NamespaceFacts,
    second: NamespaceFacts,
    retry_for: float,
    readers: frozenset[str] = frozenset(),
) -> Iterator[Finding]:
    """Run all checks of a namespace; ``retry_for`` is that of its clients, in seconds.

    ``readers`` are the names of the connections of Spark queries that wait for verdicts.
    """
    yield namespace(second)
    if not second.known:
        return
    status = _status(second)
    growth = Growth.between(_status(first), status) if first.known else None
    kept = kept_by(readers, status)
    recent = Growth.since(second.base, status) if second.base else None
    for judged in health.judge(status, growth, untaken=untaken(second, kept), recent=recent):
        if judged.id == "outcomes":
            yield waiting(second, judged, kept)
        elif judged.id != "reshard":  # namespace() has reported it
            yield judged
    yield fences(second)
    yield tick(second, retry_for)


def namespace(facts: NamespaceFacts) -> Finding:
    """Check that all shards exist and have the same configuration."""
    found = _incomplete(facts) or _damaged(facts) or _unequal(facts)
    if found:
        return found
    name = facts.name
    if facts.listed is False:
        return warning(
            "namespace",
            "the namespace is not listed in acker:namespaces, so rotator --all skips it",
            f"redis-cli SADD acker:namespaces {name}",
            name,
        )
    config = facts.known[0].config
    return ok(
        "namespace",
        f"{count_of(config.shards, 'shard')}, trees live up to {config.lifetime_ms / 1000:,.1f} s "
        f"({config.buckets} buckets of {config.tick_ms / 1000:,.1f} s"
        + (f", deadline {config.deadline_ms / 1000:,.1f} s)" if config.deadline_ms else ")"),
        name,
    )


def _incomplete(facts: NamespaceFacts) -> Finding | None:
    """Find a namespace with deleted shards."""
    name, target = facts.name, _target(facts)
    missing_shards = [
        shard.keys.shard for shard in facts.shards if shard.dropping or not shard.meta
    ]
    if target and missing_shards:
        return error(
            "namespace",
            f"a reshard to {target} shards was interrupted, or reverted by a failover: shards "
            f"{some(missing_shards)} are missing, and they refuse all rows",
            f"complete it: acker-redis reshard {name} --shards {target}",
            name,
        )
    if any(shard.dropping for shard in facts.shards):
        return warning(
            "namespace",
            "the namespace is being dropped, and refuses the batches of its producers",
            f"wait; if the drop was interrupted, run it again: acker-redis drop {name} --yes",
            name,
        )
    if not any(shard.meta for shard in facts.shards):
        if facts.listed is True:
            return error(
                "namespace",
                "the namespace is listed but does not exist: create or drop was interrupted",
                f"create it: acker-redis create {name}; or remove it from the list: "
                f"redis-cli SREM acker:namespaces {name}",
                name,
            )
        return error(
            "namespace", "the namespace does not exist", f"acker-redis create {name}", name
        )
    return None


def _damaged(facts: NamespaceFacts) -> Finding | None:
    """Find shards of another version, shards that are damaged, and shards that are missing."""
    name, metas = facts.name, [shard.meta for shard in facts.shards]
    numbers = {meta["schema"] for meta in metas if meta.get("schema", "").isdecimal()}
    schemas = numbers - {str(SCHEMA)}
    # Beside a shard 0 of this version, the field was changed by another program.
    if schemas and metas[0].get("schema") != str(SCHEMA):
        return error(
            "namespace",
            f"its schema is {', '.join(sorted(schemas))}, this acker-redis needs {SCHEMA}",
            "use the version of acker-redis that created it, or a version that upgrades its schema",
            name,
        )
    damaged = [shard for shard in facts.shards if shard.meta and not shard.status]
    if damaged:
        why = damaged[0].error
        if "schema" not in damaged[0].meta:
            why = f"{damaged[0].keys.meta} has no schema: a failover or another program damaged it"
        return error(
            "namespace",
            f"{len(damaged)} of {len(metas)} shards are damaged: "
            f"{some([shard.keys.shard for shard in damaged])}; {why}",
            "drop it and create it again; sources replay their records: "
            f"acker-redis drop {name} --yes && {_create(facts)}",
            name,
        )
    away = [shard.keys.shard for shard in facts.shards if not shard.meta]
    if away:
        return error(
            "namespace",
            f"{len(away)} of {len(metas)} shards do not exist: {some(away)}; they refuse all rows",
            f"run create with its settings, which creates the missing shards: {_create(facts)}",
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
            "its shards differ because a reshard was interrupted, or reverted by a failover: "
            f"shards is {_values(facts, 'shards')}",
            f"give all shards the number of shard 0: acker-redis reshard {name} --shards {target}",
            name,
        )
    if reshard:
        return warning(
            "namespace",
            f"a reshard from {reshard.source} to {reshard.target} shards is running "
            f"({reshard.phase}); no new tree is tracked until it ends",
            "wait until it ends; if its command was killed, run it again: acker-redis reshard "
            f"{name} --shards {reshard.target}",
            name,
        )
    fields = (*_FIELDS, *_SECRET)
    differing = [f for f in fields if len({meta.get(f, OPTIONAL.get(f)) for meta in metas}) > 1]
    if differing:
        said = "; ".join(f"{field} is {_values(facts, field)}" for field in differing)
        return error(
            "namespace",
            f"its shards differ because a change was interrupted: {said}",
            _make_equal(name, differing),
            name,
        )
    return None


def untaken(facts: NamespaceFacts, kept_by: Set[str] = frozenset()) -> dict[str, int]:
    """Return the age of the oldest untaken verdict by source, in ms.

    ``kept_by`` are sources read by a Spark query, which are left out: it keeps the verdicts of its
    last micro-batch while it waits for more.
    """
    ages: dict[str, int] = {}
    for each in () if isinstance(facts.waiting, Missing) else facts.waiting:
        if each.source not in kept_by and each.oldest_ms is not None:
            ages[each.source] = max(each.oldest_ms, ages.get(each.source, 0))
    return ages


def waiting(facts: NamespaceFacts, judged: Finding, kept_by: Set[str] = frozenset()) -> Finding:
    """Return ``judged``, the finding about untaken verdicts, with the streams not examined."""
    if judged.level != "ok":
        return judged
    if isinstance(facts.waiting, Missing):
        return facts.waiting.finding("outcomes", facts.name)
    totals = _status(facts).backlog
    more = f"; {facts.unseen} streams were not examined" if facts.unseen else ""
    kept = sum(totals.get(source, 0) for source in kept_by)
    if kept:
        more += f"; {kept:,} of them are kept by Spark queries until their next micro-batch"
    return ok("outcomes", f"{judged.detail}, none for too long{more}", facts.name)


def fences(facts: NamespaceFacts) -> Finding:
    """Check that shards have room for the fences of more producers."""
    lanes = max(shard.lanes for shard in facts.shards)
    durable = max(shard.durable for shard in facts.shards)
    text = (
        f"at most {lanes:,} in the buckets and {durable:,} durable on a shard, "
        f"of {MAX_FENCES:,} each"
    )
    fix = (
        "use long-lived producers, not one per request; fences in buckets expire after N-1 ticks, "
        "durable fences after 30 days"
    )
    if max(lanes, durable) >= MAX_FENCES:
        return error("fences", f"{text}: new producers are refused", fix, facts.name)
    if max(lanes, durable) >= health.THRESHOLDS.full * MAX_FENCES:
        return warning("fences", text, fix, facts.name)
    return ok("fences", text, facts.name)


def tick(facts: NamespaceFacts, retry_for: float) -> Finding:
    """Check that a fence holds for as long as clients retry a batch."""
    config = facts.known[0].config
    horizon = config.fence_ms / 1000
    if horizon < retry_for:
        return warning(
            "tick",
            f"fences hold for {horizon:,.1f} s (N-1 ticks), but clients retry a batch for "
            f"{retry_for:,.1f} s: once its fence has ended, a client gives the batch up, and its "
            "trees expire",
            f"acker-redis config set {facts.name} tick_ms "
            f"{round(retry_for * 1000 / (config.buckets - 1)) + 1}",
            facts.name,
        )
    return ok(
        "tick",
        f"fences hold for {horizon:,.1f} s, clients retry a batch for {retry_for:,.1f} s",
        facts.name,
    )


def canaries(names: tuple[str, ...]) -> Finding:
    """Check that no killed doctor has left its canary."""
    if names:
        return warning(
            "canaries",
            f"a doctor was killed before it removed its canary: {', '.join(names)}",
            f"acker-redis drop {names[0]} --yes",
        )
    return ok("canaries", "none is left")


def refused(name: str, missing: Missing) -> Finding:
    """Return the finding for a namespace whose status cannot be read."""
    if missing.denied:
        return skipped(
            "namespace",
            "this user may not read the status of the namespace",
            "run the doctor as a user with the role viewer or admin",
            name,
        )
    return error(
        "namespace",
        missing.why,
        "check that Redis answers: redis-cli PING",
        name,
    )


def _status(facts: NamespaceFacts) -> Status:
    return Status(facts.name, facts.known[0].config, facts.known)


def _create(facts: NamespaceFacts) -> str:
    config = facts.known[0].config if facts.known else None
    if config is None:
        return f"acker-redis create {facts.name}"
    numbers = [field for field in CREATED if field not in ("publish", "edges")]
    options = [f"--{field.replace('_', '-')} {getattr(config, field)}" for field in numbers]
    optional = config.optional_on_wire().items()
    options += [f"--{field.replace('_', '-')} {value}" for field, value in optional]
    options += [] if config.publish else ["--no-publish"]
    options += [f"--edge {edge}" for edge in config.edges]
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
    if set(differing) <= set(CHANGEABLE):
        return "set it again: " + "; ".join(
            f"acker-redis config set {name} {field} VALUE" for field in differing
        )
    return f"no command can change it; drop it and create it again: acker-redis drop {name}"


def _values(facts: NamespaceFacts, field: str) -> str:
    found: dict[str, list[int]] = {}
    for shard in facts.shards:
        value = shard.meta.get(field, OPTIONAL.get(field, "not set"))
        found.setdefault(value, []).append(shard.keys.shard)
    if field in _SECRET:
        return " and ".join(f"one value on shards {some(shards)}" for shards in found.values())
    return ", ".join(
        f"{value or 'none'} (shards {some(shards)})" for value, shards in found.items()
    )
