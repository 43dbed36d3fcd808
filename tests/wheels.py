"""The wheel of this checkout, and an environment where it is installed."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(folder: Path) -> Path:
    """Build the wheel in a folder, and return its path."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def install(wheel: Path, folder: Path) -> Path:
    """Return the Python of a new environment with the wheel, and all packages of this one.

    The packages of this environment come later on its path. Their ``.pth`` files do not count, so
    the checkout is not on the path.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    target = ["--no-index", "--no-deps", "--target", str(site), str(wheel)]
    done = subprocess.run([*pip, *target], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    paths = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (site / "others.pth").write_text("".join(f"{path}\n" for path in sorted(paths)))
    return folder / "bin" / "python"


def environment() -> dict[str, str]:
    """Return the variables for a program of such an environment."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
