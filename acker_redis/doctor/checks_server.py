"""Checks of a server's settings and memory. No I/O."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from acker_redis.doctor.facts import Missing, NodeFacts
from acker_redis.doctor.finding import Finding, error, merge, ok, skipped, warning
from acker_redis.protocol import server_version

FULL = 0.8
"""Share of maxmemory above which ``memory`` is a warning."""
LISTPACK_ENTRIES = 512
"""Redis's default, and the largest value for which the scripts handle hashes that are lists."""
RECOMMENDED_ENTRIES = 64
LISTPACK_VALUE = 1024
"""From this value on, the scripts cannot make a new bucket a hash table."""


def check(nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
    """Run all checks of all servers; merge equal findings of several nodes."""
    for each in (version, transport, password, eviction, memory, persistence, listpack):
        yield from merge(each(node) for node in nodes)


def version(node: NodeFacts) -> Finding:
    """Check that the server is Redis 6.2, Valkey 7.2, or later."""
    if isinstance(node.info, Missing):
        return node.info.finding("version", node.name)
    server = server_version.of_info(node.info)
    if not server.is_supported:
        return error(
            "version",
            str(server),
            "upgrade to Redis 6.2, Valkey 7.2, or later: the scripts do not run on older versions",
            node.name,
        )
    if "dragonfly_version" in node.info:
        return warning(
            "version",
            f"Dragonfly, which reports itself as {server}",
            "use Redis or Valkey: the scripts were never tested on Dragonfly",
            node.name,
        )
    # Valkey's field comes first: Valkey may be configured to report both.
    mode = _text(node.info, "server_mode") or _text(node.info, "redis_mode") or "standalone"
    return ok("version", f"{server}, {mode}", node.name)


def transport(node: NodeFacts) -> Finding:
    """Check that a connection over a public network uses TLS."""
    if node.socket:
        return ok("transport", "a Unix socket", node.name)
    if node.tls:
        return ok("transport", "TLS", node.name)
    if is_local(node):
        return ok("transport", "plain TCP, on this machine", node.name)
    public = [address for address in node.addresses if ipaddress.ip_address(address).is_global]
    if public:
        return warning(
            "transport",
            f"plain TCP to a public address ({', '.join(public)}): others can read and change data",
            "enable TLS in Redis (tls-port), and write rediss:// in the URL",
            node.name,
        )
    return ok("transport", "plain TCP, within a private network", node.name)


def password(node: NodeFacts) -> Finding:
    """Check that the default user has a password if other machines can reach the server."""
    if isinstance(node.nopass, Missing):
        return node.nopass.finding("password", node.name)
    if not node.nopass:
        return ok("password", "the default user has a password, or is disabled", node.name)
    fix = (
        "set one, and give each role a separate user: "
        "redis-cli ACL SETUSER default resetpass '>PASSWORD'"
    )
    if not is_local(node):
        return warning(
            "password",
            "the default user has no password: any program that reaches the server has all rights",
            fix,
            node.name,
        )
    if not isinstance(node.config, Missing) and _listens_to_others(node.config):
        return warning(
            "password",
            "the default user has no password, protected-mode is off, and the server listens on "
            f"{node.config.get('bind') or 'all addresses'}",
            f"redis-cli CONFIG SET protected-mode yes; or {fix}",
            node.name,
        )
    return ok("password", "none is needed: only this machine reaches the server", node.name)


def eviction(node: NodeFacts) -> Finding:
    """Check that Redis evicts no keys."""
    if isinstance(node.info, Missing):
        return node.info.finding("eviction", node.name)
    return eviction_by(_text(node.info, "maxmemory_policy"), node.name)


def eviction_by(policy: str, where: str = "") -> Finding:
    """Return the finding ``eviction`` for a ``maxmemory-policy``; "" if it is unknown."""
    fix = (
        "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf; use another "
        "Redis for data that needs eviction"
    )
    if policy == "noeviction":
        return ok("eviction", "maxmemory-policy is noeviction", where)
    if policy.startswith("volatile-"):
        return warning(
            "eviction",
            f"maxmemory-policy is {policy}: acker keys are not evicted, because they have no TTL, "
            "unless another program sets one",
            fix,
            where,
        )
    return error(
        "eviction",
        f"maxmemory-policy is {policy or 'unknown'}: trees in evicted buckets get no verdict, not "
        "even a nack, and only a timeout in the source can replay them",
        fix,
        where,
    )


def memory(node: NodeFacts) -> Finding:
    """Check that maxmemory is set, and that it is not used up."""
    if isinstance(node.info, Missing):
        return node.info.finding("memory", node.name)
    used, limit = int(node.info.get("used_memory", 0)), int(node.info.get("maxmemory", 0))
    if not limit:
        return warning(
            "memory",
            f"{_mib(used)} used, maxmemory is 0: the OS may kill Redis before Redis refuses writes",
            "set it to about two thirds of the memory: redis-cli CONFIG SET maxmemory 2gb",
            node.name,
        )
    text = f"{_mib(used)} of {_mib(limit)} used, {used / limit:.0%}"
    fix = (
        "let the sources take their verdicts, lower high_water, or raise maxmemory: "
        "redis-cli CONFIG SET maxmemory BYTES"
    )
    if used >= limit:
        return error("memory", f"{text}: new trees are refused", fix, node.name)
    if used > FULL * limit:
        return warning("memory", text, fix, node.name)
    return ok("memory", text, node.name)


def persistence(node: NodeFacts) -> Finding:
    """Check that Redis writes to disk, and that the disk accepts the writes."""
    info = node.info
    if isinstance(info, Missing):
        return info.finding("persistence", node.name)
    if int(info.get("loading", 0)):
        return error(
            "persistence",
            "the server is loading its data set, and answers no other command",
            "wait until redis-cli INFO persistence reports loading:0",
            node.name,
        )
    aof = bool(int(info.get("aof_enabled", 0)))
    return _disk_refuses(node.name, info, aof) or _what_a_crash_loses(node, aof)


def _disk_refuses(name: str, info: Mapping[str, Any], aof: bool) -> Finding | None:
    failed = [
        f"{field} is {info[field]}"
        for field in ("aof_last_write_status", "aof_last_bgrewrite_status")
        if aof and info.get(field, "ok") != "ok"
    ]
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        failed.append(f"rdb_last_bgsave_status is {info['rdb_last_bgsave_status']}")
    if failed:
        return error(
            "persistence",
            f"the disk does not accept writes: {', '.join(failed)}",
            "read the server's log, check its free disk space (df), then: redis-cli BGSAVE",
            name,
        )
    return None


def _what_a_crash_loses(node: NodeFacts, aof: bool) -> Finding:
    if isinstance(node.config, Missing):
        if aof:
            return ok("persistence", "AOF", node.name)
        return node.config.finding("persistence", node.name)
    rdb, fsync = node.config.get("save", ""), node.config.get("appendfsync", "")
    if aof and fsync == "no":
        return warning(
            "persistence",
            "AOF with appendfsync no: the OS decides when to write, often only after 30 s",
            "redis-cli CONFIG SET appendfsync everysec",
            node.name,
        )
    if aof:
        return ok("persistence", f"AOF, appendfsync {fsync}", node.name)
    fix = "redis-cli CONFIG SET appendonly yes, and the same in redis.conf"
    if not rdb:
        return warning(
            "persistence",
            "neither AOF nor RDB: a restart loses all pending trees and waiting verdicts; this "
            "causes no false ack, and sources replay after their own timeout",
            fix,
            node.name,
        )
    return warning(
        "persistence",
        f"RDB only (save {rdb}): a crash loses all changes since the last snapshot; this causes no "
        "false ack, and sources replay after their own timeout",
        fix,
        node.name,
    )


def listpack(node: NodeFacts) -> Finding:
    """Check that buckets are hash tables: in a list each lookup is a linear scan."""
    config = node.config
    if isinstance(config, Missing):
        return config.finding("listpack", node.name)
    # Redis 6.2 has the name ziplist, 7.0 and later listpack.
    kind = "listpack" if "hash-max-listpack-entries" in config else "ziplist"
    entries, value = f"hash-max-{kind}-entries", f"hash-max-{kind}-value"
    if entries not in config or value not in config:
        return skipped(
            "listpack",
            f"the server does not report {entries}",
            f"make sure that {entries} is at most {LISTPACK_ENTRIES}",
            node.name,
        )
    if int(config[value]) >= LISTPACK_VALUE:
        return error(
            "listpack",
            f"{value} is {config[value]}: buckets stay lists up to {config[entries]} records, and "
            "a batch takes three times as long",
            f"redis-cli CONFIG SET {value} 64, and the same in redis.conf",
            node.name,
        )
    if int(config[entries]) > LISTPACK_ENTRIES:
        return warning(
            "listpack",
            f"{entries} is {config[entries]}: after a restart or a slot migration, buckets are "
            "lists up to this number of records, and a batch takes three times as long (measured)",
            f"redis-cli CONFIG SET {entries} {RECOMMENDED_ENTRIES}, and the same in redis.conf",
            node.name,
        )
    return ok("listpack", f"{entries} is {config[entries]}, {value} {config[value]}", node.name)


def is_local(node: NodeFacts) -> bool:
    """Return whether the server is reached without a network."""
    found = [ipaddress.ip_address(address).is_loopback for address in node.addresses]
    return node.socket or (bool(found) and all(found))


def _listens_to_others(config: Mapping[str, str]) -> bool:
    if config.get("protected-mode") != "no":
        return False
    # Redis ignores an address with a dash if the machine does not have it.
    bound = [address.lstrip("-") for address in config.get("bind", "").split()]
    return not bound or any(each not in ("127.0.0.1", "::1", "localhost") for each in bound)


def _text(info: Mapping[str, Any], name: str) -> str:
    return str(info.get(name, ""))


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
