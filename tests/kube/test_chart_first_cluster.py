"""From nothing to a running pair with two commands, and back to nothing but the volumes."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.common.polling import wait_until
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.chart import CHART, settings
from tests.support.processes.child_process import ROOT

EXAMPLE = str(ROOT / "examples" / "cluster.yaml")
RESOURCES = [
    "brokercluster.failback.dev/demo",
    "nameserver.failback.dev/main",
    "subscriptiongroup.failback.dev/billing",
    "topic.failback.dev/order-paid",
]


def exporter(namespace: str) -> tuple[str, str]:
    """Settings of an exporter for the name servers that the example is going to make."""
    known = ",".join(f"main-ns-{n}.main-ns.{namespace}.svc.cluster.local:9876" for n in range(2))
    return ("exporters[0].name=demo", f"exporters[0].nameServers={{{known}}}")


def exported(installed: Namespace) -> set[str]:
    """The lines of the exporter's pod about who answers."""
    (pod,) = installed.api.list("Pod", labels="app.kubernetes.io/name=failback-exporter")
    address = f"http://{pod['status']['podIP']}:5557/metrics"
    with urllib.request.urlopen(address, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {line for line in lines if line.startswith("failback_exporter_") and "up{" in line}


def all_answer(lines: set[str]) -> bool:
    """Whether two name servers and two brokers are shown, each up."""
    return len(lines) == 4 and all(line.endswith(" 1.0") for line in lines)


@pytest.fixture
def installed(namespace: Namespace, node: NodeProcess) -> Iterator[Namespace]:
    # The lab brings the definitions: they are the cluster's and not the test's.
    words = ("crds.install=false", "logFormat=text", *exporter(namespace.name))
    flags = settings(words)
    namespace.helm("install", "failback", str(CHART), "--wait", "--timeout=5m", *flags)
    yield namespace
    namespace.helm("uninstall", "failback", "--wait", check=False)


def test_two_commands_make_a_pair_and_a_delete_leaves_its_volumes(installed: Namespace) -> None:
    shown = installed.helm("test", "failback", "--timeout=2m").out
    assert "Succeeded" in shown

    installed.kubectl("apply", "-f", EXAMPLE)
    for resource in RESOURCES:
        installed.kubectl("wait", resource, "--for=condition=Ready", "--timeout=5m", seconds=400)

    shown = installed.kubectl("get", "failback").out
    ready = {
        line.split()[0]: line.split()[1] for line in shown.splitlines() if "failback.dev/" in line
    }
    assert ready == dict.fromkeys(RESOURCES, "True")
    pods = installed.kubectl("get", "pods", "-o", "name", "-l", "failback.dev/cluster=demo").out
    assert sorted(pods.split()) == ["pod/demo-0-0-0", "pod/demo-0-1-0"]

    wait_until(lambda: all_answer(exported(installed)), "the exporter shows everybody", 60)

    installed.kubectl("delete", "-f", EXAMPLE, "--wait", "--timeout=5m", seconds=400)
    kinds = "statefulsets,services,configmaps,poddisruptionbudgets,pods,jobs,leases"
    ours = ("-l", "app.kubernetes.io/managed-by=failback-operator")
    installed.kubectl("wait", kinds, *ours, "--for=delete", "--timeout=3m", check=False)
    assert installed.kubectl("get", kinds, *ours, "-o", "name").out == ""
    claims = installed.kubectl("get", "persistentvolumeclaims", "-o", "name").out.split()
    assert sorted(claims) == [
        "persistentvolumeclaim/data-demo-0-0-0",
        "persistentvolumeclaim/data-demo-0-1-0",
    ]
