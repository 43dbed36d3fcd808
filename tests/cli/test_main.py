"""Entry point: imports, errors, exit codes and help."""

import json
import signal
import subprocess
import sys

import pytest
import typer.main

from acker_redis import cli
from acker_redis.embedded import EmbeddedRedis
from acker_redis.sync.client import Acker
from tests.cli.support import PATIENT, Shell, run
from tests.conftest import MakeAcker
from tests.waiting import LIMIT, wait_until

COMMAND = [sys.executable, "-m", "acker_redis"]
HEAVY = ("redis", "pydantic", "pyspark", "pyarrow", "numpy", "pandas", "fastapi", "acker_flights")


def commands() -> list[list[str]]:
    """Return the words of each command."""
    group = typer.main.get_command(cli.app)
    found = []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [[name, each] for each in inner] if inner else [[name]]
    return found


def test_all_commands_are_registered() -> None:
    assert {" ".join(each) for each in commands()} == {
        "create",
        "namespaces",
        "config get",
        "config set",
        "groups",
        "history",
        "slo",
        "acl",
        "functions load",
        "scripts",
        "drop",
        "reshard",
        "status",
        "show",
        "find",
        "outcomes",
        "take",
        "explain",
        "track",
        "ack",
        "fail",
        "touch",
        "rotator",
        "rotate",
        "serve",
        "doctor",
        "tour",
        "bench",
        "demo",
        "simulate",
        "size",
    }


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_an_example_in_its_help_and_json(command: list[str]) -> None:
    ran = run(*command, "--help")
    assert ran.code == 0
    assert f"$ acker-redis {' '.join(command)}" in ran.out
    assert ("--json" in ran.out) == (command != ["tour"])  # which is for people only


def test_help_imports_no_heavy_module() -> None:
    """--help takes 0.2 s; with these imports it would take more than 1 s."""
    code = (
        "import sys\n"
        "from unittest import mock\n"
        "from acker_redis.__main__ import main\n"
        "with mock.patch.object(sys, 'argv', ['acker-redis', '--help']):\n"
        "    try: main()\n"
        "    except SystemExit as end: print('code', end.code)\n"
        f"print('loaded', [m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["code 0", "loaded []"]


def test_importing_the_client_imports_no_heavy_module() -> None:
    """A producer that needs only the client imports no Spark, Arrow or command line."""
    code = (
        "import sys, acker_redis.sync.client; "
        "print([m for m in ('pyspark', 'pyarrow', 'numpy', 'pandas', 'typer', 'rich', 'pydantic') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_exports_its_public_names() -> None:
    import acker_redis

    assert acker_redis.Acker is Acker
    for name in acker_redis.__all__:
        assert getattr(acker_redis, name)
    assert set(acker_redis.__all__) == set(dir(acker_redis))
    with pytest.raises(AttributeError, match="no attribute 'Unknown'"):
        acker_redis.Unknown  # noqa: B018


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["create", "x y"], "a namespace is 1 to 64"),
        (["create", "x", "--shards", "3"], "shards is a power of two"),
        (["create", "x", "--tick-ms", "0"], "tick_ms is a whole number from 1"),
        (["create", "x", "--buckets", "1"], "buckets is a whole number from 2"),
        (["create", "x", "--edge", "a,b"], "an edge is 1 to 64 characters"),
        (["create", "x", "--edge", "a", "--edge", "a"], "up to 8 different names, not a, a"),
        (["create", "x", *(f"--edge={n}" for n in range(9))], "up to 8 different names"),
        (["create", "x", "--refresh", "update"], "at least buckets * tick_ms = 90000, not 0"),
        (["create", "x", "--deadline-ms", "90000"], "deadline_ms is for refresh='update'"),
        (["status", "absent"], "not created"),
        (["drop", "absent", "--yes"], "absent does not exist"),
        (["config", "set", "absent", "high_water", "5"], "not created"),
        (["find", "absent", "--cursor", "x"], "invalid cursor"),
        (["track", "absent", "a source", "x"], "a source is 1 to 64"),
        (["acl", "viewer", "x y"], "a namespace is 1 to 64"),
        (["acl", "producer", "x", "--functions"], "a producer runs scripts that write"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_1(shell: Shell, args: list[str], words: str) -> None:
    ran = run(*args) if args[0] == "acl" else shell(*args)
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err
    assert ran.err.splitlines()[-1].startswith("acker-redis: ")
    if "not created" in words:  # a wrong name, or a wrong database
        assert "this database has " in ran.err


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://u:secret@h", "write redis://HOST:PORT/DB"),
        ("redis://u:secret@127.0.0.1:1/0?socket_timeout=0.2", "running and reachable"),
    ],
)
def test_no_error_shows_a_password(url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKER_REDIS_RETRY_FOR", "0")
    ran = run("status", "x", "--url", url)
    assert ran.code == 1
    assert words in ran.err
    assert "secret" not in ran.err


@pytest.mark.parametrize(
    "args", [["status"], ["show", "x", "4d"], ["rotator"], ["rotator", "a", "--all"], ["nothing"]]
)
def test_an_invalid_command_line_exits_with_code_2(args: list[str]) -> None:
    ran = run(*args)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err


def test_a_missing_dependency_is_named() -> None:
    code = "import sys; sys.modules['typer'] = None\nfrom acker_redis.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    said = "the command line needs typer: run pip install '.[cli]' in a checkout of acker-redis\n"
    assert done.stderr == said


def test_version() -> None:
    from importlib.metadata import version

    assert run("--version").out == f"{version('acker-redis')}\n"


@pytest.mark.parametrize("form", [["--json"], []], ids=["json", "text"])
def test_ctrl_c_ends_a_running_command(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, form: list[str]
) -> None:
    """In a pipe, each reading is printed at once; the text came at the end only."""
    acker = make_any_acker()
    watch = subprocess.Popen(
        [*COMMAND, "status", acker.namespace, "--watch", *form, "--sample", "0.05"],
        env={"ACKER_REDIS_URL": any_server.url, **PATIENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert watch.stdout
    for _ in range(2):
        while acker.namespace not in (line := watch.stdout.readline()):
            assert line, "it has ended"
    assert not form or json.loads(line)
    watch.send_signal(signal.SIGINT)
    _, err = watch.communicate(timeout=LIMIT)
    assert watch.returncode == 130
    assert "Traceback" not in err


def test_completion_names_the_namespaces(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acker_redis.cli.options import complete_namespace

    name = make_any_acker().namespace
    monkeypatch.setenv("ACKER_REDIS_URL", any_server.url)
    # Completion waits one second for Redis.
    wait_until(lambda: complete_namespace(name[:8]) == [name], "its name")
    assert complete_namespace("absent") == []
    monkeypatch.setenv("ACKER_REDIS_URL", "redis://127.0.0.1:1/0")
    assert complete_namespace("") == []
    monkeypatch.setenv("ACKER_REDIS_URL", "no URL")
    assert complete_namespace("") == []
