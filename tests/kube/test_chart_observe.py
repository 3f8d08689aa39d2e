"""An exporter of the chart that observes: its pods write, go on with and close one run folder.

The brokers are plain processes: no operator runs them, and none is installed.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from failback.analytics.web.tokens import digest_of, new_token
from tests.integration.observe.test_observing import GROUP, commit, looks, prepared
from tests.kube.test_chart_dashboard import QUIET, ask
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.chart import CHART, settings

CLAIM, SECRET, OBSERVER = "all-runs", "orders-key", "observe"
KEYS = "accessKey: ops-key\nsecretKey: ops-secret-1\n"
"""A cluster that asks for none takes them as well."""
_DAY = 86_400


class Installed(NamedTuple):
    """A release whose exporter observes ``cluster``."""

    namespace: Namespace
    node: NodeProcess
    cluster: ClusterProcesses
    token: str

    @property
    def pod(self) -> Object:
        found = self.namespace.api.list("Pod", labels="app.kubernetes.io/name=failback-exporter")
        (pod,) = (each for each in found if "deletionTimestamp" not in each["metadata"])
        return pod

    @property
    def runs_observer(self) -> bool:
        found = self.pod.get("status", {}).get("containerStatuses", ())
        return any(each["name"] == OBSERVER and "running" in each["state"] for each in found)

    @property
    def said(self) -> str:
        """Everything that the observer of the newest pod printed."""
        name = self.pod["metadata"]["name"]
        return self.namespace.kubectl("logs", name, "-c", OBSERVER, check=False).out

    @property
    def folder(self) -> Path:
        """The one run folder on the claim."""
        (found,) = self.node.claim_folder(self.namespace.name, CLAIM).iterdir()
        assert found.name == time.strftime("orders-%F", time.gmtime())
        return found

    def run(self) -> dict[str, Any]:
        """What the dashboard says of the run."""
        status, body = ask(self.namespace, 8090, f"/api/v1/runs/{self.folder.name}", self.token)
        assert status == 200, body
        return dict(json.loads(body))

    def metrics(self) -> str:
        address = f"http://{self.pod['status']['podIP']}:5557/metrics"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return str(answer.read().decode())

    def wait_for(self, words: str) -> None:
        wait_until(lambda: words in self.said, f"the observer says {words}", 60)


@pytest.fixture
def installed(namespace: Namespace, node: NodeProcess, tmp_path: Path) -> Iterator[Installed]:
    wait_until(lambda: time.time() % _DAY < _DAY - 180, "a day that does not end soon", 240)
    token = new_token()
    file = namespace.folder / "tokens"
    file.write_text(f"{digest_of(token)} read oncall\n")
    namespace.create_claim(CLAIM)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
    namespace.api.create({**secret, "stringData": {"tools.yml": KEYS}})
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        words = (
            *QUIET,
            "dashboard.enabled=true",
            f"dashboard.runsClaim={CLAIM}",
            "exporters[0].name=orders",
            f"exporters[0].nameServers={{{cluster.namesrv_addr}}}",
            "exporters[0].intervalSeconds=1",
            "exporters[0].observe=true",
            f"exporters[0].access.keySecret={SECRET}",
        )
        flags = [*settings(words), "--set-file", f"dashboard.tokens={file}"]
        namespace.helm("install", "failback", str(CHART), "--wait", "--timeout=5m", *flags)
        yield Installed(namespace, node, cluster, token)


async def test_its_pods_write_one_run_that_the_dashboard_follows(installed: Installed) -> None:
    cluster, namespace, node = installed.cluster, installed.namespace, installed.node
    await prepared(cluster)
    await commit(cluster, 100)
    installed.wait_for("observing broker-a-0")
    wait_until(lambda: f'"{GROUP}"' in installed.metrics(), "the group's metrics", 60)
    wait_until(lambda: installed.run()["live"], "the run on the page", 60)
    (broker,) = installed.run()["live"]["brokers"]
    assert (broker["broker"], broker["state"]) == ("broker-a", "answered")
    folder = installed.folder
    cluster.broker.kill()
    installed.wait_for("MasterGone")
    cluster.start_broker()
    installed.wait_for("MasterBack")

    namespace.kubectl("delete", "pod", installed.pod["metadata"]["name"])  # until it is gone
    report = json.loads((folder / "report" / "report.json").read_text())
    assert report["verdict"]["value"] == "Observed"
    assert kinds(report) == ["MasterGone", "MasterBack"]
    known = looks(folder)
    assert known

    wait_until(lambda: installed.runs_observer, "the next pod", 60)
    wait_until(lambda: len(looks(folder)) > len(known), "looks of the next pod", 60)
    node.kill_container(namespace.name, installed.pod["metadata"]["name"], OBSERVER)
    killed = len(looks(folder))
    wait_until(lambda: len(looks(folder)) > killed + 2, "looks of the next container", 60)
    wait_until(lambda: installed.run()["live"], "the run on the page again", 60)
    assert installed.folder == folder
    assert looks(folder)[: len(known)] == known
    assert installed.run()["live"]["event_count"] == 2

    namespace.helm("uninstall", "failback", "--wait")
    report = json.loads((folder / "report" / "report.json").read_text())
    assert kinds(report) == ["MasterGone", "MasterBack"]


def kinds(report: dict[str, Any]) -> list[str]:
    return [each["kind"] for each in report["observation"]["events"]]
