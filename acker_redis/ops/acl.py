"""Rights by role: which commands a user of Redis needs, and the line that grants them.

================  ==========================================================================
``producer``      bolts: apply, apply_blocks, status, show, and the last batch of a lane
``source``        a producer that reads and takes its verdicts too, and may listen to them
``rotator``       rotate, expire, expire_blocks, status
``viewer``        status, show, list, and the verdicts, which stay; no command of its writes
``admin``         all scripts, and what the server says of itself
================  ==========================================================================

A rule is for one namespace, or for all. Redis checks the commands inside a script with the rights
of its caller. So a user who may run a script may run its commands on the same keys by themselves
too: **roles keep namespaces apart, and readers from writing; they do not make a producer honest.**
deploy/acl/README.md says what each role can still do.

Nothing is sent from here. Rules hold on Redis 6.2 and later: no selectors, and no ``%R~``. Only
with ``functions`` do they need Redis 7.0: such a user has FCALL_RO in place of EVAL.
"""

import hashlib
import re

from acker_redis.errors import ConfigError
from acker_redis.protocol import functions as library
from acker_redis.protocol.keys import AUDIT, NAMESPACES, ShardKeys, check_name


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCRIPTS: dict[str, frozenset[str]] = {
    name: _words(its)
    for name, its in {
        "create": "EXISTS HMGET HSET TIME",
        "apply": "HDEL HGET HGETALL HINCRBY HLEN HMGET HSET PUBLISH TIME TYPE UNLINK XADD",
        "apply_blocks": "BITOP BITPOS EXISTS HDEL HGET HINCRBY HKEYS HLEN HMGET HSET PUBLISH "
        "RENAME SET SETRANGE STRLEN TIME TYPE UNLINK XADD",
        "rotate": "HDEL HGET HGETALL HINCRBY HLEN HMGET HSCAN HSET RENAME TIME UNLINK XLEN",
        "expire": "HDEL HGET HINCRBY HLEN HMGET HSCAN HSET PUBLISH TIME TYPE UNLINK XADD",
        "expire_blocks": "GET HDEL HGET HINCRBY HKEYS HLEN HMGET HSCAN HSET PUBLISH TIME TYPE "
        "UNLINK XADD",
        "show": "GET HGET HKEYS HMGET TIME",
        "take": "HGET HSET UNLINK XDEL XLEN XRANGE",
        "status": "HGETALL HLEN HMGET TIME",
        "list": "HLEN HMGET HSCAN TIME",
        "configure": "HDEL HGET HGETALL HLEN HSET TYPE UNLINK XLEN",
        "drop": "HDEL HKEYS HLEN HMGET HSCAN HSET RENAME TYPE UNLINK",
    }.items()
}
"""Commands inside each script: the table in lua/README.md, which a test holds against this."""

CONNECTING = _words(
    "AUTH HELLO PING SELECT CLIENT|SETNAME COMMAND READONLY READWRITE ASKING "
    "CLUSTER|SLOTS CLUSTER|SHARDS CLUSTER|NODES CLUSTER|MYID"
)
"""What client libraries send by themselves, to one server and to a cluster. CLIENT SETINFO is not
here: Redis 7.0 refuses a rule that names a command it does not know. Libraries pass over its
refusal."""

_RUNNING = _words("EVAL EVALSHA")
_CALLING = _words("FCALL_RO")
_READING = _words("XRANGE XREVRANGE")
_LISTENING = _words("SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE")
_FINDING = _words("SMEMBERS")
_SERVING = _words(
    "SADD SREM SISMEMBER XTRIM EXPIRE INFO CLIENT|LIST CONFIG|GET SLOWLOG|GET SLOWLOG|LEN "
    "LATENCY|LATEST LATENCY|HISTORY LATENCY|DOCTOR LATENCY|GRAPH LATENCY|HISTOGRAM "
    "CLUSTER|INFO CLUSTER|KEYSLOT CLUSTER|COUNTKEYSINSLOT CLUSTER|REPLICAS WAIT "
    "ACL|WHOAMI ACL|CAT ACL|DRYRUN"
)

_ROLES: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "producer": (("apply", "apply_blocks", "status", "show"), _words("HGET")),
    "source": (
        ("apply", "apply_blocks", "status", "show", "take"),
        _words("HGET") | _READING | _LISTENING,
    ),
    "rotator": (("rotate", "expire", "expire_blocks", "status"), _FINDING),
    "viewer": (("status", "show", "list"), _READING | _LISTENING | _FINDING),
    "admin": (tuple(SCRIPTS), _READING | _LISTENING | _FINDING | _SERVING),
}
"""For each role its scripts, and what it sends beside them."""

_LISTS_NAMESPACES = _words("rotator viewer admin")


def roles() -> tuple[str, ...]:
    """Names of the roles."""
    return tuple(_ROLES)


def scripts(role: str) -> tuple[str, ...]:
    """Names of the scripts that a role may run; ConfigError if there is no such role."""
    return _role(role)[0]


def commands(role: str, functions: bool = False) -> frozenset[str]:
    """Every command that a role needs, and that its rule allows; ConfigError for no such role.

    In capitals; a subcommand as ``CONFIG|GET``. Only PUBLISH may be missing without harm.
    ``functions``: FCALL_RO in place of EVAL and EVALSHA; ConfigError if the role's scripts write.
    """
    names, beside = _role(role)
    if functions and not calls_functions(role):
        can = ", ".join(filter(calls_functions, _ROLES))
        raise ConfigError(f"a {role} needs scripts that write, which are no functions; use: {can}")
    running = _CALLING if functions else _RUNNING
    return CONNECTING | running | beside | frozenset().union(*(SCRIPTS[name] for name in names))


def calls_functions(role: str) -> bool:
    """Return whether all scripts of a role are functions too, so that it can do without EVAL."""
    return set(scripts(role)) <= set(library.NAMES)


def keys(role: str, namespace: str | None) -> tuple[str, ...]:
    """Patterns of the keys of a role, of one namespace or, if None, of all.

    The list of all namespaces is one key. Who serves all of them may read it; of those who serve
    one only the admin, who writes it when a namespace is created or dropped. 6.2 has no right
    to read a key and not write it, and a rotator's commands could do away with the list. The audit
    log belongs to the admins and viewers of all namespaces.
    """
    _role(role)
    lists = role in _LISTS_NAMESPACES and (namespace is None or role == "admin")
    every_key = "acker:{*}*"
    if namespace is not None:
        # The : behind the name and the { before it keep orders2 and my-orders out.
        every_key = ShardKeys(check_name("namespace", namespace), 0).prefix[:-2] + "*}*"
    audits = role in ("viewer", "admin") and namespace is None
    return (every_key, *([NAMESPACES] if lists else []), *([f"{AUDIT}*"] if audits else []))


def channels(namespace: str | None) -> str:
    """Pattern of the channels of a namespace, or of all; PSUBSCRIBE may be given this very one."""
    return "acker:*" if namespace is None else f"acker:{check_name('namespace', namespace)}:*"


def rule(
    role: str,
    namespace: str | None = None,
    user: str | None = None,
    password: str | None = None,
    password_hash: str | None = None,
    functions: bool = False,
) -> str:
    """The line of an ACL file, or the arguments of ACL SETUSER, that make a user of this role.

    ``namespace`` None: all namespaces. ``user`` is the role's name unless it is given. The line
    holds the SHA256 of ``password``, or ``password_hash``, which is that (64 hex digits). Without
    either nobody can log in as this user, until ``ACL SETUSER user >password``. ``reset`` takes
    from a user who is there already all that it had, passwords too. ``functions``: a user without
    EVAL, whose keys are read-only; for Redis 7.0 or later, and for roles that only read.

    Raises ConfigError for a role, namespace, user or password that cannot be.

    >>> rule("rotator", "orders", password="secret").split(" -@all ")[0]
    'user rotator reset on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b \
resetkeys ~acker:{orders:*}* resetchannels &acker:orders:*'
    """
    granted = " ".join(f"+{command.lower()}" for command in sorted(commands(role, functions)))
    names = " ".join(f"{'%R~' if functions else '~'}{each}" for each in keys(role, namespace))
    return (
        f"user {check_user(role if user is None else user)} reset on"
        f"{_login(password, password_hash)} resetkeys {names} "
        f"resetchannels &{channels(namespace)} -@all {granted}"
    )


def check_user(name: str) -> str:
    """Return the name of a user, or raise ConfigError if an ACL file cannot hold it."""
    if not re.fullmatch(r"[!-~]{1,128}", name):
        raise ConfigError(f"a user's name is 1 to 128 ASCII signs without spaces, not {name!r}")
    return name


def _login(password: str | None, password_hash: str | None) -> str:
    if password is not None and password_hash is not None:
        raise ConfigError("give the password or its hash, not both")
    if password is not None:
        if not password:
            raise ConfigError("the password is empty; a user without one cannot log in")
        return f" #{hashlib.sha256(password.encode()).hexdigest()}"
    if password_hash is not None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", password_hash):
            raise ConfigError("a password's hash is its SHA256, 64 hex digits")
        return f" #{password_hash.lower()}"
    return ""


def _role(name: str) -> tuple[tuple[str, ...], frozenset[str]]:
    try:
        return _ROLES[name]
    except KeyError:
        raise ConfigError(f"a role is one of {', '.join(_ROLES)}, and not {name!r}") from None
