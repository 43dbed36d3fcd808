"""The completion groups of one source. No I/O: see ``flows/steps.py``.

Keys, on shard 0, which no reshard removes
------------------------------------------
* ``groups``: HASH ``<source>:<group>`` -> JSON with ``state`` open, sealed or reported.
* ``group:<source>:<group>``: HASH source id -> ``''`` (open), ``a`` (acked) or ``f<why>`` (failed).
  If another group has the same source id: ``?<why>`` (open, will fail) or ``x<why>`` (failed, and
  no ack changes that). The members of an empty group that was reported are one field, a NUL,
  which is no source id: while the hash exists, the group is not reported again.

Writers and order
-----------------
Only the source writes its groups, in its steps, by plain idempotent commands. Each member has one
field, so it counts once, with its last verdict.

1. *Join* before *track*: a record is a member before its tree exists.
2. *Count* before *take*: a verdict is written to the group before its entry leaves the stream. If
   the program dies in between, the next program reads the entry again and writes the same field.
3. *Seal* at the end of the ``with`` block: all its records are members, and their number is
   written. An exception in the block seals nothing.
4. *Doubt*: if a source id joins a second group, its verdict cannot be told from that of the first.
   It fails in both, see ``_doubt``.
5. *Report*: a scan of all members decides. A group is complete if it is sealed, has exactly the
   number of members that its seal states, and none of them is open. Members that a failover has
   lost keep it incomplete. It is marked as reported after the callback has returned.

What happens to the value of a member (``heard``, ``_after``, ``_doubt``):

==================================================  =====  =====  ==========  =======  ========
the value was                                       open   ``a``  ``f<why>``  ``?..``  ``x..``
==================================================  =====  =====  ==========  =======  ========
ack                                                 a      a      a           x        x
final nack                                          f      f      f           x        x
final nack of a tree of an earlier program          f      a      f           x        x
other nack of a tree of an earlier program          open   a      open        ?        x
other nack                                          (no change)
its source id joins another group                   ?      a      x           ?        x
its source id joins this group again                open, or ? if it is open in another group
==================================================  =====  =====  ==========  =======  ========

The counter of open members in this process only decides when to scan.
"""

import json
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from acker_redis.errors import ConfigError, NamespaceNotFoundError, SchemaError
from acker_redis.flows.namespace import Flows
from acker_redis.flows.steps import Ask, AskAll, Flow, Tell
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.stored import MAX_COUNT
from acker_redis.trees.group import MAX_NAMED, GroupBlock, GroupResult
from acker_redis.trees.record import Record, Verdict

log = logging.getLogger(__name__)

PAGE = 500
"""Members per command: each command takes less than a millisecond of Redis's time."""
MAX_WHY = 200
"""Characters of a reason that are kept."""
NO_MEMBER = "\0"
"""The field of an empty group that was reported."""
MAX_STATE = 1000
"""Bytes of a group in the index, at most."""
STATES = ("open", "sealed", "reported")
KEPT = 7 * 86_400
"""Seconds for which the members of a reported group are kept."""
TWICE = "conflict: its source id is also in group %s"
DOUBT_WORDS = "group %s of %s has %d members, and its seal states %d: emit its records again"


@dataclass(slots=True)
class GroupState:
    """A group as the index shows it."""

    source: str
    name: str
    state: str
    """``open``, ``sealed`` or ``reported``."""
    records: int = 0
    """Number of members when the group was sealed."""
    seal: str = ""
    """A random word that identifies the seal."""
    acked: int = 0
    failed: int = 0
    """The result; zero before the group is reported."""

    @property
    def field(self) -> str:
        """The field of the group in the index."""
        return f"{self.source}:{self.name}"

    def to_json(self) -> str:
        """Return the value of that field."""
        return json.dumps(
            {name: getattr(self, name) for name in ("state", "records", "seal", "acked", "failed")}
        )


@dataclass(slots=True)
class Members:
    """What a scan of the members of a group has found."""

    ids: set[bytes] = field(default_factory=set)
    open: list[str] = field(default_factory=list)
    """Source ids without a last verdict, up to the asked number."""
    opened: int = 0
    acked: int = 0
    failed: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    """Source id -> why, up to the asked number."""


def read_groups(flows: Flows) -> Flow[list[GroupState]]:
    """Return the groups of a namespace, sorted; raise SchemaError if the index is damaged."""
    found = yield Ask(("HGETALL", ShardKeys(flows.namespace, 0).groups))
    pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
    states = [_parse(key, value) for key, value in pairs]
    return sorted(states, key=lambda each: (each.source, each.name))


def read_members(flows: Flows, source: str, name: str, most: int) -> Flow[Members]:
    """Scan the members of a group; name at most ``most`` open and ``most`` failed ones."""
    key, cursor, found = ShardKeys(flows.namespace, 0).group(source, name), b"0", Members()
    while True:
        cursor, page = yield Ask(("HSCAN", key, cursor, "COUNT", PAGE))
        pairs = page.items() if isinstance(page, dict) else zip(page[::2], page[1::2], strict=True)
        for id_, value in pairs:
            if id_ in found.ids or id_.decode() == NO_MEMBER:  # a scan may return a member twice
                continue
            found.ids.add(id_)
            if value == b"a":
                found.acked += 1
            elif value.startswith((b"f", b"x")):
                found.failed += 1
                if len(found.failures) < most:
                    found.failures[id_.decode()] = value[1:].decode(errors="replace")
            else:  # open, open in two groups, or damaged: not known to be done
                found.opened += 1
                if len(found.open) < most:
                    found.open.append(id_.decode())
        if int(cursor) == 0:
            return found


def forget_group(flows: Flows, source: str, name: str) -> Flow[bool]:
    """Delete a group and its members; return whether it existed. Its records go on."""
    keys = ShardKeys(flows.namespace, 0)
    # The index first: a source that writes a verdict meanwhile notices it, and removes its write.
    removed = yield Ask(("HDEL", keys.groups, f"{source}:{name}"))
    yield Ask(("UNLINK", keys.group(source, name)))
    return bool(removed)


class GroupFlows:
    """The groups of one source; the flows of ``SourceFlows`` run its methods."""

    def __init__(self, flows: Flows, source: str, on_group: Callable[..., Any] | None) -> None:
        self._flows, self._source, self._on_group = flows, source, on_group
        self._keys = ShardKeys(flows.namespace, 0)
        self._blocks: dict[str, GroupBlock] = {}
        """Blocks that have not ended."""
        self._work: deque[tuple[bool, GroupBlock]] = deque()
        """Groups to open (True) and to seal (False), in order; any thread may append."""
        self._known: dict[str, GroupState] | None = None
        """The groups that are not reported; None: to be read."""
        self._open: dict[str, int] = {}
        """Open members of a sealed group; unknown without an entry."""
        self._verdicts: dict[str, str] = {}
        """Values to write, per source id: verdicts whose callbacks have returned."""
        self._old: set[str] = set()
        """Those that are nacks of trees of an earlier program.

        The record may have been emitted again and acked since: such a nack replaces no ack.
        """

    @property
    def active(self) -> bool:
        """Whether the source has groups at all; else no command is sent for them."""
        return self._on_group is not None

    @property
    def begun(self) -> bool:
        """Whether a block runs, or its group is not opened or sealed yet."""
        return bool(self._blocks or self._work)

    def enter(self, name: str) -> GroupBlock:
        """Begin a block; raise ConfigError without ``on_group`` or if a block has that name."""
        if not self.active:
            raise ConfigError("group() needs a source with on_group=")
        block = GroupBlock(name)
        if self._blocks.setdefault(block.name, block) is not block:
            raise ConfigError(f"group {name} is open in another block of source {self._source}")
        self._work.append((True, block))
        return block

    def leave(self, block: GroupBlock, *, seal: bool) -> None:
        """End a block; with ``seal`` the next step seals the group."""
        block.ended = True
        if seal:
            self._work.append((False, block))
        del self._blocks[block.name]

    def heard(self, verdict: Verdict, live: int) -> None:
        """Note a verdict whose callbacks have returned.

        ``live`` is the number of open records with its source id, this record included.
        """
        if not self.active or live > 1:
            return  # a later attempt at the same source id gets its own verdict
        id_, attempt = verdict.record.source_id, verdict.record.attempt
        if verdict.verdict == "ack":
            text = "a"
        elif verdict.final:
            text = f"f{verdict.reason}: {verdict.why}"[: MAX_WHY + 1]
        elif not attempt:
            # An earlier program may have counted this nack as the last one, and died before it took
            # the entry. This program replays the record.
            text = ""
        else:
            return
        if attempt or text == "a":
            self._old.discard(id_)
        elif self._verdicts.get(id_) == "a":
            return
        else:
            self._old.add(id_)
        self._verdicts[id_] = text

    def failed(self) -> None:
        """Read everything again: a step has ended with an error, so replies may be lost."""
        self._known = None
        self._open.clear()

    def refresh(self) -> None:
        """Read the index again: a group may have been forgotten."""
        self._known = None

    def work(self) -> Flow[None]:
        """Open and seal groups."""
        while self._work:
            opens, block = self._work[0]
            known = yield from self._load()
            if opens:
                yield from self._begin(known, block)
            else:
                yield from self._seal(known, block)
            self._work.popleft()

    def join(self, records: Iterable[Record]) -> Flow[None]:
        """Make records members of their groups, before they are tracked."""
        joining: dict[GroupBlock, list[str]] = {}
        for record in records:
            if record._group is not None and record.source_id in record._group.waiting:
                joining.setdefault(record._group, []).append(record.source_id)
        if not joining:
            return
        yield from self.work()  # opens the groups
        yield from self.count()  # verdicts on earlier records of the same source ids
        for block, ids in joining.items():
            if block.reported:
                yield from self._reopen((yield from self._load()), block)
            unsure = yield from self._doubt(block.name, ids)
            yield from self._put(block.name, dict.fromkeys(ids, "") | unsure)
            block.waiting.difference_update(ids)

    def _doubt(self, joined: str, ids: list[str]) -> Flow[dict[str, bytes | str]]:
        """Mark members of other groups whose source ids join a group; return its own such members.

        A verdict names a source id, so it would count in both groups. A member that is open there
        fails in both: either verdict may come first. One that has failed there stays failed.
        """
        unsure: dict[str, bytes | str] = {}
        for name in list((yield from self._load())):
            if name == joined:
                continue
            key, marks = self._keys.group(self._source, name), dict[str, bytes | str]()
            for page in _pages(ids):
                values = yield Ask(("HMGET", key, *page))
                had = {id_: was for id_, was in zip(page, values, strict=True) if was is not None}
                for id_, was in had.items():
                    if _is_open(was):  # it has a mark if this step is repeated after an error
                        marks[id_] = was or f"?{TWICE % joined}"
                        unsure[id_] = f"?{TWICE % name}"
                    elif was.startswith(b"f"):
                        marks[id_] = b"x" + was[1:]
            if marks:
                yield from self._put(name, marks)
                self._open.pop(name, None)  # scan it again
        return unsure

    def count(self) -> Flow[None]:
        """Write verdicts to the groups; call it before their entries are taken."""
        if not self._verdicts:
            return
        for name in list((yield from self._load())):
            key = self._keys.group(self._source, name)
            for ids in _pages(self._verdicts):
                values = yield Ask(("HMGET", key, *ids))
                had = {id_: was for id_, was in zip(ids, values, strict=True) if was is not None}
                new = {id_: self._after(id_, was) for id_, was in had.items()}
                changed = {id_: text for id_, text in new.items() if had[id_] != text}
                if changed:
                    yield from self._put(name, changed)
                if name in self._open:
                    self._open[name] += sum(
                        _is_open(text) - _is_open(had[id_]) for id_, text in changed.items()
                    )
        self._verdicts.clear()
        self._old.clear()

    def _after(self, id_: str, was: bytes) -> bytes:
        """Return the value of a member after its verdict."""
        text = self._verdicts[id_].encode()
        if was.startswith(b"x") or (was == b"a" and id_ in self._old):
            return was
        if was.startswith(b"?"):
            return b"x" + was[1:] if text else was
        return text

    def report(self) -> Flow[None]:
        """Call back for each complete group; raise the exception of a callback that fails.

        Call it only after all waiting verdicts were read: an entry may reopen a member.
        """
        yield from self.count()
        known = yield from self._load()
        for name, state in list(known.items()):
            if state.state != "sealed" or self._open.get(name, 0) > 0 or name in self._blocks:
                continue
            found = yield from read_members(self._flows, self._source, name, MAX_NAMED)
            if found.opened or len(found.ids) != state.records:
                self._open[name] = max(found.opened, 1)  # an error or a restart scans again
                if not found.opened:
                    log.warning(DOUBT_WORDS, name, self._source, len(found.ids), state.records)
                continue
            yield from self._report(state, found)
            del known[name]
            self._open.pop(name, None)

    def _report(self, state: GroupState, found: Members) -> Flow[None]:
        key = f"{self._flows.namespace}:{state.field}:{state.seal}"
        result = GroupResult(
            state.name, key, state.records, found.acked, found.failed, found.failures
        )
        assert self._on_group is not None  # noqa: S101 - active
        (returned,) = yield Tell(self._on_group, ((result,),))
        if isinstance(returned, BaseException):
            raise returned
        state.state, state.acked, state.failed = "reported", found.acked, found.failed
        yield from self._write(state)
        key = self._keys.group(state.source, state.name)
        if not state.records:
            yield from self._put(state.name, {NO_MEMBER: ""})
        yield Ask(("EXPIRE", key, KEPT))

    def _begin(self, known: dict[str, GroupState], block: GroupBlock) -> Flow[None]:
        for state in (yield from read_groups(self._flows)):
            if state.source != self._source or state.state != "reported":
                continue
            if (yield Ask(("HLEN", self._keys.group(self._source, state.name)))):
                block.reported |= state.name == block.name
            else:  # its members have expired
                yield Ask(("HDEL", self._keys.groups, state.field))
        if not block.reported:
            yield from self._reopen(known, block)

    def _reopen(self, known: dict[str, GroupState], block: GroupBlock) -> Flow[None]:
        key = self._keys.group(self._source, block.name)
        yield Ask(("PERSIST", key))
        yield Ask(("HDEL", key, NO_MEMBER))
        known[block.name] = GroupState(self._source, block.name, "open")
        yield from self._write(known[block.name])
        block.reported = False

    def _seal(self, known: dict[str, GroupState], block: GroupBlock) -> Flow[None]:
        if block.reported:
            if not block.waiting:
                block.sealed = True  # no new record: there is nothing to report again
                return
            yield from self._reopen(known, block)
        yield from self.count()
        key = self._keys.group(self._source, block.name)
        for ids in _pages(block.seen):
            values = yield Ask(("HMGET", key, *ids))
            # Records that are still queued, and members that a failover has lost.
            opens = [
                id_
                for id_, value in zip(ids, values, strict=True)
                if value is None or (value and id_ in block.waiting)
            ]
            if opens:
                unsure = yield from self._doubt(block.name, opens)
                yield from self._put(block.name, dict.fromkeys(opens, "") | unsure)
        if self._known is None or block.name not in known:
            block.lost = True  # forgotten meanwhile, or lost by a failover
            return
        members = yield Ask(("HLEN", key))
        known[block.name] = state = GroupState(
            self._source, block.name, "sealed", int(members), secrets.token_hex(8)
        )
        self._open.pop(block.name, None)
        yield from self._write(state)
        block.sealed = True

    def _load(self) -> Flow[dict[str, GroupState]]:
        if self._known is None:
            states = yield from read_groups(self._flows)
            self._known = {
                each.name: each
                for each in states
                if each.source == self._source and each.state != "reported"
            }
        return self._known

    def _put(self, name: str, values: Mapping[str, bytes | str]) -> Flow[None]:
        key = self._keys.group(self._source, name)
        for ids in _pages(values):
            yield Ask(("HSET", key, *(word for id_ in ids for word in (id_, values[id_]))))
        yield from self._check(name)

    def _write(self, state: GroupState) -> Flow[None]:
        yield Ask(("HSET", self._keys.groups, state.field, state.to_json()))
        yield from self._check(state.name)

    def _check(self, name: str) -> Flow[None]:
        """Remove the members of a group that is forgotten, or whose namespace is dropped.

        Raises NamespaceNotFoundError if it is dropped.
        """
        listed, exists = yield AskAll(
            (
                ("HGET", self._keys.groups, f"{self._source}:{name}"),
                ("HGET", self._keys.meta, "schema"),
            )
        )
        if listed is None or exists is None:
            yield Ask(("UNLINK", self._keys.group(self._source, name)))
            self._known = None
        if exists is None:
            yield Ask(("UNLINK", self._keys.groups))
            raise NamespaceNotFoundError(f"namespace {self._flows.namespace} does not exist")


def _is_open(value: bytes) -> bool:
    return not value or value.startswith(b"?")


def _pages(ids: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(list(ids))
    while page := list(islice(rest, PAGE)):
        yield page


def _parse(key: bytes, value: bytes) -> GroupState:
    try:
        source, _, name = key.decode().partition(":")
        check_name("source", source), check_name("group", name)
        found = GroupState(source, name, **json.loads(value[:MAX_STATE]))
    except (ValueError, TypeError, RecursionError) as error:
        why = f"tampered with: {error!s:.80}"
        raise SchemaError(f"the group {key[:140]!r} has been {why}") from error
    counts = (found.records, found.acked, found.failed)
    if (
        found.state not in STATES
        or type(found.seal) is not str
        or not all(type(each) is int and 0 <= each <= MAX_COUNT for each in counts)
    ):
        raise SchemaError(f"the group {key!r} has been tampered with")
    return found
