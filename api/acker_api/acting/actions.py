"""Actions that change something. Each is written to the audit log, before it and after it.

An action that has begun runs to its end, even if its caller disconnects. After an error the caller
may retry: every action is idempotent, except a forced tick.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from acker_api.acting.audit import UNCHANGED, Audit, Deed, State
from acker_api.acting.drain import Ticked, tick
from acker_api.acting.fail_all import FailAll, Failing
from acker_api.auth.tokens import Who
from acker_api.problems import Problem
from acker_api.reading.reader import Reader
from acker_redis import AckerConfig, Applied, Batch, TreeState
from acker_redis.aio import AsyncAcker
from acker_redis.errors import (
    AckerError,
    NamespaceNotFoundError,
    RedisRefusedError,
    RedisUnavailableError,
    SchemaError,
)
from acker_redis.operate import Lane, check_text, requested_config

T = TypeVar("T")


@dataclass(frozen=True)
class Done(Generic[T]):
    """The result of an action."""

    value: T
    """For the caller."""
    after: State
    """For the audit log."""
    changed: bool = True
    """False: a no-op, which leaves no entry."""


WITHIN = 10.0
"""Seconds that a caller waits for an action; then the action continues without the caller."""
RETRY_FOR = 1.0
"""Seconds for which a call of an action is retried."""
LANES = 1000
"""Maximum number of namespaces for which a producer lane is cached."""


class Actions:
    """The actions of operators and admins."""

    def __init__(self, reader: Reader, audit: Audit) -> None:
        self._reader, self._audit = reader, audit
        self._lanes: OrderedDict[str, Lane[asyncio.Lock]] = OrderedDict()

    async def create(
        self, who: Who, namespace: str, given: dict[str, Any]
    ) -> tuple[bool, AckerConfig]:
        """Create a namespace; return whether it is new, and its configuration.

        Of a namespace that exists, only the given settings are compared.
        """
        acker = self._acker(namespace)
        wanted: list[AckerConfig] = []
        there: AckerConfig | None = None

        async def before() -> State:
            nonlocal there
            with suppress(NamespaceNotFoundError):
                there = await self._reader.read(self._reader.acker(namespace).config)
            wanted.append(requested_config(namespace, there, given))
            return asdict(there) if there else None

        async def create() -> Done[tuple[bool, AckerConfig]]:
            (config,) = wanted
            created = await acker.create(config)
            # It also sets an objective that the namespace lacks.
            changed = created or there != config
            return Done((created, config), asdict(config), changed)

        return await self._act(who, Deed(who.name, "create_namespace", namespace), before, create)

    async def drop(self, who: Who, namespace: str) -> None:
        """Drop a namespace with everything in it."""
        acker = self._acker(namespace)

        async def before() -> State:
            try:
                status = await self._reader.status(namespace)
            except (NamespaceNotFoundError, SchemaError, RedisRefusedError):
                # Perhaps a drop was interrupted, or a shard is damaged: a drop removes it, too. If
                # the namespace does not exist, the drop reports that.
                return None
            return {
                "pending": status.pending,
                "waiting": sum(status.backlog.values()),
                **asdict(status.config),
            }

        async def drop() -> Done[None]:
            await acker.drop()
            return Done(None, None)

        await self._act(who, Deed(who.name, "drop_namespace", namespace), before, drop)

    async def configure(
        self, who: Who, namespace: str, changes: dict[str, Any]
    ) -> tuple[AckerConfig, AckerConfig]:
        """Change settings of a namespace in use; return its configuration before and after."""
        acker = self._acker(namespace)
        were: list[AckerConfig] = []

        async def before() -> State:
            were.append(await self._reader.read(self._reader.acker(namespace).config))
            return {name: getattr(were[0], name) for name in changes}

        async def configure() -> Done[AckerConfig]:
            # The scripts say whether this call changed a value: another one may have done so since
            # before() read it.
            flow = acker.flows.change(changes)
            config, changed = await acker.connection.drive(flow)
            return Done(config, changes, changed)

        now = await self._act(who, Deed(who.name, "configure", namespace), before, configure)
        return were[0], now

    async def rotate(self, who: Who, namespace: str) -> Ticked:
        """Force a tick of each shard, and drain a part of the expired records."""
        acker = self._acker(namespace)

        async def before() -> State:
            status = await self._reader.status(namespace)
            return {"pending_by_bucket": list(status.pending_by_bucket)}

        async def rotate() -> Done[Ticked]:
            ticked = await tick(acker)
            return Done(ticked, asdict(ticked))

        return await self._act(who, Deed(who.name, "rotate", namespace), before, rotate)

    async def fail(self, who: Who, namespace: str, anchor: int, why: str) -> int:
        """Fail a tree; return 1 if this call nacked it, 0 if it was only marked or has ended."""
        check_text("why", why, 0)
        batch = Batch()
        batch.fail(anchor, why)
        applied = await self._on_tree("fail_tree", who, namespace, anchor, batch, {"why": why})
        return applied.failed

    async def touch(self, who: Who, namespace: str, anchor: int) -> None:
        """Reset the timeout of a tree; of a tree in a block, that of the block."""
        batch = Batch()
        batch.touch(anchor)
        await self._on_tree("touch_tree", who, namespace, anchor, batch, {})

    async def fail_all(self, who: Who, namespace: str, failing: Failing) -> FailAll:
        """Fail all trees that match, or count them, in bounded calls.

        A dry run changes nothing, and is not in the audit log.
        """
        check_text("why", failing.why, 0)
        acker, lane = self._reader.scanner(namespace, RETRY_FOR), self._lane(namespace)
        if failing.dry_run:
            return await self._in_time(failing.run(acker, lane))

        async def before() -> State:
            await self._reader.read(self._reader.acker(namespace).config)
            return failing.asked()

        async def fail_all() -> Done[FailAll]:
            done = await failing.run(acker, lane)
            return Done(done, done.counts(), changed=bool(done.matched))

        return await self._act(who, Deed(who.name, "fail_trees", namespace), before, fail_all)

    async def _on_tree(
        self, action: str, who: Who, namespace: str, anchor: int, batch: Batch, told: dict[str, Any]
    ) -> Applied:
        acker = self._acker(namespace)
        had_failed = False

        async def before() -> State:
            nonlocal had_failed
            tree = await self._reader.read(lambda: self._reader.acker(namespace).show(anchor))
            if tree is None:
                # A FAIL would leave a record until it expires, which nacks a later TRACK.
                raise not_pending()
            had_failed = tree.state == "failed"
            return _summary(tree)

        async def apply() -> Done[Applied]:
            applied = await acker.apply(batch, self._lane(namespace))
            # A tree that failed in a pending block can be failed again, which is a no-op.
            changed = not (action == "fail_tree" and had_failed and not applied.failed)
            return Done(applied, {**told, "failed": applied.failed}, changed)

        return await self._act(who, Deed(who.name, action, namespace, str(anchor)), before, apply)

    async def _act(
        self,
        who: Who,
        deed: Deed,
        before: Callable[[], Awaitable[State]],
        do: Callable[[], Awaitable[Done[T]]],
    ) -> T:
        return await self._in_time(self._reader.whole(self._audited(who, deed, before, do)))

    async def _audited(
        self,
        who: Who,
        deed: Deed,
        before: Callable[[], Awaitable[State]],
        do: Callable[[], Awaitable[Done[T]]],
    ) -> T:
        try:
            was = await before()
        except (AckerError, Problem) as error:
            away = isinstance(error, RedisUnavailableError)
            await self._audit.failed(deed, _why(error), away)
            raise
        begun = await self._audit.begin(who, deed, was)
        try:
            done = await do()
        except (AckerError, Problem) as error:
            await self._audit.end(begun, "failed", why=_why(error))
            raise
        except BaseException:
            await self._audit.end(begun, "failed", why="a bug; the log of the service has details")
            raise
        await self._audit.end(begun, "done" if done.changed else UNCHANGED, done.after)
        return done.value

    async def _in_time(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(WITHIN):
                return await work
        except TimeoutError:
            raise RedisUnavailableError(
                f"the action did not finish within {WITHIN:g} s and continues; the audit log will "
                "have its result"
            ) from None

    def _acker(self, namespace: str) -> AsyncAcker:
        return self._reader.acker(namespace, RETRY_FOR)

    def _lane(self, namespace: str) -> "Lane[asyncio.Lock]":
        """Return the lane of a namespace; it is reused, because shards remember each lane."""
        lane = self._lanes.pop(namespace, None) or Lane(asyncio.Lock)
        self._lanes[namespace] = lane
        if len(self._lanes) > LANES:
            self._lanes.popitem(last=False)
        return lane


def not_pending(what: str = "tree") -> Problem:
    """Return the problem of a tree, or a block, that is not pending."""
    return Problem(
        404,
        "tree-not-pending",
        "Not Found",
        f"the {what} is not pending: it was acked or nacked, or was never tracked",
    )


def _summary(tree: TreeState) -> State:
    return {
        "state": tree.state,
        "source": tree.source,
        "source_id": tree.source_id,
        "age_ms": tree.age_ms,
        "bucket": tree.bucket,
        **({"block": str(tree.block.block)} if tree.block else {}),
    }


def _why(error: AckerError | Problem) -> str:
    return f"{error.title}: {error.detail}" if isinstance(error, Problem) else str(error)
