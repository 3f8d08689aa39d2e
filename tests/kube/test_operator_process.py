"""The operator as a process: health, a graceful stop, one leader of two."""

from __future__ import annotations

from tests.kube.test_reconcile import CLUSTER, NAME_SERVER, create
from tests.support.common.polling import wait_until
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import OperatorProcess, operator, operator_identity


def test_it_tells_its_health_and_stops_when_told(namespace: Namespace) -> None:
    namespace.pretend_pods()
    with operator(namespace) as running:
        create(namespace, NAME_SERVER)
        namespace.api.wait("StatefulSet", "main-ns")
        assert running.get("/healthz") == "ok"
        passed = "failback_operator_passes_total{"  # told when the pass is over, its status written
        wait_until(lambda: passed in running.get("/metrics"), "the first pass to end")
        text = running.get("/metrics")
        for name in ("info", "passes_total", "api_requests_total", "condition", "pass_age_seconds"):
            assert f"failback_operator_{name}{{" in text
        assert 'failback_operator_condition{kind="NameServer"' in text
        assert running.process.stop() == 0
    assert "Traceback" not in running.process.errors()


def test_of_two_operators_one_leads_and_the_other_takes_over(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    namespace.pretend_pods()
    identities = [operator_identity(namespace, name=name) for name in ("one", "two")]
    both = [
        OperatorProcess(
            namespace, identity, FAILBACK_LEADER_ELECTION="true", POD_NAME=identity.name
        )
        for identity in identities
    ]
    try:
        both[0].start()
        both[0].wait_until_ready()
        both[1].start()
        create(namespace, NAME_SERVER, CLUSTER)
        namespace.api.wait("StatefulSet", "orders-0-1")
        lease = namespace.api.get("Lease", "failback-operator")
        assert lease["spec"]["holderIdentity"] == "one"
        assert control_plane.audit.writes(user=identities[1].user) == []
        assert both[0].process.stop() == 0
        namespace.api.wait(
            "Lease", "failback-operator", lambda item: item["spec"]["holderIdentity"] == "two"
        )
        before = namespace.api.get("Service", "orders-brokers")["metadata"]["uid"]
        namespace.api.delete("Service", "orders-brokers")
        namespace.api.wait(
            "Service", "orders-brokers", lambda item: item["metadata"]["uid"] != before
        )
    finally:
        for running in both:
            running.process.dispose()


def leader(namespace: Namespace) -> str:
    """Return the holder of the operators' Lease; empty while there is none."""
    found = {each["metadata"]["name"]: each for each in namespace.api.list("Lease")}
    lease = found.get("failback-operator", {"spec": {}})
    return str(lease["spec"].get("holderIdentity", ""))


def test_a_leader_that_was_killed_is_followed(namespace: Namespace, node: NodeProcess) -> None:
    identities = [operator_identity(namespace, name=name) for name in ("one", "two")]
    both = [
        OperatorProcess(
            namespace, identity, FAILBACK_LEADER_ELECTION="true", POD_NAME=identity.name
        )
        for identity in identities
    ]
    try:
        both[0].start()
        wait_until(lambda: leader(namespace) == "one", "the first leader")
        both[1].start()
        both[0].process.kill()
        both[1].wait_until_ready()
        wait_until(lambda: leader(namespace) == "two", "the second leader")
    finally:
        for running in both:
            running.process.dispose()
