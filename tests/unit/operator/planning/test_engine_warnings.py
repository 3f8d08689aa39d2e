"""Engines that must stay, and brokers that no longer do what their key says."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.planning.plan.encoding import find_condition
from failback.operator.planning.state.running_engine import engine_of
from failback.operator.render.context import kubernetes_context
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World

NEW = {"type": "Apache", "version": "5.3.3"}
VERSION = "app.kubernetes.io/version"
AUTO = {"config": {"autoCreateTopicEnable": "true"}}


def warned(world: World) -> tuple[str, str]:
    found = find_condition(world.status, "Warning")
    assert found is not None
    return found["reason"], found["message"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            {"type": "Apache", "version": "4.9.8"},
            "apache 4.9.8 does not read a store that apache 5.3.3 wrote",
        ),
        ({"type": "Failback"}, "failback 0.1.0 does not read a store that apache 5.3.3 wrote"),
    ],
)
def test_a_store_of_5_x_does_not_go_back_and_that_is_told_once(
    wanted: dict[str, Any], message: str
) -> None:
    world = steady(offsetCarry={"mode": "Off"}, engine=NEW)
    world.edit(engine=wanted)
    run = Run(world).until_steady().for_passes(3)
    assert warned(world) == ("EngineChangeRefused", f"EngineChangeRefused: {message}")
    told = [item for item in world.events if item.reason == "EngineChangeRefused"]
    assert [(item.message, item.warning) for item in told] == [(message, True)]
    assert (world.log, run.steps) == ([], [])
    world.edit(engine=NEW)
    run.until_steady()
    assert warned(world) == ("NoWarning", "there is nothing to warn of")
    world.edit(engine=wanted)
    run.until_steady()
    assert len([item for item in world.events if item.reason == "EngineChangeRefused"]) == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "Apache", "version": "4.9.7"}, {"type": "Failback"}),
        ({"type": "Failback"}, {"type": "Apache", "version": "4.9.7"}),
    ],
)
def test_other_changes_of_the_engine_roll_and_are_no_warning(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    world = steady(offsetCarry={"mode": "Off"}, engine=before)
    world.edit(engine=after)
    run = Run(world).until_steady()
    assert any(step.startswith("Roll/") for step in run.steps)
    assert warned(world) == ("NoWarning", "there is nothing to warn of")


OLD = {"type": "Apache", "version": "4.9.7"}


def versions(world: World) -> list[str]:
    found = sorted(world.pods.items())
    return [pod.template["metadata"]["labels"][VERSION] for _, pod in found]


def until_first_slave_is_new(run: Run) -> None:
    for _ in range(100):
        if NEW["version"] in versions(run.world):
            return
        run.one_pass()
        run.world.tick()
    raise AssertionError("no slave was upgraded")


def test_an_upgrade_without_a_way_back_asks_first() -> None:
    for before in (OLD, {"type": "Failback"}):
        asks_first(before)


def asks_first(before: dict[str, Any]) -> None:
    world = steady(offsetCarry={"mode": "Off"}, engine=before)
    world.edit(engine=NEW, config={"timerWheelEnable": "true"})
    run = Run(world, context=kubernetes_context("shop", "0.2.0")).until_steady().for_passes(3)
    version = before.get("version", "0.1.0")
    message = (
        f"{before['type'].lower()} {version} does not read a store that apache 5.3.3 wrote:"
        " annotation failback.dev/accept-quirk=storeUpgrade begins this upgrade without a way back"
    )
    assert warned(world) == ("EngineChangeRefused", f"EngineChangeRefused: {message}")
    assert [item.message for item in world.events if item.warning] == [message]
    assert (world.log, run.steps, versions(world)) == ([], [], [version] * 2)
    world.annotate(accept_quirk="dropsTopicsOnSync, storeUpgrade")
    run.until_steady()
    assert (warned(world)[0], versions(world)) == ("NoWarning", ["5.3.3"] * 2)
    file = world.objects["ConfigMap", "orders-0-0"]["data"]["broker.conf"]
    assert "timerWheelEnable=true" in file


def test_an_upgrade_that_began_goes_on_without_the_annotation() -> None:
    world = steady(offsetCarry={"mode": "Off"}, engine=OLD)
    world.annotate(accept_quirk="storeUpgrade")
    world.edit(engine=NEW)
    run = Run(world)
    until_first_slave_is_new(run)
    del world.annotations["failback.dev/accept-quirk"]
    run.until_steady()
    assert (warned(world)[0], versions(world)) == ("NoWarning", ["5.3.3"] * 2)


def test_before_a_slave_was_upgraded_the_old_version_is_simply_written_again() -> None:
    world = steady(offsetCarry={"mode": "Off"}, engine=OLD)
    pods = {name: pod.uid for name, pod in world.pods.items()}
    world.annotate(accept_quirk="storeUpgrade")
    world.edit(engine=NEW)
    run = Run(world)
    run.one_pass()
    assert engine_of(world.objects["StatefulSet", "orders-0-0"])["version"] == "5.3.3"
    world.edit(engine=OLD)
    run.until_steady()
    assert {name: pod.uid for name, pod in world.pods.items()} == pods
    assert (warned(world)[0], versions(world)) == ("NoWarning", ["4.9.7"] * 2)


def test_a_pair_whose_slave_was_upgraded_goes_back_by_copying_that_slave_again() -> None:
    goes_back(slaves=1)
    goes_back(slaves=2)


def goes_back(slaves: int) -> None:
    world = steady(offsetCarry={"mode": "Off"}, engine=OLD, slavesPerPair=slaves)
    master = world.running(0, 0).uid
    world.annotate(accept_quirk="storeUpgrade")
    world.edit(engine=NEW)
    run = Run(world)
    until_first_slave_is_new(run)
    world.edit(engine=OLD)
    run.for_passes(20)
    label, claim = f"orders-0-{slaves}", world.claims[f"data-orders-0-{slaves}-0"].uid
    order = f"failback.dev/force-resync-member={claim}"
    assert warned(world)[1] == (
        "EngineChangeRefused: apache 4.9.7 does not read a store that apache 5.3.3 wrote:"
        f" {order} copies {label} again and leads back, 5.3.3 written again goes on"
    )
    assert versions(world) == ["4.9.7"] * slaves + ["5.3.3"]
    world.annotate(force_resync_member=claim)
    run.until_steady()
    assert (warned(world)[0], versions(world)) == ("NoWarning", ["4.9.7"] * (slaves + 1))
    assert world.running(0, 0).uid == master


def test_what_more_than_one_member_wrote_leads_nowhere_back() -> None:
    world = steady(offsetCarry={"mode": "Off"}, engine=OLD, pairs=2)
    world.annotate(accept_quirk="storeUpgrade")
    world.edit(engine=NEW)
    run = Run(world)
    while versions(world).count("5.3.3") < 2:
        run.one_pass()
        world.tick()
    world.edit(engine=OLD)
    before = versions(world)
    run.for_passes(30)
    assert warned(world)[1].endswith(
        "5.3.3 wrote: orders-0-0, orders-0-1 ran it, 5.3.3 written again goes on"
    )
    assert versions(world) == before


def test_values_that_are_a_slip_most_likely_are_told() -> None:
    unknown = "this operator knows no release 4.9.99 of Apache RocketMQ"
    apache = {"type": "Apache", "version": "4.9.99"}
    limits = {"limits": {"cpu": 65}}
    for spec, reason, words in (
        ({"engine": apache}, "UnknownVersion", f"engine.version: {unknown}; the nearest: 4.9.8"),
        ({"resources": {"requests": {"cpu": "500"}}}, "ManyCores", "resources: cpu 500 is over 64"),
        ({"pairOverrides": [{"index": 0, "resources": limits}]}, "ManyCores", "resources: cpu 65"),
        ({"resources": {"requests": {"cpu": "64"}}}, "NoWarning", ""),
    ):
        found, message = warned(steady(offsetCarry={"mode": "Off"}, **spec))
        assert found == reason
        assert message.startswith(f"{reason}: {words}" if words else "")


def lost(spec: dict[str, Any], member: int, template: dict[str, Any] | None) -> World:
    """Return a cluster one of whose brokers has this TBW102; ``None`` = none at all."""
    world = steady(**spec)
    pod = world.pod(0, member)
    assert pod is not None
    topics = {key: value for key, value in pod.store.topics.items() if key != "TBW102"}
    pod.store.topics = topics if template is None else {**topics, "TBW102": template}
    Run(world).one_pass()
    return world


@pytest.mark.parametrize("template", [{"topicName": "TBW102", "perm": 6}, None])
def test_a_master_that_makes_no_topics_any_more_is_told(template: dict[str, Any] | None) -> None:
    reason, message = warned(lost(AUTO, 0, template))
    assert reason == "AutoCreateLost"
    assert message.startswith(
        "AutoCreateLost: orders-0-0 makes no topics although autoCreateTopicEnable is true"
    )


@pytest.mark.parametrize(
    ("spec", "member", "perm"),
    [
        (AUTO, 0, 7),
        (AUTO, 1, 6),  # a slave makes no topics
        ({"config": {"autoCreateTopicEnable": "false"}}, 0, 6),
    ],
)
def test_what_is_as_the_key_says_is_no_warning(
    spec: dict[str, Any], member: int, perm: int
) -> None:
    world = lost(spec, member, {"topicName": "TBW102", "perm": perm})
    assert warned(world) == ("NoWarning", "there is nothing to warn of")
