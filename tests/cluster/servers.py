"""A Redis Cluster of a few masters on loopback, and the steps by which a slot is moved."""

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
from tests.waiting import LIMIT, wait_until

SLOTS = 16384
REDIRECTIONS = ("MOVED", "ASK", "TRYAGAIN")


def slot_of(keys: ShardKeys) -> int:
    """The slot of a shard: that of all of its keys."""
    return int(key_slot(keys.prefix.encode()))


def spread(cluster: "Cluster", shards: int) -> str:
    """Name of a namespace of which each master holds some shards."""
    everyone = {node.id for node in cluster.nodes}
    for number in range(1000):
        name = f"spread-{number}"
        slots = {slot_of(ShardKeys(name, shard)) for shard in range(shards)}
        if {cluster.owner(slot).id for slot in slots} == everyone and len(slots) == shards:
            return name
    raise AssertionError("no name will do")


class Node:
    """One master: its server, a client for it alone, and its id in the cluster."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self.server = server
        self.redis = redis.Redis(
            port=server.port, socket_timeout=LIMIT, retry=Retry(NoBackoff(), 0)
        )
        self.id: str = self.run("CLUSTER", "MYID").decode()

    def run(self, *args: str | bytes | int) -> Any:
        """Run a command here and nowhere else; a redirection is an error."""
        return self.redis.execute_command(*args)

    def run_asking(self, *args: str | bytes | int) -> Any:
        """Run a command as a client does that ASK has sent here."""
        pipe = self.redis.pipeline(transaction=False)
        pipe.execute_command("ASKING")
        pipe.execute_command(*args)
        return pipe.execute()[1]

    def keys_in(self, slot: int) -> list[bytes]:
        """Keys of a slot that are here."""
        found: list[bytes] = self.run("CLUSTER", "GETKEYSINSLOT", slot, 1_000_000)
        return sorted(found)

    def dump(self, slot: int) -> dict[bytes, Any]:
        """What is here of a slot, also while it moves, down to the last id of a stream.

        Not the bytes of DUMP: a table may be read in another order each time.
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
        """How many replies MOVED, ASK and TRYAGAIN were given here."""
        counts = self.redis.info("errorstats")
        return {name: _count(counts.get(f"errorstat_{name}")) for name in REDIRECTIONS}


class Cluster:
    """Masters that share all slots evenly; ``add`` brings in one that has none yet."""

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
                # Each meets each: what gossip would bring about in seconds is there at once.
                self._introduce(node, self.nodes[:number])
            self.settle()
        except BaseException:
            self.stop()
            raise

    def client(self, timeout: float = LIMIT) -> "redis.RedisCluster":
        """A client as an acker needs it: after a lost reply it sends nothing again by itself.

        It still follows MOVED and ASK and waits at TRYAGAIN: those have run nothing.
        """
        return redis.RedisCluster(
            startup_nodes=[ClusterNode("127.0.0.1", node.server.port) for node in self.nodes],
            retry=Retry(NoBackoff(), 0),
            socket_timeout=timeout,
            decode_responses=False,
        )

    def add(self) -> Node:
        """One more master, without slots; ``remove`` it again."""
        node = self._start()
        self._introduce(node, self.nodes[:-1])
        self.settle()
        return node

    def remove(self, node: Node) -> None:
        """Forget a master whose slots were all moved away, and stop it."""
        assert self.slots_of(node) == 0
        self.nodes.remove(node)
        for other in self.nodes:
            other.run("CLUSTER", "FORGET", node.id)
        node.redis.close()
        node.server.stop()

    def owner(self, slot: int) -> Node:
        """The master that a slot belongs to."""
        for first, last, master, *_ in self.nodes[0].run("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(n for n in self.nodes if n.id == master[2].decode())
        raise AssertionError(f"nobody has slot {slot}")

    def others(self, node: Node) -> list[Node]:
        """All masters but one."""
        return [other for other in self.nodes if other is not node]

    def slots_of(self, node: Node) -> int:
        """How many slots a master has."""
        entries = self.nodes[0].run("CLUSTER", "SLOTS")
        mine = (e for e in entries if e[2][2].decode() == node.id)
        return sum(int(last) - int(first) + 1 for first, last, *_ in mine)

    def redirections(self) -> dict[str, int]:
        """How many replies MOVED, ASK and TRYAGAIN were given, by all nodes."""
        counts = [node.redirections() for node in self.nodes]
        return {name: sum(count[name] for count in counts) for name in REDIRECTIONS}

    def settle(self) -> None:
        """Wait until all masters know each other, and agree on who has which slot."""

        def settled() -> bool:
            views = set()
            for node in self.nodes:
                info = node.run("CLUSTER", "INFO")
                if b"cluster_state:ok" not in info:
                    return False
                entries = node.run("CLUSTER", "SLOTS")
                views.add(tuple(sorted((e[0], e[1], e[2][2]) for e in entries)))
                known = node.run("CLUSTER", "NODES").decode().splitlines()
                # A node in handshake has another id for the time being.
                if {line.split()[0] for line in known} != {n.id for n in self.nodes}:
                    return False
            return len(views) == 1 and sum(e[1] - e[0] + 1 for e in next(iter(views))) == SLOTS

        wait_until(settled, "a cluster that agrees", pause=0.02)

    def begin_move(self, slot: int, to: Node) -> Node:
        """Announce that a slot moves; returns the master that it moves from."""
        source = self.owner(slot)
        to.run("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        return source

    def migrate(self, source: Node, to: Node, keys: Collection[str | bytes]) -> None:
        """Move some keys, all at once; those that are not there are passed over."""
        source.run("MIGRATE", "127.0.0.1", to.server.port, "", 0, int(1000 * LIMIT), "KEYS", *keys)

    def end_move(self, slot: int, source: Node, to: Node) -> None:
        """Give a slot to its new master, first of all in that one's own view."""
        for node in (to, source, *(n for n in self.nodes if n not in (to, source))):
            try:
                node.run("CLUSTER", "SETSLOT", slot, "NODE", to.id)
            except redis.ResponseError as error:
                # A master that learns that its last slot is gone makes itself a replica.
                if "only with masters" not in str(error):
                    raise
        self.settle()

    def move_slot(self, slot: int, to: Node, after: Callable[[str], None] = lambda _: None) -> int:
        """Move a slot key by key; returns how many keys it had.

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
        """Undo the move of a slot that a test which failed has left half done, keys and all."""
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
        """Stop the servers that were started here."""
        self._stack.close()

    def _start(self) -> Node:
        node = Node(self._stack.enter_context(_server(self._binary)))
        self._stack.callback(node.redis.close)
        # Each node draws its own epoch: equal ones would have to be settled by a conflict.
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
    """A server in cluster mode; its port has to be low enough for the one of the bus."""
    # A node that stops for some seconds, or with the whole machine, is not taken for dead.
    settings = ("--cluster-enabled", "yes", "--cluster-node-timeout", "600000")
    for _ in range(30):
        server = EmbeddedRedis(binary=binary, extra_args=settings)
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
    """Count of an entry of errorstats, which reads ``count=1``."""
    return int(stat["count"]) if stat else 0
