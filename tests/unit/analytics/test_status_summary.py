"""What ``failback report --summary`` leaves: the figures of report.json and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.report import make_report
from failback.analytics.report.make_report import read_report, report
from failback.analytics.report.status_summary import ratio_text, status_of
from failback.cli.__main__ import main
from failback.operator.kinds.reconsumption_report import ReconsumptionReportStatus
from tests.support.analytics.cases import CASES


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


def reported(name: str, folder: Path) -> dict[str, Any]:
    builder, _ = CASES[name]()
    return dict(read_report(report(builder.write(folder / name), "local").json))


@pytest.mark.few(6)
@pytest.mark.parametrize("name", CASES)
def test_every_figure_is_that_of_the_report(name: str, tmp_path: Path) -> None:
    document = reported(name, tmp_path)
    found = status_of([document], "file:///somewhere")
    totals = document["totals"]
    assert found["verdict"] == document["verdict"]["value"]
    for ours, theirs in (
        ("produced", "produced"),
        ("delivered", "delivered"),
        ("distinct", "distinct"),
        ("duplicates", "dup"),
        ("lost", "lost"),
        ("outOfOrder", "ooo_first"),
        ("maxRedelivery", "max_redelivery"),
    ):
        assert found[ours] == totals[theirs], ours
    assert sum(found["byCause"].values()) == totals["dup"]
    assert [each["causes"] for each in found["perGroup"]] == [
        dict(sorted(each["causes"].items())) for each in document["groups"]
    ]
    assert sum(each["duplicates"] for each in found["perPair"]) == totals["dup"]
    assert found["runSha256"] == document["evidence"]["run_sha256"]
    if totals["dup_ratio"] is not None:
        assert float(found["duplicateRatio"]) == pytest.approx(totals["dup_ratio"], abs=1e-4)


def test_it_says_whose_rules_were_followed(tmp_path: Path) -> None:
    plain, guarded = reported("c2", tmp_path), reported("c3", tmp_path)
    guarded["system"]["rules"] = "guarded"
    release = plain["source"]["rule_set"]
    assert status_of([plain, plain], "")["ruleSet"] == release
    assert status_of([plain, guarded], "")["ruleSet"] == f"{release} / {release}, guarded"


def test_several_runs_are_added_and_each_is_kept_apart(tmp_path: Path) -> None:
    documents = [reported(name, tmp_path) for name in ("c2", "c3")]
    found = status_of(documents, "file:///somewhere")
    assert found["duplicates"] == sum(each["totals"]["dup"] for each in documents)
    assert len(found["perGroup"]) == sum(len(each["groups"]) for each in documents)
    documents[0]["totals"]["dup_messages"] += 5  # messages that were re-consumed, not deliveries
    assert status_of(documents, "")["duplicates"] == found["duplicates"]
    documents[1]["totals"]["lost"] = None
    assert status_of(documents, "")["lost"] is None, "what one did not measure nobody knows"
    documents[1]["verdict"]["value"] = "Fail"
    assert status_of(documents, "")["verdict"] == "Fail"


def test_the_summary_fits_a_status(tmp_path: Path) -> None:
    found = status_of([reported("c2", tmp_path)], "file:///somewhere")
    known = {field.alias for field in ReconsumptionReportStatus.model_fields.values()}
    assert set(found) - known == {"truncated"}


@pytest.mark.full
def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder, _ = CASES["c2"]()
    run, summary = builder.write(tmp_path / "runs" / "c2"), tmp_path / "summary"
    words = ["report", str(run), "--engine", "local", "--summary", str(summary)]
    code = main(words)
    document = json.loads((run / "report" / "report.json").read_text())
    written = json.loads(summary.read_text())
    assert written == status_of([document], (run / "report").as_uri())
    assert code == {"Pass": 0, "Fail": 1, "Inconclusive": 3}[written["verdict"]]
    assert main(["report", str(tmp_path / "runs"), *words[2:]]) == code, "a folder of runs"
    assert json.loads(summary.read_text())["duplicates"] == written["duplicates"]
    CASES["c3"]()[0].write(tmp_path / "runs" / "c3")
    main(["report", str(tmp_path / "runs"), *words[2:]])
    where = json.loads(summary.read_text())["artifactUri"]
    assert where == (tmp_path / "runs").as_uri(), "of several runs the folder with all their pages"
    main(["report", str(tmp_path / "runs"), *words[2:], "--out", str(tmp_path / "pages")])
    assert json.loads(summary.read_text())["artifactUri"] == (tmp_path / "pages").as_uri()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("met", "words"),
    [
        ([], "no limit set"),
        ([True], "limit met"),
        ([True, None], "limit not judged"),
        ([None, False, True], "limit missed"),
    ],
)
def test_the_worst_outcome_of_all_runs_is_told(
    met: list[bool | None], words: str, tmp_path: Path
) -> None:
    documents = [reported("c2", tmp_path)]
    for each in met:
        documents.append(
            {**documents[0], "outcome": {"limit": "duplicates at most 1", "met": each}}
        )
    assert status_of(documents, "")["outcome"] == words
    assert status_of(documents[::-1], "")["outcome"] == words


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 10, "0.0"), (1, 3, "0.333333"), (5, 5, "1.0"), (1, 0, None), (None, 3, None)],
)
def test_ratios_are_decimal_text(part: int | None, whole: int, text: str | None) -> None:
    assert ratio_text(part, whole) == text
