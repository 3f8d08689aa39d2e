"""Two answers of a report: is the evidence complete, and did the repeats stay in a limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.report import make_report
from failback.analytics.report.metric_paths import parse_limits
from failback.analytics.report.outcome import evidence_badge, outcome_badge, outcome_of
from failback.analytics.report.schema import read_report
from failback.analytics.report.summary import render, sentence
from failback.analytics.report.wording import number, percent, seconds
from failback.protocol.errors import ConfigError
from tests.support.analytics.cases import c2
from tests.support.analytics.sample_report import sample_report


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


def judged(tmp_path: Path, *, limits: tuple[str, ...] = (), **run: Any) -> dict[str, Any]:
    """The report of a run with duplicates, under the limits of its experiment and of a command."""
    case = c2()[0]
    case.run.update(run)
    (paths,) = make_report.report_many(
        [case.write(tmp_path / "run")], "local", limits=parse_limits(limits)
    )
    return read_report(paths.json)


def wish(metric: str, op: str, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"metric": metric, "op": op, "value": value, **more}


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("run", "limits", "limit", "met", "tone"),
    [
        ({}, (), None, None, "plain"),
        ({"expect": [wish("totals.lost", "==", 0)]}, (), None, None, "plain"),
        ({"expect": [wish("totals.dup", "within-bound")]}, (), None, None, "plain"),
        ({"expect": [wish("totals.dup", ">=", 1)]}, (), None, None, "plain"),
        ({"expect": [wish("totals.dup", "<=", 1000)]}, (), "duplicates at most 1,000", True,
         "good"),
        ({"expect": [wish("totals.dup", "between", [1, 1000])]}, (),
         "duplicates between 1 and 1,000", True, "good"),
        ({"expect": [wish("dup", "<", 1, group="nobody")]}, (),
         "nobody: duplicates under 1", None, "doubt"),
        ({"thresholds": {"maxDuplicateRatio": "0.001"}}, (),
         "duplicates/distinct messages at most 0.1 %", False, "bad"),
        ({}, ("dup_ratio <= 1%",), "duplicates/distinct messages at most 1.0 %", False, "bad"),
        ({}, ("totals.dup<=1_000",), "duplicates at most 1,000", True, "good"),
        ({"expect": [wish("totals.dup", "<=", 1000)]}, ("wasted_seconds < 0",),
         "duplicates at most 1,000; seconds of work done twice under 0", False, "bad"),
    ],
)  # fmt: skip
def test_only_a_limit_on_what_came_again_judges_it(
    run: dict[str, Any],
    limits: tuple[str, ...],
    limit: str | None,
    met: bool | None,
    tone: str,
    tmp_path: Path,
) -> None:
    report = judged(tmp_path, limits=limits, **run)
    assert report["outcome"] == {"limit": limit, "met": met}
    badge = outcome_badge(report)
    assert badge.tone == tone
    assert percent(report["totals"]["dup_ratio"]) in badge.text
    assert (met is False) == any(
        check["value"] == "Fail" and check["id"].startswith("expect.") for check in report["checks"]
    )


def test_an_outcome_is_that_of_the_checks() -> None:
    report = sample_report()
    title = "totals.dup_ratio <= 0.01"
    report["checks"].append(report["checks"][0] | {"id": "expect.0", "title": title,
                                                   "value": "Fail", "expected": 0.01})  # fmt: skip
    said = {"limit": "duplicates/distinct messages at most 1.0 %", "met": False}
    assert outcome_of(report["checks"]) == said
    assert outcome_of([{"id": None}, {}]) == {"limit": None, "met": None}


def test_evidence_that_is_incomplete_says_why() -> None:
    report = sample_report()
    assert evidence_badge(report).text == "Evidence: complete"
    report["checks"][0]["value"] = "Inconclusive"
    report["verdict"] |= {
        "value": "Inconclusive",
        "reasons": [{"code": "NO_DRAIN", "detail": "the drain did not finish"}],
    }
    badge = evidence_badge(report)
    assert (badge.tone, badge.why) == ("doubt", "the drain did not finish")
    assert "* Evidence: incomplete (the drain did not finish)" in render(report)


def test_reasons_say_what_went_wrong_and_not_what_was_wished(tmp_path: Path) -> None:
    case = c2()[0]
    assert case.closed is not None
    case.closed.update(drained=False, steady=False)
    (paths,) = make_report.report_many([case.write(tmp_path / "run")], "local")
    reasons = {
        each["code"]: each["detail"] for each in read_report(paths.json)["verdict"]["reasons"]
    }
    assert reasons["STEADY_STATE"] == "traffic was not steady before the first fault"
    assert reasons["NO_DRAIN"].startswith("loss cannot be told")
    assert not [detail for detail in reasons.values() if "everything was consumed" in detail]


def test_of_rows_that_are_missing_no_share_is_told() -> None:
    report = sample_report()
    report["checks"].append(report["checks"][0] | {"id": "recorder_complete",
                                                   "value": "Inconclusive"})  # fmt: skip
    assert outcome_badge(report).text == "Re-consumed at least 40 messages: no limit set"
    assert "%" not in sentence(report)
    assert "40 of 1,000 messages re-consumed" in sentence(report)


@pytest.mark.parametrize(
    ("lost", "complete", "said"),
    [
        (3, "Pass", "; 3 lost"),
        (3, "Inconclusive", "; 3 lost, or in the rows that are missing"),
        (0, "Inconclusive", "; 0 lost"),
        (None, "Inconclusive", "; loss not measurable"),
    ],
)
def test_what_is_lost_is_no_certainty_where_rows_are_missing(
    lost: int | None, complete: str, said: str
) -> None:
    report = sample_report()
    report["checks"].append(report["checks"][0] | {"id": "recorder_complete", "value": complete})
    report["totals"]["lost"] = lost
    assert re.search(rf"{re.escape(said)}[;.]", sentence(report))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dup_ratio", "'dup_ratio' is not METRIC OP NUMBER"),
        ("dup_ratio <= much", "is not METRIC OP NUMBER"),
        (
            "totals.losst == 0",
            '"totals.losst" is no figure that report.json has, did you mean "totals.lost"?',
        ),
        ("billing: dupp <= 1", 'did you mean "dup"?'),
        ("nothing.at.all <= 1", '"nothing.at.all" is no figure that report.json has'),
    ],
)
def test_a_limit_that_cannot_be_checked_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_limits([text])
    assert said in str(caught.value)


def test_limits_are_parsed() -> None:
    assert parse_limits(["rto.0.produce_ms <= 10"]) == [
        wish("rto.0.produce_ms", "<=", 10, group=None)
    ]
    assert parse_limits(["billing: dup_ratio<0.5 %"]) == [
        wish("dup_ratio", "<", 0.005, group="billing")
    ]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (number(2400), "2,400"), (number(1.25), "1.2"), (number(None), "–"),
        (percent(0.6028), "60.3 %"), (percent(0.0), "0.0 %"), (percent(1e-5), "< 0.1 %"),
        (percent(12.5), "1,250.0 %"), (percent(None), "–"), (seconds(6.55), "6.5 s"),
        (seconds(0.012), "12 ms"), (seconds(0.0), "0.0 s"), (seconds(float("nan")), "–"),
    ],
)  # fmt: skip
def test_there_is_one_way_to_write_a_figure(shown: str, text: str) -> None:
    assert shown == text
