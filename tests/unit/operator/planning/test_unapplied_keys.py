"""What can't change once a store exists is refused before any member sees it."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.planning.cluster.unapplied_keys import FIXED
from failback.operator.planning.plan.encoding import find_condition
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World

SMALL, LARGE = str(4 * 1024**2), str(16 * 1024**2)
SIZE = "mappedFileSizeCommitLog"


def ready(world: World) -> tuple[str, str]:
    found = find_condition(world.status, "Ready")
    assert found is not None
    return found["reason"], found["message"]


def refused(key: str, value: str) -> tuple[str, str]:
    told = f"{key}: is fixed once a store exists, there it is {value}"
    return "InvalidSpec", f"config_keys spec.config: {told}"


@pytest.mark.parametrize(
    ("before", "after", "key", "value"),
    [
        ({SIZE: SMALL}, {SIZE: LARGE}, SIZE, SMALL),
        ({SIZE: SMALL}, {}, SIZE, SMALL),
        ({}, {SIZE: SMALL}, SIZE, str(1024**3)),
        ({}, {"maxIndexNum": "7"}, "maxIndexNum", "20000000"),
    ],
)
def test_another_size_is_refused_and_no_member_is_touched(
    before: dict[str, str], after: dict[str, str], key: str, value: str
) -> None:
    world = steady(config=before)
    world.edit(config=after)
    run = Run(world).for_passes(4)
    assert ready(world) == refused(key, value)
    assert (world.log, run.steps) == ([], [])
    told = [item.reason for item in world.events]
    assert told == ["InvalidSpec", "ConfigRejected"]
    world.edit(config=before)
    run.until_steady()
    assert ready(world)[0] != "InvalidSpec"
    assert world.log == []


@pytest.mark.parametrize(
    "spec",
    [
        {"config": {SIZE: str(1024**3)}},  # what it has anyway
        {"config": {"fileReservedTime": "48"}},
        {"pairs": 2, "pairOverrides": [{"index": 1, "config": {SIZE: SMALL}}]},
    ],
)
def test_what_changes_no_store_goes_on(spec: dict[str, Any]) -> None:
    world = steady()
    world.edit(**spec)
    Run(world).until_steady()
    assert ready(world)[0] != "InvalidSpec"


def test_a_wrong_size_over_a_kept_volume_can_be_corrected() -> None:
    world = steady(config={SIZE: LARGE})
    for name in ("orders-0-0-0", "orders-0-1-0"):
        world.pods[name].up, world.pods[name].ready_since = False, None
    world.edit(config={SIZE: SMALL})
    Run(world).for_passes(3)
    assert ready(world)[0] != "InvalidSpec"
    files = [world.objects["ConfigMap", name] for name in ("orders-0-0", "orders-0-1")]
    assert all(f"{SIZE}={SMALL}" in item["data"]["broker.conf"] for item in files)


def test_the_paths_of_the_store_are_the_operator_s_own() -> None:
    assert not [key for key in FIXED if key.startswith("storePath")]
