"""What bad input gets, on the local engine; the Spark engine meets the same cases in its tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.analytics.errors import ReportInputError
from failback.analytics.report import make_report
from failback.analytics.report.make_report import read_report, report
from tests.support.analytics.bad_input import CASES, Refused, clean, codes


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has its own tests; drawing it for every report here would only take time."""
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


@pytest.mark.few(14)
@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str, tmp_path: Path) -> None:
    told = CASES[name](tmp_path / "run")
    if isinstance(told, Refused):
        with pytest.raises(ReportInputError, match=told.words):
            report(tmp_path / "run", "local")
        return
    told(read_report(report(tmp_path / "run", "local").json))


def test_a_quiet_fault_window_is_no_matter_if_little_traffic_was_asked_for(tmp_path: Path) -> None:
    b = clean()
    b.run["workload"] = {"topics": [{"name": "T", "ratePerSecond": 1}]}
    b.fault("KILL", 1000)
    b.fault("ACCEPT", 3000)
    b.fault("HEALED", 4000)
    assert codes(read_report(report(b.write(tmp_path / "run"), "local").json)) == []
