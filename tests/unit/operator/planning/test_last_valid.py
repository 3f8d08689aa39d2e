"""A cluster whose spec can't be carried out is kept by the last one that could."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from failback.operator.kinds.base import EnvironmentVariable
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.permits import read_permits
from failback.operator.planning.cluster import last_valid
from failback.operator.planning.cluster.cluster import plan_cluster
from failback.operator.planning.plan.encoding import find_condition
from failback.operator.planning.plan.memory import Memory
from failback.operator.planning.plan.types import Apply, Plan
from tests.support.operator.planning_run import CONTEXT, Run, changes, steady
from tests.support.operator.planning_world import World

NOTE = last_valid.key_of("orders")
RIVAL = "BrokerCluster shop/first is older and has these broker names at the name servers"


def stored(world: World, **spec: Any) -> BrokerCluster:
    """Return the cluster with fields that no rule looked at, as an older API server stored it."""
    return world.cluster.model_copy(update={"spec": world.cluster.spec.model_copy(update=spec)})


def spoilt(world: World) -> BrokerCluster:
    """Return the cluster with a spec that breaks a rule."""
    config = {"fileReservedTime": "12"}
    return stored(world, master_role="SYNC_MASTER", slaves_per_pair=0, config=config)


def plan(world: World, cluster: BrokerCluster, **seen: Any) -> Plan:
    observed = dataclasses.replace(world.observe(), **seen)
    return plan_cluster(cluster, world.status, observed, CONTEXT, world.now, Memory())


def lose(world: World, kind: str, name: str) -> None:
    del world.objects[kind, name]


def applied(found: Plan) -> list[tuple[str, str]]:
    return [
        (item.manifest["kind"], item.manifest["metadata"]["name"])
        for item in changes(found)
        if isinstance(item, Apply)
    ]


def said(found: Plan, kind: str) -> tuple[str, str]:
    entry = find_condition(found.status, kind)
    assert entry is not None, kind
    return entry["status"], entry["reason"]


def test_the_spec_is_noted_after_all_that_it_makes() -> None:
    world = World()
    found = plan(world, world.cluster)
    last = found.actions[-1]
    assert isinstance(last, Apply)
    assert (last.manifest["kind"], last.manifest["metadata"]["name"]) == NOTE
    spec = json.loads(last.manifest["data"]["spec.json"])
    assert (
        BrokerCluster.model_validate(
            {"metadata": {"name": "orders", "namespace": "shop"}, "spec": spec}
        ).spec
        == world.cluster.spec
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [("StatefulSet", "orders-0-1"), ("ConfigMap", "orders-0-0"), ("Service", "orders-brokers")],
)
def test_a_lost_child_comes_back_though_the_spec_breaks_a_rule(kind: str, name: str) -> None:
    world = steady()
    broken = spoilt(world)
    lose(world, kind, name)
    found = plan(world, broken)
    assert applied(found) == [(kind, name)]
    assert "fileReservedTime=12" not in json.dumps([item.manifest for item in found.actions])  # type: ignore[union-attr]
    assert said(found, "Ready") == ("False", "InvalidSpec")


def test_a_value_that_no_broker_reads_and_a_fixed_key_are_kept_out_alike() -> None:
    for config in ({"fileReservedTime": "soon"}, {"mappedFileSizeCommitLog": "1048576"}):
        world = steady()
        lose(world, "StatefulSet", "orders-0-1")
        found = plan(world, stored(world, config=config))
        assert applied(found) == [("StatefulSet", "orders-0-1")]
        assert said(found, "Ready") == ("False", "InvalidSpec")


def test_conditions_of_a_refused_spec_say_what_is_and_not_what_was() -> None:
    world = steady()
    broken = spoilt(world)
    world.running(0, 1).config["brokerRole"] = "ASYNC_MASTER"
    world.spoilt = True
    assert said(plan(world, broken), "RolesConsistent") == ("False", "TwoMasters")


def test_operations_go_on_under_a_refused_spec() -> None:
    world = steady(pairs=2)
    broken = spoilt(world)
    marks = {"failback.dev/restart-member": "orders-0-1"}
    asked = broken.model_copy(
        update={"metadata": broken.metadata.model_copy(update={"annotations": marks})}
    )
    found = plan(world, asked)
    assert found.status["currentOperation"]["type"] == "Roll"


def test_without_a_note_other_conditions_are_unknown() -> None:
    world = steady()
    broken = spoilt(world)
    del world.objects[NOTE]
    found = plan(world, broken)
    assert found.actions == ()
    assert said(found, "Ready") == ("False", "InvalidSpec")
    for kind in ("ConfigApplied", "RolesConsistent", "ReplicationHealthy", "MetadataSynced"):
        assert said(found, kind) == ("Unknown", "InvalidSpec")


def test_a_note_of_another_release_or_none_at_all_is_no_spec() -> None:
    assert last_valid.stored_spec(None) is None
    for text in ("", "[1]", "no JSON"):
        assert last_valid.stored_spec({"data": {"spec.json": text}}) is None
    note = {"data": {"spec.json": '{"pairs": "many"}'}}
    assert last_valid.kept(World().cluster, {NOTE: note}, Memory()) is None


def test_a_mended_spec_is_carried_out_again() -> None:
    world = steady()
    world.status = dict(plan(world, spoilt(world)).status)
    world.edit(config={"fileReservedTime": "12"})
    Run(world).until_steady()
    assert world.running(0, 0).config["fileReservedTime"] == "12"
    ready = find_condition(world.status, "Ready")
    assert ready is not None
    assert ready["reason"] == "AllReady"


# --- names that are somebody else's ---------------------------------------------------------------


def test_the_younger_of_two_clusters_of_one_broker_name_makes_nothing() -> None:
    world = World()
    found = plan(world, world.cluster, rival=RIVAL)
    assert found.actions == ()
    assert said(found, "Ready") == ("False", "NameTaken")
    assert [item.reason for item in found.events] == ["Created", "NameTaken"]


def test_what_a_cluster_has_is_healed_though_a_name_is_taken() -> None:
    world = steady()
    lose(world, "StatefulSet", "orders-0-1")
    assert applied(plan(world, world.cluster, rival=RIVAL)) == [("StatefulSet", "orders-0-1")]
    foreign = frozenset({("Service", "orders-brokers")})
    lose(world, "Service", "orders-brokers")
    found = plan(world, world.cluster, foreign=foreign)
    assert applied(found) == [("StatefulSet", "orders-0-1")]
    assert said(found, "Ready") == ("False", "NameTaken")


def test_operations_wait_for_a_free_name() -> None:
    world = steady()
    world.edit(pairs=2)
    found = plan(world, world.cluster, rival=RIVAL)
    assert found.status["currentOperation"]["blockedBy"] == ["NamesFree"]
    assert applied(found) == []


def test_a_spec_whose_objects_would_be_too_many_bytes_is_kept_by_the_last_one() -> None:
    """Each object stays below what the API server keeps, and all together fill its memory."""
    world = steady()
    lines = {f"key{number}": "x" * 1000 for number in range(100)}
    large = stored(world, pairs=64, slaves_per_pair=3, config=lines)
    found = plan(world, large)
    assert said(found, "Ready") == ("False", "InvalidSpec")
    entry = find_condition(found.status, "Ready")
    assert entry is not None
    assert "256 members with 1" in entry["message"]
    assert "shorten podTemplate and config" in entry["message"]
    assert applied(found) == []
    assert (
        said(plan(world, stored(world, pairs=64, slaves_per_pair=3)), "Ready")[1] != "InvalidSpec"
    )


def with_variable(world: World, name: str) -> BrokerCluster:
    template = world.cluster.spec.pod_template
    variable = EnvironmentVariable(name=name, value="x")
    return stored(world, pod_template=template.model_copy(update={"env": [variable]}))


def test_a_command_that_was_accepted_before_goes_on_until_the_spec_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = steady(podTemplate={"env": [{"name": "LD_PRELOAD", "value": "x"}]})
    listed = dataclasses.replace(CONTEXT, permits=read_permits({}))
    monkeypatch.setitem(globals(), "CONTEXT", listed)
    found = plan(world, world.cluster)
    assert said(found, "Ready")[1] != "InvalidSpec"
    assert said(found, "Warning") == ("True", "NotAllowed")
    found = plan(world, with_variable(world, "PYTHONPATH"))
    assert said(found, "Ready") == ("False", "InvalidSpec")
    assert applied(found) == []
