"""Fill in a case: its calls by the packer, its replies, verdicts and state by the reference.

A contributor writes what these cannot know: the operations of each step, the calls that no client
makes, and the code of each refusal that the reference does not model.
"""

import json
import re
from typing import cast

from acker_redis.protocol.config import AckerConfig
from proof.cases import lines, packer
from proof.cases.judge import Judge
from proof.cases.lines import NAMESPACE, SALT, Json, full, line, parse, shard_of
from proof.cases.shard import Shard, outcome
from proof.oracle import BlockKey

PLAYED = {"apply_blocks", "configure"}
"""Scripts whose calls by hand the reference answers."""
MODELLED = {"BACKLOG", "CONFLICT"}
"""Their refusals that the reference knows. It does not read invalid arguments, nor damaged keys."""


def accepted() -> dict[str, tuple[str, str]]:
    """Return the text of each file of cases: as it is, and as it must be."""
    found = {}
    for path in sorted(lines.HERE.glob("*.jsonl")):
        text = path.read_bytes().decode()
        cases = [*parse(text)]
        if len({case["name"] for case in cases}) < len(cases):
            raise ValueError(f"{path.name}: two cases have the same name")
        filled = [_named(path.stem, case) for case in cases]
        found[path.name] = (text, "".join(f"{each}\n" for each in filled))
    return found


def stale(files: dict[str, tuple[str, str]]) -> list[str]:
    """Return the cases whose lines are not the accepted ones, and files with other lines."""
    found = []
    for name, (text, wanted) in files.items():
        old = text.split("\n")
        new = [each for each in wanted.split("\n") if each not in old]
        found += [f"{name}: {json.loads(each)['name']}" for each in new]
        if not new and text != wanted:
            found.append(name)
    return found


def fill(short: Json) -> Json:
    """Return a case in full, with everything that was not written by hand."""
    return _Filling(full(short)).play()


def _named(topic: str, case: Json) -> str:
    try:
        return line(fill(case))
    except Exception as error:
        error.add_note(f"in {topic}: {case.get('name', 'a case without a name')}")
        raise


class _Filling:
    def __init__(self, case: Json) -> None:
        self.case = case
        fields = case["config"]
        self.config = AckerConfig(**fields | {"edges": tuple(fields["edges"])})
        self.shards: list[Shard] = []
        self.judge = Judge(case, self.config)

    def play(self) -> Json:
        steps = [self.step(step) for step in self.case["steps"]]
        state = [shard.state() for shard in self.shards]
        self.judge.end(state)
        return self.case | {"steps": steps, "state": state}

    def step(self, step: Json) -> Json:
        if "redis" in step and (lost := self.lost(step["redis"])):
            where, number, key = lost
            self.shards[where].reference.lose(number, key)
            self.judge.lose(where, number, key)
            return step
        self.judge.begin(step)
        for shard in self.shards:
            shard.reference.advance(step.get("clock", 0))
        if "redis" in step or "clock" in step or step.get("refused"):
            return step
        if not step["do"]:
            calls, outcomes = self.by_hand(step["calls"])
            return step | {"calls": calls, "outcomes": outcomes}
        ((verb, fields),) = step["do"].items()
        packed = packer.calls(step["do"], self.case["config"], NAMESPACE)
        calls = [
            {"script": script, "keys": keys, "argv": argv, "reply": None}
            for script, keys, argv in packed
        ]
        if verb == "create":
            reply = [int(not self.shards), SALT]
            self.shards = self.shards or [Shard(self.config) for _ in calls]
            return step | {"calls": [call | {"reply": reply} for call in calls], "outcomes": []}
        if "error" in step:  # the reply is damaged, and stands in the line
            (call,), (old,) = calls, step["calls"]
            return step | {"calls": [call | {"reply": old["reply"]}], "outcomes": []}
        played, outcomes = self.played(verb, calls)
        step = step | {"calls": played, "outcomes": outcomes}
        return step | {"checksums": self.checksums(fields)} if verb == "apply" else step

    def lost(self, words: list[str]) -> tuple[int, int, BlockKey] | None:
        """Return shard, block and key that a command deletes for good; None for other commands."""
        found = re.fullmatch(r"DEL \S+:(\d+)\}:(block|failed|present):(\w+)", " ".join(words))
        written = [step["redis"][1] for step in self.case["steps"] if "redis" in step]
        if not found or written.count(words[1]) > 1:
            return None
        return int(found[1]), int(found[3], 16), cast(BlockKey, found[2])

    def by_hand(self, calls: list[Json]) -> tuple[list[Json], list[Json]]:
        played, outcomes = [], []
        for call in calls:
            refused = isinstance(call["reply"], dict) and call["reply"].get("error")
            if call["script"] in PLAYED and (not refused or refused in MODELLED):
                written, (call, told) = call, self.call(call)
                outcomes += told
                if refused and call != written:
                    raise ValueError(f"{written}: the reference replies {call['reply']}")
            played.append(call)
        return played, outcomes

    def played(self, verb: str, calls: list[Json]) -> tuple[list[Json], list[Json]]:
        """Return the calls that are made, with their replies, and their verdicts."""
        made: list[Json] = []
        outcomes: list[Json] = []
        for call in calls:
            call, told = self.call(call)
            if verb != "apply":  # a drain has no order
                told.sort(key=lambda outcome: (outcome[0], outcome[3]))
            if verb == "take":  # of all entries; without entries no call is made
                if not call["reply"][0]:
                    continue
                call["argv"] = [*call["argv"], *[None] * call["reply"][0]]
            made.append(call)
            outcomes += told
            # A client stops after a refusal, and if its lane is at a higher number: it was forked.
            if verb == "apply" and (isinstance(call["reply"], dict) or _above(call)):
                break
        return made, outcomes

    def call(self, call: Json) -> tuple[Json, list[Json]]:
        number = shard_of(call)
        if number is None or number >= len(self.shards):
            raise ValueError(f"no shard has the keys {call['keys']}; the reply needs an error")
        shard = self.shards[number]
        reply = shard.answer(call["script"], [bytes.fromhex(arg) for arg in call["argv"]])
        call, told = call | {"reply": reply}, shard.told()
        self.judge.check(call, told)
        return call, [outcome(*each) for each in told]

    def checksums(self, do: Json) -> Json:
        found = {}
        for anchor in packer.anchors(do["rows"]):
            number = anchor >> 12 & 2**50 - 1 if anchor >> 62 else anchor
            checksum = self.shards[number % len(self.shards)].checksum(anchor)
            if checksum is not None:
                found[f"{anchor:016x}"] = checksum
        return found


def _above(call: Json) -> bool:
    fence = bytes.fromhex(call["argv"][1]).decode().partition(":")[0]
    return call["reply"][0] == 0 and int(call["reply"][1]) > int(fence)
