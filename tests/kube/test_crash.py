"""The operator is killed after every single write, and ends where an undisturbed one ends."""

from __future__ import annotations

import threading

import pytest

from tests.kube.test_reconcile import CHILDREN, CLUSTER, NAME_SERVER, create, wait_ready
from tests.support.common.polling import wait_until
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.kube_lab.proxy import MisbehavingProxy, Write
from tests.support.operator.canonical_objects import canonical
from tests.support.operator.operator_process import OperatorProcess, operator_identity

SETTLED = ("ConfigApplied", "RolesConsistent", "ReplicationHealthy", "MetadataSynced")
_MOST_WRITES = 80


class Assassin:
    """Kills the operator once the server has done a write, before the operator hears of it."""

    def __init__(self, proxy: MisbehavingProxy) -> None:
        self.victim: OperatorProcess | None = None
        self.killed: list[Write] = []
        self._lock = threading.Lock()
        proxy.after_write = self._write

    def _write(self, write: Write) -> None:
        with self._lock:
            if self.victim is not None and self.victim.process.alive:
                self.killed.append(write)
                self.victim.process.kill()

    def revive(self) -> None:
        """Start the operator again if it was killed; its end is over by then."""
        with self._lock:
            assert self.victim is not None
            if not self.victim.process.alive:
                self.victim.start()


@pytest.mark.soak
def test_a_create_survives_a_kill_after_every_write(
    namespace: Namespace,
    node: NodeProcess,
    proxy: MisbehavingProxy,
    control_plane: ControlPlane,
) -> None:
    identity = operator_identity(namespace, server=proxy.url)
    running = OperatorProcess(namespace, identity)
    try:
        undisturbed = _undisturbed(namespace, running)
        mark = control_plane.audit.mark()
        assassin = Assassin(proxy)
        create(namespace, NAME_SERVER, CLUSTER)
        assassin.victim = running
        for _ in range(_MOST_WRITES):
            assassin.revive()
            if _ended_or_settled(namespace, running):
                break
        else:
            raise AssertionError(f"still writing after {_MOST_WRITES} kills")
        assassin.victim = None
        print(len(assassin.killed), [f"{item.verb} {item.resource}" for item in assassin.killed])
        wait_ready(namespace, *SETTLED)
        assert canonical(namespace) == undisturbed
        assert len(assassin.killed) >= len(CHILDREN)
        deleted = [
            item
            for item in control_plane.audit.writes(since=mark, user=identity.user)
            if item.verb == "delete" or item.resource == "pods/eviction"
        ]
        assert deleted == []
    finally:
        proxy.after_write = None
        running.process.dispose()


def _undisturbed(namespace: Namespace, running: OperatorProcess) -> dict[str, object]:
    """Return what a create makes when nobody disturbs it; everything is gone afterwards."""
    running.start()
    create(namespace, NAME_SERVER, CLUSTER)
    wait_ready(namespace, *SETTLED)
    found = canonical(namespace)
    running.process.kill()
    namespace.api.delete("BrokerCluster", "orders")
    namespace.api.delete("NameServer", "main")
    for kind, name in (*CHILDREN, ("StatefulSet", "main-ns"), ("ConfigMap", "main-ns")):
        namespace.api.wait_gone(kind, name)
    for pod in ("orders-0-0-0", "orders-0-1-0", "main-ns-0"):
        namespace.api.wait_gone("Pod", pod)
    for claim in namespace.api.list("PersistentVolumeClaim"):
        namespace.api.delete("PersistentVolumeClaim", claim["metadata"]["name"])
        namespace.api.wait_gone("PersistentVolumeClaim", claim["metadata"]["name"])
    return found


def _ended_or_settled(namespace: Namespace, running: OperatorProcess) -> bool:
    """Wait until the operator was killed (False) or has nothing to write any more (True)."""

    def is_settled() -> bool:
        cluster = namespace.api.get("BrokerCluster", "orders")
        status = cluster.get("status", {})
        true = {item["type"] for item in status.get("conditions") or () if item["status"] == "True"}
        return {"Ready", *SETTLED} <= true and status.get("observedGeneration") == 1

    wait_until(lambda: not running.process.alive or is_settled(), "a write or the end", 300)
    return running.process.alive
