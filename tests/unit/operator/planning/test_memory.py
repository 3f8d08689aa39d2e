"""The memory of earlier passes changes no plan, and forgets with what it depends on."""

from __future__ import annotations

from typing import Any

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.plan.children import finished, plan_children
from failback.operator.planning.plan.memory import Desired, Memory
from failback.operator.planning.plan.types import Apply
from failback.operator.render.context import Context, kubernetes_context
from failback.operator.render.shape import Shape
from tests.support.operator.planning_world import World

WANT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "orders-0-0"},
    "data": {"broker.conf": "a=1"},
}
KEY = ("ConfigMap", "orders-0-0")


def stored(version: str, **changed: Any) -> dict[str, Any]:
    found = finished(WANT)
    metadata = {**found["metadata"], "uid": "u", "resourceVersion": version}
    return {**found, "metadata": metadata, **changed}


def planned(have: dict[str, Any], memory: Memory, want: dict[str, Any] = WANT) -> list[str]:
    actions, _ = plan_children([want], {KEY: have}, memory)
    return [type(action).__name__ for action in actions]


def test_a_version_that_was_as_wanted_is_not_compared_again() -> None:
    memory = Memory()
    assert planned(stored("7"), memory) == []
    # The same version can't hold other data; if it is shown with some, nobody looked.
    assert planned(stored("7", data={"broker.conf": "b"}), memory) == []


def test_another_version_wish_or_object_is_compared() -> None:
    memory = Memory()
    assert planned(stored("7"), memory) == []
    drifted = stored("8", data={"broker.conf": "b"})
    assert planned(drifted, memory) == ["Apply"]
    assert planned(drifted, memory) == ["Apply"]
    assert planned(stored("7"), memory, {**WANT, "data": {"broker.conf": "a=2"}}) == ["Apply"]
    assert plan_children([WANT], {}, memory)[0] == (Apply(finished(WANT)),)


def test_what_is_no_longer_wanted_is_forgotten() -> None:
    memory = Memory()
    planned(stored("7"), memory)
    plan_children([], {}, memory)
    assert memory.equal == {}


def test_rendering_is_repeated_when_anything_it_depends_on_is_another() -> None:
    cluster, other = World().cluster, World().cluster
    here, there = (kubernetes_context(name, "0.1.0") for name in ("here", "there"))
    memory, calls = Memory(), 0

    def render() -> Desired:
        nonlocal calls
        calls += 1
        return {}

    def rendered(
        cluster: BrokerCluster, addresses: list[str], context: Context, shape: Shape
    ) -> int:
        before = calls
        memory.render(cluster, addresses, context, shape, render)
        return calls - before

    first = (cluster, ["a:1"], here, Shape(1))
    assert rendered(*first) == 1
    assert rendered(*first) == 0
    for changed in (
        (other, ["a:1"], here, Shape(1)),
        (other, ["b:1"], here, Shape(1)),
        (other, ["b:1"], there, Shape(1)),
        (other, ["b:1"], there, Shape(2)),
    ):
        assert rendered(*changed) == 1
