"""The report of an observation: verdict, badges, tables, page; made again as often as one likes."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from failback.analytics.report.make_report import report
from failback.analytics.report.outcome import outcome_badge
from failback.analytics.run.run_folder import unplanned_run
from failback.common.times import of_day, zone
from failback.protocol.errors import ConfigError
from tests.support.observe.folders import add, document, opened, written
from tests.support.observe.outages import at_work, come_back, serve, take_over
from tests.support.observe.stories import MASTER, SLAVE, Story


def handed_over() -> Story:
    story = at_work()
    serve(story, 1500)
    come_back(story, 900)
    return story


def zero(run: Path) -> float:
    return float(json.loads((run / "run.json").read_text())["zero"]["wall_ns"]) / 1e9


def moment(run: Path, second: float) -> str:
    return f"{of_day(zero(run) + second)} {zone(zero(run))}"


def test_the_headline_is_the_answer(tmp_path: Path) -> None:
    story = handed_over()
    take_over(story, 1600)
    run = written(story, tmp_path / "run")
    made = report(run)
    assert (made.verdict, made.exit_code) == ("Observed", 0)
    assert made.sentence == (
        f"{moment(run, 4.1)}: broker-a was down for 10 to 12 s. Group billing: 1,200 re-consumed"
        " (progress lost at the master's restart or slave-only progress)."
    )
    found = document(run)
    assert found["source"]["deliver"] == "observe"
    story.observation.zero = zero(run)
    assert found["observation"] == story.observation.document()
    page = (run / "report" / "report.html").read_text()
    assert "Evidence: members and offsets" in page
    assert "Re-consumed 1,200 messages: no limit set" in page
    assert "No message was re-consumed" not in page
    tables = (run / "report" / "tables" / "returns.csv").read_text().splitlines()
    assert len(tables) == 2
    assert "| broker-a | 10 to 12 | billing |" in (run / "report" / "summary.md").read_text()


def test_a_page_embeds_the_figures_that_it_has_places_for(tmp_path: Path) -> None:
    run = written(handed_over(), tmp_path / "run")
    report(run)
    page = (run / "report" / "report.html").read_text()
    embedded = re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)
    assert embedded is not None
    found = json.loads(embedded[1])
    assert found
    assert set(found) == set(re.findall(r'id="figure-([^"]+)"', page))
    axis = found["staircase-0"]["layout"]["xaxis"]
    begin = datetime.fromtimestamp(zero(run)).replace(tzinfo=UTC).timestamp()
    assert axis["type"] == "date"
    assert axis["title"]["text"] == zone(zero(run))
    first = min(x for trace in found["staircase-0"]["data"] for x in trace["x"])
    assert axis["range"][0] == first
    assert 0 <= first / 1000 - begin < 10


def test_the_page_begins_with_what_came_again_and_folds_the_rest(tmp_path: Path) -> None:
    story = at_work()
    audit = "%RETRY%audit@audit"
    story.members["audit"] = {"x"}
    story.commit(1000, key=audit)
    story.wait(2)
    serve(story, 1500)
    come_back(story, 900)
    story.commit(1000, key=audit, at=(MASTER,))
    take_over(story, 1600)
    run = written(story, tmp_path / "run")
    report(run)
    page = (run / "report" / "report.html").read_text()
    body = page[page.index("<header>") : page.index("<script")]
    first, folded = body.index(">billing<"), body.index("Groups that re-consumed nothing")
    assert body.index('class="sentence"') < body.index("<nav") < first < folded
    assert folded < body.index("%RETRY%audit")
    assert re.search(r"Offsets of|figure-staircase-0", body)
    links = re.findall(r'<a href="#([^"]+)"', body[body.index("<nav") : body.index("</nav>")])
    assert links == ["why", "change", "seen", "staircase", "evidence"]
    linked = set(re.findall(r'href="#([^"]+)"', body))
    assert linked <= set(re.findall(r'id="([^"]+)"', body))
    assert 'id="cause-ROLLBACK_RESTART"' in body
    summary = (run / "report" / "summary.md").read_text()
    assert "engine local" not in summary
    assert "/ -" not in summary


def test_what_may_still_come_again_stands_beside_the_answer(tmp_path: Path) -> None:
    run = written(handed_over(), tmp_path / "run")
    made = report(run)
    assert (
        "Group billing: none so far. 1,200 more are re-consumed if a member starts."
        in made.sentence
    )
    badge = outcome_badge(document(run))
    assert (badge.text, badge.why) == (
        "Re-consumed 0 messages so far", "1,200 more are at risk"
    )  # fmt: skip


def test_a_canary_is_in_no_headline(tmp_path: Path) -> None:
    story = at_work()
    group = "failback-canary-x-1-moves"
    story.members[group] = {"m"}
    story.commit(1000, key=f"failback-canary-x-1@{group}")
    story.wait(2)
    story.kill()
    story.wait(2)
    story.commit(1500, key=f"failback-canary-x-1@{group}", at=(SLAVE,))
    story.members[group] = set()
    story.wait(3)
    story.start(1000)
    story.brokers[MASTER].offsets[f"failback-canary-x-1@{group}"] = {0: 900, 1: 900}
    story.wait(2)
    story.members[group] = {"n"}
    story.wait(2)
    run = written(story, tmp_path / "run")
    made = report(run)
    page = (run / "report" / "report.html").read_text()
    assert "canary, its member moves" in page
    assert page.index(">The canary<") > page.index("No group re-consumed anything.")
    assert "canary" not in made.sentence
    assert outcome_badge(document(run)).text == "Re-consumed 0 messages: no limit set"
    assert document(run)["observation"]["returns"][0]["groups"][0]["group"] == group


def test_a_danger_that_lasts_is_shown_with_its_safe_offsets(tmp_path: Path) -> None:
    run = written(handed_over(), tmp_path / "run")
    report(run)
    page = (run / "report" / "report.html").read_text()
    assert "Queues below a safe offset" in page
    rows = (run / "report" / "tables" / "safe_offsets.csv").read_text()
    assert "billing,orders,broker-a,1,1500" in rows


def test_a_return_that_nobody_saw_is_inconclusive(tmp_path: Path) -> None:
    story = at_work()
    serve(story, 1500)
    story.sleep(30)
    story.start(900)
    story.wait(3)
    run = written(story, tmp_path / "run")
    made = report(run)
    assert (made.verdict, made.exit_code) == ("Inconclusive", 3)
    assert "its table was not read in time" in document(run)["verdict"]["reasons"][0]["detail"]


@pytest.mark.parametrize("is_unreachable", [True, False])
def test_a_master_that_may_be_back_and_was_not_read_is_inconclusive(
    tmp_path: Path, is_unreachable: bool
) -> None:
    story = at_work()
    serve(story, 1500)
    story.freeze(is_unreachable=is_unreachable)
    story.wait(3)
    run = written(story, tmp_path / "run")
    made = report(run)
    assert made.sentence == (
        f"{moment(run, 4.1)}: broker-a is still down. The number of repeats is not known yet."
    )
    badge = outcome_badge(document(run))
    assert (badge.text, badge.why) == ("Re-consumed: not known yet", "broker-a is still down")
    assert made.verdict == ("Observed" if is_unreachable else "Inconclusive")
    (check,) = document(run)["checks"]
    assert check["observed"] == 0
    assert check["expected"] == (0 if is_unreachable else 1)


def test_nothing_happened(tmp_path: Path) -> None:
    story = Story()
    story.commit(10)
    story.wait(3)
    made = report(written(story, tmp_path / "run"))
    assert (made.verdict, made.sentence) == ("Observed", "No master went and came back.")


def test_an_observation_is_continued_and_the_pause_is_a_gap(tmp_path: Path) -> None:
    story = at_work()
    serve(story, 1500)
    run = written(story, tmp_path / "run")
    half = len(story.looks)
    story.sleep(60)
    story.start(900)
    story.wait(3)
    add(opened(run), story, half)
    report(run)
    found = document(run)["observation"]
    assert [gap["what"] for gap in found["gaps"]] == ["the observer did not look"]
    story.observation.zero = zero(run)
    assert found == story.observation.document()


def test_an_observation_about_other_groups_is_not_continued(tmp_path: Path) -> None:
    opened(tmp_path / "run").close()
    with pytest.raises(ConfigError, match=r"--group: .* was about all"):
        opened(tmp_path / "run", groups=("billing",))


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"--out: .* has files that are no run"):
        opened(tmp_path / "run")
    other = unplanned_run("other", "trace", wall_ns=0, mono_ns=0)
    (tmp_path / "run" / "run.json").write_text(json.dumps(other))
    with pytest.raises(ConfigError, match=r"--out: .* was not observed"):
        opened(tmp_path / "run")


def test_two_observers_do_not_write_to_one_folder(tmp_path: Path) -> None:
    first = opened(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"--out: another observer writes to"):
        opened(tmp_path / "run")
    first.close()
    opened(tmp_path / "run").close()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("limits", "verdict", "met"),
    [
        ({"max_duplicates": "1200"}, "Observed", None),
        ({"max_duplicates": "1800"}, "Pass", True),
        ({"max_duplicates": "1199"}, "Fail", False),
        ({"max_duplicates": "0.5%"}, "Fail", False),
        ({"max_duplicates": "300%"}, "Pass", True),
        ({"max_rto": "9.0"}, "Fail", False),
        ({"max_rto": "11.0"}, "Observed", None),
        ({"max_rto": "60.0"}, "Pass", True),
        ({"max_rto": "60.0", "max_duplicates": "1"}, "Fail", False),
    ],
)
def test_limits_fail_what_is_surely_above_and_pass_what_can_not_be(
    tmp_path: Path, limits: dict[str, str], verdict: str, met: bool | None
) -> None:
    story = at_work()
    serve(story, 1500)
    story.store(1800)  # 300 of each queue may have been handled, and were not committed
    come_back(story, 900)
    take_over(story, 1900)
    made = report(written(story, tmp_path / "run", limits=limits))
    assert made.verdict == verdict
    assert made.exit_code == (1 if verdict == "Fail" else 0)
    assert document(tmp_path / "run")["outcome"]["met"] is met
