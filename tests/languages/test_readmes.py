"""The program in each client's README runs unchanged and prints the output that it documents."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker, missing
from tests.languages.clients import CLIENTS, Client
from tests.waiting import LIMIT

REDIGO = "/usr/share/gocode/src/github.com/gomodule/redigo"
GO_EDITS = (
    "-require=acker-redis/clients/go@v0.0.0",
    "-replace=acker-redis/clients/go={folder}",
    "-require=github.com/gomodule/redigo@v1.8.3",
    f"-replace=github.com/gomodule/redigo={REDIGO}",
)
Commands = Callable[[Client, Path], list[list[str]]]


def _go(client: Client, scratch: Path) -> list[list[str]]:
    edits = [each.format(folder=client.folder) for each in GO_EDITS]
    return [["go", "mod", "init", "example"], ["go", "mod", "edit", *edits], ["go", "run", "."]]


def _c(client: Client, scratch: Path) -> list[list[str]]:
    library = [f"-I{client.folder}", str(client.output / "lib" / "libacker.a"), "-lhiredis"]
    return [["cc", "example.c", *library, "-o", "example"], ["./example"]]


def _shell(client: Client, scratch: Path) -> list[list[str]]:
    files = [f"{client.folder}/acker.sh", f"{client.folder}/lua"]
    return [["cp", "-R", *files, "."], ["bash", "example.sh"]]


# For each client: the language of the code block, the file name, and the commands to run it.
EXAMPLES: dict[str, tuple[str, str, Commands]] = {
    "go": ("go", "main.go", _go),
    "c": ("c", "example.c", _c),
    "ruby": ("ruby", "example.rb", lambda c, _: [["ruby", f"-I{c.folder}/lib", "example.rb"]]),
    "php": ("php", "example.php", lambda c, _: [["php", "example.php"]]),
    "perl": ("perl", "example.pl", lambda c, _: [["perl", f"-I{c.folder}/lib", "example.pl"]]),
    "java": (
        "java",
        "Example.java",
        lambda c, _: [
            ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{c.output}/classes", "Example.java"]
        ],
    ),
    "shell": ("bash", "example.sh", _shell),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_program_of_the_readme_runs(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, tmp_path: Path, name: str
) -> None:
    client = CLIENTS[name]
    if lacks := client.lacks():
        missing(f"{lacks}, for the client in {client.language},")
    client.prepare()
    fence, file, commands = EXAMPLES[name]
    page = (client.folder / "README.md").read_text()
    code = page.partition(f"```{fence}\n")[2].partition("```\n")[0]
    acker = make_any_acker()
    port = any_server.url.rpartition(":")[2].partition("/")[0]
    assert code.count("6379") == 1
    code = code.replace("6379", port).replace("orders", acker.namespace, 1)
    code = code.replace("vendor/autoload.php", f"{client.folder}/src/Client.php")
    (tmp_path / file).write_text(code)
    environment = {
        **os.environ,
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "GOCACHE": str(client.output / "cache"),
    }
    for words in commands(client, tmp_path):
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    source_id = done.stdout.partition(" ")[0]
    assert source_id in ("order-1", "order-17")
    word = "failed" if name == "java" else "nack"
    assert done.stdout == f"{source_id} {word} no such address\n"
    counters = acker.status().counters
    assert (counters["failed"], counters["acked"]) == (1, 0)
