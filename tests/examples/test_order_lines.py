"""The example of order lines: outside of the checkout, from an installed wheel, killed twice."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from acker_redis import Outcome
from tests import wheels
from tests.conftest import missing
from tests.examples.test_examples import EXAMPLES
from tests.waiting import LIMIT

pytest.importorskip("acker_flights.session")
import pandas as pd

from acker_flights import session

EXAMPLE = EXAMPLES / "order_lines"
LINES = 4_000


def module(name: str) -> ModuleType:
    """Return a module of the example."""
    spec = importlib.util.spec_from_file_location(f"order_lines_{name}", EXAMPLE / f"{name}.py")
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


generate, reconcile = module("generate"), module("reconcile")


def shape(text: str) -> list[str]:
    """Return the lines of an output without figures and names of products."""
    text = re.sub(r"(?:order|product)-\d+", "name", text)
    return [" ".join(re.sub(r"\d[\d,]*", "0", line).split()) for line in text.splitlines()]


def test_verdicts_and_table_agree_with_pandas_after_two_kills(tmp_path: Path) -> None:
    """A copy of the example runs with the installed wheel, and nothing of the checkout."""
    advice = session.missing_java()
    if advice:
        missing(advice)
    python = wheels.install(wheels.build(tmp_path / "wheel"), tmp_path / "environment")
    shutil.copytree(EXAMPLE, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    main, work = tmp_path / "copy" / "main.py", tmp_path / "work"
    options = ["--lines", str(LINES), "--work", str(work)]
    done = subprocess.run(
        [str(python), str(main), *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=wheels.environment() | {"TMPDIR": str(tmp_path)},
        timeout=1000,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((work / "result.json").read_text())
    assert result.pop("differences") == []
    assert Path(result.pop("package")).is_relative_to(tmp_path / "environment")
    lines = pd.concat(map(pd.read_csv, (work / "lines").glob("*.csv")))
    orders, replayed = lines.order_id.nunique(), result["nacked and replayed"]
    assert replayed > 0
    assert result.pop("calls repeated") > 0, "the first run of a killed batch had sent calls"
    assert result == {
        "order lines": LINES,
        "rows of the table": LINES,
        "orders": orders,
        "nacked and replayed": replayed,
        "trees tracked": orders + replayed,
        "trees acked": orders,
        "trees failed": replayed,
        "trees expired": 0,
    }
    readme = (EXAMPLE / "README.md").read_text()
    (output,) = re.findall(r"```text\n(.*?)```", readme.partition("python order_lines/")[2], re.S)
    assert sorted(shape(done.stdout)) == sorted(shape(output))
    for process in psutil.process_iter(["cmdline"]):  # without the command of a zombie
        if str(work) in " ".join(process.info["cmdline"] or []):
            process.wait(LIMIT)


@pytest.mark.parametrize("job", ["ingest", "price", "replay"])
def test_job_has_at_most_60_lines(job: str) -> None:
    assert len((EXAMPLE / f"{job}.py").read_text().splitlines()) <= 60


def test_generator_gives_the_same_files_for_a_seed(tmp_path: Path) -> None:
    texts = []
    for name, seed in ("one", 1), ("same", 1), ("other", 2):
        generate.generate(tmp_path / name, 500, seed)
        files = sorted((tmp_path / name).rglob("*.csv"))
        assert len(files) == generate.FILES + 2
        texts.append([file.read_text() for file in files])
    assert texts[0] == texts[1] != texts[2]


class Shop:
    """The files of a run without Spark: each line is in the queue, and priced in the table."""

    def __init__(self, work: Path) -> None:
        self.work = work
        generate.generate(work, 2_000, seed=1)
        self.lines = reconcile.order_lines(work)
        self.failed = sorted(self.lines[self.lines.cents.isna()].order_id.unique())
        assert self.failed
        self.outcomes = [
            Outcome("nack", "failed", 1, order, 1, "vanished in batch 0 of query price@q")
            if order in self.failed
            else Outcome("ack", "completed", 1, order, 1, "")
            for order in self.lines.order_id.unique()
        ]
        self.parquet("queue", self.lines[[*reconcile.KEY, "product"]])
        self.table(self.lines.dropna())

    def mend(self) -> None:
        """Go on to the end of the run: each order is acked, and the table has each line."""
        (self.work / "all-prices.csv").replace(self.work / "prices.csv")
        self.lines = reconcile.order_lines(self.work)
        self.table(self.lines)
        self.outcomes += [Outcome("ack", "completed", 1, order, 1, "") for order in self.failed]

    def table(self, lines: Any) -> None:
        """Write the table."""
        rows = lines.assign(cents=(lines.pieces * lines.cents).astype("int64"))
        with reconcile.sqlite3.connect(self.work / "shop.db") as database:
            rows.to_sql("priced", database, index=False, if_exists="replace")

    def parquet(self, name: str, rows: Any) -> None:
        """Write a queue of one batch."""
        folder = self.work / name / "batch-q-000000000000"
        folder.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(folder / "part-0.parquet")

    def first(self) -> list[str]:
        """Return the differences before the replay."""
        lost, differences = reconcile.before_the_replay(self.work, self.outcomes)
        return list(differences)

    def last(self) -> list[str]:
        """Return the differences at the end."""
        rows = [(each.source_id, each.verdict) for each in self.outcomes]
        self.parquet("verdicts", pd.DataFrame(rows, columns=["source_id", "verdict"]))
        return list(reconcile.at_the_end(self.work, self.failed))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_reconciliation_finds_nothing_in_a_right_run(shop: Shop) -> None:
    assert shop.first() == []
    shop.mend()
    assert shop.last() == []


def test_reconciliation_finds_each_wrong_verdict(shop: Shop) -> None:
    right = list(shop.outcomes)
    ack = next(place for place, each in enumerate(right) if each.verdict == "ack")
    nack = next(place for place, each in enumerate(right) if each.verdict == "nack")
    for place, name in ((ack, "each order has one verdict"), (nack, "the nacked orders are")):
        shop.outcomes = right[:place] + right[place + 1 :]
        assert any(each.startswith(name) for each in shop.first()), "a verdict is missing"
        shop.outcomes = [*right, right[place]]
        assert any(each.startswith(name) for each in shop.first()), "an order has two verdicts"
    shop.outcomes = [each if each.verdict == "ack" else right[ack] for each in right]
    assert "the lost lines are the unpriced lines" in shop.first()
    shop.outcomes = [*right[:nack], *right[nack + 1 :]]
    shop.outcomes.append(Outcome("nack", "expired", 1, right[nack].source_id, 1, "no ack"))
    assert shop.first() == ["each nack says that a line vanished"]
    shop.outcomes = right
    shop.mend()
    for place in ack, nack:
        shop.outcomes.append(right[place])
        assert shop.last(), "an order has one verdict too many"
        shop.outcomes.pop()
    shop.outcomes.pop()
    assert shop.last() == ["each order has one ack"]


def test_reconciliation_finds_each_wrong_row(shop: Shop) -> None:
    shop.table(shop.lines.dropna()[1:])
    assert "the table has the other lines" in shop.first()
    shop.mend()
    wrong = {
        "a line is missing": shop.lines[1:],
        "a line is there twice": pd.concat([shop.lines, shop.lines[:1]]),
        "a price is wrong": shop.lines.assign(cents=shop.lines.cents + (shop.lines.index == 7)),
    }
    for name, rows in wrong.items():
        shop.table(rows)
        assert shop.last() == ["the table has each line once", "the sums agree"], name
    shop.table(shop.lines)
    shop.parquet("given_up", pd.DataFrame({"source_id": shop.failed[:1]}))
    assert shop.last() == ["no order was given up"]
