"""What holds on every way: one disruption at a time, none on a false predicate, one master."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from failback.operator.planning.cluster.cluster import plan_cluster
from failback.operator.planning.observed.observed import ObservedCluster, Route
from failback.operator.planning.operations import OPERATIONS, roll
from failback.operator.planning.plan.types import Evict, Plan
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.planning.state.predicates import evaluate
from failback.operator.render.shape import Member
from tests.support.common.counts import examples
from tests.support.operator.planning_run import CONTEXT, Run, disruptions, steady
from tests.support.operator.planning_world import World

ROLL = {"config": {"flushConsumerOffsetInterval": "4000"}}


def plan_now(world: World, observed: ObservedCluster) -> Plan:
    return plan_cluster(world.cluster, world.status, observed, CONTEXT, world.now)


def evictions(plan: Plan) -> list[Evict]:
    return [action for action in plan.actions if isinstance(action, Evict)]


# --- no eviction while a predicate is false -----------------------------------------------------


@functools.cache
def _before_eviction(member: int) -> World:
    """Return a world whose next pass evicts the member of pair 0."""
    world = steady(pairs=2)
    world.edit(**ROLL)
    run = Run(world)

    def due() -> bool:
        operation = world.status.get("currentOperation") or {}
        at = (operation.get("step"), operation.get("member"))
        return at == ("EvictMember", member) and bool(evictions(plan_now(world, world.observe())))

    run.until(due)
    return world


def _view(observed: ObservedCluster, member: Member, **parts: Any) -> ObservedCluster:
    views = dict(observed.members)
    views[member] = dataclasses.replace(views[member], **parts)
    return dataclasses.replace(observed, members=views)


def _pod(observed: ObservedCluster, member: Member, **parts: Any) -> ObservedCluster:
    pod = observed.member(*member).pod
    assert pod is not None
    return _view(observed, member, pod=dataclasses.replace(pod, **parts))


def _broker(observed: ObservedCluster, member: Member, **parts: Any) -> ObservedCluster:
    broker = observed.member(*member).broker
    assert broker is not None
    return _view(observed, member, broker=dataclasses.replace(broker, **parts))


def _config(observed: ObservedCluster, member: Member, **values: str) -> ObservedCluster:
    broker = observed.member(*member).broker
    assert broker is not None
    return _broker(observed, member, config={**(broker.config or {}), **values})


def _state(world: World, observed: ObservedCluster) -> ClusterState:
    return ClusterState(world.cluster, world.status, observed, world.now)


_EXPERIMENT = {"metadata": {"name": "x"}, "spec": {}, "status": {"phase": "Injecting"}}
HARM: dict[str, Callable[[ObservedCluster], ObservedCluster]] = {
    "other pair down": lambda o: _pod(o, (1, 0), ready=False),
    "other pair unregistered": lambda o: (
        dataclasses.replace(
            o, routes=[Route("ns-0:9876", brokers={"orders-0": o.routes[0].brokers["orders-0"]})]
        )
        if o.routes[0].brokers
        else o
    ),
    "name servers silent": lambda o: dataclasses.replace(o, routes=[Route("ns-0:9876")]),
    "second master": lambda o: _config(o, (0, 1), brokerRole="SYNC_MASTER"),
    "nobody says master": lambda o: _config(o, (0, 0), brokerRole="SLAVE"),
    "master moved": lambda o: dataclasses.replace(o, master_since={0: o.at, 1: 0.0}),
    "diverged": lambda o: _pod(o, (0, 1), prefix="Diverged"),
    "ahead": lambda o: _pod(o, (0, 0), prefix="SlaveAhead"),
    "chaos": lambda o: dataclasses.replace(o, experiments=[_EXPERIMENT]),
    "budget": lambda o: dataclasses.replace(o, budgets={0: 0, 1: 1}),
    "just ready": lambda o: _pod(o, (1, 1), ready_since=o.at - 1),
    "other topics": lambda o: _broker(o, (0, 1), topics={}),
    "unknown tables": lambda o: _broker(o, (0, 0), groups=None),
    "fallen behind": lambda o: _broker(o, (0, 1), end=-(300 << 20)),
    "stale metadata": lambda o: _broker(
        o, (0, 1), metrics={"rocketmq_slave_metadata_sync_age_seconds": 31.0}
    ),
    "slave going": lambda o: _pod(o, (0, 1), deleting=True),
}


@pytest.mark.parametrize("member", [0, 1])
@given(harm=st.sets(st.sampled_from(sorted(HARM))))
@settings(max_examples=examples(60), deadline=None)
def test_no_ready_member_is_evicted_while_a_predicate_is_false(member: int, harm: set[str]) -> None:
    world = _before_eviction(member)
    observed = world.observe()
    for name in sorted(harm):
        observed = HARM[name](observed)
    plan = plan_now(world, observed)
    names = roll.MASTER if member == 0 else roll.SLAVE
    view = observed.member(0, member)
    false = evaluate(names, _state(world, observed), pair=0, member=member)
    if false or view.pod is None or view.pod.deleting:
        assert not evictions(plan)
    else:
        assert [action.pod for action in evictions(plan)] == [f"orders-0-{member}-0"]


@pytest.mark.parametrize("name", sorted(HARM))
def test_each_harm_is_one(name: str) -> None:
    """A harm that no predicate notices would make the property above say nothing."""
    for member in (0, 1):
        world = _before_eviction(member)
        observed = HARM[name](world.observe())
        names = roll.MASTER if member == 0 else roll.SLAVE
        if evaluate(names, _state(world, observed), pair=0, member=member):
            return
    pytest.fail(f"nothing minds: {name}")


# --- any life -----------------------------------------------------------------------------------

EVENTS = st.one_of(
    st.tuples(st.just("roll"), st.sampled_from(["1000", "2000", "3000"])),
    st.tuples(st.just("read"), st.booleans()),
    st.tuples(st.just("live"), st.sampled_from(["12", "24", None])),
    st.tuples(st.just("pairs"), st.integers(1, 3)),
    st.tuples(st.just("slaves"), st.integers(0, 2)),
    st.tuples(st.just("size"), st.none()),
    st.tuples(st.just("kill"), st.integers(0, 8)),
    st.tuples(st.just("mqadmin"), st.integers(0, 8)),
    st.tuples(st.just("restart"), st.integers(0, 9)),
    st.tuples(st.just("restart-member"), st.sampled_from(["orders-0-0", "orders-0-1"])),
)


def happen(world: World, event: tuple[str, Any]) -> None:
    kind, value = event
    config = dict(world.document["spec"].get("config", {}))
    pods = sorted(world.pods)
    if kind == "roll":
        world.edit(config={**config, "flushConsumerOffsetInterval": value})
    elif kind == "read":
        world.edit(slaveReadEnable=value)
    elif kind == "live":
        config.pop("fileReservedTime", None)
        world.edit(config={**config, **({"fileReservedTime": value} if value else {})})
    elif kind == "pairs":
        world.edit(pairs=value)
    elif kind == "slaves":
        world.edit(slavesPerPair=value)
    elif kind == "size":
        size = int(world.document["spec"].get("storage", {}).get("size", "20Gi")[:-2])
        world.edit(storage={"size": f"{size + 1}Gi"})
    elif kind == "restart":
        world.annotate(restart=f"2026-01-01T00:00:0{value}Z")
    elif kind == "restart-member":
        world.annotate(restart_member=value)
    elif pods:
        pod = world.pods[pods[value % len(pods)]]
        if kind == "kill":
            pod.deleting = True
        elif pod.up:
            pod.config |= {"brokerPermission": "4", "slaveReadEnable": "maybe"}


def as_wanted(world: World) -> None:
    """Assert that the cluster is what its spec says, with nothing left over but claims."""
    cluster = world.cluster
    wanted = {
        f"orders-{pair}-{ordinal}-0"
        for pair in range(cluster.spec.pairs)
        for ordinal in cluster.pair(pair).ordinals
    }
    assert set(world.pods) == wanted
    assert {name + "-0" for kind, name in world.objects if kind == "StatefulSet"} == wanted
    for pod in world.pods.values():
        assert pod.up
        assert pod.config["brokerPermission"] == "6"
        assert pod.config["slaveReadEnable"] == str(cluster.spec.slave_read_enable).lower()
        given_value = cluster.spec.config.get("flushConsumerOffsetInterval")
        assert pod.config.get("flushConsumerOffsetInterval") == given_value
        assert pod.config.get("fileReservedTime", "72") == cluster.spec.config.get(
            "fileReservedTime", "72"
        )
    assert world.status["pendingRestarts"] == []
    assert "currentOperation" not in world.status


@pytest.mark.full
@given(
    events=st.lists(st.tuples(EVENTS, st.integers(0, 40)), min_size=1, max_size=4),
    crashes=st.sets(st.integers(1, 60), max_size=4),
)
@example(events=[(("live", "12"), 2), (("live", None), 0), (("slaves", 0), 0)], crashes={23})
@settings(max_examples=15, deadline=None)
def test_any_life_ends_as_wanted_with_one_disruption_at_a_time(
    events: list[tuple[tuple[str, Any], int]], crashes: set[int]
) -> None:
    world = steady(pairs=2)

    def at_most_one(plan: Plan) -> None:
        assert disruptions(plan) <= 1
        operation = plan.status.get("currentOperation")
        assert operation is None or plan.wake_after is not None

    run = Run(world, crashes=crashes)
    run.check = at_most_one
    for event, passes in events:
        happen(world, event)
        run.for_passes(passes)
    run.until_steady()
    assert not world.violations
    as_wanted(world)


@given(event=EVENTS, late=st.lists(st.integers(0, 3), min_size=30, max_size=30))
@settings(max_examples=10, deadline=None)
def test_late_observations_harm_nothing(event: tuple[str, Any], late: list[int]) -> None:
    world = steady(pairs=2)
    happen(world, event)
    run = Run(world, late=late)
    run.until_steady()
    as_wanted(world)


@given(event=EVENTS)
@settings(max_examples=10, deadline=None)
def test_equal_arguments_give_equal_plans(event: tuple[str, Any]) -> None:
    world = steady(pairs=2)
    happen(world, event)
    world.tick(1)
    observed = world.observe()
    before = copy.deepcopy(observed)
    assert plan_now(world, observed) == plan_now(world, observed)
    assert observed == before  # a plan changes nothing it was given


def test_priorities_are_those_of_the_contract() -> None:
    assert list(OPERATIONS) == [
        "RoleSwitch",
        "Resync",
        "ScaleDown",
        "VolumeResize",
        "Roll",
        "ScaleUp",
        "LiveConfig",
    ]
