"""report.html: offline, escaped, and its numbers are those of report.json."""

from __future__ import annotations

import html.parser
import json
import re
import shlex

from failback.analytics.analysis.causes.labels import report_group
from failback.analytics.report.measures.point_rows import Point
from failback.analytics.report.page.answers import carry_advice
from failback.analytics.report.page.html import CONTENTS, page_tables
from failback.analytics.report.page.html import render_html as render
from failback.analytics.report.page.tables.redeliveries import reset_hint
from failback.analytics.report.page.tables.run_card import workload_lines
from failback.analytics.report.page.time_series import staircases, timeline_data
from failback.analytics.report.schema import check_report
from failback.analytics.report.summary import render as summary
from failback.analytics.report.summary import sentence
from tests.support.analytics.sample_report import compared_report, sample_points, sample_report

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
    for figure in ("timeline", "staircase-0", "causes-time", "intervals", "prediction"):
        assert f"figure-{figure}" in page.ids


def test_numbers_of_the_page_are_those_of_the_report() -> None:
    text = " ".join(Page(render(sample_report(), sample_points())).text)
    for expected in ("1,040", "4.0 %", "ROLLBACK_SLAVE_ONLY_PROGRESS", "3,000", "51.2"):
        assert expected in text
    command = "failback admin resetOffset --group billing --topic orders --broker demo-0 --queue 0"
    assert f"{command} --offset 250" in text


def test_the_command_for_a_safe_offset_names_one_queue_and_can_be_typed() -> None:
    queue = {"group": "a|b", "topic": "%RETRY%a|b", "broker": "demo-0", "qid": 3}
    hint = reset_hint(queue | {"safe_offset": 9, "master_offset": 5})
    assert hint is not None
    assert shlex.split(hint)[3:] == [
        *("--group", "a|b", "--topic", "%RETRY%a|b", "--broker", "demo-0"),
        *("--queue", "3", "--offset", "9"),
    ]
    assert "'a|b'" in hint


def test_what_a_carry_would_have_saved_is_said_of_apache_alone() -> None:
    report = sample_report()
    assert carry_advice(report) == ""
    report["system"]["engine"] = "apache"
    saved = {"lo": 200, "hi": 210, "size": 10, "cause": "ROLLBACK_RESTART"}
    beyond = {"lo": 250, "hi": 260, "size": 10, "cause": "ROLLBACK_RESTART"}
    other = {"lo": 190, "hi": 200, "size": 10, "cause": "OVERLAP"}
    report["queues"][0]["windows"] += [saved, beyond, other]
    report["totals"]["dup"] = 70
    page = " ".join(Page(render(report, sample_points())).text)
    change = page.partition("What to change")[2].partition("What to change")[2]
    assert "would have saved 50 of 70 duplicates" in change
    report["queues"][0]["windows"] = [beyond, other]
    assert carry_advice(report) == ""


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
    assert "Losses cannot be told" in text
    assert "No duplicate was delivered" in text
    assert "No message was re-consumed" in text


def test_a_page_has_less_than_a_megabyte_and_a_half() -> None:
    assert len(render(compared_report(), sample_points()).encode()) < 1_500_000


def test_parts_come_in_the_order_in_which_they_are_asked_for() -> None:
    text = render(compared_report(), sample_points())
    places = [text.index(f'id="{anchor}"') for anchor, _ in CONTENTS]
    assert places == sorted(places)
    folded = {anchor for anchor, _ in CONTENTS if f'<details id="{anchor}">' in text}
    assert {"answer", "why", "change", "groups", "compare", "evidence"}.isdisjoint(folded)
    assert CONTENTS[-1][0] == "run-card"


def test_an_unjudged_number_stands_beside_no_pass() -> None:
    report = sample_report()
    report["verdict"]["sentence"] = "Killing a master: 40 of 1,000 messages re-consumed."
    page = Page(render(report, sample_points()))
    text = " ".join(page.text)
    assert "Evidence: complete" in text
    assert "Re-consumed 4.0 %: no limit set" in text
    assert not re.search(r"\bPass\b", text.partition("All checks")[0])


def test_scaled_timers_are_said_before_any_time() -> None:
    report = sample_report()
    assert "Timers ran" not in render(report, [])
    report["source"]["time_scale"] = 0.1
    text = render(report, [])
    assert text.index("Timers ran at 1/10") < text.index('class="sentence"')


def test_what_to_change_has_a_command_for_each() -> None:
    text = " ".join(Page(render(sample_report(), sample_points())).text)
    assert "failback predict RUN --set flushConsumerOffsetInterval=1000" in text
    assert "flushConsumerOffsetInterval=1000 in broker.conf; then restart the brokers" in text
    assert "1 of 1 queues stand below a" in text


def test_seconds_without_any_message_are_drawn_as_zero() -> None:
    second = 1_000_000_000
    points = [
        Point("deliver_rate", None, None, None, None, at * second, 50.0, None) for at in (1, 2, 5)
    ]
    assert timeline_data(sample_report(), points).rates["deliveries"].values == [50, 50, 0, 0, 50]


def test_groups_and_queues() -> None:
    assert report_group("ROLLBACK_RESTART") == "rollback"
    assert report_group(None) == "unattributed"
    assert reset_hint({"group": "g", "topic": "t", "broker": "b", "qid": 0, "safe_offset": 5,
                       "master_offset": 5}) is None  # fmt: skip
    assert [stairs.queue for stairs in staircases(sample_report(), sample_points())] == [
        "orders demo-0/0"
    ]


def test_a_phase_that_was_never_seen_comes_last() -> None:
    assert page_tables(sample_report(), [])["phases"].values() == [
        ("f1", "the master accepts connections again", 50.998),
        ("f1", "the slave copied its offsets again", None),
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
    (row,) = page_tables(report, sample_points())["causes"].rows
    assert tuple(row.values()) == (named, "other", 38, 2, 0)


def test_a_large_rate_of_the_workload_has_all_its_digits() -> None:
    topic = {"name": "T", "ratePerSecond": 1_234_567, "queues": 1, "bodyBytes": 0.5}
    report = {"system": {"workload": {"topics": [topic]}}}
    assert workload_lines(report) == ["topic T: 1,234,567/s, 1 queue, 0.5 bytes"]
