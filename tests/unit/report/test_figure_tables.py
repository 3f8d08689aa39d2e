"""Tables behind figures, as CSV and Parquet: typed, complete, and those that the page shows."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest

from failback.analytics.report.page.figure_tables import Table, csv_bytes, figure_tables
from failback.analytics.report.page.report_figures import report_figures
from failback.analytics.report.schema import check_report
from tests.support.analytics.sample_report import compared_report, sample_points, sample_report

TWINS = {
    "timeline": "rates",
    "staircase": "offsets",
    "causes": "causes",
    "causes-time": "duplicates_by_second",
    "heatmap": "duplicates_by_queue",
    "intervals": "windows",
    "rto": "phases",
    "bounds": "bounds",
    "prediction": "prediction",
    "exposure": "exposure_by_second",
    "dedupe": "dedupe_by_keys",
    "repeat-age": "repeat_age",
    "wasted": "groups",
    "redelivery": "redelivery_counts",
    "loss": "loss",
    "knobs": "knobs",
    "compare": "compare_runs",
    "clock": "clock",
}


def test_the_sample_is_a_report() -> None:
    check_report(sample_report())
    check_report(compared_report())


def test_every_figure_has_a_table_with_rows() -> None:
    report, points = compared_report(), sample_points()
    tables = figure_tables(report, points)
    drawn = {name.rstrip("-0123456789") for name in report_figures(report, points)}
    assert drawn == set(TWINS)
    assert not [name for name in TWINS.values() if not tables[name].rows]


@pytest.mark.parametrize("name", sorted(figure_tables(sample_report(), [])))
def test_types_do_not_depend_on_the_run(name: str) -> None:
    full = figure_tables(compared_report(), sample_points())[name].to_arrow()
    empty = sample_report()
    for part in ("faults", "groups", "queues", "rollbacks", "rto", "bounds", "offset_drops",
                 "prediction", "knobs", "checks"):  # fmt: skip
        empty[part] = []
    empty |= {"exposure": {}, "loss": {"fates": None, "groups": None}}
    empty["clock"] = {**empty["clock"], "hosts": []}
    nothing = figure_tables(empty, [])[name].to_arrow()
    assert nothing.schema == full.schema
    assert nothing.num_rows == 0
    assert pa.null() not in full.schema.types


@pytest.mark.parametrize("name", sorted(figure_tables(sample_report(), [])))
def test_csv_says_what_parquet_says(name: str) -> None:
    table = figure_tables(compared_report(), sample_points())[name]
    rows = list(csv.DictReader(io.StringIO(csv_bytes(table).decode())))
    wanted = [
        {key: "" if cell is None else str(cell) for key, cell in row.items()}
        for row in table.to_arrow().to_pylist()
    ]
    assert rows == wanted


def test_hostile_cells_survive_csv() -> None:
    table = Table(("name:s", "n:i"), (('a,"b"\n<script>', 1), (None, None)))
    rows = list(csv.reader(io.StringIO(csv_bytes(table).decode())))
    assert rows == [["name", "n"], ['a,"b"\n<script>', "1"], ["", ""]]
    assert table.headings == ["name", "n"]
