"""Rules that compare an object with its stored predecessor, and the schema as one rule."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.schema.decoding import validate


def document(kind: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": spec,
    }


def broken(kind: str, new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    before = document(kind, **old) if old is not None else None
    return [each.rule for each in validate(kind, document(kind, **new), before)]


ADDRESS = {"nameServerAddresses": ["ns:9876"]}


@pytest.mark.parametrize(
    ("new", "old", "rules"),
    [
        ({}, {}, []),
        ({"clusterName": "a"}, {}, ["BC3"]),
        ({"brokerNamePrefix": "a"}, {"brokerNamePrefix": "b"}, ["BC3"]),
        ({"storage": {"type": "ephemeral"}}, {}, ["BC4"]),
        ({"storage": {"storageClassName": "fast"}}, {}, ["BC4"]),
        ({"storage": {"size": "10Gi"}}, {"storage": {"size": "20Gi"}}, ["BC5"]),
        ({"storage": {"size": "20480Mi"}}, {"storage": {"size": "20Gi"}}, []),
        ({"storage": {"size": "30Gi"}}, {"storage": {"size": "20Gi"}}, []),
        ({"networking": {"listenPort": 20911}}, {}, ["BC12"]),
        ({"pairs": 3, "slaveReadEnable": True}, {}, []),
    ],
)
def test_what_may_change_of_a_cluster(
    new: dict[str, Any], old: dict[str, Any], rules: list[str]
) -> None:
    assert broken("BrokerCluster", {**ADDRESS, **new}, {**ADDRESS, **old}) == rules


@pytest.mark.parametrize(
    ("kind", "new", "old", "rules"),
    [
        ("NameServer", {"port": 9877}, {}, ["NS1"]),
        ("NameServer", {"replicas": 3}, {}, []),
        ("NameServer", {"config": {"listenPort": "1"}}, None, ["NS2"]),
        ("Topic", {"clusterRef": {"name": "b"}}, {"clusterRef": {"name": "a"}}, ["TP2"]),
        (
            "Topic",
            {"clusterRef": {"name": "a"}, "topicName": "T"},
            {"clusterRef": {"name": "a"}},
            ["TP2"],
        ),
        ("Topic", {"clusterRef": {"name": "a"}, "topicName": "a b"}, None, ["TP3"]),
        ("SubscriptionGroup", {"clusterRef": {"name": "a"}, "groupName": "g" * 121}, None, ["SG1"]),
        ("SubscriptionGroup", {"clusterRef": {"name": "a"}, "groupName": "g" * 120}, None, []),
        ("Topic", {"clusterRef": {"name": "a"}, "perm": 3}, None, ["schema"]),
    ],
)
def test_rules_of_the_other_kinds(
    kind: str, new: dict[str, Any], old: dict[str, Any] | None, rules: list[str]
) -> None:
    assert broken(kind, new, old) == rules
