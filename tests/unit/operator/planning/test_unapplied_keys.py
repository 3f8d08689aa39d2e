"""What can't change once a store exists is refused before any member sees it."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.planning.cluster.unapplied_keys import FIXED
from failback.operator.planning.plan.encoding import find_condition
from failback.operator.render.context import kubernetes_context
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


APACHE = {"type": "Apache", "version": "5.3.3"}
TIMER = {"timerWheelEnable": "false"}


def condition(world: World, kind: str) -> tuple[str, str]:
    found = find_condition(world.status, kind)
    assert found is not None
    return found["reason"], found["message"]


def file(world: World) -> str:
    return str(world.objects["ConfigMap", "orders-0-1"]["data"]["broker.conf"])


def test_offsets_in_rocksdb_are_applied_and_warned_of() -> None:
    for version in ("5.1.4", "5.3.3", "5.5.0"):
        has_offsets_in_rocksdb(version)


def has_offsets_in_rocksdb(version: str) -> None:
    world = World(
        engine={"type": "Apache", "version": version}, config={"storeType": "defaultRocksDB"}
    )
    Run(world).until_steady()
    assert "storeType=defaultRocksDB" in file(world)
    assert condition(world, "ConfigApplied")[0] == "Verified"
    told = "CarryUnsupported: offsets are in RocksDB, no start is given any: orders-0 has storeType"
    assert condition(world, "Warning")[1].startswith(told)
    world.edit(config={})
    Run(world).for_passes(3)
    assert ready(world) == refused("storeType", "defaultRocksDB")


def test_a_key_of_another_version_is_left_out_and_told_with_the_version_that_has_it() -> None:
    world = World(engine=APACHE | {"version": "4.9.7"}, config=TIMER | {"filterServerNums": "0"})
    Run(world).until_steady()
    assert "timerWheelEnable" not in file(world)
    assert "filterServerNums" in file(world)
    assert condition(world, "Warning")[1].startswith(
        "UnknownConfigKey: timerWheelEnable is not a broker.conf key of apache 4.9.7,"
        " apache has it from 5.0.0 on"
    )


def test_a_key_that_an_earlier_release_left_out_is_not_applied_by_an_upgrade() -> None:
    for change in ("spec", "restart", "accepted"):
        is_applied_after(change)


def is_applied_after(change: str) -> None:
    world = steady(engine=APACHE)
    world.document["spec"]["config"] = TIMER  # as an operator left it that did not know the key
    later = kubernetes_context("shop", "0.2.0")
    run = Run(world, context=later).until_steady().for_passes(3)
    assert [item for item in world.log if "broker.conf" in str(item)] == []
    assert run.steps == []
    assert condition(world, "ConfigApplied") == (
        "UnknownKey",
        "not applied: timerWheelEnable; failback.dev/accept-unknown-key names what is to be",
    )
    if change == "spec":
        world.edit(slaveReadEnable=False)
    elif change == "restart":
        world.annotate(restart="now")
    else:
        world.annotate(accept_unknown_key="timerWheelEnable")
    run.until_steady()
    assert "timerWheelEnable=false" in file(world)
    assert condition(world, "ConfigApplied")[0] == "Verified"
    run.for_passes(3)
    assert "timerWheelEnable=false" in file(world)


def test_a_line_that_a_person_takes_out_of_a_file_comes_back() -> None:
    world = World(engine=APACHE, config=TIMER, slavesPerPair=0)
    run = Run(world, context=kubernetes_context("shop", "0.2.0")).until_steady()
    made = world.objects["ConfigMap", "orders-0-0"]
    text = made["data"]["broker.conf"].replace("timerWheelEnable=false\n", "")
    world.put({**made, "data": {"broker.conf": text}})
    run.until_steady()
    again = world.objects["ConfigMap", "orders-0-0"]["data"]["broker.conf"]
    assert "timerWheelEnable=false" in again
