"""The plan: name servers, then masters, then slaves; idempotent; nothing orphaned too early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from failback.operator.local.plan import (
    Apply,
    Delete,
    Key,
    Object,
    Observed,
    Plan,
    deletion_order,
    key_of,
    plan,
)
from tests.support.common.counts import examples

NOTHING = Observed({}, frozenset())


def statefulset(name: str, *, member: bool, version: int = 1, replicas: int = 1) -> Object:
    labels = {"failback.dev/member": "0"} if member else {"failback.dev/nameserver": "main"}
    return {
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": replicas, "version": version},
    }


def config(name: str, broker_id: int) -> Object:
    return {
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"broker.conf": f"# x\nbrokerId={broker_id}\n"},
    }


NAME_SERVER = statefulset("main-ns", member=False)
CLUSTER: tuple[Object, ...] = (
    statefulset("demo-0-1", member=True),
    config("demo-0-1", 1),
    statefulset("demo-0-0", member=True),
    config("demo-0-0", 0),
    NAME_SERVER,
)


def observed(*objects: Object, ready: tuple[str, ...] = ()) -> Observed:
    return Observed(
        {key_of(each): each for each in objects},
        frozenset(("StatefulSet", name) for name in ready),
    )


def touched(step: Plan) -> list[str]:
    return [f"{key[0]}/{key[1]}" for key in (action.key for action in step.actions)]


def test_name_servers_and_what_pods_need_come_first() -> None:
    step = plan(NOTHING, CLUSTER)
    assert touched(step) == ["ConfigMap/demo-0-0", "ConfigMap/demo-0-1", "StatefulSet/main-ns"]
    assert step.waiting_for == (("StatefulSet", "main-ns"),)


def test_masters_wait_for_ready_name_servers_and_slaves_for_masters() -> None:
    made: tuple[Object, ...] = (CLUSTER[1], CLUSTER[3], NAME_SERVER)
    assert touched(plan(observed(*made), CLUSTER)) == []
    assert touched(plan(observed(*made, ready=("main-ns",)), CLUSTER)) == ["StatefulSet/demo-0-0"]
    made = (*made, CLUSTER[2])
    assert touched(plan(observed(*made, ready=("main-ns",)), CLUSTER)) == []
    step = plan(observed(*made, ready=("main-ns", "demo-0-0")), CLUSTER)
    assert touched(step) == ["StatefulSet/demo-0-1"]


def test_a_finished_cluster_needs_nothing() -> None:
    step = plan(observed(*CLUSTER, ready=("main-ns", "demo-0-0", "demo-0-1")), CLUSTER)
    assert step == Plan()
    assert step.done


def test_a_changed_object_is_updated_and_awaited_again() -> None:
    changed = (*CLUSTER[:4], statefulset("main-ns", member=False, version=2))
    step = plan(observed(*CLUSTER, ready=("main-ns", "demo-0-0", "demo-0-1")), changed)
    assert touched(step) == ["StatefulSet/main-ns"]
    assert not step.done


def test_an_orphan_goes_only_when_nothing_is_missing() -> None:
    extra = (statefulset("demo-1-0", member=True), config("demo-1-0", 0))
    waiting = observed(*CLUSTER, *extra, ready=("main-ns", "demo-0-0"))
    assert touched(plan(waiting, CLUSTER)) == []
    calm = observed(*CLUSTER, *extra, ready=("main-ns", "demo-0-0", "demo-0-1"))
    step = plan(calm, CLUSTER)
    assert step.actions == (Delete(("StatefulSet", "demo-1-0")), Delete(("ConfigMap", "demo-1-0")))


def test_a_held_member_is_not_waited_for() -> None:
    held = (statefulset("demo-0-0", member=True, replicas=0), config("demo-0-0", 0))
    assert plan(observed(*held), held).done


def test_everything_goes_slaves_first_and_name_servers_last() -> None:
    order = [
        name
        for stage in deletion_order({key_of(each): each for each in CLUSTER})
        for kind, name in stage
        if kind == "StatefulSet"
    ]
    assert order == ["demo-0-1", "demo-0-0", "main-ns"]


def carry_out(step: Plan, objects: Mapping[Key, Object]) -> dict[Key, Object]:
    result = dict(objects)
    for action in step.actions:
        if isinstance(action, Apply):
            result[action.key] = action.manifest
        else:
            del result[action.key]
    return result


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Object], list[Object]]:
    """What is there and what is wanted: name servers and pairs of up to three members."""
    sides: list[list[Object]] = []
    for _ in range(2):
        objects: list[Object] = []
        for pair in draw(st.sets(st.integers(0, 2))):
            for ordinal in range(draw(st.integers(1, 3))):
                name = f"demo-{pair}-{ordinal}"
                version = draw(st.integers(1, 2))
                objects.append(statefulset(name, member=True, version=version))
                objects.append(config(name, ordinal))
        if draw(st.booleans()):
            objects.append(NAME_SERVER)
        sides.append(objects)
    return sides[0], sides[1]


@given(worlds())
@settings(max_examples=examples(80), deadline=None)
def test_carrying_plans_out_reaches_what_is_wanted_and_then_stops(
    world: tuple[list[Object], list[Object]],
) -> None:
    start, wanted = world
    objects: dict[Key, Object] = {key_of(each): each for each in start}
    for _ in range(10):
        ready = frozenset(key for key in objects if key[0] == "StatefulSet")
        now = Observed(objects, ready)
        step = plan(now, wanted)
        assert step == plan(now, wanted)
        if step.done:
            break
        objects = carry_out(step, objects)
    assert objects == {key_of(each): each for each in wanted}


@given(worlds(), st.data())
@settings(max_examples=examples(80), deadline=None)
def test_no_slave_starts_before_its_masters_and_name_servers_are_ready(
    world: tuple[list[Object], list[Object]], data: st.DataObject
) -> None:
    start, wanted = world
    objects = {key_of(each): each for each in start}
    sets = sorted(key for key in objects if key[0] == "StatefulSet")
    ready = frozenset(data.draw(st.sets(st.sampled_from(sets))) if sets else ())
    step = plan(Observed(objects, ready), wanted)
    started: set[Any] = {each.key for each in step.actions if each.key[0] == "StatefulSet"}
    later = {key for key in started if key[1].startswith("demo") and not key[1].endswith("-0")}
    if later and not any(isinstance(each, Delete) for each in step.actions):
        masters = {key_of(each) for each in wanted if each["metadata"]["name"].endswith("-0")}
        masters = {key for key in masters if key[0] == "StatefulSet"}
        assert masters <= ready | started - later
        assert masters <= ready
