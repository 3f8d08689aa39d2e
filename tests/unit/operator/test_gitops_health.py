"""The health check of docs/howto/gitops.md, by a real Lua, over statuses that passes write."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from failback.operator.planning.cluster.cluster import plan_cluster
from failback.operator.planning.plan.stalled import with_stalled
from tests.support.operator.gitops import health
from tests.support.operator.planning_run import CONTEXT, Run, steady
from tests.support.operator.planning_world import World


def of(world: World, status: dict[str, Any], generation: int | None = None) -> str:
    """Return the health of a cluster with a status."""
    made = world.cluster.metadata.generation if generation is None else generation
    return health({"metadata": {"generation": made}, "status": status})[0]


def planned(world: World, **changes: Any) -> dict[str, Any]:
    """Return the status that a pass writes."""
    seen = dataclasses.replace(world.observe(), **changes)
    found = plan_cluster(world.cluster, world.status, seen, CONTEXT, world.now).status
    return with_stalled(world.status, found, now=world.now, generation=1)


def test_a_resource_without_a_status_is_progressing() -> None:
    assert health({"metadata": {"generation": 1}})[0] == "Progressing"
    assert health({"metadata": {"generation": 1}, "status": {}})[0] == "Progressing"


def test_a_cluster_through_its_life() -> None:
    world = World()
    assert of(world, planned(world)) == "Progressing"
    Run(world).until_steady()
    assert of(world, world.status) == "Healthy"
    assert of(world, world.status, generation=7) == "Progressing"

    seen = world.observe()
    for ordinal in (0, 1):
        view = seen.member(0, ordinal)
        assert view.pod is not None
        down = dataclasses.replace(view, pod=dataclasses.replace(view.pod, ready=False))
        members = {**seen.members, (0, ordinal): down}
        assert of(world, planned(world, members=members)) == "Degraded"

    taken = frozenset({("ConfigMap", "orders-0-0")})
    assert of(world, planned(world, foreign=taken)) == "Degraded"
    world.annotate(pause_reconciliation="true")
    assert of(world, planned(world)) == "Suspended"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("Complete", "False", "Running"), "Progressing"),
        (("Complete", "True", "Complete"), "Healthy"),
        (("Failed", "True", "TimedOut"), "Degraded"),
        (("Ready", "Unknown", "PassFailed"), "Progressing"),
    ],
)
def test_what_ends_is_healthy_once_it_has(condition: tuple[str, str, str], expected: str) -> None:
    kind, value, reason = condition
    made = {"type": kind, "status": value, "reason": reason, "message": "x"}
    assert health({"metadata": {"generation": 1}, "status": {"conditions": [made]}})[0] == expected


def test_the_conditions_of_kstatus_hold_once_a_cluster_is_steady() -> None:
    """kstatus: the newest generation is observed, Reconciling and Stalled are not true."""
    world = steady()
    found = {item["type"]: item["status"] for item in world.status["conditions"]}
    assert world.status["observedGeneration"] == world.cluster.metadata.generation
    assert (found["Ready"], found["Reconciling"], found.get("Stalled", "False")) == (
        "True",
        "False",
        "False",
    )
