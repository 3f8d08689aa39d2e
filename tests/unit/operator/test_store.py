"""What the store shows of what it was told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from failback.operator.kubernetes.store import Object, Store

OWNER = ("shop", "BrokerCluster", "orders")


def pod(name: str, version: int, uid: str = "", **labels: str) -> Object:
    """Return a pod of the cluster ``orders`` with parts that nobody reads."""
    marks = {"failback.dev/cluster": "orders", **labels}
    metadata = {"name": name, "namespace": "shop", "uid": uid or name, "labels": marks}
    container = {"name": "broker", "image": "b:1", "env": [{"name": "A", "value": "1"}]}
    return {
        "kind": "Pod",
        "metadata": {**metadata, "resourceVersion": str(version), "managedFields": [{}]},
        "spec": {"nodeName": "n1", "volumes": [{"name": "store"}], "containers": [container]},
    }


def topic(name: str, cluster: str, version: int = 1) -> Object:
    metadata = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": str(version)}
    return {"kind": "Topic", "metadata": metadata, "spec": {"clusterRef": {"name": cluster}}}


def shown(store: Store) -> dict[str, str]:
    """Return name → version of the children as a pass sees them."""
    return {
        item["metadata"]["name"]: item["metadata"]["resourceVersion"]
        for item in store.children(*OWNER)
    }


def test_only_a_newer_version_replaces_what_is_shown() -> None:
    store = Store()
    store.show(pod("a", 5))
    before = store.children(*OWNER)
    store.show(pod("a", 5))
    store.show(pod("a", 4))
    assert store.children(*OWNER) is before
    store.show(pod("a", 6))
    assert shown(store) == {"a": "6"}


def test_what_nobody_reads_is_not_kept() -> None:
    store = Store()
    store.show(pod("a", 5))
    (kept,) = store.children(*OWNER)
    assert "managedFields" not in kept["metadata"]
    assert kept["spec"] == {"nodeName": "n1", "containers": [{"name": "broker", "image": "b:1"}]}


def test_a_child_whose_label_changed_leaves_its_owner() -> None:
    store = Store()
    store.show(pod("a", 5))
    store.show(pod("a", 6, **{"failback.dev/cluster": "stock"}))
    assert shown(store) == {}
    assert len(store.children("shop", "BrokerCluster", "stock")) == 1


def test_a_deleted_child_is_gone_though_its_successor_was_shown_first() -> None:
    store = Store()
    store.show(pod("a", 5, uid="old"))
    store.show(pod("a", 7, uid="new"))
    assert shown(store) == {"a": "7"}
    store.deleted("old")
    assert shown(store) == {"a": "7"}
    store.deleted("new")
    assert shown(store) == {}


def test_a_write_is_read_at_once_and_until_the_watch_shows_it() -> None:
    store = Store()
    store.show(pod("a", 5))
    assert shown(store) == {"a": "5"}
    store.wrote(pod("a", 8))
    store.wrote(pod("b", 9))
    assert shown(store) == {"a": "8", "b": "9"}
    store.show(pod("a", 8))
    store.show(pod("b", 10))
    assert shown(store) == {"a": "8", "b": "10"}


def test_a_write_that_no_watch_ever_shows_is_not_believed_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("failback.operator.kubernetes.store.time.monotonic", lambda: now)
    store = Store()
    store.wrote(pod("a", 8))
    assert shown(store) == {"a": "8"}
    now += 4.0
    assert shown(store) == {}


def test_resources_are_found_by_the_cluster_they_name() -> None:
    store = Store()
    for item in (topic("paid", "orders"), topic("late", "orders"), topic("other", "stock")):
        store.show(item)

    def names(items: list[dict[str, Any]]) -> list[str]:
        return [item["metadata"]["name"] for item in items]

    assert names(store.of_cluster("Topic", "shop", "orders")) == ["late", "paid"]
    assert names(store.resources("Topic", "shop")) == ["late", "other", "paid"]
    store.show(topic("paid", "stock", 2))
    assert names(store.of_cluster("Topic", "shop", "orders")) == ["late"]
    assert names(store.of_cluster("Topic", "shop", "stock")) == ["other", "paid"]


def test_of_objects_that_only_bear_our_labels_the_metadata_is_kept() -> None:
    store = Store()
    ours = {"apiVersion": "failback.dev/v1alpha1", "kind": "BrokerCluster", "controller": True}
    for name, owners in (("mine", [ours]), ("theirs", [])):
        made = {**pod(name, 1), "kind": "ConfigMap", "data": {"broker.conf": "x" * 1000}}
        made["metadata"]["ownerReferences"] = owners
        store.show(made)
    for name, kind in (("member", "StatefulSet"), ("web", "ReplicaSet")):
        made = {**pod(name, 1), "status": {"phase": "Running"}}
        made["metadata"]["ownerReferences"] = [{"kind": kind, "controller": True}]
        store.show(made)
    kept = {item["metadata"]["name"]: item for item in store.children(*OWNER)}
    assert ("data" in kept["mine"], "data" in kept["theirs"]) == (True, False)
    assert ("status" in kept["member"], "status" in kept["web"]) == (True, False)


def test_an_object_that_is_nested_too_deeply_is_kept_cut() -> None:
    store = Store()
    deep: object = 1
    for _ in range(900):
        deep = {"a": deep}
    store.show({**topic("deep", "orders"), "spec": {"clusterRef": {"name": "orders"}, "x": deep}})
    store.show(topic("flat", "orders"))
    found = store.of_cluster("Topic", "shop", "orders")
    assert [item["metadata"]["name"] for item in found] == ["deep", "flat"]
    assert "nested too deeply" in json.dumps(found[0])
