"""Write the files of the vectors from their declarations, or check that they are current.

python tests/vectors/make.py [--check]
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from tests.vectors.layout import render  # noqa: E402
from tests.vectors.topics import TOPICS  # noqa: E402


def texts() -> dict[Path, str]:
    """Return the text of each file."""
    return {HERE / f"{topic.name}.json": render(topic.json()) for topic in TOPICS}


def stale() -> list[str]:
    """Return the names of files that are missing, not as declared, or no longer declared."""
    made = texts()
    there = set(HERE.glob("*.json"))
    wrong = {path for path, text in made.items() if path not in there or read(path) != text}
    return sorted(path.name for path in wrong | (there - set(made)))


def read(path: Path) -> str:
    """Return the text of a file with its line ends unchanged."""
    return path.read_bytes().decode()


def main(check: bool) -> int:
    """Write the files, or only check them. Return 1 if ``check`` finds one that is not current."""
    wrong = stale()
    if check:
        for name in wrong:
            print(f"{name} is not current; run python tests/vectors/make.py")
        return int(bool(wrong))
    made = texts()
    for path in HERE.glob("*.json"):
        if path not in made:
            path.unlink()
    for path, text in made.items():
        path.write_bytes(text.encode())
    print(f"{len(made)} files, {len(wrong)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
