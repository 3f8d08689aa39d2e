"""Objects of every kind with one word of an enumeration set."""

from __future__ import annotations

import copy
from typing import Any, Final

from failback.operator.schema.former_rules import enumerations
from failback.protocol.words.formerly import former_of
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
}
"""What an entry of a list needs besides."""


WITH: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("type", "apache"): {"version": "4.9.7"},
    ("brokerAddress", "external"): {"externalTemplate": "{pair}-{ordinal}.example.org"},
    **{
        ("mode", word): {"value": 1}
        for word in (
            "fixed",
            "fixedpercent",
            "fixed-percent",
            "randommaxpercent",
            "random-max-percent",
        )
    },
}
"""What a word needs beside it."""
ALL: Final = list(enumerations())
RENAMED: Final = [
    (kind, path, old, new) for kind, path, words in ALL for old, new in former_of(words).items()
]


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
            node = node.setdefault(name, {})
    node[last] = value
    node |= WITH.get((last, str(value).lower()), {})
    return made
