"""Write the runbook of the dashboard: ``python -m tests.docs.runbook_script``.

The dashboard shows the findings of ``docs/reference/doctor.md`` to an operator who has the service
at hand, and perhaps no documentation.
"""

import json
import re

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "reference" / "doctor.md"
SCRIPT = ROOT / "api" / "acker_api" / "dashboard" / "js" / "data" / "runbook.js"
HEAD = """\
/**
 * The findings of the doctor: what each means, and what to do. Text between backticks is code.
 * Written by `python -m tests.docs.runbook_script` from docs/reference/doctor.md.
 *
 * @type {{id: string, effect: string, fix: string}[]}
 */
export const RUNBOOK = [
"""


def script() -> str:
    """Return the script as the documentation has it."""
    table = PAGE.read_text().partition("\n## Findings\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    lines = []
    for name, effect, fix in rows:
        # A link leads to a page of the documentation; here its text is enough.
        texts = (re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text) for text in (name, effect, fix))
        id_, effect, fix = (json.dumps(text.strip(), ensure_ascii=False) for text in texts)
        lines.append(f"  {{ id: {id_.replace('`', '')}, effect: {effect},\n    fix: {fix} }},\n")
    return HEAD + "".join(lines) + "];\n"


if __name__ == "__main__":
    SCRIPT.write_text(script())
