"""What pages say where there is nothing to show, and to questions that make no sense."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources.brokers import BrokerSeen
from failback.analytics.dashboard.sources.live_run import LiveRun
from failback.analytics.dashboard.sources.runs import RunIndex
from failback.analytics.dashboard.views.offset_health import ClientMemory
from failback.analytics.web.tokens import digest_of, new_token
from failback.chaos.run_folder.run_folder import RunFolder
from tests.support.analytics.sample_report import sample_report
from tests.support.dashboard.asgi import ask
from tests.support.dashboard.dashboard_lab import MESSAGE, OTHER_RUN, RUN, write_run
from tests.support.dashboard.pairs import CLUSTER, MASTER, NOW, SLAVE, seen, world


def app_of(path: Path, **settings: Any) -> FastAPI:
    """A dashboard on loopback that has looked once and found nothing."""
    app, _ = make_app(DashboardSettings(path, **settings), [], lambda _: None)
    poller = app.state.shared.poller
    poller.state = replace(poller.state, at=1.0)
    return app


def page(app: FastAPI, target: str) -> str:
    status, body = ask(app, target, accept="text/html")
    assert status == 200
    return body


def test_an_empty_fleet_says_where_it_looked(tmp_path: Path) -> None:
    app = app_of(tmp_path, kube_namespaces=("shop", "stock"))
    assert "No BrokerCluster is known in shop or stock." in page(app, "/")
    assert "apply a ChaosExperiment to shop or stock." in page(app, "/experiments")
    alone = app_of(tmp_path)
    assert "No cluster is running on this machine." in page(alone, "/")
    assert "No experiment can be started by this dashboard." in page(alone, "/experiments")


@pytest.mark.parametrize("value", ["inf", "1e308", "nan", "-1", "0", "soon", "86401"])
def test_an_outage_that_is_no_length_of_time_is_named(value: str, tmp_path: Path) -> None:
    status, body = ask(app_of(tmp_path), f"/predict?fault=handover&down_seconds={value}")
    assert (status, "down_seconds" in body) == (422, True), body


def test_a_message_of_a_run_that_never_began_is_not_found(tmp_path: Path) -> None:
    write_run(tmp_path / "r", RUN, "handover")
    run = json.loads((tmp_path / "r" / "run.json").read_text())
    (tmp_path / "r" / "run.json").write_text(json.dumps(run | {"zero": None}))
    app = app_of(tmp_path)
    poller = app.state.shared.poller
    poller.state = replace(poller.state, runs=tuple(RunIndex(tmp_path).scan()))
    for prefix in ("", "/api/v1"):
        assert ask(app, f"{prefix}/runs/{RUN}/messages/{MESSAGE}")[0] == 404


def test_what_a_reader_may_not_do_is_not_offered(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "r"
    RunFolder(folder).create()
    (folder / "run.json").write_text(json.dumps({"run": "r", "zero": {"wall_ns": 5}}))
    mine = RunFolder(folder)
    mine.open()
    tokens = {scope: new_token() for scope in ("read", "operate")}
    lines = [f"{digest_of(token)} {scope} {scope}\n" for scope, token in tokens.items()]
    (tmp_path / "tokens").write_text("".join(lines))
    app = app_of(tmp_path / "runs", tokens=tmp_path / "tokens")
    poller = app.state.shared.poller
    poller.state = replace(poller.state, runs=tuple(RunIndex(tmp_path / "runs").scan()))
    poller.live["r"] = LiveRun.open("r", folder)
    for scope, token in tokens.items():
        status, body = ask(app, "/runs/r", accept="text/html", token=token)
        assert (status, "Abort this run" in body) == (200, scope == "operate")
    mine.release()


def test_a_run_with_scaled_timers_says_so_and_is_named_as_in_its_report(tmp_path: Path) -> None:
    for name, scale in ((RUN, 0.1), (OTHER_RUN, 1.0)):
        write_run(tmp_path / name, name, "handover")
        file = tmp_path / name / "report" / "report.json"
        report = json.loads(file.read_text()) | {"repetition": 2}
        report["source"]["time_scale"] = scale
        file.write_text(json.dumps(report))
    app = app_of(tmp_path)
    poller = app.state.shared.poller
    poller.state = replace(poller.state, runs=tuple(RunIndex(tmp_path).scan()))
    scaled, real = (page(app, f"/runs/{name}") for name in (RUN, OTHER_RUN))
    assert "on a real cluster this takes 10 times as long" in scaled
    assert "Timers ran at" not in real
    assert ", arm handover, repetition 3</h1>" in scaled


def lineage_page(tmp_path: Path, master: BrokerSeen, slave: BrokerSeen, client: int) -> str:
    """The page of queue 0, with what a member has in memory."""

    async def memory_of(*_: object) -> ClientMemory:
        return {("demo-0", "orders", 0): (client, "c1")}

    app = app_of(tmp_path)
    poller = app.state.shared.poller
    found = world(master, slave)
    poller.state = replace(poller.state, at=NOW, clusters=(CLUSTER,), seen=found)
    poller.history.note(NOW, poller.state.cluster_documents())
    poller.memory_of = memory_of
    return page(app, "/offsets/demo.demo/demo-0/billing/orders/0")


def test_nothing_is_to_do_while_members_only_have_not_committed_yet(tmp_path: Path) -> None:
    body = lineage_page(tmp_path, seen(MASTER, 300, file=250), seen(SLAVE, 280), 310)
    assert "Nothing: the master's memory has what members committed; 10 more are done" in body
    assert '<ol class="lineage">' in body, "no alarm"
    assert "<details><summary>If members end before they commit</summary>" in body
    assert "--offset 310" in body


def test_a_master_that_is_behind_its_slave_is_an_alarm_with_a_command(tmp_path: Path) -> None:
    body = lineage_page(tmp_path, seen(MASTER, 250, file=250, up=3), seen(SLAVE, 300), 300)
    assert '<ol class="lineage wrong">' in body
    assert "<p>Store the safe offset on the master while no member of the group is online" in body
    assert "<details>" not in body


ODD_REPORTS: list[dict[str, Any]] = [
    {"verdict": {"value": "Pass", "sentence": ""}},
    {**sample_report(), "queues": [{"qid": 1}]},
    {**sample_report(), "rto": [{"phases": 3}]},
    {key: value for key, value in sample_report().items() if key != "system"},
]


@pytest.mark.parametrize("report", ODD_REPORTS)
def test_a_report_of_another_version_is_one_sentence_wherever_it_is_shown(
    report: dict[str, Any], tmp_path: Path
) -> None:
    for name, arm in ((RUN, "handover"), (OTHER_RUN, "stay")):
        write_run(tmp_path / arm, name, arm)
    report = {"totals": {}, **report, "run": RUN}
    (tmp_path / "handover" / "report" / "report.json").write_text(json.dumps(report))
    app = app_of(tmp_path)
    poller = app.state.shared.poller
    poller.state = replace(poller.state, runs=tuple(RunIndex(tmp_path).scan()))
    status, body = ask(app, f"/runs/{RUN}")
    assert (status, "is not of this version" in body) == (503, True)
    assert f"failback report {tmp_path / 'handover'}" in body
    for path in (
        f"/runs/{RUN}/queues/0",
        f"/api/v1/runs/{RUN}/figures",
        f"/api/v1/runs/{RUN}/figures/timeline",
        f"/api/v1/runs/{RUN}/windows",
        f"/compare?run={RUN}&run={OTHER_RUN}",
        f"/api/v1/compare?run={RUN}&run={OTHER_RUN}",
    ):
        assert ask(app, path)[0] in {200, 404, 503}, path
    assert ask(app, f"/runs/{OTHER_RUN}")[0] == 200
