"""Run the notebook of the examples, and write it with its outputs.

python -m tests.examples.notebook
"""

import os
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat

FILE = Path(__file__).resolve().parents[2] / "examples" / "spark_jobs" / "lost_row.ipynb"


def run(folder: Path | None = None) -> str:
    """Return the notebook with the outputs of a new run, and without anything of this machine.

    ``folder`` is where the run keeps its temporary files.
    """
    book: Any = nbformat.read(FILE, as_version=4)
    path = os.pathsep.join(filter(None, [str(FILE.parents[2]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    if folder:
        environment["TMPDIR"] = str(folder)
    client = nbclient.NotebookClient(book, timeout=900, kernel_name="python3")
    client.execute(env=environment, cwd=str(folder or FILE.parent))
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(book.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    text: str = nbformat.writes(book, indent=1)
    return text.rstrip("\n") + "\n"


if __name__ == "__main__":
    FILE.write_text(run())
    sys.stdout.write(f"{FILE.name}\n")
