"""The 21 hand-made cases, on the local engine and on the reference SQL."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest

from failback.analytics.report.checks import value_at
from failback.analytics.report.make_report import build_report, check_report
from tests.support.analytics.cases import CASES, Expected
from tests.support.analytics.oracle import Oracle
from tests.support.analytics.oracle_check import assert_agrees
from tests.support.analytics.run_analysis import analysed
from tests.unit.analytics.reference_sql import reference, rows_of


def by_cause(rows: list[dict[str, object]]) -> dict[object, int]:
    return dict(Counter(row["cause"] for row in rows if row["cls"] == "DUP"))


def offsets(rows: list[dict[str, object]], cause: str) -> list[object]:
    return sorted(row["qoff"] for row in rows if row["cause"] == cause)  # type: ignore[type-var]


@pytest.mark.few(8)
@pytest.mark.parametrize("name", CASES)
def test_local_engine(name: str, tmp_path: Path) -> None:
    builder, expected = CASES[name]()
    analysis = analysed(builder.write(tmp_path / name))
    rows = analysis.rows.to_pylist()
    assert by_cause(rows) == expected.causes
    assert sum(row["cls"] == "RETRY" for row in rows) == expected.retry
    for cause, wanted in expected.offsets.items():
        assert offsets(rows, cause) == wanted
    if expected.after_success is not None:
        dups = [row for row in rows if row["cls"] == "DUP"]
        assert sum(row["after_success"] for row in dups) == expected.after_success
    last = len(analysis.distances) - 1
    if expected.distances is not None:
        found = analysis.distances[last]
        assert (found.d_commit, found.d_proc) == expected.distances
    if expected.window is not None:
        lo, hi, size = expected.window
        assert analysis.redelivered[last][:3] == (size, lo, hi)
    document, _ = build_report(analysis, "local")
    check_report(document)
    assert document["totals"]["dup"] == expected.dup
    for path, value in expected.report.items():
        assert value_at(document, path) == value, path


@pytest.mark.few(10)
@pytest.mark.parametrize("name", CASES)
def test_oracle(name: str, tmp_path: Path) -> None:
    builder, _ = CASES[name]()
    assert_agrees(analysed(builder.write(tmp_path / name)), Oracle(builder))


@pytest.mark.few(6)
@pytest.mark.parametrize("name", CASES)
def test_reference_sql(name: str, tmp_path: Path) -> None:
    builder, expected = CASES[name]()
    analysis = analysed(builder.write(tmp_path / name))
    db = reference(builder, analysis.history.assignments)
    rows = rows_of(db, "SELECT * FROM v_cause")
    assert by_cause(rows) == expected.causes
    assert sum(row["cls"] == "RETRY" for row in rows) == expected.retry
    for cause, wanted in expected.offsets.items():
        assert offsets(rows, cause) == wanted
    _check_reference_figures(db, expected)


def _check_reference_figures(db: duckdb.DuckDBPyConnection, expected: Expected) -> None:
    """What V3, V6, V7, V8, V9 and V10 say, where the case names it."""
    figures = {
        "totals.dup_ratio": ("SELECT dup_ratio FROM v_ratio", 0),
        "rto.0.produce_ms": ("SELECT rto_ms FROM v_rto_produce", 0),
        "rto.0.consume_ms.max": ("SELECT rto_ms FROM v_rto_consume", 0),
        "rto.0.ttfr_kill_ms": ("SELECT ttfr_ms FROM v_ttfr WHERE kind = 'KILL'", 0),
        "rto.0.ttfr_accept_ms": ("SELECT ttfr_ms FROM v_ttfr WHERE kind = 'ACCEPT'", 0),
        "totals.ooo_first": ("SELECT ooo_first FROM v_order_viol", 0),
        "totals.ooo_replay": ("SELECT ooo_replay FROM v_order_viol", 0),
    }
    for path, (query, at) in figures.items():
        if path in expected.report:
            found = list(rows_of(db, query)[0].values())[at]
            assert found == expected.report[path], path
    if expected.window is not None:
        (row,) = rows_of(
            db,
            "SELECT d_commit, d_proc, w_lo, w_hi, redelivered "
            "FROM v_rollback ORDER BY t DESC LIMIT 1",
        )
        assert tuple(row.values()) == (*(expected.distances or ()), *expected.window)
    fates = expected.report.get("loss.fates")
    if fates:
        found = rows_of(db, "SELECT fate, count(*) AS n FROM v_loss GROUP BY fate")
        assert {row["fate"]: row["n"] for row in found} == {f: n for f, n in fates.items() if n}
