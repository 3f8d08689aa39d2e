"""``failback demo --quick`` from its command line to the reports, counted once more by hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from failback.common.numbers import percent
from tests.e2e.brute_force import BruteForce
from tests.e2e.demo_checks import check_handover, check_stay
from tests.e2e.demo_run import ARMS, Demo, run_command
from tests.support.dashboard.browser import check_page, dead_buttons, offline_page, picture_of
from tests.support.processes.leftovers import processes_of

pytestmark = pytest.mark.sample


def test_it_passes_and_its_table_says_what_the_reports_say(demo: Demo) -> None:
    assert demo.done.code == 0, demo.done.output[-4000:] + demo.done.errors[-4000:]
    table = demo.table()
    assert set(table) == set(ARMS)
    for arm, row in table.items():
        totals = demo.report(arm)["totals"]
        assert (row["EVIDENCE"], row["OUTCOME"]) == ("complete", "no limit set")
        assert row["DELIVERED"] == f"{totals['delivered']:,}"
        assert row["DISTINCT"] == f"{totals['distinct']:,}"
        assert row["DUPLICATES"] == f"{totals['dup']:,}"
        assert row["DUPLICATES/DISTINCT"] == percent(totals["dup_ratio"])
        assert abs(totals["dup_ratio"] - totals["dup"] / totals["distinct"]) < 1e-4  # four digits
        assert row["LOST"] == f"{totals['lost']:,}"
        for column in ("SEND OUTAGE", "RECEIVE OUTAGE"):
            assert re.fullmatch(r"\d+\.\d s", row[column])
    assert table["stay"]["CAUSES"] == "-"
    assert "ROLLBACK_SLAVE_ONLY_PROGRESS" in table["handover"]["CAUSES"]
    for arm in ARMS:
        assert f"open {demo.report_file(arm, 'report.html')}" in demo.done.output


def test_a_consumer_that_stays_gets_nothing_twice(demo: Demo) -> None:
    check_stay(demo.report("stay"), BruteForce(demo.run_dir("stay")))


def test_a_handover_gets_exactly_what_the_returned_master_had_not_heard_of(demo: Demo) -> None:
    check_handover(demo.report("handover"), BruteForce(demo.run_dir("handover")))


def test_a_handover_is_predicted_and_says_what_to_change(demo: Demo) -> None:
    report = demo.report("handover")
    (row,) = report["prediction"]
    assert 0.5 * row["p5"] <= report["totals"]["dup"] <= row["worst"]
    assert report["knobs"]
    assert [note for note in ("prediction", "knobs") if note in report["notes"]] == []


@pytest.mark.parametrize("arm", ARMS)
def test_the_totals_are_those_of_a_count_by_hand(demo: Demo, arm: str) -> None:
    totals, counted = demo.report(arm)["totals"], BruteForce(demo.run_dir(arm))
    duplicates = counted.duplicates()
    assert totals["delivered"] == counted.delivered()
    assert totals["distinct"] == counted.distinct()
    assert totals["dup"] == len(duplicates)
    assert totals["lost"] == len(counted.lost()) == 0
    by_queue = Counter((row["grp"], row["ptopic"], row["qid"]) for row in duplicates)
    queues = demo.report(arm)["queues"]
    shown = {(row["group"], row["topic"], row["qid"]): row["dup"] for row in queues}
    assert {queue: dup for queue, dup in shown.items() if dup} == dict(by_queue)


def test_spark_counts_the_same_and_the_table_does_not_wait_for_it(demo: Demo) -> None:
    lines = demo.done.output.splitlines()
    (said,) = (number for number, line in enumerate(lines) if line.startswith("Spark: "))
    (table,) = (number for number, line in enumerate(lines) if line.startswith("ARM "))
    assert re.fullmatch(r"Spark: equal, \d+ s", lines[said])
    assert table < said
    assert {demo.report(arm)["engine"] for arm in ARMS} == {"local"}


def test_it_says_how_long_it_takes_and_what_to_do_next(demo: Demo) -> None:
    assert "about 25 seconds" in demo.done.output.splitlines()[0]
    steps = demo.done.output.partition("next:\n")[2].splitlines()
    assert f"  failback dashboard --runs {demo.runs}" in steps
    (explain,) = (line.split() for line in steps if "explain-offset" in line)
    done = run_command(*explain[1:])
    assert done.code == 0, done.errors
    assert "billing" in done.output


@pytest.mark.parametrize("arm", ARMS)
def test_the_run_folder_is_closed_and_its_report_complete(demo: Demo, arm: str) -> None:
    run_dir = demo.run_dir(arm)
    assert list((run_dir / "hot").iterdir()) == []
    manifest = json.loads((run_dir / "manifest.json").read_text())
    assert demo.report(arm)["evidence"]["run_sha256"] == manifest["run_sha256"]
    assert demo.report(arm)["verdict"]["sentence"] in demo.done.output
    for name in ("report.json", "summary.md", "report.html", "figures-data.parquet"):
        assert demo.report_file(arm, name).stat().st_size > 0
    assert len(demo.report_file(arm, "summary.md").read_text().splitlines()) < 80


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("arm", "width"), [(ARMS[0], 1440), (ARMS[1], 390), (ARMS[0], 390), (ARMS[1], 1440)]
)
def test_its_report_opens_in_a_browser(
    browser: Browser, demo: Demo, arm: str, width: int, tmp_path: Path
) -> None:
    file = demo.report_file(arm, "report.html")
    assert file.stat().st_size < 1_500_000
    with offline_page(browser, file, width=width) as opened:
        if width == 1440:
            assert opened.evaluate("document.documentElement.scrollHeight") <= 4_000
        assert dead_buttons(opened) == []
        check_page(opened, file, picture_of(f"demo-{arm}-{width}", tmp_path))


def test_it_leaves_no_process_and_no_store_behind(demo: Demo) -> None:
    assert processes_of(demo.runs) == []
    assert list(demo.runs.glob("*/roots")) == []
