"""Checks of the clients of a server, from the server's client list. No I/O.

The server does not know whether a client retries unfenced commands. The doctor can check this only
for the client that it was given.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from acker_redis.doctor.facts import Missing, NodeFacts
from acker_redis.doctor.finding import Finding, merge, ok, warning

FULL = 0.8
"""Share of maxclients above which ``clients`` is a warning."""
UNREAD = 2**20
"""Bytes of unread replies or messages above which a client is slow."""
_SHOWN = 4


def check(nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
    """Check the clients of all servers; merge equal findings of several nodes."""
    yield from merge(clients(node) for node in nodes)


def clients(node: NodeFacts) -> Finding:
    """Check the number of clients, and whether they read their replies."""
    if isinstance(node.clients, Missing):
        return node.clients.finding("clients", node.name)
    count = len(node.clients)
    limit = 0 if isinstance(node.info, Missing) else int(node.info.get("maxclients", 0))
    if limit and count > FULL * limit:
        return warning(
            "clients",
            f"{count} of maxclients {limit} connections are in use",
            "share connections within each program, or: redis-cli CONFIG SET maxclients N",
            node.name,
        )
    slow = [each for each in node.clients if int(each.get("omem", 0)) > UNREAD]
    if slow:
        text = ", ".join(
            f"{_name(each)} {int(each['omem']) / 2**20:,.0f} MiB" for each in slow[:_SHOWN]
        )
        return warning(
            "clients",
            f"{len(slow)} of {count} clients do not read their replies or messages: {text}",
            "disconnect them, redis-cli CLIENT KILL ADDR HOST:PORT, and limit others by "
            "client-output-buffer-limit",
            node.name,
        )
    libraries = Counter(_library(each) for each in node.clients)
    text = ", ".join(f"{number} {name}" for name, number in libraries.most_common(_SHOWN))
    blocked = sum("b" in each.get("flags", "") for each in node.clients)
    return ok("clients", f"{count} connected ({text}), {blocked} of them blocked", node.name)


def retries(count: int | None) -> Finding:
    """Check how often the doctor's client library retries a command by itself."""
    if count is None:
        return ok("retries", "unknown for this client")
    if count:
        return warning(
            "retries",
            f"this client retries a command up to {count} times by itself; batches have fences and "
            "are still applied once, but forced ticks and takes have none",
            "create it by acker_redis.Acker.from_url, or with retry=Retry(NoBackoff(), 0)",
        )
    return ok("retries", "none: only the acker retries, with its fences")


def _library(client: Mapping[str, str]) -> str:
    name, number = client.get("lib-name", ""), client.get("lib-ver", "")
    return f"{name} {number}".strip() or "of unknown libraries"


def _name(client: Mapping[str, str]) -> str:
    name = client.get("name", "")
    return f"{client.get('addr', '?')}{f' ({name})' if name else ''}"
