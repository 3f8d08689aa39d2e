"""Status: addresses from the spec, conditions that move only when they change."""

from __future__ import annotations

from dataclasses import replace

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


def carried(outcome: str) -> dict[str, PodFact]:
    said = {"outcome": outcome, "at": "2026-11-28T10:00:00Z", "offsets": 4, "sources": ["s:1"]}
    with_sidecar = replace(READY, carried=said | {"line": "raised 4", "warnings": []})
    return {"demo-0-0-0": replace(READY, carried={}), "demo-0-1-0": with_sidecar}


def test_what_a_start_was_given_is_said_as_on_kubernetes_and_kept() -> None:
    status = cluster_status(cluster(), carried("Carried"), {}, "T")
    slave, master = status["pairs"][0]["members"]
    assert "carried" not in slave
    assert master["carried"]["offsets"] == 4
    assert master["carried"]["from"] == ["s:1"]
    ready, given = status["conditions"]
    assert (ready["type"], given["type"]) == ("Ready", "OffsetsCarried")
    assert (given["status"], given["reason"]) == ("True", "Carried")
    for later in (
        {**carried("Carried"), "demo-0-1-0": replace(READY, carried={})},
        carried("Idle"),
    ):
        assert cluster_status(cluster(), later, status, "later") == status
    silent = cluster_status(cluster(), carried("SlaveSilent"), status, "T2")["conditions"][1]
    assert (silent["status"], silent["reason"]) == ("False", "SlaveSilent")


def test_without_a_sidecar_nothing_is_said_of_a_carry() -> None:
    pods = {"demo-0-0-0": READY, "demo-0-1-0": READY}
    status = cluster_status(cluster(), pods, {}, "T")
    assert [each["type"] for each in status["conditions"]] == ["Ready"]
    pods["demo-0-1-0"] = replace(READY, carried={})
    unknown = cluster_status(cluster(), pods, status, "T")["conditions"][1]
    assert (unknown["status"], unknown["reason"]) == ("Unknown", "NotReturned")
