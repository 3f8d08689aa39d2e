"""What bad input gets, on the local engine; the Spark engine meets the same cases in its tier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def test_a_group_whose_members_are_ended_in_a_window_is_asked_for_what_was_before(
    tmp_path: Path,
) -> None:
    """F3: consumers are killed as soon as the master accepts, and what is sent then waits."""
    member: dict[str, Any] = dict.fromkeys(("addr", "broker", "bid", "role", "pair"))
    member["detail"] = json.dumps({"group": "g", "member": 0})
    for at, wanted in ((1010, []), (3600, ["NO_TRAFFIC"])):
        b = clean()
        b.run["workload"] = {"topics": [{"name": "T", "ratePerSecond": 400}]}
        b.fault("KILL", 1000)
        b.fault("ACCEPT", 3000)
        b.fault("HEALED", 4000)
        b.fault("CLIENT_KILL", at, fid="f2", **member)
        b.fault("CLIENT_START", 4500, fid="f2", **member)
        found = codes(read_report(report(b.write(tmp_path / str(at)), "local").json))
        assert [code for code in found if code == "NO_TRAFFIC"] == wanted
    for kind, wanted in (("UNSUBSCRIBE", []), ("SET_HANDLER", ["NO_TRAFFIC"])):
        b = clean()
        b.run["workload"] = {"topics": [{"name": "T", "ratePerSecond": 400}]}
        b.fault(kind, 1000, **member)
        b.fault("HEALED", 4000)
        found = codes(read_report(report(b.write(tmp_path / kind), "local").json))
        assert [code for code in found if code == "NO_TRAFFIC"] == wanted


def test_what_is_stored_as_a_window_ends_may_be_delivered_after_it(tmp_path: Path) -> None:
    """Sends go on as soon as the master is back, pulls some seconds later."""
    for at, wanted in ((9100, []), (4100, ["NO_TRAFFIC"])):
        b = clean()
        b.run["workload"] = {"topics": [{"name": "T", "ratePerSecond": 400}]}
        b.fault("KILL", 1000)
        b.fault("HEALED", 12_000)
        b.produce(3, 1100, 2900, "TIMEOUT")
        for number in range(4, 304):
            b.produce(number, at, at + 1)
        found = codes(read_report(report(b.write(tmp_path / str(at)), "local").json))
        assert [code for code in found if code == "NO_TRAFFIC"] == wanted


def test_a_quiet_fault_window_is_no_matter_if_there_was_little_to_deliver(tmp_path: Path) -> None:
    """Little was asked for, or sends failed for most of it, as those to an only pair do."""
    for rate, failing, wanted in ((1, False, []), (400, True, []), (400, False, ["NO_TRAFFIC"])):
        b = clean()
        b.run["workload"] = {"topics": [{"name": "T", "ratePerSecond": rate}]}
        b.fault("KILL", 1000)
        b.fault("ACCEPT", 3000)
        b.fault("HEALED", 4000)
        if failing:
            b.produce(3, 1100, 2900, "TIMEOUT")
            b.produce(4, 3100, 3101)
            b.deliver(4, 3110, 3111)
            b.scan(4)
        found = codes(read_report(report(b.write(tmp_path / f"{rate}{failing}"), "local").json))
        assert found == wanted
