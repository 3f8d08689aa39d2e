"""Objects of a namespace without what the server adds: for comparing how things ended."""

from __future__ import annotations

import copy
from typing import Any

from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace

KINDS = ("StatefulSet", "ConfigMap", "Service", "PodDisruptionBudget")
_SERVERS = ("clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")


def canonical(namespace: Namespace) -> dict[str, Any]:
    """Return every object that the operator made, by kind and name."""
    found = {}
    for kind in KINDS:
        for item in namespace.api.list(kind, labels="app.kubernetes.io/managed-by"):
            found[f"{kind}/{item['metadata']['name']}"] = _stripped(kind, item)
    return found


def _stripped(kind: str, item: Object) -> Object:
    kept: Object = copy.deepcopy({key: item[key] for key in ("spec", "data") if key in item})
    metadata = item["metadata"]
    marks = dict(metadata.get("annotations", {}))
    marks.pop("failback.dev/applied-hash", None)  # holds the owner's uid
    kept["labels"], kept["annotations"] = metadata.get("labels", {}), marks
    kept["owners"] = [owner["name"] for owner in metadata.get("ownerReferences", ())]
    if kind == "Service":
        for field in _SERVERS:
            kept["spec"].pop(field, None)
        if kept["spec"].get("clusterIP") != "None":
            kept["spec"].pop("clusterIP", None)
    return kept
