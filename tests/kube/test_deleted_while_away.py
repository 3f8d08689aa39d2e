"""Resources that are deleted while no operator runs: their end is carried out by the next one."""

from __future__ import annotations

import pytest

from failback.operator.kinds.base import FINALIZER
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import OperatorProcess, is_true, operator_identity
from tests.support.operator.quick_pair import QUICK, QuickPair
from tests.support.operator.resources import resource

CLUSTER = {"clusterRef": {"name": "orders"}}


@pytest.mark.soak
async def test_finalizers_that_an_uninstall_took_are_put_back(
    namespace: Namespace, node: NodeProcess
) -> None:
    running = OperatorProcess(namespace, operator_identity(namespace), **QUICK)
    pair = QuickPair(namespace)
    things = (("Topic", "kept"), ("SubscriptionGroup", "kept"))
    try:
        running.start()
        pair.create()
        pair.wait_settled()
        for kind, name in things:
            pair.api.create(resource(kind, name, **CLUSTER, deletionPolicy="Delete"))
            pair.api.wait(kind, name, _has_finalizer)
        running.process.kill()
        for kind, name in things:
            pair.api.patch(kind, name, {"metadata": {"finalizers": []}})
            assert not _has_finalizer(pair.api.get(kind, name))
        running.start()
        for kind, name in things:
            pair.api.wait(kind, name, _has_finalizer, seconds=120)
    finally:
        running.process.dispose()


def _has_finalizer(item: Object) -> bool:
    return FINALIZER in item["metadata"].get("finalizers", ())


@pytest.mark.soak
def test_a_namespace_goes_though_its_operator_and_its_role_go_first(namespace: Namespace) -> None:
    """The objects carry the operator's finalizer."""
    api = namespace.api
    switch = resource("RoleSwitch", "over", **CLUSTER, pair="orders-0", targetMember=1)
    fault = {"id": "f1", "fault": "kill", "target": {"pair": "orders-0", "role": "Master"}}
    arms, workload = [{"name": "base"}], {"topics": [{"name": "ORDERS"}]}
    experiment = resource(
        "ChaosExperiment", "over", **CLUSTER, arms=arms, workload=workload, faults=[fault]
    )
    begun = "2026-01-01T00:00:00Z"
    held = {
        "RoleSwitch": (switch, {"phase": "Complete"}),
        "ChaosExperiment": (experiment, {"phase": "Completed", "startedAt": begun}),
        "Topic": (resource("Topic", "over", **CLUSTER), {}),
        "SubscriptionGroup": (resource("SubscriptionGroup", "over", **CLUSTER), {}),
    }
    namespace.pretend_pods()
    for kind, (item, status) in held.items():
        item["metadata"]["finalizers"] = [FINALIZER]
        api.create(item)
        if status:
            api.patch(kind, "over", {"status": status}, subresource="status")
    running = OperatorProcess(namespace, operator_identity(namespace), **QUICK)
    try:
        running.start()
        api.create(resource("NameServer", "main"))
        api.create(resource("BrokerCluster", "orders", nameServerRef={"name": "main"}, pairs=1))
        api.wait("Pod", "orders-0-0-0")
        for kind in held:
            api.wait(kind, "over", lambda item: not _has_finalizer(item), seconds=120)
    finally:
        running.process.dispose()
    api.delete("Role", "op")
    api.delete("Namespace", namespace.name)
    api.wait_gone("Namespace", namespace.name, seconds=180)


async def test_what_was_deleted_meanwhile_is_ended(namespace: Namespace, node: NodeProcess) -> None:
    running = OperatorProcess(namespace, operator_identity(namespace), **QUICK)
    pair = QuickPair(namespace)
    try:
        running.start()
        pair.create()
        pair.wait_settled()
        pair.api.create(resource("Topic", "fleeting", **CLUSTER, deletionPolicy="Delete"))
        pair.api.create(
            resource("SubscriptionGroup", "passing", **CLUSTER, deletionPolicy="Delete")
        )
        pair.api.create(resource("Topic", "lasting", **CLUSTER))
        for kind, name in (
            ("Topic", "fleeting"),
            ("Topic", "lasting"),
            ("SubscriptionGroup", "passing"),
        ):
            pair.api.wait(kind, name, is_true("Ready"))
        running.process.kill()
        pair.api.delete("Topic", "fleeting")
        pair.api.delete("Topic", "lasting")
        pair.api.delete("SubscriptionGroup", "passing")

        running.start()
        for kind, name in (
            ("Topic", "fleeting"),
            ("Topic", "lasting"),
            ("SubscriptionGroup", "passing"),
        ):
            pair.api.wait_gone(kind, name, seconds=120)
        async with pair.admin() as admin:
            topics = (await admin.all_topic_config(pair.address(0))).topic_config_table
            groups = (await admin.all_groups(pair.address(0))).subscription_group_table
        assert ("fleeting" in topics, "lasting" in topics) == (False, True)
        assert "passing" not in groups
        assert "fleeting" in pair.wait_event("TopicDeleted", "fleeting")
        assert "passing" in pair.wait_event("GroupDeleted", "passing")
    finally:
        running.process.dispose()
