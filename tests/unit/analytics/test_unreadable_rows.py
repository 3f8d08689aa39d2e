"""A row that cannot be read is no lost message: only an observed loss fails a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failback.analytics.report.make_report import build_report, check_report
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import MS, ZERO_MONO_NS, RunBuilder

FAR = 1 << 61
Change = tuple[str, str, Any]
DELIVERIES: tuple[Change, ...] = tuple(
    ("deliver", *change)
    for change in (
        ("status", "PERHAPS"), ("status", ""), ("status", "ABANDONED"), ("et", None), ("et", -1),
        ("et", 0), ("et", FAR), ("bt", FAR), ("bt", -FAR), ("bt", ZERO_MONO_NS + 99_000 * MS),
        ("qoff", -1), ("qoff", -(1 << 62)), ("lane", None), ("lseq", None), ("lane", -1),
        ("lseq", -5),
    )
)  # fmt: skip
OTHERS: tuple[Change, ...] = (
    ("produce", "res", "PERHAPS"),
    ("produce", "lane", -1),
    ("produce", "lseq", -1),
    ("produce", "lane", None),
    ("assign", "t", FAR),
    ("assign", "src", "?"),
    ("assign", "end_reason", "?"),
)


def sent(count: int = 4, *, unhandled: int | None = None) -> RunBuilder:
    """Messages that were sent, stored and handled once but for one, and a commit of all."""
    b = RunBuilder("rows")
    b.assign(0, 0, end=(90_000, "SHUTDOWN"))
    for lid in range(count):
        b.produce(lid, lid, lid + 1)
        if lid != unhandled:
            b.deliver(lid, 10 + lid, 11 + lid)
        b.scan(lid)
    b.commit(50_000, count)
    return b


def verdict(b: RunBuilder, folder: Path) -> tuple[str, list[str], dict[str, Any]]:
    document, _ = build_report(analysed(b.write(folder)), "local")
    check_report(document)
    found = document["verdict"]
    return found["value"], sorted({each["code"] for each in found["reasons"]}), document


@pytest.mark.few(8)
@pytest.mark.parametrize(("table", "column", "value"), [*DELIVERIES, *OTHERS])
def test_no_impossible_value_fails_a_run(
    table: str, column: str, value: Any, tmp_path: Path
) -> None:
    b = sent()
    b.rows[table][-1][column] = value
    what, codes, _ = verdict(b, tmp_path / "run")
    assert what == "Inconclusive"
    assert "BAD_ROWS" in codes


@pytest.mark.few(5)
@pytest.mark.parametrize(("table", "column", "value"), DELIVERIES)
def test_a_loss_that_no_dropped_row_explains_fails(
    table: str, column: str, value: Any, tmp_path: Path
) -> None:
    """Two are nowhere, and one row cannot be read."""
    b = sent(unhandled=0)
    b.rows[table][-1][column] = value
    what, codes, document = verdict(b, tmp_path / "run")
    assert what == "Fail"
    assert "NO_LOSS" in codes
    assert document["totals"]["lost"] == 2


def test_one_row_among_many_is_enough(tmp_path: Path) -> None:
    """Below the share at which unreadable rows count by themselves."""
    b = sent(1000)
    b.rows["deliver"][-1]["status"] = "PERHAPS"
    assert verdict(b, tmp_path / "run")[:2] == ("Inconclusive", ["BAD_ROWS"])


def test_unreadable_ends_that_came_late(tmp_path: Path) -> None:
    b = sent(3)
    b.produce(3, 3, 4)
    b.scan(3)
    late = b.deliver(3, 22)
    b.add("deliver_end", did=late, et=30, status="PERHAPS")
    assert verdict(b, tmp_path / "run")[:2] == ("Inconclusive", ["BAD_ROWS"])


def test_an_end_without_its_begin(tmp_path: Path) -> None:
    b = sent(unhandled=3)
    b.add("deliver_end", did=(1 << 40) + 99, et=30, status="SUCCESS")
    assert verdict(b, tmp_path / "run")[:2] == ("Inconclusive", ["BAD_ROWS"])


@pytest.mark.parametrize(("metric", "value"), [("totals.lost", 0), ("loss.fates.SKIPPED", 0)])
def test_an_expectation_of_no_loss_is_not_missed_by_it(
    metric: str, value: int, tmp_path: Path
) -> None:
    b = sent()
    b.run["expect"] = [{"metric": metric, "op": "<=", "value": value}]
    b.rows["deliver"][-1]["qoff"] = -1
    assert verdict(b, tmp_path / "run")[:2] == ("Inconclusive", ["BAD_ROWS"])
    b = sent(unhandled=3)
    b.run["expect"] = [{"metric": metric, "op": "<=", "value": value}]
    assert verdict(b, tmp_path / "lost")[0] == "Fail"


def test_nothing_wrong_passes(tmp_path: Path) -> None:
    assert verdict(sent(), tmp_path / "run")[0] == "Pass"
