"""A newer operator over what an older one made: defaults of the release stay until asked for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from failback.operator.kinds.name_server import NameServer
from failback.operator.planning.nameserver.name_server import plan_name_server
from failback.operator.planning.observed.observed import ObservedNameServer
from failback.operator.planning.plan.children import by_key, finished
from failback.operator.planning.plan.types import Apply
from failback.operator.render.context import Context, kubernetes_context
from failback.operator.render.objects import render_name_server
from tests.support.operator.planning_run import CONTEXT, Run, changes, steady
from tests.support.operator.planning_world import World

NEWER = dataclasses.replace(CONTEXT, version="0.2.0")
APACHE = {"type": "Apache", "version": "4.9.7"}


def releases(world: World) -> set[tuple[str, str, str]]:
    """Return release, broker image and tools image of every member's StatefulSet."""
    found = set()
    for (kind, _), item in world.objects.items():
        if kind == "StatefulSet":
            pod = item["spec"]["template"]["spec"]
            release = item["metadata"]["annotations"]["failback.dev/release"]
            images = (pod["containers"][0]["image"], pod["initContainers"][0]["image"])
            found.add((release, *images))
    return found


def upgraded(world: World, **spec: Any) -> World:
    """Let a newer operator work on a cluster until it rests; ``spec`` is changed with it."""
    if spec:
        world.edit(**spec)
    world.log.clear()
    Run(world, context=NEWER).until_steady()
    return world


@pytest.mark.parametrize("engine", [{"type": "Failback"}, APACHE, {"version": "0.0.9"}])
def test_a_newer_operator_changes_the_status_and_nothing_else(engine: dict[str, Any]) -> None:
    world = steady(engine=engine)
    objects, before = dict(world.objects), releases(world)
    upgraded(world)
    assert (world.objects, releases(world)) == (objects, before)
    assert world.log == []
    assert world.status["operatorVersion"] == "0.2.0"


def test_what_is_added_later_is_of_the_release_that_stands() -> None:
    world = upgraded(steady(), pairs=2)
    assert releases(world) == {("0.1.0", "failback/broker:0.1.0", "failback/broker:0.1.0")}


@pytest.mark.parametrize(
    ("before", "after", "image"),
    [
        ({}, {"version": "0.2.0"}, "failback/broker:0.2.0"),
        ({"version": "0.0.9"}, {"version": "0.1.5"}, "failback/broker:0.1.5"),
        (APACHE, {"type": "Apache", "version": "4.9.8"}, "apache/rocketmq:4.9.8"),
    ],
)
def test_another_version_comes_with_the_defaults_of_the_newer_release(
    before: dict[str, Any], after: dict[str, Any], image: str
) -> None:
    world = upgraded(steady(engine=before), engine=after)
    assert releases(world) == {("0.2.0", image, "failback/broker:0.2.0")}
    assert {pod.image for pod in world.pods.values()} == {image}
    world.log.clear()
    Run(world, context=NEWER).until_steady()
    assert world.log == []


def test_an_engine_without_a_version_is_of_the_release_that_stands() -> None:
    world = upgraded(steady(engine=APACHE), engine={"type": "Failback"})
    assert releases(world) == {("0.1.0", "failback/broker:0.1.0", "failback/broker:0.1.0")}


def test_an_arm_and_a_store_that_cannot_go_back_leave_the_release_alone() -> None:
    arm = {"name": "other", "engine": "Apache"}
    world = steady()
    world.experiments = [
        {
            "metadata": {"name": "x"},
            "spec": {"arms": [arm]},
            "status": {"phase": "SteadyState", "activeArm": "other"},
        }
    ]
    upgraded(world)
    assert releases(world) == {("0.1.0", "apache/rocketmq:4.9.7", "failback/broker:0.1.0")}
    world.experiments = []
    upgraded(world)
    assert releases(world) == {("0.1.0", "failback/broker:0.1.0", "failback/broker:0.1.0")}

    held = steady(engine={"type": "Apache", "version": "5.3.3"})
    before = releases(held)
    upgraded(held, engine=APACHE)
    assert releases(held) == before
    assert held.log == []


def test_images_with_a_tag_are_the_administrator_s_word() -> None:
    tagged = dataclasses.replace(NEWER, images={"failback": "shop/broker:7", "tools": "shop/tools"})
    world = steady()
    Run(world, context=tagged).until_steady()
    assert releases(world) == {("0.1.0", "shop/broker:7", "shop/tools:0.1.0")}


def name_server(**engine: Any) -> NameServer:
    metadata = {"name": "main", "namespace": "shop", "uid": "ns-1"}
    return NameServer.model_validate({"metadata": metadata, "spec": {"engine": engine}})


def name_server_applies(wanted: NameServer, context: Context) -> list[dict[str, Any]]:
    """Plan for a NameServer that an operator of 0.1.0 made; return what is applied."""
    made = by_key(render_name_server(name_server(), kubernetes_context("shop", "0.1.0")))
    seen = ObservedNameServer(1.75e9, objects={key: finished(it) for key, it in made.items()})
    plan = plan_name_server(wanted, {}, seen, context, 1.75e9)
    return [dict(item.manifest) for item in changes(plan) if isinstance(item, Apply)]


def test_name_servers_stay_too_until_another_version_is_asked_for() -> None:
    assert name_server_applies(name_server(), NEWER) == []
    found = name_server_applies(name_server(version="0.2.0"), NEWER)
    (statefulset,) = (item for item in found if item["kind"] == "StatefulSet")
    pod = statefulset["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "failback/broker:0.2.0"
    images = {"failback": "shop/broker", "namesrv": "shop/namesrv"}
    own = dataclasses.replace(NEWER, images=images)
    (changed,) = name_server_applies(name_server(), own)
    container = changed["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "shop/namesrv:0.1.0"
