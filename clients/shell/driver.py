"""Answers the requests of the test harness (clients/DRIVER.md) with one bash that sources acker.sh.

It is not part of the client: it translates between JSON and words of a shell.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENTRIES = 64

# Each command ends with a NUL; so does each answer, whose words are separated by tabs.
SERVE = r"""
. ./acker.sh
ACKER_QUIET=yes
_say() { local IFS=$'\t'; printf '%s\0' "$*" >&3; }
_answer() {
  local code=$?
  if ((code)); then _say error "$ACKER_ERROR" "$ACKER_WORDS"; else _say ok "$@"; fi
}
_vector() { # PRODUCER SEQ DIGEST: each call once, under the given fence
  local i
  _acker_here && _acker_counts || return
  if ((${#_acker_order[@]})); then
    [[ -n $_acker_shards ]] || _acker_config || { _acker_fail_now; return; }
    _acker_pack
    for ((i = 0; i < ${#_acker_argv[@]}; i++)); do
      _acker_send_part "$i" "$1" $(($2 + i)) "$3" || { _acker_fail_now; return; }
    done
  fi
}
_rows() { printf '%s\0' ok "$@" '' >&3; }
while IFS= read -r -d '' _command; do eval "$_command"; done
"""


class RefusedError(Exception):
    """A text that a word of a shell cannot hold."""


class Shell:
    """One bash process."""

    def __init__(self) -> None:
        process = subprocess.Popen(  # noqa: S603 - constant arguments
            ["bash", "--norc", "--noprofile", "-c", f"exec 3>&1 1>&2\n{SERVE}"],  # noqa: S607
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if not process.stdin or not process.stdout:
            raise OSError("no pipes")
        self._in, self._out = process.stdin, process.stdout
        self._rest = b""

    def run(self, command: str) -> None:
        """Run a command that prints no answer."""
        self._in.write(command.encode() + b"\0")
        self._in.flush()

    def ask(self, command: str) -> list[str]:
        """Run a command and return the words of its answer; the first is ok or error."""
        self.run(command)
        return self._next().split("\t")

    def listen(self) -> list[str]:
        """Return the answers of _rows after the first one, which ask() has read."""
        found = []
        while word := self._next():
            found.append(word)
        return found

    def _next(self) -> str:
        while b"\0" not in self._rest:
            data = self._out.read1(1 << 16)  # type: ignore[attr-defined]
            if not data:
                sys.exit("the shell has ended")
            self._rest += data
        word, _, self._rest = self._rest.partition(b"\0")
        return word.decode()


def _words(*given: Any) -> str:
    for each in given:
        if "\0" in str(each):
            raise RefusedError("a text must not contain NUL: shell and scripts cannot hold it")
    return " ".join(shlex.quote(str(each)) for each in given)


def _add(row: dict[str, Any]) -> str:
    ((verb, fields),) = row.items()
    given = [fields["anchor"]]
    given += [fields[name] for name in ("source_id", "why", "tuple") if name in fields]
    return _words("acker_row", verb, *given, *fields.get("emitted", ()))


class Driver:
    """Translates requests into commands, with one method for each op."""

    def __init__(self) -> None:
        self.shell = Shell()
        self.url = ""

    def answer(self, op: str, asked: dict[str, Any]) -> Any:
        """Return the answer to a request as a JSON value."""
        try:
            return getattr(self, f"_on_{op}")(**asked)
        except RefusedError as error:
            return {"error": "REFUSED", "message": str(error)}

    def _on_connect(self, nodes: list[str], cluster: bool, library: str, timeout_ms: int) -> Any:
        self.url = f"redis{'+cluster' if cluster else ''}://{','.join(nodes)}"
        self.shell.run(f"ACKER_TIMEOUT={timeout_ms / 1000}")
        return {}

    def _on_begin(self, namespace: str, retry_ms: int, linger_ms: int) -> Any:
        self.shell.run(f"ACKER_RETRY={retry_ms / 1000}")
        # The connection may stay; acker_open starts a new lane and forgets the configuration.
        return self._simple(_words("acker_open", self.url, namespace))

    def _on_apply(
        self, task: str, producer: str, seq: str, digest: str, rows: list[dict[str, Any]]
    ) -> Any:
        batch = " && ".join([_words("acker_batch", task), *map(_add, rows)])
        vector = _words("_vector", producer, seq or "0", digest)
        said = self.shell.ask(
            f"{batch} && {vector}; _answer $ACKER_TRACKED $ACKER_ACKED $ACKER_FAILED "
            '$ACKER_REPEATED "${ACKER_REJECTED[*]}"'
        )
        if said[0] == "error":
            return _error_of(said)
        tracked, acked, failed, repeated = map(int, said[1:5])
        return {
            "tracked": tracked, "acked": acked, "failed": failed, "rejected": said[5].split(),
            "repeated": bool(repeated),
        }  # fmt: skip

    def _on_read(self, task: str) -> Any:
        said = self.shell.ask(
            f"{_words('acker_read', task, ENTRIES)} && "
            '_rows ${ACKER_OUTCOMES[@]+"${ACKER_OUTCOMES[@]}"} || _answer'
        )
        if said[0] == "error":
            return _error_of(said)
        found = []
        for line in self.shell.listen():
            verdict, reason, anchor, age, source, why, *end, idle, edges = line.split("\t")
            names = edges.split(",") if edges else []
            found.append([verdict, reason, anchor, source, why, int(age), *end, int(idle), names])
        return {"outcomes": found}

    def _on_take(self, task: str) -> Any:
        found = self._on_read(task)
        return found if "error" in found else self._simple(_words("acker_take", task)) or found

    def _on_track(self, task: str, source_id: str, emit: int, edge: str = "") -> Any:
        said = self.shell.ask(
            f"{_words('acker_track', task, source_id, emit, '--edge', edge)}; "
            '_answer ${ACKER_MESSAGES[@]+"${ACKER_MESSAGES[@]}"}'
        )
        return _error_of(said) if said[0] == "error" else {"emitted": said[1:]}

    def _on_work(
        self,
        inputs: list[str],
        emit: list[list[int]],
        end: str,
        why: str,
        flush: bool,
        edges: Sequence[str] = (),
        keys: Sequence[str | None] = (),
    ) -> Any:
        steps = [_words("acker_process", *inputs), "_e=()"]
        for places, edge, key in zip_longest(emit, edges, keys):
            given = [*(places or "-"), "--edge", edge or ""]
            given += [] if key is None else ["--key", key]
            steps.append(_words("acker_emit", *given))
            steps.append('_e+=("$ACKER_MESSAGE")')
        ends = {"ack": "acker_ack", "fail": _words("acker_fail", why), "touch": "acker_touch"}
        ends["late"] = "acker_ack && acker_emit 0"
        if end in ends:
            steps.append(ends[end])
        said = self.shell.ask(f'{" && ".join(steps)}; _answer ${{_e[@]+"${{_e[@]}}"}}')
        return _error_of(said) if said[0] == "error" else {"emitted": said[1:]}

    def _on_flush(self) -> Any:
        return self._simple("acker_flush")

    def _on_bench(self, rows: int, batch: int, lanes: int, trees: int) -> Any:
        """Measure with one lane: a shell has one call in flight."""
        anchors: list[str] = []
        for _ in range(trees):
            (message,) = self._on_track("bench", "s", 1)["emitted"]
            anchors.append(message.partition(":")[0])
        begun = time.monotonic()
        for first in range(0, rows, batch):
            steps = [
                f'acker_row ack {anchors[row % trees]} "${{_acker_ids[{row - first}]}}"'
                for row in range(first, min(first + batch, rows))
            ]
            said = self._simple(
                " && ".join(["_acker_draw 1024", "acker_batch", *steps, "acker_apply"])
            )
            if said:
                return said
        return {"rows": rows, "seconds": time.monotonic() - begun}

    def _simple(self, command: str) -> Any:
        said = self.shell.ask(f"{command}; _answer")
        return _error_of(said) if said[0] == "error" else {}


def _error_of(said: list[str]) -> dict[str, str]:
    return {"error": said[1], "message": said[2]}


def _main() -> None:
    driver = Driver()
    for line in sys.stdin:
        asked = json.loads(line)
        answer = driver.answer(asked.pop("op"), asked)
        print(json.dumps(answer, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    _main()
