"""What the clients of one namespace do, without the I/O: see :mod:`acker_redis.flows.steps`."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from acker_redis.batching.batch import Batch
from acker_redis.errors import ConfigError, NamespaceNotFoundError, RejectedError
from acker_redis.flows.apply import Applies
from acker_redis.flows.browse import Browses
from acker_redis.flows.steps import Ask, Flow, Version, ask_until, run_until, together
from acker_redis.protocol import commands
from acker_redis.protocol.blocks import pack_column
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import DOTS, NAMESPACES, RESERVED, ShardKeys
from acker_redis.protocol.server_version import ServerVersion
from acker_redis.protocol.status import Status

DROP_BLOCKS = 100
"""Blocks per call while a namespace is dropped."""


class Flows(Applies, Browses):
    """Flows of one namespace; ``Acker`` and ``AsyncAcker`` run them and say what each means."""

    def create(self, config: AckerConfig) -> Flow[bool]:
        """As :meth:`Acker.create`."""
        config.validate()
        if self.namespace.startswith(RESERVED):
            raise ConfigError(f"{RESERVED}* are the admin service's own; take another name")
        if self.namespace in DOTS:
            raise ConfigError(
                f"a namespace is not {self.namespace!r}: no URL can name it; take another name"
            )
        version: ServerVersion | None = yield Version()
        if version and not version.is_supported:
            raise ConfigError(f"{version} is too old; Redis 6.2 or Valkey 7.2 or later is needed")
        # Before all else: a name without a namespace does no harm, a namespace without its name is
        # one that nobody rotates.
        yield from ask_until(("SADD", NAMESPACES, self.namespace), self._deadline())
        created = []
        # Shard 0 goes first: it is asked for the configuration, and refuses another.
        for keys in self.shards(config):
            reply = yield from run_until(commands.create(keys, config), self._deadline())
            created.append(bool(reply))
        self.known = config
        return any(created)

    def track_block(
        self, task: str, label: str, deltas: Iterable[int] | bytes, block: int | None, lane: Any
    ) -> Flow[range]:
        """As :meth:`Acker.track_block`."""
        batch, column = Batch(task), pack_column(deltas)
        anchors = batch.track_block(label, column, block)
        applied = yield from self.apply(batch, lane)
        # Its reply was lost, and with it whether it was rejected. (All zero: it is complete.)
        gone = False
        if applied.repeated and any(column):
            tree = yield from self.show(anchors[0])
            gone = tree is None or tree.bucket == (yield from self.config()).buckets
        if applied.rejected_blocks or gone:
            raise RejectedError(
                f"block {label!r} of {task} was nacked: too much is pending, or its last life "
                "expires just now; its source is told so, emit nothing of it"
            )
        return anchors

    def configure(
        self, high_water: int | None, tick_ms: int | None, outcomes_limit: int | None
    ) -> Flow[AckerConfig]:
        """As :meth:`Acker.configure`."""
        asked = {"high_water": high_water, "tick_ms": tick_ms, "outcomes_limit": outcomes_limit}
        changes = {field: value for field, value in asked.items() if value is not None}
        before = yield from self._read_config(self._deadline())
        after = replace(
            before,
            high_water=before.high_water if high_water is None else high_water,
            tick_ms=before.tick_ms if tick_ms is None else tick_ms,
            outcomes_limit=before.outcomes_limit if outcomes_limit is None else outcomes_limit,
        )
        if not changes:
            return before
        # Clients read shard 0, and go by it for how long a fence holds everywhere: it says the
        # shorter time first, and the longer one last.
        shards = self.shards(after)
        if after.tick_ms > before.tick_ms:
            shards = [*shards[1:], shards[0]]
        self.known = None
        for keys in shards:
            yield from run_until(commands.configure(keys, changes), self._deadline())
        return (yield from self._read_config(self._deadline()))

    def status(self) -> Flow[Status]:
        """As :meth:`Acker.status`."""
        first = yield from self._shard_status(ShardKeys(self.namespace, 0))
        while True:
            others = [self._shard_status(keys) for keys in self.shards(first.config)[1:]]
            try:
                all_ = first, *(yield from together(others))
            except NamespaceNotFoundError:
                # Has it moved to fewer shards just now?
                again = yield from self._shard_status(ShardKeys(self.namespace, 0))
                if again.config.shards == first.config.shards:
                    raise
                first = again
            else:
                self.known, self.reshard = first.config, first.reshard
                return Status(self.namespace, first.config, all_)

    def drop(self) -> Flow[None]:
        """As :meth:`Acker.drop`."""
        self.known = None
        first = ShardKeys(self.namespace, 0)
        # Of no name: who lacks the right that is needed last is refused before the first call.
        yield Ask(("SREM", NAMESPACES, ""))
        shards = (yield from self._drop(first, 0))[1]
        if not shards:
            if not (yield Ask(("SREM", NAMESPACES, self.namespace))):
                raise NamespaceNotFoundError(f"there is no namespace {self.namespace}")
            return
        others = [ShardKeys(self.namespace, shard) for shard in range(1, shards)]
        # All are closed before anything is removed. Shard 0 keeps the configuration to the end: it
        # says how many there are, and lets nobody create the namespace anew meanwhile.
        for keys in others:
            yield from self._drop(keys, 0)
        for keys in reversed(others):
            while (yield from self._drop(keys, DROP_BLOCKS, last=True))[0]:
                pass
        while (yield from self._drop(first, DROP_BLOCKS))[0]:
            pass
        yield Ask(("SREM", NAMESPACES, self.namespace))
        yield from self._drop(first, DROP_BLOCKS, last=True)

    def _shard_status(self, keys: ShardKeys) -> Flow[ShardStatus]:
        reply = yield from run_until(commands.status(keys), self._deadline())
        return commands.parse_status(reply, keys)

    def _drop(self, keys: ShardKeys, blocks: int, last: bool = False) -> Flow[tuple[int, int]]:
        """One call of ``drop``: what is left, and the shards."""
        call = commands.drop(keys, blocks, last)
        left, shards = yield from run_until(call, self._deadline())
        return int(left), int(shards)
