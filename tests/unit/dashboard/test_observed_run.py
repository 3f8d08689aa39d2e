"""An observed run on the dashboard: while it goes on, when it has ended, when it goes on again."""

from __future__ import annotations

import asyncio
import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from failback.analytics.dashboard import poller
from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources import live_run
from failback.analytics.dashboard.sources.observed_run import ObservedRun
from failback.analytics.dashboard.sources.runs import RunIndex
from failback.analytics.exporter.runs import RunWatch
from failback.analytics.report.make_report import read_report, report
from failback.cli.__main__ import main
from tests.support.dashboard.asgi import ask
from tests.support.observe.folders import add, opened
from tests.support.observe.outages import at_work, come_back, serve, take_over
from tests.support.observe.stories import Story

RUN = "upgrade-7"
COMMAND = "failback explain-offset billing orders 0 --live"


def gone_and_behind() -> Story:
    """A master that is back with an old table, of which nobody took a queue yet."""
    story = at_work()
    serve(story, 1500)
    come_back(story, 900)
    return story


class Dashboard:
    """A dashboard that looks when it is told to."""

    def __init__(self, runs: Path) -> None:
        self.app: FastAPI = make_app(DashboardSettings(runs), [], lambda _: None)[0]
        self.poller: poller.Poller = self.app.state.shared.poller
        self.poller.state = replace(self.poller.state, at=1.0)

    def look(self) -> None:
        asyncio.run(self.poller.look_at_runs())
        asyncio.run(self.poller.look_at_live())

    def page(self, target: str) -> str:
        status, body = ask(self.app, target, accept="text/html")
        assert status == 200, body
        return html.unescape(body)


def test_a_run_is_followed_while_it_observes_and_its_report_stands_there_then(
    tmp_path: Path,
) -> None:
    story, shown = gone_and_behind(), Dashboard(tmp_path)
    folder = opened(tmp_path / RUN)
    shown.look()
    assert "nothing was looked at yet" in shown.page(f"/runs/{RUN}")
    add(folder, story)
    shown.look()
    assert f'<a href="/runs/{RUN}">Watch' in shown.page("/runs?verdict=running")
    text = shown.page(f"/runs/{RUN}")
    for part in (
        "At risk now",
        "0:1500 1:1500",
        "ACT: no member",
        COMMAND,
        "10.0.0.1:1",
        "MasterGone",
        "Brokers now",
    ):
        assert part in text, part
    assert "Abort this run" not in text

    known = len(story.looks)
    story.kill()
    story.wait(1)
    add(folder, story, known)
    shown.look()
    assert "the master of broker-a is down" in shown.page(f"/runs/{RUN}")

    folder.close()
    shown.look()
    assert shown.poller.live == {}
    ended = shown.page(f"/runs/{RUN}")
    assert "Make one with" in ended
    assert f"failback report {tmp_path / RUN}" in ended
    report(tmp_path / RUN)
    shown.look()
    made = shown.page(f"/runs/{RUN}")
    assert "Each group at each return of a master" in made
    assert "Group billing" in made
    assert "distinct messages" not in made  # nobody counted deliveries
    assert RUN in shown.page("/runs?verdict=Observed")
    assert RUN not in shown.page("/compare")

    folder = opened(tmp_path / RUN)
    shown.look()
    assert "Brokers now" in shown.page(f"/runs/{RUN}")
    folder.close()


def test_nobody_aborts_what_only_observes(tmp_path: Path) -> None:
    folder = opened(tmp_path / RUN)
    (entry,) = RunIndex(tmp_path).scan()
    shown = Dashboard(tmp_path)
    with pytest.raises(DashboardProblem, match="upgrade-7 only observes: end the failback observe"):
        shown.app.state.shared.experiments.abort_run(entry, "ann")
    folder.close()


def test_an_observed_run_keeps_no_alert_calm(tmp_path: Path) -> None:
    folder = opened(tmp_path / RUN)
    active = [
        sample
        for metric in RunWatch(tmp_path).collect()
        for sample in metric.samples
        if sample.name == "failback_run_active"
    ]
    folder.close()
    assert active == []


def progress_of(path: Path) -> tuple[ObservedRun, dict[str, Any]]:
    (entry,) = RunIndex(path).scan()
    live = poller.opened(entry)
    assert isinstance(live, ObservedRun)
    for _ in range(1000):
        if not live.look(0):
            break
    return live, live.progress()


def test_looks_are_read_a_few_at_a_time_and_a_torn_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(tmp_path / RUN)
    add(folder, gone_and_behind())
    _, whole = progress_of(tmp_path)
    monkeypatch.setattr(live_run, "MOST_BYTES", 10)  # less than a line
    live, slow = progress_of(tmp_path)
    assert slow == whole
    assert (whole["return_count"], whole["at_risk_count"]) == (1, 1)
    assert whole["at_risk"][0]["safe_offsets"] == {"0": 1500, "1": 1500}
    assert whole["at_risk"][0]["behind"] == 1200
    looks = tmp_path / RUN / "looks.jsonl"
    with looks.open("ab") as file:
        file.write(b'{"look": ')
    assert live.look(0) == set()
    with looks.open("ab") as file:
        file.write(b"broken\n")
    assert live.look(0) == {"counters"}
    assert live.progress() == whole
    folder.close()


def test_lists_of_runs_show_the_interval_of_an_observation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = opened(tmp_path / RUN)
    story = at_work()
    serve(story, 1500, stored=1200)
    come_back(story, 900)
    take_over(story, 2000)
    add(folder, story)
    folder.close()
    said = read_report(report(folder.path).json)["observation"]
    (entry,) = RunIndex(tmp_path).scan()
    assert said["returns"][0]["groups"][0]["hi"] == 1200
    assert entry.dup_span == "1,200"
    assert main(["runs", "list", "--runs", str(tmp_path)]) == 0
    assert entry.dup_span in capsys.readouterr().out
    shown = Dashboard(tmp_path)
    shown.look()
    assert f'<td data-label="re-consumed" class="n">{entry.dup_span}</td>' in shown.page("/runs")


def test_a_query_without_a_row_says_where_an_observation_has_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = opened(tmp_path / RUN)
    add(folder, gone_and_behind())
    folder.close()
    report(folder.path)
    assert main(["lake", "query", str(folder.path), "SELECT * FROM totals"]) == 0
    assert "no row: an observation counts by return" in capsys.readouterr().err
    assert main(["lake", "query", str(folder.path), "SELECT 1"]) == 0
    assert capsys.readouterr().err == ""
