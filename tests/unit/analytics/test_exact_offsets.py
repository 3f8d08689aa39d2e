"""Offsets above 2^53, which a double rounds, are exact in every file of a report."""

from __future__ import annotations

import csv

import pyarrow.parquet as pq
import pytest

from failback.analytics.exporter.report_figures import ReportFigures
from failback.analytics.report import make_report
from failback.analytics.report.make_report import ReportPaths, read_report, report
from failback.analytics.report.measures.point_rows import points_of
from tests.support.analytics.run_builder import RunBuilder

FAR = (1 << 62) + 7


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> ReportPaths:
    """One message again under a second owner, in a queue that begins at ``FAR``."""
    b = RunBuilder("far")
    b.queue_sample(2, FAR + 3)
    b.sample(5, FAR)
    b.assign(10, FAR, end=(900, "SHUTDOWN"), src_addr="127.0.0.1:10911")
    b.deliver(FAR, 20, 30, lid=1, phy=1)
    b.deliver(FAR + 1, 40, 50, lid=2, phy=2)
    b.commit(60, FAR + 2)
    b.sample(800, FAR + 2)
    b.sample(950, FAR + 1)
    b.assign(1000, FAR + 1, proc=2, src_addr="127.0.0.1:10911")
    b.deliver(FAR + 1, 1010, 1020, lid=2, proc=2, phy=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_report, "_html_can_be_made", lambda: False)
        return report(b.write(tmp_path_factory.mktemp("far") / "run"), "local")


def cells(paths: ReportPaths, table: str, column: str) -> set[str]:
    with (paths.folder / "tables" / f"{table}.csv").open(newline="") as file:
        return {row[column] for row in csv.DictReader(file)}


def test_the_table_of_offsets_over_time_has_every_digit(paths: ReportPaths) -> None:
    found = cells(paths, "offsets", "offset")
    assert {str(FAR), str(FAR + 1), str(FAR + 2)} <= found
    typed = pq.read_table(paths.folder / "tables" / "offsets.parquet").column("offset")
    assert {str(each) for each in typed.to_pylist()} == found


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("windows", "lo", FAR + 1),
        ("windows", "hi", FAR + 2),
        ("rollbacks", "start", FAR + 1),
        ("rollbacks", "committed", FAR + 2),
        ("offset_drops", "from", FAR + 2),
        ("offset_drops", "to", FAR + 1),
        ("queues", "safe_offset", FAR + 2),
    ],
)
def test_so_have_the_other_tables(paths: ReportPaths, table: str, column: str, value: int) -> None:
    assert cells(paths, table, column) == {str(value)}


def test_the_points_of_plots_can_be_read_exactly(paths: ReportPaths) -> None:
    points = points_of(pq.read_table(paths.points))
    steps = [point.value for point in points if point.kind == "master_table"]
    assert steps == [FAR, FAR + 2, FAR + 1]


def test_the_document_is_read_as_it_was_written(paths: ReportPaths) -> None:
    document = read_report(paths.json)
    (drop,) = document["offset_drops"]
    assert (drop["from"], drop["to"]) == (FAR + 2, FAR + 1)
    assert str(FAR + 1) in paths.json.read_text()
    ReportFigures().add(document)
