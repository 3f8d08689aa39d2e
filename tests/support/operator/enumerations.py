"""Objects of every kind with one word of an enumeration set."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from failback.operator.schema.crds import schema_of
from failback.operator.schema.decoding import KINDS
from tests.support.operator.resources import resource

LEAST: Final[dict[str, dict[str, Any]]] = {
    "NameServer": {},
    "BrokerCluster": {"nameServerRef": {"name": "main"}},
    "Topic": {"clusterRef": {"name": "orders"}},
    "SubscriptionGroup": {"clusterRef": {"name": "orders"}},
    "RoleSwitch": {"clusterRef": {"name": "orders"}, "pair": "orders-0", "targetMember": 1},
    "OffsetSnapshot": {"clusterRef": {"name": "orders"}},
    "ChaosExperiment": {
        "clusterRef": {"name": "orders"},
        "workload": {"topics": [{"name": "T"}]},
    },
    "ReconsumptionReport": {"inputs": {"claimName": "runs"}},
}
BESIDE: Final[dict[str, dict[str, Any]]] = {
    "groups[]": {"name": "g", "topic": "T"},
    "faults[]": {"id": "f1", "fault": "kill"},
    "arms[]": {"name": "base"},
    "expect[]": {"metric": "totals.lost", "op": "==", "value": 0},
    "pairOverrides[]": {"index": 0},
    "acl": {"secretRef": {"name": "keys"}},
    "tls": {"secretRef": {"name": "certificates"}},
}
"""What an entry of a list needs besides."""


WITH: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("type", "apache"): {"version": "4.9.7"},
    ("brokerAddress", "external"): {"externalTemplate": "{pair}-{ordinal}.example.org"},
    **{("mode", word): {"value": 1} for word in ("fixed", "fixedpercent", "randommaxpercent")},
}
"""What a word needs beside it."""
_DRAIN: Final = ("BrokerCluster", "spec.updateStrategy.drainMaster", ["Auto"])
"""A union: its schema says nothing of words."""
_OF_KUBERNETES: Final = ("tolerations", "topologySpreadConstraints", "securityContext", "affinity")
"""Parts of a pod, whose words are not ours."""


def enumerations() -> Iterator[tuple[str, str, list[Any]]]:
    """Yield kind, path and words of every enumeration of a spec; ``[]`` = each entry of a list."""
    for kind in KINDS:
        yield from _below(kind, schema_of(kind)["properties"]["spec"], "spec")
    yield _DRAIN


def _below(kind: str, node: dict[str, Any], path: str) -> Iterator[tuple[str, str, list[Any]]]:
    if "enum" in node and node.get("type") == "string":
        yield kind, path, node["enum"]
    for name, field in node.get("properties", {}).items():
        if name not in _OF_KUBERNETES:
            yield from _below(kind, field, f"{path}.{name}")
    if "items" in node:
        yield from _below(kind, node["items"], f"{path}[]")


ALL: Final = list(enumerations())


def document(kind: str, path: str, value: Any) -> dict[str, Any]:
    """Return an object of a kind with one value set."""
    made = resource(kind, "orders", **copy.deepcopy(LEAST[kind]))
    node: Any = made["spec"]
    *parents, last = path.removeprefix("spec.").split(".")
    for part in parents:
        name = part.removesuffix("[]")
        if part.endswith("[]"):
            node = node.setdefault(name, [copy.deepcopy(BESIDE[part])])[0]
        else:
            node = node.setdefault(name, copy.deepcopy(BESIDE.get(name, {})))
    node[last] = value
    node |= WITH.get((last, str(value).lower()), {})
    return made
