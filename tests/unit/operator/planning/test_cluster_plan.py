"""One pass over a cluster: what it does, what it leaves alone, and when it does nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.operator.planning.cluster.cluster import plan_cluster
from failback.operator.planning.observed.observed import ObservedCluster, Route
from failback.operator.planning.plan.encoding import find_condition
from failback.operator.planning.plan.types import Apply, LabelPod, Plan
from tests.support.operator.planning_run import CONTEXT, Run, changes, steady
from tests.support.operator.planning_world import World


def plan(world: World, observed: ObservedCluster | None = None, **changes: Any) -> Plan:
    seen = dataclasses.replace(observed or world.observe(), **changes)
    return plan_cluster(world.cluster, world.status, seen, CONTEXT, world.now)


def reason(found: Plan, kind: str = "Ready") -> str:
    entry = find_condition(found.status, kind)
    assert entry is not None
    return str(entry["reason"])


def applied(found: Plan) -> set[tuple[str, str]]:
    return {
        (item.manifest["kind"], item.manifest["metadata"]["name"])
        for item in changes(found)
        if isinstance(item, Apply)
    }


def test_a_new_cluster_gets_all_its_objects_at_once() -> None:
    found = plan(World(pairs=2))
    members = {f"orders-{pair}-{ordinal}" for pair in (0, 1) for ordinal in (0, 1)}
    assert applied(found) == {
        ("Service", "orders-brokers"),
        ("PodDisruptionBudget", "orders-0"),
        ("PodDisruptionBudget", "orders-1"),
        *(("StatefulSet", name) for name in members),
        *(("ConfigMap", name) for name in members),
    }
    assert reason(found) == "Creating"
    assert "observedGeneration" not in found.status


def test_a_cluster_at_rest_is_left_alone() -> None:
    world = steady(pairs=2)
    found = plan(world)
    assert found.actions == ()
    assert found.events == ()
    assert found.status == world.status
    assert found.wake_after is None
    assert world.status["observedGeneration"] == 1
    assert reason(found) == "AllReady"


def test_what_is_not_ready_is_looked_at_often_only_while_time_may_turn_something() -> None:
    world = steady()
    world.registered.clear()
    found = plan(world, routes=())
    assert reason(found) != "AllReady"
    world.status = dict(found.status)
    assert plan(world, routes=()).wake_after == 15
    world.now += 300
    assert plan(world, routes=()).wake_after is None
    lately = {0: world.now - 20}
    assert plan(world, routes=(), masterless_since=lately).wake_after == 15


configs = st.dictionaries(
    st.sampled_from(["fileReservedTime", "haTransferBatchSize", "registerNameServerPeriod"]),
    st.integers(1, 99).map(str),
    max_size=2,
)
specs = st.fixed_dictionaries(
    {
        "pairs": st.integers(1, 3),
        "slavesPerPair": st.integers(0, 2),
        "slaveReadEnable": st.booleans(),
        "flushDiskType": st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]),
        "config": configs,
    }
)


@settings(max_examples=15, deadline=None)
@given(spec=specs)
def test_once_settled_a_second_pass_plans_nothing(spec: dict[str, Any]) -> None:
    world = World(**spec)
    Run(world).until_steady()
    for seconds in (0, 5, 60, 3600):
        world.now += seconds
        found = plan(world)
        assert (found.actions, found.events) == ((), ())
        assert found.status == world.status


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("StatefulSet", "orders-0-1"),
        ("ConfigMap", "orders-0-0"),
        ("Service", "orders-brokers"),
        ("PodDisruptionBudget", "orders-0"),
    ],
)
def test_a_lost_child_is_made_again_and_nothing_else(kind: str, name: str) -> None:
    world = steady()
    seen = world.observe()
    objects = {key: item for key, item in seen.objects.items() if key != (kind, name)}
    members = {
        key: dataclasses.replace(
            view,
            statefulset=objects.get(("StatefulSet", f"orders-{key[0]}-{key[1]}")),
            config_map=objects.get(("ConfigMap", f"orders-{key[0]}-{key[1]}")),
        )
        for key, view in seen.members.items()
    }
    assert applied(plan(world, seen, objects=objects, members=members)) == {(kind, name)}


def test_what_breaks_a_rule_leaves_the_children_as_they_are() -> None:
    world = steady()
    world.edit(masterRole="SYNC_MASTER", slavesPerPair=1)
    spec = world.cluster.spec.model_copy(update={"slaves_per_pair": 0})
    broken = world.cluster.model_copy(update={"spec": spec})
    found = plan_cluster(broken, world.status, world.observe(), CONTEXT, world.now)
    assert found.actions == ()
    assert reason(found) == "InvalidSpec"
    assert "SYNC_MASTER needs a slave" in str(find_condition(found.status, "Ready"))
    assert [item.reason for item in found.events] == ["InvalidSpec"]
    again = plan_cluster(broken, found.status, world.observe(), CONTEXT, world.now)
    assert again.events == ()


def test_a_foreign_object_of_our_name_stops_everything() -> None:
    world = World()
    found = plan(world, foreign=frozenset({("ConfigMap", "orders-0-0")}))
    assert found.actions == ()
    assert reason(found) == "NameTaken"
    assert "ConfigMap/orders-0-0" in str(find_condition(found.status, "Ready"))


def test_a_broker_name_that_name_servers_list_is_taken_before_any_pod() -> None:
    """Whichever address leads there: the list says who answers to the name."""
    world = World(pairs=2)
    theirs = Route("lb.example.com:9876", {"orders-1": {1: "10.7.7.7:10911"}})
    silent = Route("10.9.9.9:9876", problem="connect to 10.9.9.9:9876 failed: refused")
    found = plan(world, routes=(silent, theirs))
    assert (found.actions, reason(found)) == ((), "NameTaken")
    ready = find_condition(found.status, "Ready")
    assert ready is not None
    assert "list orders-1 at 10.7.7.7:10911, no member" in ready["message"]
    assert plan(world, routes=(silent,)).actions != ()

    grown = steady(pairs=1)
    grown.edit(pairs=2)
    seen = grown.observe()
    routes = [*seen.routes, theirs]
    found = plan(grown, seen, routes=tuple(routes))
    assert reason(found) == "NameTaken"
    assert not any("orders-1" in name for _, name in applied(found))


def test_a_foreign_object_of_another_name_is_none_of_our_business() -> None:
    found = plan(World(), foreign=frozenset({("ConfigMap", "settings")}))
    assert applied(found)


def test_without_its_name_server_nothing_is_made() -> None:
    found = plan(World(), name_servers=None)
    assert found.actions == ()
    assert reason(found) == "NameServerMissing"


def test_a_name_server_that_vanishes_later_changes_no_broker() -> None:
    world = steady()
    found = plan(world, name_servers=None, routes=())
    assert found.actions == ()
    assert reason(found) == "NameServerMissing"


@pytest.mark.parametrize("how", ["suspend", "annotation"])
def test_paused_means_status_only(how: str) -> None:
    world = steady()
    if how == "suspend":
        world.edit(suspend=True, slaveReadEnable=True)
    else:
        world.annotate(pause_reconciliation="true")
        world.edit(slaveReadEnable=True)
    seen = world.observe()
    objects = {key: item for key, item in seen.objects.items() if key[0] != "Service"}
    found = plan(world, seen, objects=objects)
    assert (found.actions, found.events) == ((), ())
    assert "currentOperation" not in found.status
    assert reason(found, "Paused") == "Requested"


def test_an_operation_stands_in_the_status_before_it_acts() -> None:
    world = steady()
    world.edit(slaveReadEnable=True)
    opened = plan(world)
    assert opened.status["currentOperation"]["type"] == "LiveConfig"
    assert not any(isinstance(item, Apply) for item in changes(opened))
    assert [item.reason for item in opened.events] == ["OperationStarted"]


def test_pods_show_the_role_that_brokers_say() -> None:
    world = steady()
    for pod in world.pods.values():
        pod.role = ""
    labels = {
        item.pod: item.labels["failback.dev/role"]
        for item in plan(world).actions
        if isinstance(item, LabelPod)
    }
    assert labels == {"orders-0-0-0": "master", "orders-0-1-0": "slave"}


def test_a_silent_broker_keeps_the_role_it_had() -> None:
    world = steady()
    world.silent.add((0, 0))
    assert not any(isinstance(item, LabelPod) for item in plan(world).actions)


def test_two_masters_are_told_and_left_alone() -> None:
    world = steady()
    world.running(0, 1).config["brokerRole"] = "ASYNC_MASTER"
    found = plan(world)
    assert not any(not isinstance(item, LabelPod) for item in found.actions)
    assert reason(found, "RolesConsistent") == "TwoMasters"
    assert [item.reason for item in found.events] == ["TwoMastersDetected"]
    world.status = dict(found.status)
    assert plan(world).events == ()


def test_status_lists_pairs_and_members_as_they_are() -> None:
    world = steady(pairs=2)
    pairs = world.status["pairs"]
    assert [(pair["name"], pair["phase"], pair["writable"]) for pair in pairs] == [
        ("orders-0", "Running", True),
        ("orders-1", "Running", True),
    ]
    master, slave = pairs[0]["members"]
    assert (master["brokerId"], master["observedRole"]) == (0, "ASYNC_MASTER")
    assert (slave["brokerId"], slave["observedRole"], slave["lag"]) == (1, "SLAVE", "Zero")
    assert world.status["readyPairs"] == 2
    assert world.status["replicas"] == 2


def slave_of(world: World) -> dict[str, Any]:
    world.status = dict(plan(world).status)
    found: dict[str, Any] = world.status["pairs"][0]["members"][1]
    return found


def test_a_lag_that_cannot_be_known_any_more_is_remembered() -> None:
    world = steady()
    assert "lastLag" not in slave_of(world)
    world.silent.add((0, 0))
    for _ in range(2):
        slave = slave_of(world)
        assert (slave["lag"], slave["lastLag"]) == ("Unknown", "Zero")
    world.silent.clear()
    slave = slave_of(world)
    assert slave["lag"] == "Zero"
    assert "lastLag" not in slave


def test_the_rules_of_a_broker_are_those_that_it_says_and_are_kept_while_it_is_silent() -> None:
    world = steady()
    assert "rules" not in slave_of(world), "it is no broker of Failback"
    world.running(0, 1).config["failbackRules"] = "guarded"
    assert slave_of(world)["rules"] == "guarded"
    world.silent.add((0, 1))
    assert slave_of(world)["rules"] == "guarded"


def test_many_pairs_list_only_members_that_are_not_as_wanted() -> None:
    world = steady(pairs=17)
    assert all(pair["members"] == [] for pair in world.status["pairs"])
    world.take_pod(3, 1)
    found = plan(world)
    listed = [pair["name"] for pair in found.status["pairs"] if pair["members"]]
    assert listed == ["orders-3"]


def test_a_cluster_tells_of_its_birth_once() -> None:
    world = World(pairs=2)
    Run(world).until_steady()
    told = [(item.reason, item.message) for item in world.events if not item.warning]
    assert told[0] == ("Created", "2 pairs")
    assert ("Ready", "every pair has a writable master") in told
    world.events.clear()
    world.edit(flushDiskType="SYNC_FLUSH")
    Run(world).until_steady()
    assert {"Created", "Ready"}.isdisjoint(item.reason for item in world.events)


@pytest.mark.parametrize(("ordinal", "reason"), [(0, "MasterDown"), (1, "SlaveDown")])
def test_a_member_that_goes_down_and_comes_back_is_two_events(ordinal: int, reason: str) -> None:
    world = steady()
    member = (0, ordinal)
    seen = world.observe()
    view = seen.member(*member)
    assert view.pod is not None
    down = dataclasses.replace(view, pod=dataclasses.replace(view.pod, ready=False))
    gone = dataclasses.replace(seen, members={**seen.members, member: down})
    first = plan(world, gone)
    words = f"orders-0-{ordinal}-0 is not ready"
    assert [(each.reason, each.message, each.warning) for each in first.events] == [
        (reason, words, True)
    ]
    world.status = dict(first.status)
    assert plan(world, gone).events == ()
    back = plan(world, seen)
    assert [(each.reason, each.message, each.warning) for each in back.events] == [
        ("Recovered", f"ready again after {reason}: {words}", False)
    ]


@pytest.mark.parametrize(
    ("problem", "part", "changes"),
    [
        ("ClaimPending", "claim", {"phase": "Pending"}),
        ("ImagePullError", "pod", {"problem": "ImagePullError", "message": "x: not found"}),
        ("Unschedulable", "pod", {"problem": "Unschedulable", "message": "no node"}),
    ],
)
def test_what_a_new_cluster_waits_for_is_no_outage(
    problem: str, part: str, changes: dict[str, Any]
) -> None:
    """Tried on a cluster that was never ready, and on one that was."""
    world = steady()
    whole = world.observe()

    def seen(**parts: dict[str, Any]) -> ObservedCluster:
        master = whole.member(0, 0)
        new = {name: dataclasses.replace(getattr(master, name), **parts[name]) for name in parts}
        members = {**whole.members, (0, 0): dataclasses.replace(master, **new)}
        return dataclasses.replace(whole, members=members)

    starting = {"pod": {"ready": False}}
    waiting = starting | {part: starting.get(part, {}) | changes}
    passes = (seen(**waiting), seen(**starting), whole)
    for status, reasons, events in (
        ({}, [problem, "Creating", "AllReady"], ["Created", "Ready"]),
        (world.status, [problem, "MasterDown", "AllReady"], ["MasterDown", "Recovered"]),
    ):
        world.status = dict(status)
        found = []
        for each in passes:
            found.append(plan(world, each))
            world.status = dict(found[-1].status)
        assert [reason(each) for each in found] == reasons
        assert [event.reason for each in found for event in each.events] == events


def test_claims_that_scaling_left_are_listed_until_they_are_wanted_again() -> None:
    world = steady(slavesPerPair=1)
    assert "leftoverClaims" not in world.status
    world.edit(slavesPerPair=0)
    Run(world).until_steady()
    assert world.status["leftoverClaims"] == ["data-orders-0-1-0"]
    world.edit(slavesPerPair=1)
    Run(world).until_steady()
    assert "leftoverClaims" not in world.status


def test_the_masters_stand_in_a_row() -> None:
    assert steady(pairs=2).status["masters"] == "orders-0-0,orders-1-0"
