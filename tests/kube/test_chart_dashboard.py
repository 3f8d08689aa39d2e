"""The dashboard as the chart installs it: its pod is ready, and shows what its account may list."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from failback.analytics.web.tokens import digest_of, new_token
from tests.support.common.polling import wait_until
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.chart import CHART, settings
from tests.support.processes.child_process import ROOT

# No operator: what is listed are the resources alone.
QUIET = ("crds.install=false", "replicas=0", "uninstall.removeFinalizers=false")


@pytest.fixture
def token(namespace: Namespace, node: NodeProcess) -> Iterator[str]:
    """A token that may read, of a release whose dashboard is ready."""
    made = new_token()
    file = namespace.folder / "tokens"
    file.write_text(f"{digest_of(made)} read oncall\n")
    flags = [
        *settings((*QUIET, "dashboard.enabled=true")),
        "--set-file",
        f"dashboard.tokens={file}",
    ]
    namespace.helm("install", "failback", str(CHART), "--wait", "--timeout=5m", *flags, seconds=400)
    yield made
    namespace.helm("uninstall", "failback", "--wait", check=False)


def ask(namespace: Namespace, port: int, path: str, token: str = "") -> tuple[int, str]:
    """One request to the pod's own address; status and body."""
    (pod,) = namespace.api.list("Pod", labels="app.kubernetes.io/name=failback-dashboard")
    request = urllib.request.Request(
        f"http://{pod['status']['podIP']}:{port}{path}",
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_one_value_gives_the_page_and_it_lists_the_clusters_of_its_namespace(
    namespace: Namespace, token: str
) -> None:
    assert ask(namespace, 8090, "/api/v1/clusters")[0] == 401
    assert ask(namespace, 8090, "/", token)[0] == 200
    assert "failback_dashboard_looks" in ask(namespace, 8091, "/metrics")[1]
    namespace.kubectl("apply", "-f", str(ROOT / "examples" / "cluster.yaml"))

    def clusters() -> dict[str, Any]:
        status, body = ask(namespace, 8090, "/api/v1/clusters", token)
        assert status == 200, body
        return dict(json.loads(body))

    wait_until(lambda: clusters()["clusters"], "the cluster on the page", 120.0)
    found = clusters()
    assert [each["where"] for each in found["clusters"]] == [f"{namespace.name}/demo"]
    assert [each for each in found["problems"] if each.startswith("Kubernetes")] == []
