"""Mutation tests of the scripts: check that the suite detects each small change.

    python -m tests.mutants [apply parts/fence ..] [--cases] [--list]

Each mutant changes one token or drops one statement of a file in ``lua``, outside of comments and
messages. First the cases (``proof/cases``) run against it, in this process and on one server, until
one fails. If all agree, the tests of ``SUITE`` run, in a second process that stays. A mutant that
Redis does not compile is not counted. Survivors are printed with their line;
``docs/explanation/mutants.md`` says why each of the remaining ones is equivalent. Not part of any
tier: all files take hours.
"""

import argparse
import contextlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import scripts
from proof.cases import lines
from proof.cases.run import run
from tests.mutants.changes import Mutant, files, mutants

ROOT = Path(__file__).resolve().parents[2]
SUITE = (
    "tests/servers",
    "tests/sync/test_show.py",
    "tests/conformance",
    "--ignore=tests/conformance/test_cases.py",
)
"""Not ``tests/properties``: random histories detect a mutant in one run and not in another."""
HANGS_AFTER = 20
"""Seconds without a reply."""
MEMORY = 4 << 30
"""Bytes of address space of the server: a mutant may allocate for ever."""
Results = Counter[tuple[str, str]]
"""Mutants by file and result: ``cases`` and ``tests`` killed it, ``survived``, or ``stillborn``."""


class Cases:
    """The cases, on one server. The mutants of a script are killed by few cases: those come first.

    ``place`` is the folder of the changed Lua files, which this process uses from now on.
    """

    def __init__(self, place: Path) -> None:
        scripts.directory = lambda: place
        self._names: dict[str, Any] = lines.load()
        self._users = {name: _scripts_of(case) for name, case in self._names.items()}
        self._kills = Counter[str]()
        self._server: EmbeddedRedis | None = None
        self._client: Any = None

    def kill(self, users: Sequence[str]) -> str:
        """Return the name of a case that fails, ``hung``, ``stillborn``, or ''."""
        scripts.load.cache_clear()
        client = self._connected()
        for user in users:
            try:
                client.script_load(scripts.load(user).source)
            except redis.exceptions.ResponseError:
                return "stillborn"
        for name in sorted(self._names, key=lambda name: -self._kills[name]):
            if not self._users[name] & {*users}:
                continue
            try:
                run(client, self._names[name])
            except (redis.exceptions.TimeoutError, redis.exceptions.ConnectionError):
                self.close()
                return "hung"
            except Exception:  # the case has detected the mutant
                self._kills[name] += 1
                return name
        client.script_flush()
        return ""

    def close(self) -> None:
        """End the server, also if a script hangs."""
        if self._server:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._server.pid, signal.SIGKILL)
            self._server.stop()
            self._server = None

    def _connected(self) -> Any:
        if not self._server:
            self._server = EmbeddedRedis().start()
            resource.prlimit(self._server.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
            self._client = redis.Redis.from_url(
                self._server.url, socket_timeout=HANGS_AFTER, retry=Retry(NoBackoff(), 0)
            )
        return self._client


class Tests:
    """The other tests, in one process (``selection.py``), in a copy of the checkout.

    Those that call a script that is changed run: first those that have killed most mutants, then
    the shortest.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._kills = Counter[str]()
        self._found: dict[str, tuple[float, list[str]]] = {}
        """Seconds and scripts of each test."""
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: Any = None

    def kill(self, users: Sequence[str]) -> str:
        """Return the name of a test that fails, ``hung``, or ''."""
        assert self._process
        assert self._process.stdin
        wanted = [name for name, (_, used) in self._found.items() if {*used} & {*users}]
        wanted.sort(key=lambda name: (-self._kills[name], self._found[name][0]))
        begun = time.monotonic()
        self._process.stdin.write(json.dumps(wanted).encode() + b"\n")
        self._process.stdin.flush()
        failed = self._answer(limit=600)
        if failed is None or (failed and time.monotonic() - begun > HANGS_AFTER):
            self.close()  # perhaps a script still runs
        killer = "hung" if failed is None else failed[0] if failed else ""
        self._kills[killer] += 1
        return killer

    def ready(self) -> None:
        """Start the process, if there is none; the Lua files must be the original ones."""
        if self._process:
            return
        pipe = self._place / "answers"
        if not pipe.exists():
            os.mkfifo(pipe)
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
        command += ["-p", "tests.mutants.selection", "-k", "default", "--timeout", "60", *SUITE]
        variables = {"HYPOTHESIS_DATABASE": "none", "CI": "", "ACKER_ANSWERS": str(pipe)}
        self._process = subprocess.Popen(
            command,
            cwd=self._place,
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._answers = pipe.open()
        found = self._answer(limit=600)
        if not found:
            raise RuntimeError("a test fails without a mutant")
        self._found = found

    def close(self) -> None:
        """End the process. Its servers end with it."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._answers.close()
            self._process = None

    def _answer(self, limit: float) -> Any:
        if not select.select([self._answers], [], [], limit)[0]:
            return None
        return json.loads(self._answers.readline() or "null")


def _scripts_of(case: Any) -> set[str]:
    return {call["script"] for step in case["steps"] for call in step.get("calls", ())}


@contextlib.contextmanager
def changed(lua: Path, mutant: Mutant) -> Iterator[None]:
    """Write a mutant, and afterwards the original again."""
    file = lua / f"{mutant.file}.lua"
    original = file.read_text()
    text = original.split("\n")
    text[mutant.line - 1] = mutant.after
    file.write_text("\n".join(text))
    try:
        yield
    finally:
        file.write_text(original)


def run_all(chosen: Sequence[str], cases_only: bool) -> Results:
    """Run the mutants of these files, and print the survivors and a line for each file."""
    users, results = files(), Results()
    todo = {file: [*mutants(file)] for file in chosen}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for part in ("acker_redis", "lua", "proof", "tests"):
            shutil.copytree(ROOT / part, place / part)
        shutil.copy(ROOT / "pyproject.toml", place)
        cases, tests = Cases(place / "lua"), Tests(place)
        try:
            for file, found in todo.items():
                begun = time.monotonic()
                for mutant in found:
                    if not cases_only:
                        tests.ready()
                    with changed(place / "lua", mutant):
                        killer, by = cases.kill(users[file]), "cases"
                        if not killer and not cases_only:
                            killer, by = tests.kill(users[file]), "tests"
                    if not killer or by == "tests":
                        print(f"{killer or 'survived'}: {mutant}", flush=True)
                    result = "stillborn" if killer == "stillborn" else by if killer else "survived"
                    results[file, result] += 1
                print(_row(results, file), f"{time.monotonic() - begun:.0f} s", flush=True)
        finally:
            cases.close()
            tests.close()
    return results


def _row(results: Results, file: str) -> str:
    found = {name: results[file, name] for name in ("cases", "tests", "survived", "stillborn")}
    total = sum(found.values()) - found["stillborn"]
    return f"{file}: {total} mutants; " + ", ".join(f"{name} {n}" for name, n in found.items())


def main() -> int:
    """Print the survivors and the share killed; return 1 below 90 %."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", help="apply, parts/fence, ..; default: all")
    parser.add_argument("--cases", action="store_true", help="run the cases only")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    chosen = args.files or [*files()]
    if args.list:
        for file in chosen:
            print(*mutants(file), sep="\n")
        return 0
    results = run_all(chosen, args.cases)
    killed = sum(n for (_, result), n in results.items() if result in ("cases", "tests"))
    survived = sum(n for (_, result), n in results.items() if result == "survived")
    print(f"{killed} of {killed + survived} killed")
    return int(killed < 0.9 * (killed + survived))


if __name__ == "__main__":
    sys.exit(main())
