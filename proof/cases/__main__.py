"""Write, check or print the cases.

python -m proof.cases --accept     fill in each case, write it on one line, print what changes
python -m proof.cases --check      print the cases that are not current
python -m proof.cases WORD ...     print the cases with a word in "topic: name", in full
"""

import json
import sys

from proof.cases import lines
from proof.cases.accept import accepted, stale
from proof.cases.judge import Disagreement


def main(words: list[str]) -> int:
    """Run the command.

    Return 1 if ``--check`` finds a line that is not current, or if the oracle does not allow a
    result of the reference. Then nothing is written.
    """
    try:
        return _main(words)
    except Disagreement as refused:
        print(refused, *refused.__notes__, sep="\n", file=sys.stderr)
        return 1


def _main(words: list[str]) -> int:
    if words == ["--accept"]:
        files = accepted()
        print(*stale(files), sep="\n")
        for name, (_, wanted) in files.items():
            (lines.HERE / name).write_bytes(wanted.encode())
        return 0
    if words == ["--check"]:
        wrong = stale(accepted())
        for name in wrong:
            print(f"{name} is not current; run python -m proof.cases --accept")
        return int(bool(wrong))
    found = [case for name, case in lines.load().items() if any(word in name for word in words)]
    if not found or any(word.startswith("-") for word in words):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
