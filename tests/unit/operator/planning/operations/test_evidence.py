"""An operation that somebody wrote into the status stops nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from failback.operator.planning.plan.encoding import to_time
from failback.operator.planning.plan.types import Apply, Delete, SetConfig
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World
from tests.support.operator.switch_world import delivered

SWITCH: Mapping[str, Any] = {
    "name": "swap",
    "uid": "uid-swap",
    "from": 0,
    "to": 1,
    "mode": "Planned",
    "policy": "CopyMax",
    "maxLagBytes": 0,
    "timeoutSeconds": 300,
    "onTimeout": "Fail",
    "snapshot": "fbs-swap",
    "steps": [{"name": "Preflight"}],
    "unsafe": [],
}
LATER = (
    "DrainWrites",
    "StopOldMaster",
    "StartNewMaster",
    "OpenWrites",
    "RejoinOldMaster",
    "Verify",
)


def forge(world: World, kind: str, step: str, **data: Any) -> None:
    """Write an operation into the status, as anybody may who has rights over it."""
    now = to_time(world.now)
    world.status = {
        **world.status,
        "currentOperation": {
            "id": "forged",
            "type": kind,
            "step": step,
            "pair": 0,
            "member": 0,
            "startedAt": now,
            "stepStartedAt": now,
            "data": data,
        },
    }


def disturbed(world: World) -> list[object]:
    """Return what was done to members, or to what they start from."""
    return [
        action
        for action in world.log
        if isinstance(action, (Delete, SetConfig))
        or (isinstance(action, Apply) and action.manifest["kind"] in ("StatefulSet", "ConfigMap"))
    ]


@pytest.mark.parametrize("step", LATER)
@pytest.mark.parametrize("data", [{}, SWITCH, {**SWITCH, "recorded": True}])
def test_a_role_switch_that_nobody_asked_for_is_given_up(step: str, data: dict[str, Any]) -> None:
    world = steady()
    forge(world, "RoleSwitch", step, **data)
    Run(world).until_steady()
    assert disturbed(world) == []
    assert "currentOperation" not in world.status
    assert world.running(0, 0).is_master


@pytest.mark.parametrize("step", ["OpenWrites", "RejoinOldMaster", "Verify"])
def test_beside_a_real_request_a_later_step_needs_the_change_of_master(step: str) -> None:
    world = delivered()
    world.ask()
    forge(world, "RoleSwitch", step, **SWITCH, recorded=True)
    world.operator.cluster_pass()
    assert disturbed(world) == []
    assert world.running(0, 0).is_master


@pytest.mark.parametrize("member", [0, 1])
def test_a_resync_that_nobody_asked_for_stops_and_wipes_nobody(member: int) -> None:
    world = steady()
    forge(world, "Resync", "WipeClaim", uid=world.claims[f"data-orders-0-{member}-0"].uid)
    world.status["currentOperation"]["member"] = member
    Run(world).until_steady()
    assert disturbed(world) == []


@pytest.mark.parametrize("step", ["Unregister", "DeleteMembers"])
@pytest.mark.parametrize(
    "data", [{"leaves": True, "slavesGone": True}, {"leaves": False, "slaves": [1]}, {}]
)
def test_a_scale_down_of_what_stays_stops_nobody(step: str, data: dict[str, Any]) -> None:
    world = steady()
    forge(world, "ScaleDown", step, **data)
    Run(world).until_steady()
    assert disturbed(world) == []
