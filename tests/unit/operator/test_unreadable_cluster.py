"""A BrokerCluster that this release can't read: who goes on, and who is not blamed for it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from pydantic import ValidationError

from failback.operator.controller.cluster_kinds import Dependencies
from failback.operator.controller.metadata_kinds import kinds_on_cluster
from failback.operator.controller.observe import Observer
from failback.operator.controller.snapshot_kind import OffsetSnapshotKind
from failback.operator.kubernetes.store import Store
from failback.operator.metrics import Metrics
from failback.operator.planning.cluster import last_valid

NOBODY: Any = None
CLUSTER: dict[str, Any] = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "BrokerCluster",
    "metadata": {"name": "orders", "namespace": "shop", "uid": "c", "resourceVersion": "1"},
    "spec": {"pairs": "many", "suspend": True, "nameServerAddresses": ["ns:9876"]},
}
OWNER = {
    "apiVersion": CLUSTER["apiVersion"],
    "kind": "BrokerCluster",
    "name": "orders",
    "uid": "c",
    "controller": True,
}
NOTE: dict[str, Any] = {
    "kind": "ConfigMap",
    "metadata": {
        "name": last_valid.key_of("orders")[1],
        "namespace": "shop",
        "uid": "n",
        "resourceVersion": "2",
        "labels": {"failback.dev/cluster": "orders"},
        "ownerReferences": [OWNER],
    },
    "data": {"spec.json": json.dumps({"pairs": 2, "nameServerAddresses": ["ns:9876"]})},
}
TOPIC: dict[str, Any] = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "paid", "namespace": "shop", "uid": "t", "resourceVersion": "3"},
    "spec": {"clusterRef": {"name": "orders"}},
    "status": {"topicName": "paid"},
}


def observer(*items: dict[str, Any]) -> tuple[Observer, Store]:
    store = Store()
    for item in items:
        store.show(item)
    return Observer(store, NOBODY, NOBODY), store


def test_it_is_read_by_its_last_valid_spec_and_stays_suspended() -> None:
    found, why = observer(CLUSTER, NOTE)[0].decoded(CLUSTER)
    assert (found.spec.pairs, found.spec.suspend) == (2, True)
    assert why.startswith("schema spec.pairs: ")


def test_a_note_that_is_somebody_else_s_is_none() -> None:
    foreign = {**NOTE, "metadata": {**NOTE["metadata"], "ownerReferences": []}}
    with pytest.raises(ValidationError):
        observer(CLUSTER, foreign)[0].decoded(CLUSTER)


async def test_what_lives_on_it_waits_and_is_not_blamed() -> None:
    watching, store = observer(CLUSTER, TOPIC)
    seconds = itertools.count(step=100.0)
    metrics = Metrics(version="0", kopf="0", kubernetes="0")
    dependencies = Dependencies(NOBODY, watching, metrics, stable=lambda: float(next(seconds)))
    kept = {**TOPIC, "kind": "OffsetSnapshot", "status": {"snapshots": []}}
    for kind, item in (
        (kinds_on_cluster(dependencies, store)["Topic"], TOPIC),
        (OffsetSnapshotKind(dependencies, store, NOBODY, NOBODY), kept),
    ):
        decision = await kind.decide(item)
        assert decision.plan.status == item["status"]
        assert decision.plan.actions == ()
        assert decision.plan.wake_after is not None
