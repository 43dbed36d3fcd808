"""Copy the scripts that a client calls into each client, as ``<client>/lua/<script>.lua``.

python clients/sync_lua.py           # for all clients, as make clients does
python clients/sync_lua.py ruby php  # only for these clients

It needs only Python 3.11 or later. No copy is committed.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from acker_redis.protocol import scripts  # noqa: E402 (found by the line above)

SCRIPTS = ("apply", "apply_blocks", "status", "take")
"""Scripts of every producer and source; rotators and administrators call the others."""


def clients(here: Path = HERE) -> list[str]:
    """Return the names of all clients: folders with a ``client.json``."""
    return sorted(path.parent.name for path in here.glob("*/client.json"))


def scripts_of(client: str, here: Path = HERE) -> tuple[str, ...]:
    """Return the scripts that a client calls: one that tracks blocks also calls ``show``."""
    can = json.loads((here / client / "client.json").read_bytes()).get("can", ())
    return (*SCRIPTS, "show") if "blocks" in can else SCRIPTS


def stale(names: list[str], here: Path = HERE) -> list[str]:
    """Return the outdated, missing and superfluous script files, as paths below ``here``."""
    found = []
    for client in names:
        wanted = {f"{name}.lua": scripts.load(name).source for name in scripts_of(client, here)}
        there = {path.name for path in (here / client / "lua").glob("*")}
        for name in sorted(there | set(wanted)):
            path = here / client / "lua" / name
            if name not in wanted or not path.exists() or path.read_bytes() != wanted[name]:
                found.append(path.relative_to(here).as_posix())
    return found


def sync(names: list[str], here: Path = HERE) -> None:
    """Write outdated and missing script files, and remove superfluous ones."""
    for name in stale(names, here):
        path = here / name
        if path.stem in scripts_of(path.parts[-3], here):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(scripts.load(path.stem).source)
        else:
            path.unlink()


def main(words: list[str]) -> int:
    """Return the exit code: 2 for an unknown client."""
    if unknown := set(words) - set(clients()):
        print(f"no such client: {', '.join(sorted(unknown))}; there are {', '.join(clients())}")
        return 2
    sync(words or clients())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
