"""Run luacheck on the complete scripts, as Redis gets them, and print places in the files.

python -m tests.project.luacheck

A part uses names that the script around it defines. A finding in a part is printed only once.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from acker_redis.protocol import scripts

ROOT = Path(__file__).resolve().parents[2]
IMITATION = ROOT / "tests" / "fake" / "lua"
COMMAND = ("luacheck", "--config", str(ROOT / ".luacheckrc"), "--formatter", "plain", "--codes")


def findings() -> list[str]:
    """Return the findings of luacheck, a line each: ``lua/<file>:<line>:<column>: <words>``."""
    with tempfile.TemporaryDirectory() as folder:
        written = scripts.write(Path(folder))
        said = _luacheck(*map(str, written))
    found = []
    for line in said:
        place = re.match(r"(?:.*/)?(\w+)\.lua:(\d+):(\d+): (.*)", line)
        if not place:
            found.append(line)
            continue
        file, number = scripts.load(place[1]).places[int(place[2]) - 1]
        found.append(f"lua/{file}:{number}:{place[3]}: {place[4]}")
    return list(dict.fromkeys(found)) + _luacheck(str(IMITATION))


def _luacheck(*files: str) -> list[str]:
    done = subprocess.run(
        [*COMMAND, *files], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    return (done.stdout + done.stderr).splitlines()


if __name__ == "__main__":
    found = findings()
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))
