"""Run the cases with a client of any language, which makes the calls itself.

    python -m tests.languages.cases NAME [WORDS OF A VECTOR'S NAME]

The runner reads the sent calls from MONITOR, not from the client.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from acker_redis.protocol import scripts
from proof.cases import lines, run
from proof.cases.lines import Json
from tests.languages.clients import CLIENTS
from tests.languages.driver import Driver, DriverError
from tests.languages.monitor import Command, Monitor
from tests.languages.server import Server
from tests.open_redis import OpenRedis

MismatchError = run.MismatchError
MAX_ENTRIES = 64
"""Entries of a shard that a client reads in one call."""
PLAIN = {
    *("XRANGE", "HGET", "HMGET", "HGETALL", "EXISTS", "TIME", "SCRIPT", "PING", "ECHO", "SELECT"),
    *("INFO", "HELLO", "AUTH", "CLIENT", "CLUSTER", "COMMAND", "ASKING", "READONLY", "READWRITE"),
}
"""Commands that a client may send besides the scripts: none of them writes."""
NAMES = {scripts.load(name).sha: name for name in scripts.NAMES}
Call = tuple[str, list[str], list[str]]


OURS = frozenset({"apply", "take"})
"""Operations of clients; rotators and administrators do the others."""


def load() -> dict[str, Json]:
    """Return the cases with an operation of a client, by the names of the file and of the case.

    The two cases that put 100,000 fences into a shard are left out: they take longer than all
    others together.
    """
    return {
        name: case
        for name, case in lines.load().items()
        if any(OURS & set(step.get("do") or {}) for step in case["steps"])
        and not any("EVAL" in step.get("redis", ()) for step in case["steps"])
    }


def for_clusters(cases: Mapping[str, Json]) -> dict[str, Json]:
    """Return the cases that a cluster can run: all keys of a call are in one slot."""
    return {
        name: case
        for name, case in cases.items()
        if all(
            len({_tag(bytes.fromhex(key)) for key in call["keys"]}) == 1
            for step in case["steps"]
            for call in step.get("calls", ())
        )
    }


def _tag(key: bytes) -> bytes:
    return key.partition(b"{")[2].partition(b"}")[0]


class Runner:
    """Runs cases with one driver, on a server or cluster that is emptied before each case."""

    def __init__(self, server: Server, driver: Driver, monitor: Monitor) -> None:
        self.server, self.driver, self.monitor = server, driver, monitor
        self.compared = 0
        """Number of the client's calls that were compared."""
        self.read = 0
        """Number of outcomes that the client has read."""
        self.without_scripts = False
        """Whether a node may lack the scripts: EVAL follows EVALSHA then."""

    def run(self, case: Json) -> None:
        """Run one case; raise MismatchError or DriverError if the client deviates from it."""
        self.server.flushall()
        self.driver.begin(case["namespace"])
        _Run(self, case).play()

    def mismatches(self, cases: Mapping[str, Json]) -> dict[str, str]:
        """Return the cases from which the client deviates: case -> error."""
        found = {}
        for name, case in cases.items():
            try:
                self.run(case)
            except (MismatchError, DriverError) as error:
                found[name] = str(error)[:1500]
        return found


class _Run(run._Run):
    def __init__(self, runner: Runner, case: Json) -> None:
        super().__init__(runner.server, case)
        self.runner, self.driver, self.monitor = runner, runner.driver, runner.monitor

    def play(self) -> None:
        steps = self.case["steps"]
        for number, step in enumerate(steps):
            where = f"{self.case['name']}, step {number}"
            if self.changed(step):
                continue
            told = self.step(where, step)
            expected = step.get("outcomes", [])
            drains = {"expire", "expire_blocks"} & set(step.get("do") or {})
            if drains or len(step["calls"]) > 1:
                # The streams are read after all calls of a step, so only the order within a
                # stream is known.
                told, expected = sorted(told), sorted(expected)
            run._same(f"{where}, outcomes", expected, told)
            if "checksums" in step:
                self.checksums(where, step)
        state = [s for s in map(self.state, self.shards) if s is not None]
        run._same(f"{self.case['name']}, state", self.case["state"], state)
        for task in self.tasks():
            read = self.driver.ask("read", task=task)["outcomes"]
            run._same(f"{self.case['name']}, outcomes of {task}", self.waiting(task), read)
            self.runner.read += len(read)

    def step(self, where: str, step: Json) -> list[Json]:
        """Run one step, with the client if it is the client's; return the outcomes it added."""
        verb = next(iter(step.get("do") or {"": None}))
        can = self.driver.client.can
        if verb not in OURS or ("blocks" not in can and _tracks_block(step)):
            return [outcome for call in step["calls"] for outcome in self.call(where, call)]
        error = step["calls"] and run_error(step["calls"][-1])
        before = self.dump() if error and len(step["calls"]) == 1 else None
        expected = [self.whole(call) for call in step["calls"]]
        waiting = self.waiting(step["do"]["take"]["task"]) if verb == "take" else []
        self.monitor.begin()
        answer: Json = None
        try:
            answer = self.driver.ask(verb, **step["do"][verb])
        except DriverError as failed:
            answer = failed
        self.client.forget()
        self.same_calls(where, expected, self.monitor.end())
        if verb == "take":
            self.same_answer(where, {"outcomes": waiting}, answer)
        else:
            self.same_answer(where, self.answer_of(verb, step), answer)
        if before is not None:
            run._same(f"{where}, keys after an error", before, self.dump())
        if verb != "apply":
            return []
        prefixes = dict.fromkeys(bytes.fromhex(c["keys"][0]).decode() for c in step["calls"])
        return [outcome for prefix in prefixes for outcome in self.new_outcomes(prefix)]

    def whole(self, call: Json) -> Call:
        """Return a call of the case, completed with the ids that Redis assigns."""
        argv = [arg for arg in call["argv"] if arg is not None]
        drawn = call["argv"].count(None)
        if drawn:
            prefix = bytes.fromhex(call["keys"][0]).decode()
            stream = f"{prefix}:outcomes:{bytes.fromhex(argv[0]).decode()}"
            argv += [id_.hex() for id_, _ in self.client.xrange(stream, count=drawn)]
        return call["script"], call["keys"], argv

    def same_calls(self, where: str, expected: list[Call], commands: list[Command]) -> None:
        """Check that the client has made these calls, for each shard in this order."""
        if self.runner.without_scripts:
            # Of two calls with the same arguments, the first got the reply NOSCRIPT.
            commands = [c for c, n in zip_longest(commands, commands[1:]) if not _again(c, n)]
        made = list(calls_of(commands, where))
        made = [call for call in made if call[0] != "status"]
        for keys in [key for _, key, _ in expected + made]:
            run._same(
                f"{where}, calls of {bytes.fromhex(keys[0]).decode()}",
                [call for call in expected if call[1] == keys],
                [call for call in made if call[1] == keys],
            )
        self.runner.compared += len(made)

    def answer_of(self, verb: str, step: Json) -> Json:
        """Return the answer that the driver must give: an object, or the code of an error."""
        if step.get("refused"):
            return "REFUSED"
        calls = step["calls"]
        if calls and (error := run_error(calls[-1])):
            return error
        answer: Json = {
            "tracked": 0, "acked": 0, "failed": 0,
            "rejected": [], "repeated": False,
        }  # fmt: skip
        if "blocks" in self.driver.client.can:
            answer["rejected_blocks"] = []
        for call in calls:
            reply = call["reply"]
            if reply[0] == 0:
                answer["repeated"] = True
                if int(reply[1]) > int(bytes.fromhex(call["argv"][1]).split(b":")[0]):
                    return "LANE"
                continue
            for place, name in enumerate(("tracked", "acked", "failed"), 1):
                answer[name] += reply[place]
            rows = bytes.fromhex(reply[7]["hex"])
            numbers = [int.from_bytes(rows[i : i + 2], "big") for i in range(0, len(rows), 2)]
            if call["script"] == "apply":
                anchors = call["argv"][3]
                answer["rejected"] += [str(int(anchors[16 * n : 16 * n + 16], 16)) for n in numbers]
            elif numbers:
                answer["rejected_blocks"] += [
                    str(int(call["argv"][3 + 7 * n], 16)) for n in numbers
                ]
        return answer

    def same_answer(self, where: str, expected: Json, answer: Json) -> None:
        if isinstance(answer, DriverError):
            if answer.code != expected:
                raise MismatchError(f"{where}: the client answers {answer}, not {expected!r}")
        elif expected is not None:
            found = {name: answer.get(name) for name in expected} if _is(expected) else answer
            run._same(f"{where}, answer of the client", expected, found)
            if isinstance(expected, str):
                raise MismatchError(f"{where}: the client answers {answer!r}, not {expected}")

    def tasks(self) -> list[str]:
        """Return the tasks that have streams."""
        keys = (key.decode() for key in self.client.keys("*"))
        return sorted({key.partition("}:")[2][9:] for key in keys if ":outcomes:" in key})

    def waiting(self, task: str) -> list[Json]:
        """Return the waiting outcomes of a task, as a client must read them."""
        found = []
        for prefix in self.shards:
            stream = f"{prefix}:outcomes:{task}"
            if self.client.type(stream) != b"stream":
                continue
            for _, fields in self.client.xrange(stream, count=MAX_ENTRIES):
                found += [*_outcomes(fields, self.case["config"]["edges"])]
        return found


def calls_of(commands: list[Command], where: str = "") -> Iterator[Call]:
    """Yield the calls of scripts; raise MismatchError for a command that a client must not send."""
    for command in commands:
        if command.name == "EVALSHA":
            name = NAMES.get(command.words[1].decode("latin-1").lower())
        elif command.name == "EVAL":
            name = next(
                (n for n in NAMES.values() if scripts.load(n).source == command.words[1]), None
            )
        elif command.name in PLAIN:
            continue
        else:
            raise MismatchError(
                f"{where}: the client sends {command.name}, which only scripts may run"
            )
        if name is None:
            raise MismatchError(f"{where}: the client calls an unknown script")
        count = int(command.words[2])
        words = [word.hex() for word in command.words[3:]]
        yield name, words[:count], words[count:]


def _again(command: Command, following: Command | None) -> bool:
    return bool(
        following
        and command.name == "EVALSHA"
        and following.name == "EVAL"
        and following.words[2:] == command.words[2:]
    )


def run_error(call: Json) -> str:
    """Return the code of the error that a call is refused with; '' if it is not refused."""
    reply = call["reply"]
    return reply.get("error", "") if isinstance(reply, dict) else ""


def _outcomes(fields: dict[bytes, bytes], edges: list[str]) -> Iterator[Json]:
    """Yield the single outcomes of an entry, in the format of a driver."""
    for *outcome, residual, since in _without_edges(fields):
        odd = int(residual or "0", 16) >> 55
        yield [*outcome, residual, since, [name for k, name in enumerate(edges) if odd >> k & 1]]


def _without_edges(fields: dict[bytes, bytes]) -> Iterator[Json]:
    if b"block" in fields:
        age = int(fields[b"age"])
        idle = int(fields.get(b"idle", 0))
        for verdict, reason, anchor, label, why, *more in run._block_outcomes(fields):
            since = idle if reason == "expired" else 0
            yield [verdict, reason, str(int(anchor, 16)), label, why, age, *more, since]
        return
    rows = json.loads(fields[b"rows"])
    for outcome, row in zip(run._loose(fields), rows, strict=True):
        verdict, reason, anchor, source, why, *more = outcome
        since = row[5] if reason == "expired" else 0
        yield [verdict, reason, str(int(anchor, 16)), source, why, row[2], *more, since]


def _tracks_block(step: Json) -> bool:
    return any("track_block" in row for row in step["do"].get("apply", {}).get("rows", ()))


def _is(expected: Json) -> bool:
    return isinstance(expected, dict)


def main(name: str, *words: str) -> int:
    """Run the cases with a client on one server, and print where it deviates."""
    client = CLIENTS[name]
    if lacks := client.lacks():
        sys.exit(f"{lacks} is missing")
    wanted = {n: v for n, v in load().items() if not words or any(word in n for word in words)}
    failed = 0
    with OpenRedis() as redis, Monitor([redis.port]) as monitor:
        server = Server([redis.port])
        server.load_scripts()
        for library in client.libraries:
            with Driver(client, library) as driver:
                driver.connect(redis.port)
                runner = Runner(server, driver, monitor)
                found = runner.mismatches(wanted)
            for case, said in found.items():
                print(f"{library or name}: {case}\n    {said}")
            kinds = Counter(case.partition(":")[0] for case in found)
            print(
                f"{library or name}: {len(wanted) - len(found)} of {len(wanted)} cases, "
                f"{runner.compared} calls, {runner.read} outcomes; failed: {dict(kinds)}"
            )
            failed += len(found)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
