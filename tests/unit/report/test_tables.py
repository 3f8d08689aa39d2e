"""Tables behind figures, as CSV and Parquet: typed, complete, and those that the page shows."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from failback.analytics.report.measures import loss
from failback.analytics.report.page.html import page_tables, report_figures
from failback.analytics.report.page.tables import costs, redeliveries, run_card
from failback.analytics.report.page.tables.over_time import file_tables
from failback.analytics.report.page.tables.registry import (
    Table,
    alike,
    csv_bytes,
    markdown,
    show,
    to_arrow,
)
from failback.analytics.report.page.words import FATES, TERMS, mechanism
from failback.analytics.report.schema import check_report
from failback.common.text import csv_cell
from tests.support.analytics.sample_report import compared_report, sample_points, sample_report

TWINS = {
    "timeline": "rates",
    "staircase": "offsets",
    "causes-time": "duplicates_by_second",
    "heatmap": "duplicates_by_queue",
    "intervals": "windows",
    "prediction": "prediction",
    "exposure": "exposure_by_second",
    "dedupe-seconds": "dedupe_by_seconds",
    "dedupe-keys": "dedupe_by_keys",
    "repeat-age": "repeat_age",
    "compare": "compare_runs",
}


def test_the_sample_is_a_report() -> None:
    check_report(sample_report())
    check_report(compared_report())


def test_every_figure_has_a_table_with_rows() -> None:
    report, points = compared_report(), sample_points()
    tables = file_tables(report, points)
    drawn = {name.rstrip("-0123456789") for name in report_figures(report, points)}
    assert drawn == set(TWINS)
    assert not [name for name in TWINS.values() if not tables[name].rows]


@pytest.mark.parametrize("name", sorted(file_tables(sample_report(), [])))
def test_types_do_not_depend_on_the_run(name: str) -> None:
    full = to_arrow(file_tables(compared_report(), sample_points())[name])
    empty = sample_report()
    for part in ("faults", "groups", "queues", "rollbacks", "rto", "bounds", "offset_drops",
                 "prediction", "knobs", "checks"):  # fmt: skip
        empty[part] = []
    empty |= {"exposure": {}, "loss": {"fates": None, "groups": None}}
    empty["clock"] = {**empty["clock"], "hosts": []}
    nothing = to_arrow(file_tables(empty, [])[name])
    assert nothing.schema == full.schema
    assert nothing.num_rows == 0
    assert pa.null() not in full.schema.types


@pytest.mark.parametrize("name", sorted(file_tables(sample_report(), [])))
def test_csv_says_what_parquet_says(name: str) -> None:
    table = file_tables(compared_report(), sample_points())[name]
    rows = list(csv.DictReader(io.StringIO(csv_bytes(table).decode())))
    wanted = [
        {key: "" if cell is None else str(csv_cell(cell)) for key, cell in row.items()}
        for row in to_arrow(table).to_pylist()
    ]
    assert rows == wanted


def test_hostile_cells_survive_csv() -> None:
    rows: list[dict[str, object]] = [{"name": 'a,"b"\n<script>', "n": 1}, {"name": None, "n": None}]
    table = Table("t", alike("name n:i"), rows)
    found = list(csv.reader(io.StringIO(csv_bytes(table).decode())))
    assert found == [["name", "n"], ['a,"b"\n<script>', "1"], ["", ""]]
    assert table.headings == ["name", "n"]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("@SUM(1)", "'@SUM(1)"),
        ("-cmd", "'-cmd"),
        ("\tx", "'\tx"),
        ("-12.5e3", "-12.5e3"),
        ("a=b", "a=b"),
    ],
)
def test_no_cell_of_a_client_is_a_formula(cell: str, shown: str) -> None:
    table = Table("t", alike("name"), [{"name": cell}])
    assert list(csv.reader(io.StringIO(csv_bytes(table).decode())))[1] == [shown]


def test_columns_of_the_files_are_those_that_were_promised() -> None:
    """Notebooks read them by name; a change is one of the changelog."""
    tables = file_tables(compared_report(), sample_points())
    found = {
        name: {field.name: str(field.type) for field in to_arrow(table).schema}
        for name, table in tables.items()
    }
    golden = Path(__file__).parents[2] / "data" / "analytics" / "report-tables.json"
    assert found == json.loads(golden.read_text())


def test_the_ratio_can_be_computed_from_the_columns_beside_it() -> None:
    table = page_tables(sample_report(), [])["groups"]
    (row,) = (dict(zip(table.headings, cells, strict=True)) for cells in table.values())
    assert row["duplicates"] / row["distinct messages"] == row["ratio = duplicates/distinct"]  # type: ignore[operator]
    (shown,) = table.cells()
    assert dict(zip(table.headings, shown, strict=True))["ratio = duplicates/distinct"] == "4.0 %"


def test_every_cell_of_the_page_is_text_and_every_term_is_explained() -> None:
    for name, table in page_tables(compared_report(), sample_points()).items():
        width = len(table.shown)
        assert all(len(row) == width for row in table.cells()), name
        assert all(isinstance(cell, str) for row in table.cells() for cell in row), name
        assert {column.term for column in table.columns} - {""} <= set(TERMS), name
        assert [at for at in table.numeric if at >= width] == []


def test_offsets_that_went_down_are_told_in_words_and_kept_in_files_as_they_were() -> None:
    report = sample_report()
    (drop,) = report["offset_drops"]
    report["offset_drops"] = [drop | {"source": each} for each in ("code43", "file", "bak")]
    table = redeliveries.offset_drops(report)
    cells = [dict(zip(table.headings, row, strict=True)) for row in table.cells()]
    assert [each["where"] for each in cells] == ["memory", "file", "backup file"]
    assert {each["what happened"] for each in cells} == {drop["label"].lower()}
    assert to_arrow(table).column("source").to_pylist() == ["code43", "file", "bak"]


def test_pages_that_terms_name_are_there() -> None:
    root = Path(__file__).parents[3]
    assert [term.page for term in TERMS.values() if not (root / term.page).exists()] == []


def test_words_for_names() -> None:
    assert mechanism("rows 1+2+3+6") == "failure modes 1, 2, 3 and 6"
    assert mechanism("rows 8") == "failure mode 8"
    assert mechanism("nobody took a queue again") == "nobody took a queue again"
    assert set(loss.FATES) == set(FATES)


def test_a_table_is_printed_as_markdown() -> None:
    table = Table("t", alike("name n:i"), [{"name": "a", "n": 2400}])
    said = ["| name | n |", "| --- | --- |", "| a | 2,400 |"]
    assert markdown(table, 10, str) == said


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (True, "yes"), (12345, "12,345"), (1.25, "1.2"), (float("nan"), "–"), ("x", "x")],
)
def test_cells(value: object, text: str) -> None:
    assert show(value) == text


def test_figures_of_a_large_run_have_their_error_beside_them() -> None:
    report = sample_report()
    exact = [column.heading for column in costs.harm(report).columns]
    assert ("offsets that named two messages", "7") not in run_card.resumes(report).cells()
    for group in report["groups"]:
        group["repeat_age_seconds"]["error"] = 0.008
    report["divergence"] |= {"conflicts": 7, "conflicts_error": 12}
    check_report(report)
    table = costs.harm(report)
    assert [column.heading for column in table.columns] == [*exact, "ages may be too small by"]
    assert {row[-1] for row in table.cells()} == {"0.8 %"}
    assert ("offsets that named two messages", "7 ± 12") in run_card.resumes(report).cells()
