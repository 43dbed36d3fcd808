"""Print the table of the stored result, as ``benchmarks/README.md`` has it."""

import json
from pathlib import Path

from report import Result, heading, table

if __name__ == "__main__":
    found = Result.of_json(json.loads(Path(__file__).with_name("result.json").read_text()))
    print(heading(found), table(found), sep="\n\n")
