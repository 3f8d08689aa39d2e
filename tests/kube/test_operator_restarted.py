"""An operator that starts knows nothing: it says nothing before it has asked."""

from __future__ import annotations

import pytest

from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, is_true, operator
from tests.support.operator.quick_pair import QUICK, QuickPair
from tests.support.operator.resources import resource

OWNER = {"clusterRef": {"name": "orders"}}
RESTARTS = 2


@pytest.mark.soak
def test_a_topic_stays_ready_when_the_operator_is_started_again(
    namespace: Namespace, node: NodeProcess
) -> None:
    pair = QuickPair(namespace)
    with operator(namespace, **QUICK) as running:
        pair.create()
        pair.api.create(resource("Topic", "paid", **OWNER, topicName="PAID"))
        pair.wait_settled()
        before = pair.api.wait("Topic", "paid", is_settled, seconds=120)
        for restart in range(RESTARTS):
            running.process.stop()
            running.start()
            queues = {"readQueueNums": 9 + restart, "writeQueueNums": 9 + restart}
            pair.api.patch("Topic", "paid", {"spec": queues})
            after = pair.api.wait("Topic", "paid", is_settled, seconds=120)
            assert ready_since(after) == ready_since(before), "it was not Ready for a while"


def is_settled(item: Object) -> bool:
    newest = item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"]
    return bool(newest and is_true("Ready")(item) and is_true("Synced")(item))


def ready_since(item: Object) -> str:
    return str(condition_of(item, "Ready")["lastTransitionTime"])
