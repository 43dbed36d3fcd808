"""A Redis Cluster of a few masters on loopback, and the steps of a slot migration."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.crc import key_slot
from redis.retry import Retry

from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.binary import ServerBinary
from acker_redis.errors import EmbeddedServerError
from acker_redis.protocol.keys import ShardKeys
from tests.open_redis import OpenRedis
from tests.waiting import LIMIT, wait_until

SLOTS = 16384
REDIRECTIONS = ("MOVED", "ASK", "TRYAGAIN")


def slot_of(keys: ShardKeys) -> int:
    """Return the slot of a shard: all its keys are in one slot."""
    return int(key_slot(keys.prefix.encode()))


def spread(cluster: "Cluster", shards: int) -> str:
    """Return a namespace whose shards are spread over all masters, in different slots."""
    everyone = {node.id for node in cluster.nodes}
    for number in range(1000):
        name = f"spread-{number}"
        slots = {slot_of(ShardKeys(name, shard)) for shard in range(shards)}
        if {cluster.owner(slot).id for slot in slots} == everyone and len(slots) == shards:
            return name
    raise AssertionError("no such namespace found")


class Node:
    """One master: its server, a client of this server only, and its id in the cluster."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self.server = server
        self.redis = redis.Redis(
            port=server.port, socket_timeout=LIMIT, retry=Retry(NoBackoff(), 0)
        )
        self.id: str = self.run("CLUSTER", "MYID").decode()

    def run(self, *args: str | bytes | int) -> Any:
        """Run a command on this node only; a redirection is an error."""
        return self.redis.execute_command(*args)

    def run_asking(self, *args: str | bytes | int) -> Any:
        """Run a command after ASKING, as a client does that follows ASK."""
        pipe = self.redis.pipeline(transaction=False)
        pipe.execute_command("ASKING")
        pipe.execute_command(*args)
        return pipe.execute()[1]

    def keys_in(self, slot: int) -> list[bytes]:
        """Return the keys of a slot on this node."""
        found: list[bytes] = self.run("CLUSTER", "GETKEYSINSLOT", slot, 1_000_000)
        return sorted(found)

    def dump(self, slot: int) -> dict[bytes, Any]:
        """Return the content of a slot on this node, including the last ids of its streams.

        It also works while the slot migrates. DUMP would not do: a hash table may be read in
        another order each time.
        """
        found: dict[bytes, Any] = {}
        for key in self.keys_in(slot):
            if self.run_asking("TYPE", key) == b"hash":
                found[key] = self.run_asking("HGETALL", key)
            else:
                last = self.run_asking("XINFO", "STREAM", key)
                found[key] = (self.run_asking("XRANGE", key, "-", "+"), last)
        return found

    def redirections(self) -> dict[str, int]:
        """Return the number of replies MOVED, ASK and TRYAGAIN of this node."""
        counts = self.redis.info("errorstats")
        return {name: _count(counts.get(f"errorstat_{name}")) for name in REDIRECTIONS}


class Cluster:
    """Masters that share all slots evenly; ``add`` adds one without slots."""

    def __init__(self, binary: ServerBinary, masters: int = 3) -> None:
        self._binary = binary
        self._stack = contextlib.ExitStack()
        self.nodes: list[Node] = []
        try:
            for _ in range(masters):
                self._start()
            for number, node in enumerate(self.nodes):
                first, last = number * SLOTS // masters, (number + 1) * SLOTS // masters
                node.run("CLUSTER", "ADDSLOTS", *range(first, last))
                # Each node meets each other node: gossip alone would take seconds.
                self._introduce(node, self.nodes[:number])
            self.settle()
        except BaseException:
            self.stop()
            raise

    def client(self, timeout: float = LIMIT) -> "redis.RedisCluster":
        """Return a client as an acker needs it: it does not retry after a lost reply.

        It still follows MOVED and ASK and waits on TRYAGAIN: those commands did not run.
        """
        return redis.RedisCluster(
            startup_nodes=[ClusterNode("127.0.0.1", node.server.port) for node in self.nodes],
            retry=Retry(NoBackoff(), 0),
            socket_timeout=timeout,
            decode_responses=False,
        )

    def add(self) -> Node:
        """Add a master without slots; ``remove`` it afterwards."""
        node = self._start()
        self._introduce(node, self.nodes[:-1])
        self.settle()
        return node

    def remove(self, node: Node) -> None:
        """Forget a master whose slots have all migrated, and stop it."""
        assert self.slots_of(node) == 0
        self.nodes.remove(node)
        for other in self.nodes:
            other.run("CLUSTER", "FORGET", node.id)
        node.redis.close()
        node.server.stop()

    def owner(self, slot: int) -> Node:
        """Return the master that owns a slot."""
        for first, last, master, *_ in self.nodes[0].run("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(n for n in self.nodes if n.id == master[2].decode())
        raise AssertionError(f"no master has slot {slot}")

    def others(self, node: Node) -> list[Node]:
        """Return all other masters."""
        return [other for other in self.nodes if other is not node]

    def slots_of(self, node: Node) -> int:
        """Return the number of slots of a master."""
        entries = self.nodes[0].run("CLUSTER", "SLOTS")
        mine = (e for e in entries if e[2][2].decode() == node.id)
        return sum(int(last) - int(first) + 1 for first, last, *_ in mine)

    def redirections(self) -> dict[str, int]:
        """Return the number of replies MOVED, ASK and TRYAGAIN of all nodes."""
        counts = [node.redirections() for node in self.nodes]
        return {name: sum(count[name] for count in counts) for name in REDIRECTIONS}

    def settle(self) -> None:
        """Wait until all masters know each other, and agree on the owner of each slot."""

        def settled() -> bool:
            views = set()
            for node in self.nodes:
                info = node.run("CLUSTER", "INFO")
                if b"cluster_state:ok" not in info:
                    return False
                entries = node.run("CLUSTER", "SLOTS")
                views.add(tuple(sorted((e[0], e[1], e[2][2]) for e in entries)))
                known = node.run("CLUSTER", "NODES").decode().splitlines()
                # A node in handshake has a temporary id.
                if {line.split()[0] for line in known} != {n.id for n in self.nodes}:
                    return False
            return len(views) == 1 and sum(e[1] - e[0] + 1 for e in next(iter(views))) == SLOTS

        wait_until(settled, "a cluster that agrees", pause=0.02)

    def begin_move(self, slot: int, to: Node) -> Node:
        """Start the migration of a slot; return its old master."""
        source = self.owner(slot)
        to.run("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        return source

    def migrate(self, source: Node, to: Node, keys: Collection[str | bytes]) -> None:
        """Migrate some keys in one step; skip missing keys."""
        source.run("MIGRATE", "127.0.0.1", to.server.port, "", 0, int(1000 * LIMIT), "KEYS", *keys)

    def end_move(self, slot: int, source: Node, to: Node) -> None:
        """Assign a slot to its new master, first in the view of that master."""
        for node in (to, source, *(n for n in self.nodes if n not in (to, source))):
            try:
                node.run("CLUSTER", "SETSLOT", slot, "NODE", to.id)
            except redis.ResponseError as error:
                # A master that loses its last slot becomes a replica.
                if "only with masters" not in str(error):
                    raise
        self.settle()

    def move_slot(self, slot: int, to: Node, after: Callable[[str], None] = lambda _: None) -> int:
        """Migrate a slot key by key; return the number of its keys.

        ``after`` is called after each step, with its name: ``begin``, then for each key
        ``migrate``, then ``end``.
        """
        source = self.begin_move(slot, to)
        after("begin")
        moved = 0
        while keys := source.run("CLUSTER", "GETKEYSINSLOT", slot, 1):
            self.migrate(source, to, keys)
            moved += 1
            after("migrate")
        self.end_move(slot, source, to)
        after("end")
        return moved

    def flush(self) -> None:
        """Remove all keys."""
        for node in self.nodes:
            node.redis.flushall()

    def repair(self) -> None:
        """Undo an unfinished slot migration of a failed test; this deletes all keys."""
        slots = {
            int(mark[1:].split("-")[0])
            for node in self.nodes
            for line in node.run("CLUSTER", "NODES").decode().splitlines()
            for mark in line.split()[8:]
            if mark.startswith("[")
        }
        if slots:
            self.flush()
        for slot in slots:
            for node in self.nodes:
                node.run("CLUSTER", "SETSLOT", slot, "STABLE")
        self.settle()

    def stop(self) -> None:
        """Stop the servers of this cluster."""
        self._stack.close()

    def _start(self) -> Node:
        node = Node(self._stack.enter_context(_server(self._binary)))
        self._stack.callback(node.redis.close)
        # Each node gets its own epoch: Redis would have to resolve a conflict of equal epochs.
        node.run("CLUSTER", "SET-CONFIG-EPOCH", len(self.nodes) + 1)
        self.nodes.append(node)
        return node

    def _introduce(self, node: Node, others: Collection[Node]) -> None:
        for other in others:
            node.run("CLUSTER", "MEET", "127.0.0.1", other.server.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


@contextlib.contextmanager
def _server(binary: ServerBinary) -> Iterator[EmbeddedRedis]:
    """Yield a server in cluster mode; its port must be low enough for the port of the bus."""
    # With this timeout a node that stops for some seconds does not count as failed.
    settings = ("--cluster-enabled", "yes", "--cluster-node-timeout", "600000")
    for _ in range(30):
        server = OpenRedis(binary=binary, extra_args=settings)
        try:
            server.start()
        except EmbeddedServerError as error:
            if "port number too high" not in str(error):
                raise
            continue
        with server:
            yield server
        return
    raise AssertionError("no port was low enough")


def _count(stat: Any) -> int:
    """Return the count of an entry of errorstats, which is ``count=1``."""
    return int(stat["count"]) if stat else 0
