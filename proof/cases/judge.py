"""The oracle judges a case: verdicts, counts, and who receives them, from the operations alone.

``accept.py`` asks the reference for replies and verdicts. This module reports each call with its
result to the oracle, and with the facts about its rows (``facts.py``). So a case is accepted only
if the reference and the oracle agree on it.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace

from acker_redis.errors import AckerError, BacklogError, ChangedBatchError, SchemaError
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from proof.cases.facts import Fact, Facts, has_explicit_zeros
from proof.cases.lines import Json, shard_of
from proof.cases.shard import Told, block_rows
from proof.oracle import (
    FAIL,
    FALSE_ACK,
    TOUCH,
    TRACK,
    BlockKey,
    BlockRows,
    Call,
    Oracle,
    Row,
    Tree,
    Violation,
)
from proof.oracle.facts import slot_anchor
from proof.oracle.records import Block, Record

_REFUSALS: dict[str, type[AckerError]] = {
    "BACKLOG": BacklogError,
    "CONFLICT": ChangedBatchError,
    "SCHEMA": SchemaError,
}


class Disagreement(Exception):  # noqa: N818 - it is no error of this program
    """The oracle does not allow a result of the reference."""


class Judge:
    """The oracles of the shards of one case."""

    def __init__(self, case: Json, config: AckerConfig) -> None:
        limits = {"high_water": config.share, "outcomes_limit": config.backlog_share}
        self._rule = case.get("breaks_rule")
        """The rule that the case breaks, until the oracle has found the false ack."""
        self._on = True
        self._oracles = [
            Oracle(replace(config, **limits), liveness=not self._rule)  # type: ignore[arg-type]
            for _ in range(config.shards)
        ]
        self._facts = Facts(case)
        self._rows: dict[int, Fact] = {}
        self._trees: dict[int, Tree] = {}
        self._sources: dict[int, tuple[str, str]] = {}
        """Source id and task of the pending or last tree of an anchor."""
        self._whys: dict[int, str] = {}
        self._calls = 0
        self._now_ms = 0

    def begin(self, step: Json) -> None:
        """Begin a step. After a command that changes keys, a case is about bytes only."""
        self._now_ms += step.get("clock", 0)
        if "redis" in step or has_explicit_zeros(step):
            self._on = False
        elif self._on:
            self._rows = self._facts.of(step)

    def lose(self, shard: int, number: int, key: BlockKey) -> None:
        """Record that a block has lost a key."""
        oracle = self._oracles[shard]
        block = oracle.blocks.get(number) or oracle.blocks_expiring[number]
        if key in block.keys:
            oracle.lost(number, key)

    def check(self, call: Json, told: Sequence[Told]) -> None:
        """Judge a call that has its reply. Raise Disagreement if the oracle does not allow it."""
        number = shard_of(call)
        if not self._on or number is None:
            return
        self._calls += 1
        try:
            getattr(self, f"_{call['script']}")(self._oracles[number], call, told)
        except Violation as violation:
            if self._rule and violation.kind == FALSE_ACK:
                self._rule, self._on = None, False
                return
            raise Disagreement(
                f"{call['script']}: the oracle says: {violation}\n"
                f"the reference replies {call['reply']}, and writes {told}"
            ) from violation

    def end(self, states: Sequence[Json]) -> None:
        """Judge the states after the last step. Raise Disagreement if the oracle has others."""
        if self._rule:
            raise Disagreement(f"rule {self._rule} is broken, but the oracle sees no false ack")
        for oracle, state in zip(self._oracles, states, strict=False) if self._on else ():
            tasks = {name[6:] for name in oracle.counters if name.startswith("ended:")}
            for task in tasks - state["backlog"].keys():
                oracle.forget(task)
            wanted, found = _state(oracle), _counted(state)
            if wanted != found:
                raise Disagreement(f"state: the oracle has {wanted}\nthe reference has {found}")

    def _apply(self, oracle: Oracle, call: Json, told: Sequence[Told]) -> None:
        argv, rows = [bytes.fromhex(argument) for argument in call["argv"]], []
        task = argv[5].decode()
        for number, flags in enumerate(argv[2]):
            anchor = int.from_bytes(argv[3][8 * number : 8 * number + 8], "big")
            fact = self._rows[anchor]
            tree = self._tree(anchor, fact.source_id)
            if flags & TRACK:
                tree = self._tracked(oracle, tree, fact.source_id, task)
            rows.append(_row(tree, flags, fact))
        names = [row.tree.anchor for row in rows]
        whys = {
            a: self._rows[a].why for a, flags in zip(names, argv[2], strict=True) if flags & FAIL
        }
        self._applied(oracle, call, Call(self._fence(argv), task, rows), names, whys, told)

    def _apply_blocks(self, oracle: Oracle, call: Json, told: Sequence[Told]) -> None:
        argv, blocks = [bytes.fromhex(argument) for argument in call["argv"]], []
        whys: dict[int, str] = {}
        for block in block_rows(call):
            base, track = slot_anchor(block.block, 0), TRACK * bool(block.task)
            slots = {anchor - base for anchor in self._rows if anchor >> 12 == base >> 12}
            slots |= {*block.failed} | ({0} if block.touch and not slots else set())
            if track:
                slots = {*block.deltas} - block.absent
            rows = []
            for slot in sorted(slots):
                anchor = base + slot
                if track and block.block not in oracle.blocks and self._tree(anchor).tracks:
                    del self._trees[anchor]  # an earlier block of this number has ended
                tree = self._tree(anchor)
                tree.slot = slot
                flags = track | FAIL * (slot in block.failed) | TOUCH * block.touch
                rows.append(_row(tree, flags, self._rows.get(anchor, Fact())))
            whys |= {base + slot: why for slot, why in block.failed.items()}
            size = len(block.deltas) if track else 0
            strays = len(block.failed.keys() - slots)
            blocks.append(BlockRows(block.block, rows, block.label, block.task, size, strays))
        task = next((block.task for block in blocks if block.track), "")
        sent = Call(self._fence(argv), task, blocks=blocks)
        self._applied(oracle, call, sent, [block.number for block in blocks], whys, told)

    def _applied(
        self,
        oracle: Oracle,
        call: Json,
        sent: Call,
        names: Sequence[int],
        whys: dict[int, str],
        told: Sequence[Told],
    ) -> None:
        """Judge a batch. ``names``: the anchors, or the blocks, that its rows have in the reply."""
        reply = call["reply"]
        repeat = isinstance(reply, list) and reply[0] == 0
        if isinstance(reply, dict) or repeat:
            answer = ShardApplied(int(reply[1])) if repeat else _REFUSALS[reply["error"]]("")
            oracle.applied(sent, answer, told, self._now_ms)
            for row in sent.each() if not repeat else ():  # what only this batch names is not sent
                for message in row.made:
                    if self._facts.messages[row.tree.anchor].named[message] == 1:
                        row.tree.exists.discard(message)
            return
        for row in sent.each():
            row.tree.exists.update(row.done, row.made)
        for anchor, why in whys.items():
            first = self._whys.get(anchor) if anchor in oracle.pending else ""
            self._whys[anchor] = first or why
        _, tracked, acked, failed, trees, pending, high_water, column = reply
        numbers = struct.iter_unpack(">H", bytes.fromhex(column["hex"]))
        rejected = tuple(names[number] for (number,) in numbers)
        answer = ShardApplied(None, tracked, acked, failed, pending, high_water, rejected)
        oracle.applied(sent, answer, told, self._now_ms)
        sizes = {block.number: len(block.rows) for block in sent.blocks}
        _same("rejected trees", sum(sizes.get(name, 1) for name in rejected), trees)
        for _, outcome in told:
            why = self._whys.get(outcome.anchor, "") if outcome.reason == "failed" else ""
            _same(f"why of {outcome}", why, outcome.why)

    def _configure(self, oracle: Oracle, call: Json, told: Sequence[Told]) -> None:
        words = [bytes.fromhex(word).decode() for word in call["argv"]]
        for name, value in zip(words[::2], words[1::2], strict=True):
            if name == "reshard":
                oracle.closed = bool(value)
            elif name == "slo_ms":
                oracle.config = replace(oracle.config, slo_ms=int(value))

    def _rotate(self, oracle: Oracle, call: Json, told: Sequence[Told]) -> None:
        ticked, _, left, _ = call["reply"]
        forced = bytes.fromhex(call["argv"][0]) == b"1"
        oracle.rotated(bool(ticked), self._now_ms, forced)
        _same("left to drain", len(oracle.expiring) + len(oracle.blocks_expiring), left)

    def _expire(self, oracle: Oracle, call: Json, told: Sequence[Told]) -> None:
        before = oracle.counters.copy()
        oracle.expired(told)
        new = oracle.counters - before
        _same("reply", [new["expired"], new["orphaned"], 0], call["reply"])

    def _expire_blocks(self, oracle: Oracle, call: Json, told: Sequence[Told]) -> None:
        before = oracle.counters.copy()
        oracle.blocks_expired(told)
        new = oracle.counters - before
        _same("reply", [new["acked"], new["expired"], 0], call["reply"])

    def _take(self, oracle: Oracle, call: Json, told: Sequence[Told]) -> None:
        waiting = oracle.waiting.pop(bytes.fromhex(call["argv"][0]).decode(), [])
        _same("verdicts that waited", len(waiting), call["reply"][1])

    def _status(self, oracle: Oracle, call: Json, told: Sequence[Told]) -> None:
        _same("pending records", len(oracle.pending), sum(call["reply"][1]))

    def _show(self, oracle: Oracle, call: Json, told: Sequence[Told]) -> None:
        """Bytes only."""

    def _alive(self, oracle: Oracle, call: Json, told: Sequence[Told]) -> None:
        column = bytes.fromhex(call["argv"][0])
        anchors = struct.unpack(f">{len(column) // 8}Q", column)
        if isinstance(call["reply"], dict):
            return
        bitmap, trees = bytes.fromhex(call["reply"][5]["hex"]), {*oracle.open_trees()}
        found = {a for k, a in enumerate(anchors) if bitmap[k // 8] >> 7 - k % 8 & 1}
        for number, block in (oracle.blocks | oracle.blocks_expiring).items():
            if block.lost:  # what its keys held is unknown: its slots count as pending
                trees |= {slot_anchor(number, slot) for slot in range(block.size)}
        _same("pending trees", trees & {*anchors}, found)

    def _fence(self, argv: Sequence[bytes]) -> Fence:
        """Return the fence of a call; of a call without one, that of a separate lane."""
        if not argv[0]:
            return Fence(f"call {self._calls}", 1, "")
        seq, _, digest = argv[1].decode().partition(":")
        return Fence(argv[0].decode(), int(seq), digest)

    def _tree(self, anchor: int, source_id: str = "") -> Tree:
        if anchor not in self._trees:
            self._trees[anchor] = Tree(anchor, source_id)
            if of := self._facts.messages.get(anchor):
                self._trees[anchor].parts = of.parts
                # All messages may exist from the start, and their rows are late. Not if an anchor
                # has several trees: then a message exists when a row has named it.
                self._trees[anchor].exists = {*of.parts} if of.tracks < 2 else set()
        tree = self._trees[anchor]
        tree.source_id = tree.source_id or source_id
        return tree

    def _tracked(self, oracle: Oracle, tree: Tree, source_id: str, task: str) -> Tree:
        """Return the tree that a TRACK begins or, if it is pending, that the TRACK is of."""
        pending = oracle.pending.get(tree.anchor)
        source = (source_id, task)
        if pending and pending.tracked:
            same = self._sources[tree.anchor] == source
            return tree if same else Tree(tree.anchor, source_id, parts=tree.parts)
        if tree.tracks:  # an earlier tree of this anchor has ended
            del self._trees[tree.anchor]
            tree = self._tree(tree.anchor, source_id)
            if pending:
                tree.exists |= pending.done | pending.made
                pending.tree = tree
        tree.source_id, self._sources[tree.anchor] = source_id, source
        return tree


def _row(tree: Tree, flags: int, fact: Fact) -> Row:
    return Row(tree, flags, fact.done, fact.made, fact.links)


def _same(what: str, wanted: Json, found: Json) -> None:
    if wanted != found:
        raise Violation("count", f"{what}: {wanted}, not {found}")


def _state(oracle: Oracle) -> Json:
    """Return what the oracle knows of a state: counters, backlogs, buckets, failures, zeros."""
    counters, ages = oracle.counters, range(oracle.config.buckets)
    records, blocks = oracle.pending.values(), oracle.blocks.values()

    def of(age: int) -> Json:
        born = oracle.ticks - age
        return {
            **{r.tree.anchor: _record(r) for r in records if r.place.born == born},
            **{b.rows.number: _block(b) for b in blocks if b.place.born == born},
        }

    return {
        "counters": {name: n for name, n in counters.items() if n and name != "slow"},
        "backlog": {task: len(told) for task, told in oracle.waiting.items() if told},
        "buckets": [of(age) for age in ages],
    }


def _record(record: Record) -> Json:
    return record.tracked, record.failed, record.place.capped, bool(record.links)


def _block(block: Block) -> Json:
    """Return the deadline's mark, and the slots that are absent, have failed or are not zero."""
    slots = block.slots | block.strays
    failed = [number for number, slot in block.slots.items() if slot.failed]
    open_ = sorted(number for number, slot in slots.items() if slot.links)
    return block.place.capped, block.rows.absent, sorted(failed), open_


def _counted(state: Json) -> Json:
    """Return the same of the state that the reference has."""
    counters = dict(state["counters"])
    for kind in ("odd", "ended", "good"):
        counters |= {f"{kind}:{name}": n for name, n in state[kind].items()}
    buckets = []
    for records, blocks in zip(state["pending"], state["blocks"], strict=False):
        found: Json = {}
        for anchor, r in records.items():
            open_ = bool(int(r["checksum"], 16))
            found[int(anchor, 16)] = bool(r["task"]), r["failed"], r["capped"], open_
        for number, b in blocks.items():
            slots = [slot for slot, sum_ in enumerate(b["checksums"]) if int(sum_, 16)]
            found[int(number, 16)] = b["capped"], b["absent"], b["failed"], slots
        buckets.append(found)
    return {
        "counters": {name: n for name, n in counters.items() if n},
        "backlog": {task: n for task, n in state["backlog"].items() if n},
        "buckets": buckets,
    }
