"""What a user adds to a pod's affinity stands beside what the operator adds."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.kinds.base import PodTemplate
from failback.operator.render.common import placement

REQUIRED, PREFERRED = (
    f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred")
)
OWN = {"topologyKey": "node", "labelSelector": {"matchLabels": {"pair": "0"}}}
THEIRS = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "other"}}}
WISH = {"weight": 10, "podAffinityTerm": THEIRS}


def affinity(mode: Any, given: dict[str, Any]) -> Any:
    template = PodTemplate.model_validate({"affinity": given})
    return placement(template, mode, {"pair": "0"}, "node")["affinity"]


@pytest.mark.parametrize(
    ("mode", "given", "wanted"),
    [
        ("Required", {PREFERRED: [WISH]}, {REQUIRED: [OWN], PREFERRED: [WISH]}),
        ("Required", {REQUIRED: [THEIRS]}, {REQUIRED: [OWN, THEIRS]}),
        (
            "Preferred",
            {PREFERRED: [WISH]},
            {PREFERRED: [{"weight": 100, "podAffinityTerm": OWN}, WISH]},
        ),
    ],
)
def test_terms_of_both_are_in_the_pod(
    mode: str, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert affinity(mode, {"podAntiAffinity": given}) == {"podAntiAffinity": wanted}


def test_other_affinities_are_taken_as_they_are() -> None:
    node: dict[str, Any] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}
    assert affinity("Required", node) == {**node, "podAntiAffinity": {REQUIRED: [OWN]}}
    assert affinity("Required", {"podAntiAffinity": {}}) == {"podAntiAffinity": {REQUIRED: [OWN]}}


@pytest.mark.foreign
@pytest.mark.parametrize("terms", [None, {"a": "b"}, ["x"], "x", [None]], ids=str)
@pytest.mark.parametrize("field", [REQUIRED, PREFERRED])
@pytest.mark.parametrize("which", ["podAffinity", "podAntiAffinity"])
def test_terms_that_are_no_list_of_mappings_are_refused(which: str, field: str, terms: Any) -> None:
    with pytest.raises(ValueError, match=f"{which} {field} must be a"):
        affinity("Required", {which: {field: terms}})
