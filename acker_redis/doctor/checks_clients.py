"""Checks of the clients of a server, as far as a server knows them. No I/O.

Whether a client sends again what has no fence cannot be told from outside. Of the client that the
doctor was given it can be.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from acker_redis.doctor.facts import Missing, NodeFacts
from acker_redis.doctor.finding import Finding, merge, ok, warning

FULL = 0.8
"""Share of maxclients from which on there is too little room left."""
UNREAD = 2**20
"""Bytes of replies or messages that a client has not read, from which on it is slow."""
_SHOWN = 4


def check(nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
    """Check the clients of all servers; one finding for the nodes that are alike."""
    yield from merge(clients(node) for node in nodes)


def clients(node: NodeFacts) -> Finding:
    """How many, how slow, and by which libraries."""
    if isinstance(node.clients, Missing):
        return node.clients.finding("clients", node.name)
    count = len(node.clients)
    limit = 0 if isinstance(node.info, Missing) else int(node.info.get("maxclients", 0))
    if limit and count > FULL * limit:
        return warning(
            "clients",
            f"{count} of maxclients {limit} are connected",
            "have programs share connections, or: redis-cli CONFIG SET maxclients N",
            node.name,
        )
    slow = [each for each in node.clients if int(each.get("omem", 0)) > UNREAD]
    if slow:
        text = ", ".join(
            f"{_name(each)} {int(each['omem']) / 2**20:,.0f} MiB" for each in slow[:_SHOWN]
        )
        return warning(
            "clients",
            f"{len(slow)} of {count} do not read what they asked for or subscribed to: {text}",
            "end them, redis-cli CLIENT KILL ADDR HOST:PORT, and bound the rest by "
            "client-output-buffer-limit",
            node.name,
        )
    libraries = Counter(_library(each) for each in node.clients)
    text = ", ".join(f"{number} {name}" for name, number in libraries.most_common(_SHOWN))
    blocked = sum("b" in each.get("flags", "") for each in node.clients)
    return ok("clients", f"{count} are connected ({text}), {blocked} of them blocked", node.name)


def retries(count: int | None) -> Finding:
    """How often the client that the doctor was given sends a command again by itself."""
    if count is None:
        return ok("retries", "the client's own are not known")
    if count:
        return warning(
            "retries",
            f"this client sends a command up to {count} times again by itself; batches are fenced, "
            "and applied once all the same, but forced ticks and takes are not",
            "make it by acker_redis.Acker.from_url, or with retry=Retry(NoBackoff(), 0)",
        )
    return ok("retries", "none: only the acker sends again, under its fences")


def _library(client: Mapping[str, str]) -> str:
    name, number = client.get("lib-name", ""), client.get("lib-ver", "")
    return f"{name} {number}".strip() or "of unknown libraries"


def _name(client: Mapping[str, str]) -> str:
    name = client.get("name", "")
    return f"{client.get('addr', '?')}{f' ({name})' if name else ''}"
