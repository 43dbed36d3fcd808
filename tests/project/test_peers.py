"""The report of `make bench-peers`: its table and its chart say what the stored result says."""

from dataclasses import replace

from benchmarks.peers.report import Loss, Result, Row, number, table
from tests.project.drawings import peers
from tests.project.drawings.peers import FOLDER, ROOT, stored

ROWS = (
    Row("queue", "executes", 870.4, 4963.6, 41, 130, {"dropped": Loss("nothing", "", 90)}),
    Row("acker-redis, rows", "", 25_000, 171, 0.012, 0.23, {"dropped": Loss("name", "a", 3.2)}),
    Row("absent", "", skipped="node not on PATH"),
)
RESULT = Result("2026-01-02", "Redis 7.0.15", 2, 90, False, 0.1, ROWS)


def test_result_survives_json() -> None:
    assert Result.of_json(RESULT.to_json()) == RESULT


def test_table_has_a_row_for_each_peer_with_its_figures() -> None:
    lines = table(RESULT).splitlines()
    assert lines[2] == "| queue | 870 | 4,964 | 41 | 130 | - | nothing in 90 s | executes |"
    assert "name after 3 s" in lines[3]
    assert lines[4].endswith("| skipped: node not on PATH |")
    assert {line.count("|") for line in lines} == {9}


def test_small_figures_keep_two_digits() -> None:
    assert [number(each) for each in (0.0123, 9.87, 10, 1234.5)] == ["0.012", "9.9", "10", "1,234"]


def test_chart_has_the_figures_and_no_skipped_peer() -> None:
    drawn = peers.chart(RESULT)
    for words in ("870", "4,964", "nothing in 90 s", "25,000", "name after 3 s", "2026-01-02"):
        assert words in drawn
    assert "absent" not in drawn


def test_bars_grow_with_the_rate_and_end_at_the_scale() -> None:
    widths = [peers.length(each) for each in (0, 10, 1000, 1e6, 1e9)]
    assert widths == sorted(widths)
    assert widths[-1] == widths[-2] == peers.WIDTH


def test_small_runs_say_so() -> None:
    assert "small run" in peers.chart(replace(RESULT, small=True))


def test_page_has_the_table_of_the_stored_result() -> None:
    """If it fails: copy the output of ``python benchmarks/peers/table.py`` to the page."""
    assert table(stored()) in (ROOT / "benchmarks/results.md").read_text()


def test_pinned_versions_name_no_registry() -> None:
    locks = ("constraints.txt", "requirements.txt", "bullmq/package-lock.json")
    for text in ((FOLDER / each).read_text() for each in locks):
        assert "://" not in text.replace("https://opencollective.com", "")
        assert "resolved" not in text
