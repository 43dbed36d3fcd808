"""Checks of a server's settings and memory. No I/O."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from acker_redis.doctor.facts import Missing, NodeFacts
from acker_redis.doctor.finding import Finding, error, merge, ok, skipped, warning
from acker_redis.protocol import server_version

FULL = 0.8
"""Share of maxmemory from which on there is too little room left."""
LISTPACK_ENTRIES = 512
"""Redis's default, up to which the scripts deal with hashes that are lists."""
RECOMMENDED_ENTRIES = 64
LISTPACK_VALUE = 1024
"""From here on the scripts cannot make a bucket a table at its birth."""


def check(nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
    """All checks of all servers, one after the other; one finding for the nodes that are alike."""
    for each in (version, transport, password, eviction, memory, persistence, listpack):
        yield from merge(each(node) for node in nodes)


def version(node: NodeFacts) -> Finding:
    """Redis 6.2 or Valkey 7.2 at least."""
    if isinstance(node.info, Missing):
        return node.info.finding("version", node.name)
    server = server_version.of_info(node.info)
    if not server.is_supported:
        return error(
            "version",
            str(server),
            "upgrade to Redis 6.2 or Valkey 7.2 or later: the scripts do not run on older ones",
            node.name,
        )
    if "dragonfly_version" in node.info:
        return warning(
            "version",
            f"Dragonfly, which says it is {server}",
            "use Redis or Valkey: the scripts were never tested on Dragonfly",
            node.name,
        )
    # Valkey's name for it comes first: Valkey may be configured to say both.
    mode = _text(node.info, "server_mode") or _text(node.info, "redis_mode") or "standalone"
    return ok("version", f"{server}, {mode}", node.name)


def transport(node: NodeFacts) -> Finding:
    """TLS where the line leaves the private network."""
    if node.socket:
        return ok("transport", "a Unix socket", node.name)
    if node.tls:
        return ok("transport", "TLS", node.name)
    if is_local(node):
        return ok("transport", "plain, on this machine", node.name)
    public = [address for address in node.addresses if ipaddress.ip_address(address).is_global]
    if public:
        return warning(
            "transport",
            f"plain TCP to a public address ({', '.join(public)})",
            "have Redis listen by TLS (tls-port) and write rediss:// in the URL",
            node.name,
        )
    return ok("transport", "plain, within a private network", node.name)


def password(node: NodeFacts) -> Finding:
    """A password where others can reach the server."""
    if isinstance(node.nopass, Missing):
        return node.nopass.finding("password", node.name)
    if not node.nopass:
        return ok("password", "the default user has a password, or is off", node.name)
    fix = (
        "give it one, and each role a user of its own: "
        "redis-cli ACL SETUSER default resetpass '>PASSWORD'"
    )
    if not is_local(node):
        return warning(
            "password",
            "whoever reaches the server may do everything: the default user has no password",
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
    return ok("password", "none is needed, from this machine only", node.name)


def eviction(node: NodeFacts) -> Finding:
    """Nothing may be evicted."""
    if isinstance(node.info, Missing):
        return node.info.finding("eviction", node.name)
    return eviction_by(_text(node.info, "maxmemory_policy"), node.name)


def eviction_by(policy: str, where: str = "") -> Finding:
    """Finding ``eviction`` for a ``maxmemory-policy``; "" is one that is not known."""
    fix = (
        "redis-cli CONFIG SET maxmemory-policy noeviction, the same in redis.conf, and a Redis of "
        "its own for what else needs eviction"
    )
    if policy == "noeviction":
        return ok("eviction", "maxmemory-policy is noeviction", where)
    if policy.startswith("volatile-"):
        return warning(
            "eviction",
            f"maxmemory-policy is {policy}: the keys of an acker have no TTL and stay, for as long "
            "as nobody gives them one",
            fix,
            where,
        )
    return error(
        "eviction",
        f"maxmemory-policy is {policy or 'not known'}: trees in evicted buckets get no verdict, "
        "not even a nack, and their sources have but a timeout of their own",
        fix,
        where,
    )


def memory(node: NodeFacts) -> Finding:
    """A limit, and room below it."""
    if isinstance(node.info, Missing):
        return node.info.finding("memory", node.name)
    used, limit = int(node.info.get("used_memory", 0)), int(node.info.get("maxmemory", 0))
    if not limit:
        return warning(
            "memory",
            f"{_mib(used)} used, maxmemory is 0: the system may kill Redis before Redis refuses",
            "set it to some two thirds of the machine's memory: redis-cli CONFIG SET maxmemory 2gb",
            node.name,
        )
    text = f"{_mib(used)} of {_mib(limit)} used, {used / limit:.0%}"
    fix = (
        "have the sources take their verdicts, lower high_water, or raise it: "
        "redis-cli CONFIG SET maxmemory BYTES"
    )
    if used >= limit:
        return error("memory", f"{text}: new trees are refused", fix, node.name)
    if used > FULL * limit:
        return warning("memory", text, fix, node.name)
    return ok("memory", text, node.name)


def persistence(node: NodeFacts) -> Finding:
    """Something on disk, and the disk takes it."""
    info = node.info
    if isinstance(info, Missing):
        return info.finding("persistence", node.name)
    if int(info.get("loading", 0)):
        return error(
            "persistence",
            "the server is loading its data set, and answers nothing else",
            "wait until redis-cli INFO persistence says loading:0",
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
            f"the disk does not take what is written: {', '.join(failed)}",
            "look into the server's log and at the room on its disk (df), then: redis-cli BGSAVE",
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
            "AOF with appendfsync no: the system writes when it likes, often after 30 s",
            "redis-cli CONFIG SET appendfsync everysec",
            node.name,
        )
    if aof:
        return ok("persistence", f"AOF, appendfsync {fsync}", node.name)
    fix = "redis-cli CONFIG SET appendonly yes, and the same in redis.conf"
    if not rdb:
        return warning(
            "persistence",
            "neither AOF nor RDB: a restart loses all pending trees and all verdicts that wait; "
            "nothing is acked for it, and sources replay after a timeout of their own",
            fix,
            node.name,
        )
    return warning(
        "persistence",
        f"RDB only (save {rdb}): a crash loses what came after the last snapshot; nothing is acked "
        "for it, and sources replay after a timeout of their own",
        fix,
        node.name,
    )


def listpack(node: NodeFacts) -> Finding:
    """Buckets must be tables: in a list each lookup walks along."""
    config = node.config
    if isinstance(config, Missing):
        return config.finding("listpack", node.name)
    # The names up to 6.2, and those from 7.0 on.
    kind = "listpack" if "hash-max-listpack-entries" in config else "ziplist"
    entries, value = f"hash-max-{kind}-entries", f"hash-max-{kind}-value"
    if entries not in config or value not in config:
        return skipped(
            "listpack",
            f"the server does not tell its {entries}",
            f"see to it that {entries} is at most {LISTPACK_ENTRIES}",
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
            "lists up to that many records, and a batch takes three times as long (measured)",
            f"redis-cli CONFIG SET {entries} {RECOMMENDED_ENTRIES}, and the same in redis.conf",
            node.name,
        )
    return ok("listpack", f"{entries} is {config[entries]}, {value} {config[value]}", node.name)


def is_local(node: NodeFacts) -> bool:
    """Whether it is reached without a network."""
    found = [ipaddress.ip_address(address).is_loopback for address in node.addresses]
    return node.socket or (bool(found) and all(found))


def _listens_to_others(config: Mapping[str, str]) -> bool:
    if config.get("protected-mode") != "no":
        return False
    # A dash: passed over where the machine has no such address.
    bound = [address.lstrip("-") for address in config.get("bind", "").split()]
    return not bound or any(each not in ("127.0.0.1", "::1", "localhost") for each in bound)


def _text(info: Mapping[str, Any], name: str) -> str:
    return str(info.get(name, ""))


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
