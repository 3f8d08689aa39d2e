"""The ratios that README.md shows are those of the page that make bench-broker writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks.bench_broker import COMMAND
from tests.benchmarks.broker.table import SHORT, in_short
from tests.benchmarks.documents import Table, with_figures

ROOT = Path(__file__).parents[3]


def tables(text: str) -> list[Table]:
    """Read the tables of a page of figures back."""
    found = []
    for title, body in re.findall(r"^### (.+)\n\n((?:\|.*\n)+)", text, re.MULTILINE):
        rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in body.splitlines()]
        found.append(Table(title, rows[0], rows[2:]))
    return found


@pytest.mark.parametrize(
    "name", ["README.md", "README.zh-CN.md", "docs/explanation/performance.md"]
)
def test_the_ratios_are_those_of_the_last_whole_run(name: str) -> None:
    short = in_short(tables((ROOT / "docs/design/performance.md").read_text()))
    assert short.count("\n") == 2 + len(SHORT)
    page = (ROOT / name).read_text()
    if name == "README.zh-CN.md":
        ratios = re.findall(r"\| (\d+\.\d+) +\|", short)
        assert re.findall(r"\| (\d+\.\d+) \|", page) == ratios
    else:
        assert page == with_figures(page, COMMAND, short)
        assert "missed" not in page
