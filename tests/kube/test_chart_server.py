"""The chart on a real API server: dry run, install, upgrade, rollback, uninstall, hooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.operator.kinds.base import FINALIZER
from tests.kube.optional_kinds import foreign_kinds
from tests.support.kube_lab.api import ApiError
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.chart import CHART, MODES, objects, render, settings
from tests.support.processes.child_process import ROOT

NO_PODS = ("replicas=0", "crds.install=false", "uninstall.removeFinalizers=false")
FOREIGN_KINDS = {"PodMonitor": "podmonitors", "ServiceMonitor": "servicemonitors"}
FOREIGN_KINDS["PrometheusRule"] = "prometheusrules"


@pytest.fixture
def monitoring(control_plane: ControlPlane) -> Iterator[None]:
    """The kinds of the Prometheus operator, without their schemas."""
    api = control_plane.api
    names = {f"{plural}.monitoring.coreos.com": kind for kind, plural in FOREIGN_KINDS.items()}
    with foreign_kinds(control_plane):
        try:
            for name, kind in names.items():
                api.create(definition_of(name, kind))
            for name in names:
                api.wait("CustomResourceDefinition", name, established)
            yield
        finally:
            for name in names:
                api.delete("CustomResourceDefinition", name)
            for name in names:
                api.wait_gone("CustomResourceDefinition", name)


def definition_of(name: str, kind: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": FOREIGN_KINDS[kind]},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()  # null at first
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def left_in(namespace: Namespace) -> set[str]:
    """Return what is in a namespace beyond what the control plane puts there."""
    kinds = "serviceaccounts,configmaps,services,deployments,jobs,roles,rolebindings"
    shown = namespace.kubectl("get", kinds, "-o", "name").out.split()
    return set(shown) - {"serviceaccount/default", "configmap/kube-root-ca.crt"}


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=() if mode in ("default", "everything") else pytest.mark.soak)
        for mode in sorted(MODES)
    ],
)
def test_the_server_accepts_every_object(
    mode: str, namespace: Namespace, monitoring: None, tmp_path: Path
) -> None:
    # Every object goes into the test's namespace; the others that a mode names do not exist here.
    text = render(tmp_path, *MODES[mode], crds=True)
    for name in ("failback", "shop", "stock"):
        text = text.replace(f"namespace: {name}\n", f"namespace: {namespace.name}\n")
    done = namespace.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", stdin=text
    )
    assert len(done.out.splitlines()) == len(objects(text))
    assert "Warning" not in done.err


def test_install_upgrade_rollback_and_uninstall(namespace: Namespace) -> None:
    flags = settings((*NO_PODS, "chaos.enabled=true"))
    namespace.helm("install", "failback", str(CHART), "--wait", *flags)
    deployment = namespace.api.get("Deployment", "failback-operator")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}

    changed = [*flags, "--set", "logLevel=DEBUG", "--set", "chaos.enabled=false"]
    namespace.helm("upgrade", "failback", str(CHART), "--wait", *changed)
    assert log_level(namespace) == "DEBUG"
    assert "serviceaccount/failback-chaos" not in left_in(namespace)

    namespace.helm("rollback", "failback", "1", "--wait")
    assert log_level(namespace) == "INFO"
    assert "serviceaccount/failback-chaos" in left_in(namespace)
    history = json.loads(namespace.helm("history", "failback", "-o", "json").out)
    assert [each["status"] for each in history] == ["superseded", "superseded", "deployed"]

    namespace.helm("uninstall", "failback", "--wait")
    assert left_in(namespace) == set()


def log_level(namespace: Namespace) -> str:
    deployment = namespace.api.get("Deployment", "failback-operator")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found = {each["name"]: each.get("value", "") for each in container["env"]}
    return str(found["FAILBACK_LOG_LEVEL"])


def test_definitions_and_resources_outlive_the_release(namespace: Namespace) -> None:
    # The lab has the definitions already, so this release takes them over.
    flags = settings(("replicas=0", "uninstall.removeFinalizers=false"))
    ours = ("--take-ownership", "--force-conflicts")
    namespace.helm("install", "failback", str(CHART), "--wait", *ours, *flags)
    namespace.kubectl("apply", "-f", str(ROOT / "examples" / "cluster.yaml"))
    namespace.helm("uninstall", "failback", "--wait")
    shown = namespace.kubectl("get", "failback", "-o", "name").out.split()
    assert sorted(shown) == [
        "brokercluster.failback.dev/demo",
        "nameserver.failback.dev/main",
        "subscriptiongroup.failback.dev/billing",
        "topic.failback.dev/order-paid",
    ]


def test_uninstall_frees_every_resource_of_its_finalizer(
    namespace: Namespace, node: NodeProcess
) -> None:
    flags = settings(("replicas=0", "crds.install=false"))
    namespace.helm("install", "failback", str(CHART), "--wait", *flags)
    namespace.kubectl("apply", "-f", str(ROOT / "examples" / "cluster.yaml"))
    for kind, name in (("NameServer", "main"), ("BrokerCluster", "demo")):
        metadata = {"finalizers": [FINALIZER, "example.com/audit"]}
        namespace.api.patch(kind, name, {"metadata": metadata})

    namespace.helm("uninstall", "failback", "--wait")
    for kind, name in (("NameServer", "main"), ("BrokerCluster", "demo")):
        assert namespace.api.get(kind, name)["metadata"]["finalizers"] == ["example.com/audit"]
        namespace.api.patch(kind, name, {"metadata": {"finalizers": None}})
    assert left_in(namespace) == set()


@pytest.mark.soak
def test_the_chaos_label_comes_only_when_asked_for(namespace: Namespace, node: NodeProcess) -> None:
    flags = settings((*NO_PODS, "chaos.enabled=true"))
    namespace.helm("install", "failback", str(CHART), "--wait", *flags)
    assert "failback.dev/chaos-allowed" not in labels_of(namespace)
    asked = [*flags, "--set", "chaos.labelNamespace=true"]
    namespace.helm("upgrade", "failback", str(CHART), "--wait", *asked)
    assert labels_of(namespace)["failback.dev/chaos-allowed"] == "true"


def labels_of(namespace: Namespace) -> dict[str, str]:
    found = namespace.control_plane.api.get("Namespace", namespace.name)
    return dict(found["metadata"].get("labels", {}))


def test_the_operators_role_is_what_its_account_may_do(namespace: Namespace) -> None:
    namespace.helm("install", "failback", str(CHART), *settings(NO_PODS))
    account = f"system:serviceaccount:{namespace.name}:failback-operator"

    def may(verb: str, resource: str, *more: str) -> bool:
        question = ("auth", "can-i", verb, resource, *more, "--as", account)
        return namespace.kubectl(*question, check=False).out.strip() == "yes"

    def reads_namespace(name: str) -> bool:
        return namespace.kubectl("get", "namespace", name, "--as", account, check=False).code == 0

    assert may("patch", "statefulsets.apps")
    assert may("create", "pods", "--subresource=eviction")
    assert not may("get", "secrets")
    assert not may("create", "pods", "--subresource=exec")
    assert not may("update", "brokerclusters.failback.dev")
    assert reads_namespace(namespace.name)
    assert not reads_namespace("kube-system")


def test_a_foreign_deployment_of_our_name_is_not_taken(namespace: Namespace) -> None:
    namespace.kubectl("create", "deployment", "failback-operator", "--image=x", "--replicas=0")
    done = namespace.helm("install", "failback", str(CHART), *settings(NO_PODS), check=False)
    assert done.code != 0
    assert 'Deployment "failback-operator"' in done.err
    with pytest.raises(ApiError):
        namespace.api.get("Role", "failback-operator")
