"""Virtual environments with other versions of PySpark, made once below ``.venv``.

A first use downloads 300 MB or more. Without a way to a package index the tests skip, or fail on
CI.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import missing

FOLDER = Path(sys.prefix) / "pyspark"
# pytest: the programs of the fault tests stand beside their tests.
_COMMON = ("redis[hiredis]", "sortedcontainers", "psutil", "setuptools<81", "pytest")
PACKAGES = {
    # numpy, pandas and pyarrow are those of Databricks Runtime 15.4, which has Python 3.11.
    "3.5": (
        "pyspark==3.5.*",
        "numpy==1.23.5; python_version < '3.12'",
        "pandas==1.5.3; python_version < '3.12'",
        "pyarrow==14.0.1; python_version < '3.12'",
        "numpy<2; python_version >= '3.12'",
        "pandas<3; python_version >= '3.12'",
        "pyarrow<20; python_version >= '3.12'",
    ),
    "4.0": ("pyspark==4.0.*", "numpy<2.3", "pandas<2.3", "pyarrow<20"),
    "4.1": ("pyspark==4.1.*", "numpy<2.4", "pandas<3", "pyarrow<22"),
    "4.2": ("pyspark==4.2.*", "numpy", "pandas<3", "pyarrow"),
}
"""The packages of each version; the version of ``.venv`` is the newest."""


def python_of(version: str) -> str:
    """Return the interpreter of the environment with this version of PySpark; make it if needed."""
    folder = FOLDER / version
    wanted = "\n".join((*PACKAGES[version], *_COMMON))
    FOLDER.mkdir(exist_ok=True)
    # Another test process may need the same environment.
    with (FOLDER / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "packages"
        if not done.exists() or done.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, wanted.splitlines())
            done.write_text(wanted)
    return str(folder / "bin" / "python")


def _make(folder: Path, packages: list[str]) -> None:
    _run(sys.executable, "-m", "venv", str(folder))
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--retries=2")
    _run(*pip, "--disable-pip-version-check", *packages)


def _run(*command: str) -> None:
    # pip must not take an option of the tests' own environment for its own.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        missing(f"an environment with other packages ({' '.join(command)}): {done.stderr[-2000:]}")
