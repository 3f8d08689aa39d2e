"""What the benchmark of the analytics prints and writes into its document."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.benchmarks import bench_analytics
from tests.benchmarks.bench_analytics import Measured, order, parts
from tests.benchmarks.documents import END, begin, with_figures
from tests.benchmarks.targets import at_least, at_most

pytestmark = pytest.mark.unit

BEGIN = begin(bench_analytics.COMMAND)
CPU = {
    "half": {"local-read": 2.0, "local-causes": 7.0},
    "whole": {"duckdb": 40.0, "local-counts": 1234.5},
}


def found(*wrong: str) -> Measured:
    bars = [("local-causes / local-read", 3.5, at_most(3)), ("rows", 1.5, at_least(1.0))]
    return Measured(bars, CPU, list(wrong))


def run(monkeypatch: pytest.MonkeyPatch, measured: Measured, *argv: str) -> int:
    monkeypatch.setattr("sys.argv", ["bench", "--without-spark", *argv])
    monkeypatch.setattr(bench_analytics, "measure", lambda options, with_spark: measured)
    return bench_analytics.main()


def test_figures_are_a_table_of_verdicts_and_one_of_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        bench_analytics, "machine", lambda: {"machine": "2 cores", "python": "3.11"}
    )
    options = argparse.Namespace(rows=1_000_000, rounds=2)
    head, _, tables = bench_analytics.as_markdown(options, found(), 7.4).partition("\n\n")
    assert head.startswith("2 cores, python 3.11. Measured 20")
    assert head.endswith(" in 7 minutes, the least of 2 rounds, of 8 of our counts and segments.")
    assert tables.splitlines() == [
        "### 1,000,000 deliveries",
        "",
        "| what                      | figure (target)   |",
        "|---------------------------|-------------------|",
        "| local-causes / local-read | 3.50 missed (≤ 3) |",
        "| rows                      | 1.50 met (≥ 1)    |",
        "",
        "### CPU seconds",
        "",
        "| engine       | half | whole    |",
        "|--------------|------|----------|",
        "| duckdb       |      | 40.00    |",
        "| local-counts |      | 1,234.50 |",
        "| local-read   | 2.00 |          |",
        "| local-causes | 7.00 |          |",
    ]


@pytest.mark.parametrize("wrong", [(), ("whole: duckdb",)])
def test_a_document_gets_the_figures_only_if_every_answer_was_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: tuple[str, ...]
) -> None:
    document = tmp_path / "engines.md"
    document.write_text(f"Before.\n{BEGIN}\nold\n{END}\nAfter.\n")
    code = run(monkeypatch, found(*wrong), "--markdown", str(document))
    text = document.read_text()
    assert code == len(wrong)
    assert text.startswith("Before.\n")
    assert text.endswith("\nAfter.\n")
    assert ("old" in text) == bool(wrong)
    assert ("3.50 missed" in text) != bool(wrong)


def test_a_missed_target_fails_a_strict_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, found()) == 0
    assert run(monkeypatch, found(), "--strict") == 1


def test_a_document_without_a_place_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    document = tmp_path / "engines.md"
    document.write_text(f"{begin('make bench-broker')}\n{END}\n")
    monkeypatch.setattr("sys.argv", ["bench", "--markdown", str(document)])
    monkeypatch.setattr(bench_analytics, "measure", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(ValueError, match="make bench-analytics"):
        bench_analytics.main()


def test_the_published_document_has_a_place_for_figures() -> None:
    page = Path(__file__).parents[3] / "docs" / "analytics-engines.md"
    assert "new" in with_figures(page.read_text(), bench_analytics.COMMAND, "new")


def test_laps_that_are_compared_take_turns(tmp_path: Path) -> None:
    explaining, counting = parts(1_000_000, ["duckdb", "local-counts", "local-read"])
    assert [(run.name, run.racing) for run in explaining] == [("half", ["local-read"])]
    laps = [(entry.folder.name, entry.engine) for entry in order(counting, tmp_path, 2)]
    assert laps.count(("whole", "duckdb")) == 2
    short = [name for name, engine in laps if engine == "local-counts"]
    assert short == ["whole", "tenth", "one queue", "many queues", "hot queue"] * 8
