"""What the API server refuses of a pass is told whole, and stops only what needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from failback.kube.errors import ApiError
from failback.operator.controller.carry_out import CarryOut
from failback.operator.controller.outcome import Outcome, with_outcome
from failback.operator.kubernetes.conflicts import Conflicts
from failback.operator.kubernetes.store import Store
from failback.operator.metrics import Metrics
from failback.operator.planning.plan.encoding import find_condition
from failback.operator.planning.plan.types import Apply, Plan

CLUSTER: dict[str, Any] = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "BrokerCluster",
    "metadata": {"name": "demo", "namespace": "shop", "uid": "u", "generation": 1},
}


class Refusing:
    """An API server that refuses objects of some names."""

    def __init__(self, *refused: str, code: int = 422) -> None:
        self.refused, self.code = refused, code
        self.taken: list[str] = []

    async def get(self, *where: str) -> None:
        return None

    async def apply(self, manifest: dict[str, Any], *, force: bool = False) -> dict[str, Any]:
        name = manifest["metadata"]["name"]
        if name in self.refused:
            raise ApiError("apply", manifest["kind"], self.code, "Invalid", f"{name} is wrong")
        self.taken.append(name)
        return manifest


def objects(*named: str) -> list[Apply]:
    found = []
    for each in named:
        kind, _, name = each.partition("/")
        found.append(Apply({"kind": kind, "metadata": {"name": name, "namespace": "shop"}}))
    return found


async def carried_out(
    server: Refusing, actions: Sequence[Apply], lanes: Sequence[int | None] = ()
) -> Outcome:
    api: Any = server
    nobody: Any = None
    metrics = Metrics(version="0", kopf="0", kubernetes="0")
    carry_out = CarryOut(api, nobody, Store(), Conflicts(), metrics)
    return await carry_out.run(CLUSTER, actions, {}, lanes)


async def test_all_refusals_are_told_and_the_other_objects_are_applied() -> None:
    server = Refusing("a", "c")
    actions = objects("Service/a", "ConfigMap/b", "PodDisruptionBudget/c", "StatefulSet/d")
    outcome = await carried_out(server, actions)
    assert server.taken == ["b", "d"]
    ready = find_condition(with_outcome(CLUSTER, Plan(status={}), outcome), "Ready") or {}
    assert (ready["status"], ready["reason"]) == ("False", "ApplyFailed")
    assert (
        ready["message"] == "apply Service a: a is wrong; apply PodDisruptionBudget c: c is wrong"
    )


async def test_no_pod_is_made_of_a_file_that_was_refused_and_no_spec_is_noted_as_valid() -> None:
    server = Refusing("a")
    actions = objects("ConfigMap/a", "Service/b", "StatefulSet/c", "ConfigMap/d-last-valid-spec")
    await carried_out(server, actions)
    assert server.taken == ["b"]


@pytest.mark.parametrize("code", [409, 429, 500, 503])
async def test_what_passes_by_itself_ends_its_lane_as_before(code: int) -> None:
    server = Refusing("a", code=code)
    actions = objects("Service/a", "Service/b", "Service/c")
    outcome = await carried_out(server, actions, [0, 0, 1])
    assert server.taken == ["c"]
    assert outcome.ended == {0}
    assert outcome.rejected == []
