"""A real observer's run on a real dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.observe.test_observing import commit, observer, prepared
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import wait_until
from tests.support.dashboard.dashboard_lab import DashboardLab, running_dashboard

RUN = "upgrade-7"


def run_of(lab: DashboardLab) -> dict[str, Any]:
    answer = lab.ask("GET", f"/api/v1/runs/{RUN}")
    return dict(answer.json()) if answer.status == 200 else {"state": "unknown", "live": None}


def live_of(lab: DashboardLab) -> dict[str, Any]:
    return run_of(lab)["live"] or {"phase": "", "events": [], "at_risk": [], "brokers": []}


async def test_a_return_is_shown_while_it_lasts_and_reported_when_it_is_over(
    tmp_path: Path,
) -> None:
    never = 600_000
    with (
        ClusterProcesses(tmp_path / "cluster", flushConsumerOffsetInterval=never) as cluster,
        running_dashboard(tmp_path / "dashboard", with_runs=False) as lab,
    ):
        await prepared(cluster)
        await commit(cluster, 100)
        watching = observer(cluster, lab.runs / RUN)
        try:
            watching.start()
            wait_until(lambda: live_of(lab)["phase"] == "observing", "the run on the page")
            (broker,) = live_of(lab)["brokers"]
            assert (broker["broker"], broker["role"]) == ("broker-a", "master")
            await commit(cluster, 900)
            looks = lab.runs / RUN / "looks.jsonl"
            wait_until(lambda: b'"0":900' in looks.read_bytes(), "a look at 900")
            cluster.broker.kill()
            wait_until(
                lambda: live_of(lab)["phase"] == "the master of broker-a is down", "the outage"
            )
            cluster.start_broker()
            wait_until(lambda: live_of(lab)["at_risk"], "the danger")
            live = live_of(lab)
            assert [each["kind"] for each in live["events"]] == ["MasterBack", "MasterGone"]
            (danger,) = live["at_risk"]
            assert danger["safe_offsets"] == {"0": 900, "1": 900}
            assert danger["command"] == "failback explain-offset billing orders 0 --live"
            page = lab.ask("GET", f"/runs/{RUN}").text
            assert "At risk now" in page
            assert danger["command"] in page
            assert watching.stop() == 0
        finally:
            watching.dispose()
        wait_until(lambda: run_of(lab)["state"] == "reported", "the report")
        page = lab.ask("GET", f"/runs/{RUN}").text
        assert "Each group at each return of a master" in page
        assert "Group billing: " in page
