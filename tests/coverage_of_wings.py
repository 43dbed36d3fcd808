"""Print the coverage of the package by the last test run, a line for each wing.

``make test`` and ``make test-all`` run it. Code in other processes (commands, workers of Spark,
the demo) is not counted.
"""

import sys
from collections import defaultdict
from pathlib import Path

import coverage
from coverage.exceptions import NoDataError

ROOT = Path(__file__).resolve().parents[1]
WINGS = ("acker_redis", "api/acker_api")


def main() -> int:
    """Print the table; return 1 if no coverage was measured."""
    found = coverage.Coverage(data_file=str(ROOT / ".coverage"))
    try:
        found.load()
        measured = found.get_data().measured_files()
    except NoDataError:
        measured = set()
    wings: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name in sorted(measured):
        wing = wing_of(Path(name))
        if wing is None or not Path(name).exists():
            continue
        _, statements, _, missing, _ = found.analysis2(name)
        wings[wing][0] += len(statements)
        wings[wing][1] += len(statements) - len(missing)
    if not wings:
        print("no coverage was measured", file=sys.stderr)
        return 1
    print("\ncoverage of the package, by wing")
    for wing, (statements, hit) in sorted(wings.items()):
        print(f"{wing:32} {hit:6} of {statements:6} statements {100 * hit / statements:6.1f} %")
    statements, hit = map(sum, zip(*wings.values(), strict=True))
    print(f"{'in all':32} {hit:6} of {statements:6} statements {100 * hit / statements:6.1f} %")
    return 0


def wing_of(file: Path) -> str | None:
    """Return the folder of the package that a file is in, two levels deep; None for others."""
    try:
        place = file.resolve().relative_to(ROOT)
    except ValueError:
        return None
    top = next((wing for wing in WINGS if place.is_relative_to(wing)), None)
    if top is None:
        return None
    inside = place.relative_to(top).parts
    return f"{top}/{inside[0]}" if len(inside) > 1 else top


if __name__ == "__main__":
    sys.exit(main())
