"""The control plane of the tests is a real one: controllers act, rights count, writes are seen."""

from __future__ import annotations

import pytest

from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import ApiError, Object
from tests.support.kube_lab.control_plane import OwnControlPlane
from tests.support.kube_lab.namespaces import Namespace

pytestmark = pytest.mark.soak


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_the_garbage_collector_takes_children_of_a_deleted_owner(namespace: Namespace) -> None:
    owner = namespace.api.create(config_map("owner"))
    child = config_map("child")
    child["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }
    ]
    namespace.api.create(child)
    namespace.api.delete("ConfigMap", "owner")
    namespace.api.wait_gone("ConfigMap", "child")


def test_an_apply_without_change_keeps_the_resource_version_and_a_conflict_is_named(
    namespace: Namespace,
) -> None:
    first = namespace.api.apply(config_map("a", key="1"), manager="one", force=False)
    again = namespace.api.apply(config_map("a", key="1"), manager="one", force=False)
    assert first["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    with pytest.raises(ApiError) as refused:
        namespace.api.apply(config_map("a", key="2"), manager="two", force=False)
    assert refused.value.code == 409
    assert refused.value.status["details"]["causes"][0]["field"] == ".data.key"


def test_an_identity_may_do_what_its_role_says_and_nothing_else(namespace: Namespace) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create"]}]
    identity = namespace.identity("least", rules)
    commands = namespace.commands(identity)
    assert commands.kubectl("create", "configmap", "mine").code == 0
    refused = commands.kubectl("delete", "configmap", "mine", check=False)
    assert refused.code != 0
    assert f'User "{identity.user}" cannot delete resource "configmaps"' in refused.err


def test_the_audit_log_tells_who_wrote_what(
    control_plane: OwnControlPlane, namespace: Namespace
) -> None:
    mark = control_plane.audit.mark()
    namespace.api.create(config_map("seen"))
    namespace.api.get("ConfigMap", "seen")
    namespace.kubectl("delete", "configmap", "seen")
    ours = control_plane.audit.writes(since=mark, user_agent="kube-lab", namespace=namespace.name)
    assert [(write.verb, write.name, write.code) for write in ours] == [("create", "seen", 201)]
    writes = control_plane.audit.writes(since=mark, namespace=namespace.name, resource="configmaps")
    assert [write.verb for write in writes] == ["create", "delete"]
    assert control_plane.audit.counts(since=mark)["kube-lab"] == 1


def test_a_statefulset_makes_pods_and_claims(namespace: Namespace) -> None:
    namespace.kubectl("apply", "-f", "-", stdin=STATEFUL_SET)
    pod = namespace.api.wait("Pod", "web-0")
    assert pod["status"]["phase"] == "Pending"
    assert namespace.api.wait("PersistentVolumeClaim", "data-web-0")


def test_helm_installs_and_uninstalls(namespace: Namespace) -> None:
    chart = namespace.folder / "tiny"
    namespace.helm("create", str(chart))
    namespace.helm("install", "tiny", str(chart), "--set", "replicaCount=0", "--wait")
    assert namespace.api.get("Deployment", "tiny")["spec"]["replicas"] == 0
    namespace.helm("uninstall", "tiny", "--wait")
    namespace.api.wait_gone("Deployment", "tiny")


def test_data_survive_a_kill_of_the_api_server(
    control_plane: OwnControlPlane, namespace: Namespace
) -> None:
    namespace.api.create(config_map("kept", key="value"))
    control_plane.api_server.kill()
    with pytest.raises(ConnectionRefusedError):
        control_plane.api.list("Namespace")
    control_plane.start_api_server()
    assert namespace.api.get("ConfigMap", "kept")["data"] == {"key": "value"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "late"}}
    namespace.api.create(account)
    identity = namespace.identity_of("late")
    assert namespace.commands(identity).kubectl("get", "pods", check=False).code == 1


def test_a_definition_added_later_is_served_at_once(
    control_plane: OwnControlPlane, namespace: Namespace
) -> None:
    control_plane.install_definition(WIDGETS)
    wait_until(lambda: namespace.kubectl("get", "widgets", check=False).code == 0, "widgets")


STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {lab.failback.dev/nobody: "true"}
      containers: [{name: main, image: none, volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""

WIDGETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.lab.failback.dev"},
    "spec": {
        "group": "lab.failback.dev",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}
