"""Checks of what a user may, beside what a role needs. No I/O."""

from collections.abc import Iterable

from acker_redis.doctor.facts import RightsFacts
from acker_redis.doctor.finding import Finding, error, ok, warning
from acker_redis.ops import acl
from acker_redis.protocol.keys import NAMESPACES

MAY_BE_MISSING = frozenset(("PUBLISH",))
"""Whoever may not run it loses pub/sub, and nothing else."""


def commands(role: str | None) -> frozenset[str]:
    """What is to be tried: the commands of a role, or of all; ConfigError for no such role.

    What connecting takes is left out: whoever has connected has it.
    """
    roles = [role] if role else acl.roles()
    return frozenset().union(*map(acl.commands, roles)) - acl.CONNECTING


def check(facts: RightsFacts, role: str | None) -> Finding:
    """Enough for the role, or without one for some role."""
    user = facts.user or "this user"
    untried = f"; not tried: {_list(commands(role) - facts.tried)}"
    more = untried if commands(role) - facts.tried else ""
    if role is None:
        enough = [name for name in acl.roles() if not _lacks(facts, name) - MAY_BE_MISSING]
        if enough:
            text = f"{user} has what these roles need: {', '.join(enough)}{more}"
            return ok("rights", text, facts.namespace)
        role = min(acl.roles(), key=lambda name: len(_lacks(facts, name)))
        return warning(
            "rights",
            f"{user} has not what any role needs; of {role} it lacks {_list(_lacks(facts, role))}",
            _grant(facts, role, _lacks(facts, role)),
            facts.namespace,
        )
    lacks = _lacks(facts, role)
    if lacks - MAY_BE_MISSING:
        return error(
            "rights",
            f"{user} lacks what a {role} needs: {_list(lacks)}; a script that is refused half way "
            "may tell a verdict twice",
            _grant(facts, role, lacks),
            facts.namespace,
        )
    if lacks:
        return warning(
            "rights",
            f"{user} may not PUBLISH: verdicts come by their streams only",
            _grant(facts, role, lacks),
            facts.namespace,
        )
    return ok("rights", f"{user} has all that a {role} needs{more}", facts.namespace)


def _lacks(facts: RightsFacts, role: str) -> frozenset[str]:
    functions = facts.functions and acl.calls_functions(role)
    lacks = set(acl.commands(role, functions) & facts.refused.keys())
    if NAMESPACES not in acl.keys(role, facts.namespace):
        # Who serves one namespace needs no list of all.
        lacks = {name for name in lacks if name != "SMEMBERS" or facts.refused[name] != "keys"}
    return frozenset(lacks)


def _grant(facts: RightsFacts, role: str, lacks: Iterable[str]) -> str:
    """One command that grants what is lacking, and no more."""
    rules = [f"+{name.lower()}" for name in sorted(lacks) if facts.refused[name] != "keys"]
    if any(facts.refused[name] == "keys" for name in lacks):
        rules += [f"'~{key}'" for key in acl.keys(role, facts.namespace)]
    if "PUBLISH" in lacks:
        rules.append(f"'&{acl.channels(facts.namespace)}'")
    return f"redis-cli ACL SETUSER {facts.user or '<user>'} {' '.join(rules)}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
