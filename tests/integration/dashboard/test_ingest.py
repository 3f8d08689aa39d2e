"""The Collector page says what a real collector received, and that it is away when it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.analytics.ingest_lab import (
    BACKLOG,
    OPEN_RUN,
    WHOLE_RUN,
    IngestLab,
    filled_collector,
    options_of,
    proc_of,
)
from tests.support.common.polling import wait_until
from tests.support.dashboard.dashboard_lab import DashboardLab, running_dashboard

HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IngestLab]:
    with filled_collector(tmp_path_factory.mktemp("collector")) as lab:
        yield lab


@pytest.fixture(scope="module")
def lab(received: IngestLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardLab]:
    folder = tmp_path_factory.mktemp("lab")
    with running_dashboard(folder, *options_of(received), with_runs=False) as lab:
        wait_until(lambda: ingest(lab)["runs"], "the collector's runs")
        yield lab


def ingest(lab: DashboardLab) -> dict[str, Any]:
    found: dict[str, Any] = lab.ask("GET", "/api/v1/ingest").json()
    return found


def test_every_process_has_what_was_sent_of_it(received: IngestLab, lab: DashboardLab) -> None:
    for (run, number), truth in received.truth.items():
        found = proc_of(lab.ask("GET", f"/api/v1/ingest/{run}").json(), number)
        wanted = truth.figures(received.collector.lake)
        assert {name: found[name] for name in wanted} == wanted
        assert (found["host"], found["role"]) == ("h", "consumer")
        assert found["heard"].startswith("20")
    second = proc_of(lab.ask("GET", f"/api/v1/ingest/{OPEN_RUN}").json(), 2)
    assert second["missing"] > 0
    assert (second["quarantined"], second["backlog_bytes"]) == (1, BACKLOG)


def test_a_run_is_the_sum_of_its_processes_and_says_what_to_do(
    received: IngestLab, lab: DashboardLab
) -> None:
    found = ingest(lab)
    assert (found["collector"], found["problem"]) == (received.collector.url, None)
    assert found["store"]["refuses"] is None
    runs = {each["run"]: each for each in found["runs"]}
    assert list(runs) == [OPEN_RUN, WHOLE_RUN], "the one that was heard of last comes first"
    for name, run in runs.items():
        procs = lab.ask("GET", f"/api/v1/ingest/{name}").json()["procs"]
        for figure in ("segments", "bytes", "deliveries", "missing", "quarantined"):
            assert run[figure] == sum(each[figure] for each in procs), figure
    assert (runs[WHOLE_RUN]["closed"], runs[OPEN_RUN]["closed"]) == (True, False)
    lake = received.collector.lake
    assert runs[WHOLE_RUN]["next"] == f"failback report --lake {lake} --run {WHOLE_RUN}"
    assert runs[OPEN_RUN]["next"] == "its shippers have more to send"
    for figure in ("segments", "deliveries", "quarantined"):
        assert found["summary"][figure] == sum(each[figure] for each in runs.values())


def test_the_pages_show_what_the_api_says(lab: DashboardLab) -> None:
    def cells(page: str, label: str) -> list[str]:
        return [
            re.sub("<[^>]+>", "", each)
            for each in re.findall(f'data-label="{label}"[^>]*>(.*?)</td>', page)
        ]

    page = lab.ask("GET", "/ingest", headers=HTML).text
    assert cells(page, "deliveries") == [f"{each['deliveries']:,}" for each in ingest(lab)["runs"]]
    assert cells(page, "quarantine") == ["1", "0"]
    procs = lab.ask("GET", f"/api/v1/ingest/{OPEN_RUN}").json()["procs"]
    page = lab.ask("GET", f"/ingest/{OPEN_RUN}", headers=HTML).text
    for figure in ("segments", "deliveries", "records", "missing"):
        assert cells(page, figure) == [f"{each[figure]:,}" for each in procs]
    assert f"quarantine/run={OPEN_RUN}" in page


def test_processes_come_in_pages(lab: DashboardLab) -> None:
    path = f"/api/v1/ingest/{OPEN_RUN}?limit=1"
    first = lab.ask("GET", path).json()
    second = lab.ask("GET", f"{path}&cursor={first['next']}").json()
    assert [each["proc_no"] for each in first["procs"] + second["procs"]] == [1, 2]
    assert second["next"] is None
    assert lab.ask("GET", f"{path}&cursor=bm9uZQ").status == 400
    assert lab.ask("GET", "/api/v1/ingest/nothing").status == 404


def test_a_collector_that_is_away_is_said_to_be_and_what_it_said_stays(tmp_path: Path) -> None:
    with filled_collector(tmp_path / "collector") as received:
        folder = tmp_path / "lab"
        with running_dashboard(folder, *options_of(received), with_runs=False) as lab:
            wait_until(lambda: ingest(lab)["runs"], "the collector's runs")
            received.collector.process.stop()
            wait_until(lambda: ingest(lab)["problem"], "that it is away")
            found = ingest(lab)
            assert found["problem"].startswith("the collector does not answer: ")
            assert [each["run"] for each in found["runs"]] == [OPEN_RUN, WHOLE_RUN]
            page = lab.ask("GET", "/ingest", headers=HTML).text
            assert "the collector does not answer" in page
            answer = lab.ask("GET", f"/api/v1/ingest/{OPEN_RUN}")
            assert (answer.status, answer.json()["type"]) == (503, "urn:failback:dashboard:failed")


def test_a_token_that_may_not_read_is_named(received: IngestLab, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(received.collector.add_token("ingest:other"))
    options = ("--collector", received.collector.url, "--collector-token", str(token))
    with running_dashboard(tmp_path / "lab", *options, with_runs=False) as lab:
        wait_until(lambda: ingest(lab)["problem"], "the refusal")
        said = "the collector refuses: 403 the token has not the scope read"
        assert ingest(lab)["problem"] == said


def test_without_a_collector_the_page_says_how_to_watch_one(tmp_path: Path) -> None:
    with running_dashboard(tmp_path, with_runs=False) as lab:
        assert "--collector-token" in lab.ask("GET", "/ingest", headers=HTML).text
        assert ingest(lab)["collector"] is None
        assert lab.ask("GET", "/api/v1/ingest/any").status == 404
