"""Small resources for operators that live a short life: one of each kind."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.kube.missing_right import Place
from tests.support.chaos.kube_cluster import experiment_text
from tests.support.kube_lab.api import Object
from tests.support.operator.operator_process import is_true
from tests.support.operator.resources import resource

_KILL: Final = {
    "id": "f1",
    "fault": "kill",
    "at": 10,
    "target": {"pair": "demo-0", "role": "master"},
    "with": {"downSeconds": 30},
}


def sample(kind: str, name: str = "") -> Object:
    """Return a small resource of a kind."""
    owner = {"clusterRef": {"name": "demo"}}
    match kind:
        case "NameServer":
            return resource(kind, "main", replicas=1, config={"failbackTimeScale": "0.1"})
        case "BrokerCluster":
            return cluster()
        case "RoleSwitch":
            return resource(kind, name or "swap", **owner, pair=0, targetMember=1)
        case "ReconsumptionReport":
            inputs = {"claimName": "mine", "runs": ["old/base-000"]}
            return resource(kind, name or "counted", inputs=inputs)
        case _:
            return resource(kind, name or "paid", **owner)


def cluster(**spec: Any) -> Object:
    values = {
        "nameServerRef": {"name": "main"},
        "slavesPerPair": 0,
        "config": {"failbackTimeScale": "0.1", "mappedFileSizeCommitLog": str(4 * 1024 * 1024)},
        "updateStrategy": {"minReadySeconds": 0, "drainMaster": False},
        **spec,
    }
    return resource("BrokerCluster", "demo", **values)


def experiment(place: Place, name: str = "lab") -> None:
    found = json.loads(experiment_text([_KILL], place.namespace))
    found["metadata"]["name"] = name
    place.create(found)


def claim() -> Object:
    requests = {"requests": {"storage": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "mine"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": requests},
    }


def make(kind: str, place: Place) -> None:
    if kind == "ChaosExperiment":
        experiment(place)
    else:
        place.create(sample(kind))


def name_of(kind: str) -> str:
    if kind == "ChaosExperiment":
        return "lab"
    return str(sample(kind)["metadata"]["name"])


def settle(place: Place, **spec: Any) -> None:
    """Create a cluster of real brokers and wait until nothing is left to do."""
    place.create(sample("NameServer"), cluster(**spec))
    kinds = ("Ready", "ConfigApplied", "RolesConsistent", "ReplicationHealthy", "MetadataSynced")

    def is_settled(item: Object) -> bool:
        whole = all(is_true(kind)(item) for kind in kinds)
        return whole and not item["status"].get("currentOperation")

    place.namespace.api.wait("BrokerCluster", "demo", is_settled, seconds=240)
