"""Redis rights by role: the commands that each role needs, and the ACL rule that grants them.

================  ==========================================================================
``producer``      bolts: apply, apply_blocks, status, show, alive, and the last batch of a lane
``source``        a producer that also reads, takes and subscribes to its verdicts, has groups,
                  and reports
``rotator``       rotate, expire, expire_blocks, status, and writing the history
``viewer``        status, show, alive, list, and reading verdicts; none of its commands writes
``admin``         all scripts, and commands about the state of the server
================  ==========================================================================

A rule is for one namespace, or for all. Redis checks the commands inside a script with the rights
of the script's caller. So a user who may run a script may also send its commands directly to the
same keys. **Roles keep namespaces apart, and readers from writing. They do not make a producer
honest.** deploy/acl/README.md lists what each role can still do.

This module sends nothing. The rules work on Redis 6.2 and later: they use no selectors and no
``%R~``. Only rules with ``functions`` need Redis 7.0: such a user has FCALL_RO in place of EVAL.
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
        "apply_blocks": "BITCOUNT BITOP BITPOS EXISTS GET HDEL HGET HINCRBY HLEN HMGET HSET "
        "PUBLISH RENAME SET SETRANGE STRLEN TIME TYPE UNLINK XADD",
        "rotate": "HDEL HGET HGETALL HINCRBY HLEN HMGET HSCAN HSET INFO RENAME TIME UNLINK XLEN",
        "expire": "HDEL HINCRBY HLEN HMGET HSCAN HSET PUBLISH TIME TYPE UNLINK XADD",
        "expire_blocks": "GET HDEL HINCRBY HLEN HMGET HSCAN HSET PUBLISH TIME TYPE UNLINK XADD",
        "show": "GET HGET HMGET TIME",
        "alive": "GET HMGET TIME",
        "report": "HDEL HGET HGETALL HLEN HMGET HSET TIME",
        "take": "HGET HSET UNLINK XDEL XLEN XRANGE",
        "status": "HGETALL HLEN HMGET TIME",
        "list": "HLEN HMGET HSCAN TIME",
        "configure": "HDEL HGET HGETALL HLEN HSET TYPE UNLINK XLEN",
        "drop": "HDEL HKEYS HLEN HMGET HSCAN HSET RENAME TYPE UNLINK",
    }.items()
}
"""The commands inside each script. A test compares this with the table in lua/README.md."""

CONNECTING = _words(
    "AUTH HELLO PING SELECT CLIENT|SETNAME COMMAND READONLY READWRITE ASKING "
    "CLUSTER|SLOTS CLUSTER|SHARDS CLUSTER|NODES CLUSTER|MYID"
)
"""Commands that client libraries send by themselves, to a single server and to a cluster.

CLIENT SETINFO is not included: Redis 7.0 refuses a rule that names a command it does not know.
Libraries ignore its refusal.
"""

_RUNNING = _words("EVAL EVALSHA")
_CALLING = _words("FCALL_RO")
# XINFO|STREAM: lost() asks which verdict was taken last.
_READING = _words("XRANGE XREVRANGE XINFO|STREAM")
_LISTENING = _words("SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE")
_FINDING = _words("SMEMBERS")
_SERVING = _words(
    "SADD SREM SISMEMBER XTRIM EXPIRE INFO CLIENT|LIST CONFIG|GET SLOWLOG|GET SLOWLOG|LEN "
    "LATENCY|LATEST LATENCY|HISTORY LATENCY|DOCTOR LATENCY|GRAPH LATENCY|HISTOGRAM "
    "CLUSTER|INFO CLUSTER|KEYSLOT CLUSTER|COUNTKEYSINSLOT CLUSTER|REPLICAS WAIT "
    "ACL|WHOAMI ACL|CAT ACL|DRYRUN"
)

_ROLES: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "producer": (("apply", "apply_blocks", "status", "show", "alive"), _words("HGET")),
    "source": (
        ("apply", "apply_blocks", "status", "show", "alive", "report", "take"),
        # HSCAN and EXPIRE: completion groups.
        _words("HGET HSCAN EXPIRE PERSIST") | _READING | _LISTENING,
    ),
    # It sends INFO, too: history marks when Redis started again.
    "rotator": (("rotate", "expire", "expire_blocks", "status"), _FINDING),
    "viewer": (("status", "show", "alive", "list"), _READING | _LISTENING | _FINDING),
    "admin": (tuple(SCRIPTS), _READING | _LISTENING | _FINDING | _SERVING),
}
"""Per role: its scripts, and the commands that it sends directly."""

_LISTS_NAMESPACES = _words("rotator viewer admin")


def roles() -> tuple[str, ...]:
    """Return the names of the roles."""
    return tuple(_ROLES)


def scripts(role: str) -> tuple[str, ...]:
    """Return the names of a role's scripts; raise ConfigError for an unknown role."""
    return _role(role)[0]


def commands(role: str, functions: bool = False) -> frozenset[str]:
    """Return every command that a role needs and its rule allows.

    Names are in capitals, subcommands as ``CONFIG|GET``. For those that may be missing without harm
    see :func:`optional`.
    With ``functions``, FCALL_RO replaces EVAL and EVALSHA.

    Raises ConfigError for an unknown role, or with ``functions`` for a role whose scripts write.
    """
    names, beside = _role(role)
    if functions and not calls_functions(role):
        can = ", ".join(filter(calls_functions, _ROLES))
        raise ConfigError(
            f"a {role} runs scripts that write, and these are no functions; roles "
            f"with functions: {can}"
        )
    running = _CALLING if functions else _RUNNING
    return CONNECTING | running | beside | frozenset().union(*(SCRIPTS[name] for name in names))


def optional(role: str) -> frozenset[str]:
    """Return the commands that a role can do without; raise ConfigError for an unknown role.

    Without PUBLISH the live feed is missing. Without INFO a rotator marks no restart of Redis in
    the history, and no consumer skips the work of ended trees.
    """
    return commands(role) & (_words("PUBLISH INFO") if role == "rotator" else _words("PUBLISH"))


def calls_functions(role: str) -> bool:
    """Return whether all scripts of a role are functions too, so that it can do without EVAL."""
    return set(scripts(role)) <= set(library.NAMES)


def keys(role: str, namespace: str | None) -> tuple[str, ...]:
    """Return the key patterns of a role, for one namespace or, with None, for all.

    The list of all namespaces is one key. Roles that serve all namespaces may read it. Of the roles
    for one namespace only the admin may, who writes the list when a namespace is created or
    dropped. Redis 6.2 cannot grant reading a key without writing it, and a rotator's commands could
    delete the list. The audit log is for admins and viewers of all namespaces.
    """
    _role(role)
    lists = role in _LISTS_NAMESPACES and (namespace is None or role == "admin")
    every_key = "acker:{*}*"
    if namespace is not None:
        # The : after the name and the { before it exclude orders2 and my-orders.
        every_key = ShardKeys(check_name("namespace", namespace), 0).prefix[:-2] + "*}*"
    audits = role in ("viewer", "admin") and namespace is None
    return (every_key, *([NAMESPACES] if lists else []), *([f"{AUDIT}*"] if audits else []))


def channels(namespace: str | None) -> str:
    """Return the channel pattern of a namespace, or of all.

    PSUBSCRIBE accepts exactly this pattern.
    """
    return "acker:*" if namespace is None else f"acker:{check_name('namespace', namespace)}:*"


def rule(
    role: str,
    namespace: str | None = None,
    user: str | None = None,
    password: str | None = None,
    password_hash: str | None = None,
    functions: bool = False,
) -> str:
    """Return the line of an ACL file, or the arguments of ACL SETUSER, for a user of a role.

    ``reset`` in the line removes everything that an existing user had, passwords too.

    Args:
        role: One of :func:`roles`.
        namespace: The name of the namespace; None means all.
        user: The name of the user; by default the role's name.
        password: The password; the line holds its SHA256. Without ``password`` and
            ``password_hash`` no one can log in as this user until ``ACL SETUSER user >password``.
        password_hash: The SHA256 of the password instead, 64 hex digits.
        functions: Whether the user has FCALL_RO instead of EVAL, and read-only keys. For roles that
            only read, on Redis 7.0 or later.

    Raises:
        ConfigError: The role, namespace, user or password is invalid.

    Examples:
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
    """Return the name of a user; raise ConfigError if an ACL file cannot hold it."""
    if not re.fullmatch(r"[!-~]{1,128}", name):
        raise ConfigError(f"a user name has 1 to 128 ASCII characters and no spaces, not {name!r}")
    return name


def _login(password: str | None, password_hash: str | None) -> str:
    if password is not None and password_hash is not None:
        raise ConfigError("give the password or its hash, not both")
    if password is not None:
        if not password:
            raise ConfigError("the password is empty: give one, or leave the option out")
        return f" #{hashlib.sha256(password.encode()).hexdigest()}"
    if password_hash is not None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", password_hash):
            raise ConfigError("a password hash must be a SHA256, 64 hex digits")
        return f" #{password_hash.lower()}"
    return ""


def _role(name: str) -> tuple[tuple[str, ...], frozenset[str]]:
    try:
        return _ROLES[name]
    except KeyError:
        raise ConfigError(f"unknown role {name!r}: use one of {', '.join(_ROLES)}") from None
