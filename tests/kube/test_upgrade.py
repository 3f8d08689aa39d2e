"""A newer operator takes over what an older one made, and disturbs nothing that runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from failback.operator.render.nameserver import ROUTES_SECONDS
from failback.operator.settings import MANAGER
from tests.kube.previous_release import NAMESPACE, PREVIOUS, SPEC, previous_objects
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.canonical_objects import canonical
from tests.support.operator.operator_process import is_true, operator
from tests.support.operator.quick_pair import QUICK
from tests.support.operator.real_cluster import LivedCluster, unchanged_lives

PODS = {"main-ns-0": None, "orders-0-0-0": "master", "orders-0-1-0": "slave"}
"""Pods, and the role that the previous operator has seen."""
ALLOWED = {
    "brokerclusters/status",
    "configmaps",
    "events",
    "nameservers/status",
    "persistentvolumeclaims",
    "statefulsets",
    "subscriptiongroups/status",
    "topics/status",
}
"""What the first pass may write: what it sees and says, whose log claims have, a note of the
spec that is in force, and how long the next roll of name servers waits."""


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[Namespace]:
    """The namespace that the previous release rendered for."""
    found = Namespace(control_plane, NAMESPACE)
    try:
        yield found
    finally:
        found.clean_up()


def set_up(namespace: Namespace) -> LivedCluster:
    """Bring about what the previous release leaves behind: objects, marks of pods, statuses."""
    cluster = LivedCluster(namespace, **SPEC)
    api = namespace.api
    owners = {"NameServer": "main", "BrokerCluster": "orders"}
    uids = {kind: api.get(kind, name)["metadata"]["uid"] for kind, name in owners.items()}
    for manifest in previous_objects(uids):
        api.apply(manifest, manager=MANAGER, force=False)
    for pod, role in PODS.items():
        api.wait("Pod", pod, is_true("Ready"), seconds=120)
        if role is not None:
            label = {"metadata": {"labels": {"failback.dev/role": role}}}
            api.patch("Pod", pod, label)
    for kind, name in owners.items():
        status = {"operatorVersion": PREVIOUS, "observedGeneration": 1}
        api.patch(kind, name, {"status": status}, subresource="status")
    return cluster


def started(namespace: Namespace) -> dict[str, tuple[str, str, str]]:
    """Return uid, start time of the pod and start time of its container, by pod."""
    found = {}
    for pod in PODS:
        item = namespace.api.get("Pod", pod)
        status = item["status"]
        running = status["containerStatuses"][0]["state"]["running"]["startedAt"]
        found[pod] = (item["metadata"]["uid"], status["startTime"], running)
    return found


def templates(namespace: Namespace) -> dict[str, Any]:
    """Return the generation of every StatefulSet: it moves with any change of its spec."""
    found = namespace.api.list("StatefulSet")
    return {item["metadata"]["name"]: item["metadata"]["generation"] for item in found}


def marks(namespace: Namespace, member: int) -> tuple[str, str]:
    """Return what a claim says of its member: its role, and the epoch of the log that it has."""
    claim = namespace.api.get("PersistentVolumeClaim", f"data-orders-0-{member}-0")["metadata"]
    role = claim["labels"]["failback.dev/role"]
    return role, claim["annotations"]["failback.dev/master-epoch"]


def releases(cluster: LivedCluster) -> set[str]:
    """Return the releases whose defaults the members have."""
    found = [cluster.api.get("StatefulSet", name) for name in cluster.members()]
    return {item["metadata"]["annotations"]["failback.dev/release"] for item in found}


def test_a_newer_operator_changes_the_version_in_the_status_and_nothing_else(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    cluster = set_up(namespace)
    objects, lives, generations = canonical(namespace), started(namespace), templates(namespace)
    mark = control_plane.audit.mark()
    with operator(namespace, **QUICK) as running:
        with unchanged_lives(cluster):
            settled = cluster.wait_settled()
            for kind, name in (("Topic", "order-paid"), ("SubscriptionGroup", "billing")):
                namespace.api.wait(kind, name, is_true("Synced"), seconds=60)
            time.sleep(8)  # a pass of every resource that nothing has woken
            writes = control_plane.audit.writes(since=mark, user=running.identity.user)
        assert {item.resource for item in writes} - ALLOWED == set()
        found = canonical(namespace)
        for name in ("orders-last-valid-spec", "main-last-valid-namesrv-spec"):
            assert found.pop(f"ConfigMap/{name}")
        objects["StatefulSet/main-ns"]["spec"]["minReadySeconds"] = ROUTES_SECONDS
        assert found == objects
        generations["main-ns"] += 1
        assert (started(namespace), templates(namespace)) == (lives, generations)
        release = settled["status"]["operatorVersion"]
        servers = namespace.api.get("NameServer", "main")
        assert release == servers["status"]["operatorVersion"] != PREVIOUS
        assert releases(cluster) == {PREVIOUS}
        assert not settled["status"]["pendingRestarts"]
        assert marks(namespace, 0) == ("master", "1")
        assert marks(namespace, 1) == ("slave", "1")
