"""Run the code blocks of a page as a reader would: from top to bottom, in an empty folder.

The Python blocks of a page share one process, and the shell blocks share one bash with ``set -e``.
``ACKER_REDIS_URL`` names a fresh server, and ``acker-redis`` is on PATH. A ``text`` block right
after a block is its exact output: of Python stdout, of the shell stdout and stderr.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.blocks import Block
from tests.waiting import LIMIT, wait_until

END = "--- end of block ---"
_BASH = f"""
set -e
while IFS= read -r -u "$BLOCKS" file; do
  . "$file" </dev/null
  printf '%s\\n' '{END}'
done
"""
_PYTHON = f"""
import os, pathlib
names = {{"__name__": "__main__"}}
for each in os.fdopen(int(os.environ["BLOCKS"])):
    page, line, file = each.rstrip().split("\\t")
    code = "\\n" * (int(line) - 1) + pathlib.Path(file).read_text()
    exec(compile(code, page, "exec"), names)
    print("{END}", flush=True)
"""


class Shell:
    """A process that runs one block after another: bash or Python."""

    def __init__(self, language: str, folder: Path, logs: Path, url: str) -> None:
        command = ["bash", "-c", _BASH] if language == "sh" else [sys.executable, "-c", _PYTHON]
        self._language, self._logs = language, logs
        self._out, self._err = logs / f"{language}.out", logs / f"{language}.err"
        reads, self._writes = os.pipe()
        programs = Path(sys.executable).parent
        environment = {
            **os.environ,
            "ACKER_REDIS_URL": url,
            "BLOCKS": str(reads),
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
        }
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT if language == "sh" else err,
                pass_fds=(reads,),
                # What a block leaves in the background ends with the page.
                start_new_session=True,
            )
        os.close(reads)
        self._seen = 0

    def run(self, block: Block) -> str:
        """Run a block and return its output; fail if the block does."""
        file = self._logs / f"block-{block.line}"
        file.write_text(block.program)
        call = f"{file}\n" if self._language == "sh" else f"{block.page}\t{block.line}\t{file}\n"
        os.write(self._writes, call.encode())
        wait_until(lambda: self._ended() or END in self._new(), f"the end of {block.where}", 0.02)
        output, ended, _ = self._new().partition(f"{END}\n")
        assert ended, f"{block.where} failed:\n{output}{self._err.read_text()[-4000:]}"
        self._seen += len(output.encode()) + len(ended)
        return output

    def _new(self) -> str:
        with self._out.open("rb") as out:
            out.seek(self._seen)
            return out.read().decode(errors="replace")

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process, and all that it has started."""
        os.close(self._writes)
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Python runs its exit handlers, so that Spark and embedded servers end.
            self._process.wait(LIMIT / 5 if self._language == "python" else 0.5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class PageRun:
    """One run of a page; a context manager."""

    def __init__(self, folder: Path, url: str) -> None:
        self._url = url
        self._folder, self._logs = folder / "page", folder / "logs"
        self._folder.mkdir()
        self._logs.mkdir()
        self._shells: dict[str, Shell] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._shells.values():
            each.close()

    def run(self, blocks: list[Block]) -> None:
        """Run the blocks, write the files that they name, and compare the outputs."""
        output = None
        for block in blocks:
            if block.language == "text" and block.follows and not block.title:
                if output is not None:
                    assert output == block.code, f"the output of the block before {block.where}"
            elif block.file:
                place = self._folder / block.file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(block.code)
            output = self._shell(block.language).run(block) if block.runs else None

    def _shell(self, language: str) -> Shell:
        if language not in self._shells:
            self._shells[language] = Shell(language, self._folder, self._logs, self._url)
        return self._shells[language]
