"""Add the server's address to each redis-cli command of a fix, so that it reaches this server."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace

from acker_redis.doctor.facts import NodeFacts
from acker_redis.doctor.finding import Finding

# A command without options that name a server.
_COMMAND = re.compile(r"\bredis-cli (?=[A-Z])")
_CLUSTER = re.compile(r"(\bredis-cli --cluster [a-z-]+(?: NEW_HOST:PORT)?) HOST:PORT")


def addressed(finding: Finding, nodes: Mapping[str, NodeFacts], clustered: bool) -> Finding:
    """Return the finding with the server's address in the commands of its fix.

    The address is that of the first server of the finding. For a finding about a namespace it is
    that of any master of a cluster, or of the only server.
    """
    about = [nodes[name] for name in finding.where.split(", ") if name in nodes]
    node = next(iter(about or _masters(nodes.values())), None)
    if node is None or "redis-cli" not in finding.fix:
        return finding
    options = redis_cli(node) + (" -c" if clustered and not about else "")
    fix = _COMMAND.sub(f"{options} ".replace("\\", r"\\"), finding.fix)
    if not node.socket:
        fix = _CLUSTER.sub(rf"\1 {node.name}", fix)
    if len(about) > 1 and fix != finding.fix:
        fix += f"; the same on {', '.join(each.name for each in about[1:])}"
    return replace(finding, fix=fix)


def redis_cli(node: NodeFacts) -> str:
    """Return the start of a command line for a server, without a user and password.

    >>> redis_cli(node)  # doctest: +SKIP
    'redis-cli -h 10.0.0.1 -p 6379'
    """
    if node.socket:
        return f"redis-cli -s {shlex.quote(node.name)}"
    host, _, port = node.name.rpartition(":")
    tls = " --tls" if node.tls else ""
    return f"redis-cli -h {host.strip('[]')} -p {port}{tls}"


def _masters(nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    return [node for node in nodes if not node.is_replica]
