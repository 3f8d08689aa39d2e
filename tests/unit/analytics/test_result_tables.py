"""The tables that ``jobs.reconsume`` writes have the same columns and types in every run."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from failback.analytics.analysis.results import Analysis
from failback.analytics.report.document import build_report
from failback.analytics.report.results import result_tables
from tests.support.analytics.bad_input import clean
from tests.support.analytics.cases import c2
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import RunBuilder


def tables_of(builder: RunBuilder, folder: Path) -> tuple[Analysis, dict[str, pa.Table]]:
    analysis = analysed(builder.write(folder))
    document, _ = build_report(analysis, "local")
    return analysis, result_tables(analysis, document)


def test_a_run_without_repeats_has_the_columns_of_one_with_them(tmp_path: Path) -> None:
    _, empty = tables_of(clean(), tmp_path / "clean")
    _, full = tables_of(c2()[0], tmp_path / "c2")
    for name in ("rollback", "windows", "rto"):
        assert full[name].num_rows, name
        assert not empty[name].num_rows, name
    for name, table in full.items():
        assert empty[name].schema.equals(table.schema), name


def test_rows_are_those_of_the_report(tmp_path: Path) -> None:
    analysis, found = tables_of(c2()[0], tmp_path / "c2")
    document, _ = build_report(analysis, "local")
    (rollback,) = document["rollbacks"]
    (row,) = found["rollback"].to_pylist()
    assert json.loads(row.pop("explained_rows")) == rollback.pop("explained_rows")
    assert row == {"grp": rollback.pop("group"), **rollback}
    (fault,) = document["rto"]
    (row,) = found["rto"].to_pylist()
    assert set(row) == set(fault)
    assert json.loads(row["phases"]) == fault["phases"]
    windows = found["windows"].to_pylist()
    assert [(w["grp"], w["ptopic"], w["lo"], w["hi"], w["cause"]) for w in windows] == [
        ("g", "T", w.lo, w.hi, w.cause) for w in analysis.windows.kept
    ]
