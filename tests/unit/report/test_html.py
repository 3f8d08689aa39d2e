"""report.html: offline, escaped, and its numbers are those of report.json."""

from __future__ import annotations

import html.parser
import json
import shlex

from failback.analytics.report.measures.point_rows import Point
from failback.analytics.report.page.figure_data.repeats import report_group
from failback.analytics.report.page.figure_data.time_series import staircases, timeline_data
from failback.analytics.report.page.figure_tables import figure_tables
from failback.analytics.report.page.html import CONTENTS
from failback.analytics.report.page.html import render_html as render
from failback.analytics.report.page.html_rows import (
    numeric_columns,
    phase_rows,
    reset_hint,
    show,
    workload_lines,
)
from failback.analytics.report.schema import check_report
from failback.analytics.report.summary import render as summary
from failback.analytics.report.summary import sentence
from tests.support.analytics.sample_report import sample_points, sample_report

HOSTILE = "<script>alert('x')</script>\n\"&"


class Page(html.parser.HTMLParser):
    """Collects ids, external references and the text outside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside.append(tag)
        values = dict(attrs)
        self.ids.add(values.get("id") or "")
        self.links += [values[name] or "" for name in ("src", "href") if name in values]

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        inside = self._inside[-1] if self._inside else ""
        if inside == "script":
            self.scripts.append(data)
        elif inside != "style":
            self.text.append(data)


def test_every_block_is_there_and_nothing_is_fetched() -> None:
    page = Page(render(sample_report(), sample_points()))
    assert {anchor for anchor, _ in CONTENTS} <= page.ids
    assert all(link.startswith(("#", "data:")) for link in page.links)
    for figure in ("timeline", "staircase-0", "causes", "intervals", "rto-0", "bounds"):
        assert f"figure-{figure}" in page.ids


def test_numbers_of_the_page_are_those_of_the_report() -> None:
    text = " ".join(Page(render(sample_report(), sample_points())).text)
    for expected in ("1,040", "4.00 %", "ROLLBACK_SLAVE_ONLY_PROGRESS", "3,000.0", "51,200"):
        assert expected in text
    command = "failback admin resetOffset --group billing --topic orders --broker demo-0 --queue 0"
    assert f"{command} --offset 250" in text


def test_the_command_for_a_safe_offset_names_one_queue_and_can_be_typed() -> None:
    queue = {"group": "a|b", "topic": "%RETRY%a|b", "broker": "demo-0", "qid": 3}
    hint = reset_hint(queue | {"safe_offset": 9, "master_offset": 5})
    assert shlex.split(hint)[3:] == [
        *("--group", "a|b", "--topic", "%RETRY%a|b", "--broker", "demo-0"),
        *("--queue", "3", "--offset", "9"),
    ]
    assert "'a|b'" in hint


def test_names_from_outside_are_escaped() -> None:
    page = Page(render(sample_report(HOSTILE), sample_points(HOSTILE)))
    assert not any("alert('x')" in script and "<script>" in script for script in page.scripts)
    embedded = next(script for script in page.scripts if script.startswith("{"))
    assert "<" not in embedded
    assert json.loads(embedded)


def test_an_empty_run_says_why_each_block_is_empty() -> None:
    report = sample_report()
    for name in ("faults", "groups", "queues", "rollbacks", "rto", "bounds", "offset_drops"):
        report[name] = []
    report["loss"] = None
    text = " ".join(Page(render(report, [])).text)
    assert "No fault was injected." in text
    assert "Loss is not decidable" in text
    assert "No duplicate was delivered" in text


def test_page_size_is_bounded_by_plotly() -> None:
    assert len(render(sample_report(), sample_points())) < 12_000_000


def test_seconds_without_any_message_are_drawn_as_zero() -> None:
    second = 1_000_000_000
    points = [
        Point("deliver_rate", None, None, None, None, at * second, 50.0, None) for at in (1, 2, 5)
    ]
    assert timeline_data(sample_report(), points).rates["deliveries"].values == [50, 50, 0, 0, 50]


def test_cells_and_groups() -> None:
    assert [show(v) for v in (None, True, 12345, 1.25, float("nan"), "x")] == [
        "–",
        "yes",
        "12,345",
        "1.2",
        "–",
        "x",
    ]
    assert report_group("ROLLBACK_RESTART") == "rollback"
    assert report_group(None) == "unattributed"
    assert reset_hint({"safe_offset": 5, "master_offset": 5}) == "–"
    assert [stairs.queue for stairs in staircases(sample_report(), sample_points())] == [
        "orders demo-0/0"
    ]


def test_a_column_stands_right_when_all_it_has_is_numbers() -> None:
    rows = [("a", 1, None, 2), ("b", None, None, "drained"), ("c", 3.5, None, True)]
    assert numeric_columns(rows) == {1}


def test_a_phase_that_was_never_seen_comes_last() -> None:
    assert phase_rows(sample_report()) == [
        ("f1", "accept", 50.998),
        ("f1", "first fresh slave sync", None),
    ]


def test_a_cause_that_only_a_newer_version_knows_is_shown_by_its_name() -> None:
    report = sample_report()
    group, named = report["groups"][0], "ROLLBACK_TELEPORTED"
    for counts in (group["causes"], group["causes_split"]):
        counts[named] = counts.pop("ROLLBACK_SLAVE_ONLY_PROGRESS")
    check_report(report)
    assert sentence(report).count("rollback teleported") == 1
    assert named in summary(report)
    assert named in " ".join(Page(render(report, sample_points())).text)
    (row,) = figure_tables(report, sample_points())["causes"].rows
    assert row == (named, "other", 38, 2, 0)


def test_a_large_rate_of_the_workload_has_all_its_digits() -> None:
    topic = {"name": "T", "ratePerSecond": 1_234_567, "queues": 1, "bodyBytes": 0.5}
    report = {"system": {"workload": {"topics": [topic]}}}
    assert workload_lines(report) == ["topic T: 1,234,567/s, 1 queue, 0.5 bytes"]
