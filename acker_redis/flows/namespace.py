"""All flows of one namespace. No I/O: see :mod:`acker_redis.flows.steps`."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from acker_redis.batching.batch import Batch
from acker_redis.errors import (
    ConfigError,
    NamespaceExistsError,
    NamespaceNotFoundError,
    RedisUnavailableError,
    RejectedError,
)
from acker_redis.flows.apply import ApplyFlows
from acker_redis.flows.browse import BrowseFlows
from acker_redis.flows.leftovers import drop_groups, present
from acker_redis.flows.steps import (
    Ask,
    Flow,
    Pauses,
    Run,
    Version,
    ask_until,
    run_until,
    together,
)
from acker_redis.flows.waits import Waits, read_waits
from acker_redis.protocol import commands
from acker_redis.protocol.blocks import pack_column
from acker_redis.protocol.commands import Call, ShardStatus
from acker_redis.protocol.config import AckerConfig, wire
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.ids import BLOCK_MAX
from acker_redis.protocol.keys import DOTS, NAMESPACES, RESERVED, ShardKeys
from acker_redis.protocol.server_version import ServerVersion
from acker_redis.protocol.status import Status
from acker_redis.protocol.stored import MAX_SHARDS

DROP_BLOCKS = 100
"""Blocks per call while a namespace is dropped."""


class Flows(ApplyFlows, BrowseFlows):
    """The flows of one namespace, which ``Acker`` and ``AsyncAcker`` run and document."""

    def create(self, config: AckerConfig) -> Flow[bool]:
        """See :meth:`Acker.create`."""
        config.validate()
        if self.namespace.startswith(RESERVED):
            raise ConfigError(
                f"invalid namespace name {self.namespace!r}: {RESERVED}* is reserved for the "
                "admin service; choose another name"
            )
        if self.namespace in DOTS:
            raise ConfigError(
                f"invalid namespace name {self.namespace!r}: no URL can contain it; choose another "
                "name"
            )
        version: ServerVersion | None = yield Version()
        if version and not version.is_supported:
            raise ConfigError(f"{version} is too old; use Redis 6.2 or Valkey 7.2, or later")
        # First of all: a name without a namespace is harmless, but no rotator finds a namespace
        # without its name.
        yield from ask_until(("SADD", NAMESPACES, self.namespace), self.deadline())
        # A failover may have lost some shards: the others still hold the salt.
        salts = yield from together([self._salt(keys) for keys in self.shards(config)])
        created, salt = [], next(filter(None, salts), None) or commands.new_salt()
        # Shard 0 first: clients read the configuration there, it refuses a different one, and its
        # salt is that of all shards.
        for keys in self.shards(config):
            reply = yield from run_until(commands.create(keys, config, salt), self.deadline())
            new, salt = commands.parse_create(reply)
            created.append(new)
        config = yield from self._set_optional(config, any(created))
        self.known, self.ids, self.ids_due = config, IdMaker(config.edges, salt), 0.0
        return any(created)

    def _set_optional(self, config: AckerConfig, created: bool) -> Flow[AckerConfig]:
        """Give the shards the settings that ``create.lua`` does not take; return those in force.

        Shard 0 is last: if the calls are interrupted, the next ``create`` repeats them.
        """
        shards = self.shards(config)
        has = (yield from self.shard_status(shards[0])).config
        wanted, present = config.optional_on_wire(), has.optional_on_wire()
        for name, value in wanted.items():
            if present.get(name, value) != value:
                raise NamespaceExistsError(
                    f"{self.namespace} was created with {name} {present[name]}, not {value}; "
                    "change it (acker-redis config set), or use another name"
                )
        settings = present | wanted
        if settings and (created or settings != present):
            for keys in reversed(shards):
                yield from run_until(commands.configure(keys, settings), self.deadline())
            has = (yield from self.shard_status(shards[0])).config
        return has

    def track_block(
        self,
        source: str,
        label: str,
        deltas: Iterable[int] | bytes,
        block: int | None,
        present: Iterable[int] | None,
        lane: Any,
    ) -> Flow[range]:
        """See :meth:`Acker.track_block`."""
        batch, column = Batch(source, ids=(yield from self._ids(block))), pack_column(deltas)
        anchors = batch.track_block(label, column, block, present)
        applied = yield from self.apply(batch, lane)
        # The first reply, which says whether the block was rejected, was lost: look it up. (A block
        # whose deltas are all zero is complete.)
        gone = False
        if applied.repeated and any(column):
            tree = yield from self.show_block(anchors[0] >> 12 & BLOCK_MAX)
            gone = tree is None or tree.bucket == (yield from self.config()).buckets
        if applied.rejected_blocks or gone:
            raise RejectedError(
                f"block {label!r} of {source} was nacked: too much is pending, or an earlier block "
                "of this number is expiring; the source gets the nack, do not emit its messages"
            )
        return anchors

    def _ids(self, block: int | None) -> Flow[IdMaker]:
        """Return what derives the number of a block; one with an explicit number needs no salt."""
        if block is None and not (yield from self.fresh_ids()).was_read:
            yield from self.config(fresh=True)
        return self.ids

    def configure(
        self,
        high_water: int | None,
        tick_ms: int | None,
        outcomes_limit: int | None,
        deadline_ms: int | None,
        slo_target: float | None,
        slo_ms: int | None,
    ) -> Flow[AckerConfig]:
        """See :meth:`Acker.configure`."""
        asked = {
            "high_water": high_water,
            "tick_ms": tick_ms,
            "outcomes_limit": outcomes_limit,
            "deadline_ms": deadline_ms,
            "slo_target": slo_target,
            "slo_ms": slo_ms,
        }
        given = {field: value for field, value in asked.items() if value is not None}
        return (yield from self.change(given))[0]

    def change(self, given: Mapping[str, float]) -> Flow[tuple[AckerConfig, bool]]:
        """Change settings; return the configuration, and whether this call has changed a shard.

        A setting that is not in ``given`` is neither sent nor compared. After a lost reply the call
        counts as a change, because the first attempt may have been one.
        """
        before = yield from self._read_config(self.deadline())
        after = replace(before, **given)  # type: ignore[arg-type]
        changes = {field: wire(field, value) for field, value in given.items()}
        if not changes:
            return before, False
        # Clients read tick_ms from shard 0, and derive from it how long a fence lasts on every
        # shard. So shard 0 gets a shorter time first, and a longer time last.
        shards = self.shards(after)
        if after.tick_ms > before.tick_ms:
            shards = [*shards[1:], shards[0]]
        self.known, changed = None, False
        for keys in shards:
            changed |= yield from self._change(commands.configure(keys, changes))
        return (yield from self._read_config(self.deadline())), changed

    def _change(self, call: Call) -> Flow[bool]:
        """Change a shard as :func:`run_until` does; return whether it may have changed."""
        pauses, deadline, lost = Pauses(), self.deadline(), False
        while True:
            try:
                return bool((yield Run(call))) or lost
            except RedisUnavailableError as error:
                lost = True
                yield from pauses.after(error, deadline)

    def status(self) -> Flow[Status]:
        """See :meth:`Acker.status`."""
        first = yield from self.first_status(self.deadline(), reports=True)
        while True:
            others = [self.shard_status(keys) for keys in self.shards(first.config)[1:]]
            try:
                all_ = first, *(yield from together(others))
            except NamespaceNotFoundError:
                # A reshard may have removed the shard since shard 0 was read.
                again = yield from self.shard_status(ShardKeys(self.namespace, 0), reports=True)
                if again.config.shards == first.config.shards:
                    raise
                first = again
            else:
                self.note(first)
                return Status(self.namespace, first.config, all_)

    def waits(self, sample: int) -> Flow[Waits]:
        """See :meth:`Acker.waits`."""
        return (yield from read_waits(self, (yield from self.status()), sample))

    def drop(self) -> Flow[None]:
        """See :meth:`Acker.drop`."""
        self.known = None
        first = ShardKeys(self.namespace, 0)
        # A no-op for an empty name: a user without the right to SREM, which the last step needs, is
        # refused before the first change.
        yield Ask(("SREM", NAMESPACES, ""))
        shards = (yield from self._drop(first, 0))[1]
        others = [ShardKeys(self.namespace, shard) for shard in range(1, shards)]
        if not shards or shards == MAX_SHARDS:
            # Shard 0 is lost, or does not say how many others there are.
            others = yield from present(self.namespace, 1)
        if not (shards or others):
            if not (yield Ask(("SREM", NAMESPACES, self.namespace))):
                missing = NamespaceNotFoundError(f"namespace {self.namespace} does not exist")
                yield from self.name_others(missing)
                raise missing
            return
        # All shards are closed before any key is removed. Shard 0 keeps the configuration to the
        # end: it holds the number of shards, and prevents that the namespace is created again
        # before all is removed.
        for keys in others:
            yield from self._drop(keys, 0)
        for keys in reversed(others):
            while (yield from self._drop(keys, DROP_BLOCKS, last=True))[0]:
                pass
        while (yield from self._drop(first, DROP_BLOCKS))[0]:
            pass
        yield from drop_groups(first)
        yield Ask(("SREM", NAMESPACES, self.namespace))
        yield from self._drop(first, DROP_BLOCKS, last=True)

    def shard_status(self, keys: ShardKeys, reports: bool = False) -> Flow[ShardStatus]:
        """Return the status of one shard."""
        reply = yield from run_until(commands.status(keys, reports), self.deadline())
        return commands.parse_status(reply, keys)

    def _salt(self, keys: ShardKeys) -> Flow[str]:
        """Return the salt of a shard; '' if the shard does not exist."""
        try:
            return (yield from self.shard_status(keys)).salt.reveal()
        except NamespaceNotFoundError:
            return ""

    def _drop(self, keys: ShardKeys, blocks: int, last: bool = False) -> Flow[tuple[int, int]]:
        """Call ``drop`` once; return the remaining work (0: done) and the number of shards."""
        call = commands.drop(keys, blocks, last)
        left, shards = yield from run_until(call, self.deadline())
        return int(left), int(shards)
