"""Check of a user's rights against the rights that a role needs. No I/O."""

from collections.abc import Iterable

from acker_redis.doctor.facts import RightsFacts
from acker_redis.doctor.finding import Finding, error, ok, warning
from acker_redis.ops import acl
from acker_redis.protocol.keys import NAMESPACES

_WITHOUT = {
    "PUBLISH": "verdicts reach sources by their streams only",
    "INFO": "the history does not show when Redis was restarted, and no consumer skips ended work",
}
"""The effect of each optional command that is missing."""


def commands(role: str | None) -> frozenset[str]:
    """Return the commands to try: those of a role, or of all roles. Raise ConfigError if unknown.

    The commands that connecting needs are left out, because the user has connected.
    """
    roles = [role] if role else acl.roles()
    return frozenset().union(*map(acl.commands, roles)) - acl.CONNECTING


def check(facts: RightsFacts, role: str | None) -> Finding:
    """Check that the rights suffice for the role; without a role, for any role."""
    user = facts.user or "this user"
    untried = f"; not tried: {_list(commands(role) - facts.tried)}"
    more = untried if commands(role) - facts.tried else ""
    if role is None:
        enough = [name for name in acl.roles() if not _lacks(facts, name) - acl.optional(name)]
        if enough:
            text = f"{user} has the rights that these roles need: {', '.join(enough)}{more}"
            return ok("rights", text, facts.namespace)
        role = min(acl.roles(), key=lambda name: len(_lacks(facts, name)))
        return warning(
            "rights",
            f"{user} has the rights of no role; for {role} it lacks {_list(_lacks(facts, role))}",
            _grant(facts, role, _lacks(facts, role)),
            facts.namespace,
        )
    lacks = _lacks(facts, role)
    if lacks - acl.optional(role):
        return error(
            "rights",
            f"{user} lacks rights that a {role} needs: {_list(lacks)}; a script that is refused "
            "halfway may write a verdict twice",
            _grant(facts, role, lacks),
            facts.namespace,
        )
    if lacks:
        return warning(
            "rights",
            "; ".join(f"{user} may not {name}: {_WITHOUT[name]}" for name in sorted(lacks)),
            _grant(facts, role, lacks),
            facts.namespace,
        )
    return ok("rights", f"{user} has all rights that a {role} needs{more}", facts.namespace)


def _lacks(facts: RightsFacts, role: str) -> frozenset[str]:
    functions = facts.functions and acl.calls_functions(role)
    lacks = set(acl.commands(role, functions) & facts.refused.keys())
    if NAMESPACES not in acl.keys(role, facts.namespace):
        # A user of one namespace does not need the list of all namespaces.
        lacks = {name for name in lacks if name != "SMEMBERS" or facts.refused[name] != "keys"}
    return frozenset(lacks)


def _grant(facts: RightsFacts, role: str, lacks: Iterable[str]) -> str:
    """Return one command that grants the missing rights, and no other."""
    rules = [f"+{name.lower()}" for name in sorted(lacks) if facts.refused[name] != "keys"]
    if any(facts.refused[name] == "keys" for name in lacks):
        rules += [f"'~{key}'" for key in acl.keys(role, facts.namespace)]
    if "PUBLISH" in lacks:
        rules.append(f"'&{acl.channels(facts.namespace)}'")
    return f"redis-cli ACL SETUSER {facts.user or '<user>'} {' '.join(rules)}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
