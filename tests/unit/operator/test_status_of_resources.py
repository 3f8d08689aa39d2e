"""Status: addresses from the spec, conditions that move only when they change."""

from __future__ import annotations

import pytest

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.local.status import PodFact, cluster_status, condition
from failback.operator.schema.decoding import decode

READY = PodFact("Ready", True, "127.0.0.2:10911", 0)
DOWN = PodFact("BackOff", False, "127.0.0.3:10911", 2)


def cluster() -> BrokerCluster:
    found = decode(
        {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "BrokerCluster",
            "metadata": {"name": "demo"},
            "spec": {
                "nameServerAddresses": ["ns:9876"],
                "pairOverrides": [{"index": 0, "masterMember": 1}],
            },
        }
    )
    assert isinstance(found, BrokerCluster)
    return found


def test_the_time_of_a_condition_moves_only_with_its_status() -> None:
    first = condition({}, "Ready", False, "Creating", "a", "T1")
    same = condition({"conditions": [first]}, "Ready", False, "PodNotReady", "b", "T2")
    other = condition({"conditions": [same]}, "Ready", True, "AllReady", "", "T3")
    times = [each["lastTransitionTime"] for each in (first, same, other)]
    assert times == ["T1", "T1", "T3"]


@pytest.mark.parametrize(
    ("pods", "reason", "phase"),
    [
        ({}, "Creating", "Pending"),
        ({"demo-0-0-0": READY, "demo-0-1-0": READY}, "AllReady", "Running"),
        ({"demo-0-0-0": READY, "demo-0-1-0": DOWN}, "MasterDown", "Degraded"),
        ({"demo-0-0-0": DOWN, "demo-0-1-0": READY}, "SlaveDown", "Degraded"),
    ],
)
def test_a_cluster_is_ready_when_all_members_are(
    pods: dict[str, PodFact], reason: str, phase: str
) -> None:
    status = cluster_status(cluster(), pods, {}, "T")
    assert status["conditions"][0]["reason"] == reason
    assert status["pairs"][0]["phase"] == phase
    assert [each["brokerId"] for each in status["pairs"][0]["members"]] == [1, 0]
    assert cluster_status(cluster(), pods, status, "later") == status
