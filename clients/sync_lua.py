"""The scripts that a client calls, copied into each client, byte for byte.

python clients/sync_lua.py           # copy them
python clients/sync_lua.py --check   # are they the same?
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "lua"
SCRIPTS = ("apply", "apply_blocks", "show", "status", "take")
"""What producers and sources call; the rest is for rotators and administrators."""


def stale(here: Path = HERE) -> list[str]:
    """Files that are not what they should be, or should not be there; paths below ``here``."""
    wanted = {f"{name}.lua": (SOURCE / f"{name}.lua").read_bytes() for name in SCRIPTS}
    found = []
    for client in sorted(path.parent for path in here.glob("*/client.json")):
        names = {path.name for path in (client / "lua").glob("*")} | set(wanted)
        for name in sorted(names):
            path = client / "lua" / name
            if name not in wanted or not path.exists() or path.read_bytes() != wanted[name]:
                found.append(path.relative_to(here).as_posix())
    return found


def main(check: bool) -> int:
    """Copy what is stale, or say what is; 1 if something was to be said."""
    for name in (found := stale()):
        path = HERE / name
        if check:
            print(f"{name} is not the script of lua/; run python clients/sync_lua.py")
        elif path.stem in SCRIPTS:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes((SOURCE / path.name).read_bytes())
        else:
            path.unlink()
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
