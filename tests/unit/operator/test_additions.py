"""What a resource adds to its pods is joined with what the operator sets: nothing is taken away."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.kinds.base import PodTemplate
from failback.operator.render.context import kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode
from tests.support.operator.resources import resource

pytestmark = pytest.mark.foreign

TERM = {"labelSelector": {"matchLabels": {"app": "other"}}, "topologyKey": "example.com/rack"}
ADDITIONS: dict[str, Any] = {
    "labels": {"team": "payments"},
    "annotations": {"example.com/note": "a: b\nc"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [TERM],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 10, "podAffinityTerm": TERM}
            ],
        },
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"x": []}},
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "example.com/rack", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "high",
    "serviceAccountName": "brokers",
    "env": [{"name": "TZ", "value": "UTC"}],
    "securityContext": {"supplementalGroups": [5]},
}
"""For every field of the template something that its author adds."""
APACHE = {"type": "Apache", "version": "4.9.7"}


def pods(kind: str, engine: dict[str, str], template: dict[str, Any]) -> dict[str, Any]:
    """Return the pod templates of all StatefulSets by name."""
    main = resource("NameServer", "main", replicas=1)
    spec: dict[str, Any] = {"podTemplate": template, "engine": engine}
    if kind == "NameServer":
        items = [
            decode(resource("NameServer", "main", replicas=1, antiAffinity="Required", **spec))
        ]
    else:
        spec |= {
            "nameServerRef": {"name": "main"},
            "slavesPerPair": 1,
            "antiAffinity": {"mode": "Required"},
            "pairOverrides": [{"index": 0, "nodeSelector": {"zone": "a"}}],
        }
        items = [decode(main), decode(resource("BrokerCluster", "orders", **spec))]
    made = render(items, kubernetes_context("shop", "0.2.0"))
    return {
        each["metadata"]["name"]: each["spec"]["template"]
        for each in made
        if each["kind"] == "StatefulSet"
    }


def lacks(whole: Any, part: Any, path: str = "") -> str:
    """Return the path of what is in ``part`` and not in ``whole``; empty when nothing is."""
    if isinstance(part, dict):
        if not isinstance(whole, dict):
            return path
        found = (lacks(whole.get(key), value, f"{path}.{key}") for key, value in part.items())
        return next(filter(None, found), "")
    if isinstance(part, list):
        if not isinstance(whole, list):
            return path
        return next((path for each in part if all(lacks(one, each, path) for one in whole)), "")
    return "" if whole == part else path


def test_every_field_of_the_template_has_an_addition() -> None:
    fields = {info.alias or name for name, info in PodTemplate.model_fields.items()}
    assert set(ADDITIONS) == fields


@pytest.mark.parametrize("field", ADDITIONS)
@pytest.mark.parametrize("engine", [{"type": "Failback"}, APACHE], ids=lambda each: each["type"])
@pytest.mark.parametrize("kind", ["NameServer", "BrokerCluster"])
def test_an_addition_is_joined(kind: str, engine: dict[str, str], field: str) -> None:
    before = pods(kind, engine, {})
    after = pods(kind, engine, {field: ADDITIONS[field]})
    assert before.keys() == after.keys()
    for name, template in before.items():
        assert lacks(after[name], template) == "", "what the operator sets is still there"
        assert after[name] != template, "and what was added is there too"
    every = pods(kind, engine, ADDITIONS)
    for name, template in after.items():
        assert lacks(every[name], template) == "", "all of them at once"
