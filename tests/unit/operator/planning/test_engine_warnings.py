"""Engines that must stay, and brokers that no longer do what their key says."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.planning.plan.encoding import find_condition
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World

NEW = {"type": "Apache", "version": "5.3.3"}
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
        ({"type": "Apache", "version": "4.9.7"}, NEW),
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
