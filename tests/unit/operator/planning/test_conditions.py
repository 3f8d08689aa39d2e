"""Each condition says what it is about, with a reason that names the cause."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from failback.operator.kinds.permits import Permits
from failback.operator.planning.cluster import conditions, warnings
from failback.operator.planning.cluster.cluster import shape_of
from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Broker, ObservedCluster, Route
from failback.operator.planning.plan.encoding import Verdict
from failback.operator.planning.plan.types import Operation
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.objects import render_cluster
from tests.support.operator.planning_run import CONTEXT, Run, steady
from tests.support.operator.planning_world import World

Condition = Callable[[ClusterView], Verdict]


def view(world: World, observed: ObservedCluster | None = None, **changes: Any) -> ClusterView:
    """Return a world as conditions see it; changes are fields of the view."""
    seen = observed or world.observe()
    state = ClusterState(world.cluster, world.status, seen, world.now)
    shape = shape_of(state)
    objects = render_cluster(world.cluster, world.name_servers, CONTEXT, shape)
    desired = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    found = ClusterView(state, shape, desired)
    return dataclasses.replace(found, **changes)


def with_member(
    world: World, pair: int, ordinal: int, part: str, **changes: Any
) -> ObservedCluster:
    """Return an observation in which a part (pod, claim, broker) of a member is changed."""
    seen = world.observe()
    member = seen.member(pair, ordinal)
    changed = dataclasses.replace(getattr(member, part), **changes)
    members = {**seen.members, (pair, ordinal): dataclasses.replace(member, **{part: changed})}
    return dataclasses.replace(seen, members=members)


@pytest.mark.parametrize(
    "condition",
    [
        conditions.ready,
        conditions.config_applied,
        conditions.roles_consistent,
        conditions.replication_healthy,
        conditions.metadata_synced,
    ],
)
def test_at_rest_every_condition_holds(condition: Condition) -> None:
    assert condition(view(steady())).value is True


@pytest.mark.parametrize("condition", [conditions.scaling_down, conditions.reconciling])
def test_at_rest_nothing_is_under_way(condition: Condition) -> None:
    found = condition(view(steady()))
    assert (found.value, found.reason) == (False, "")


# --- Ready ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ordinal", "changes", "reason", "words"),
    [
        (0, {"ready": False}, "MasterDown", "orders-0-0-0 is not ready"),
        (1, {"ready": False}, "SlaveDown", "orders-0-1-0 is not ready"),
        (1, {"deleting": True}, "SlaveDown", "orders-0-1-0 is stopping"),
        (
            1,
            {"ready": False, "problem": "ImagePullError", "message": "x: not found"},
            "ImagePullError",
            "orders-0-1-0: x: not found",
        ),
        (
            0,
            {"ready": False, "problem": "Unschedulable", "message": "no node"},
            "Unschedulable",
            "orders-0-0-0: no node",
        ),
        (
            0,
            {"ready": False, "problem": "CrashLoop", "message": "exit code 253"},
            "MasterDown",
            "orders-0-0-0 is not ready: exit code 253",
        ),
    ],
)
def test_a_pod_that_is_not_there_says_why(
    ordinal: int, changes: dict[str, Any], reason: str, words: str
) -> None:
    world = steady()
    found = conditions.ready(view(world, with_member(world, 0, ordinal, "pod", **changes)))
    assert (found.value, found.reason, found.message) == (False, reason, words)


def test_a_pod_that_is_refused_says_by_what() -> None:
    world = steady()
    seen = with_member(world, 0, 1, "claim", phase="Pending")
    member = dataclasses.replace(seen.member(0, 1), pod=None)
    refused = {"orders-0-1-0": "exceeded quota: q"}
    seen = dataclasses.replace(seen, members={**seen.members, (0, 1): member}, refused_pods=refused)
    found = conditions.ready(view(world, seen))
    assert (found.reason, found.message) == ("PodRefused", "orders-0-1-0: exceeded quota: q")


def test_a_claim_that_is_pending_is_named_with_its_class() -> None:
    world = steady()
    seen = with_member(world, 0, 0, "claim", phase="Pending", storage_class="fast")
    member = seen.member(0, 0)
    assert member.pod is not None
    pod = dataclasses.replace(member.pod, ready=False)
    members = {**seen.members, (0, 0): dataclasses.replace(member, pod=pod)}
    found = conditions.ready(view(world, dataclasses.replace(seen, members=members)))
    assert found.reason == "ClaimPending"
    assert found.message == "data-orders-0-0-0 of fast is Pending"
    words = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    pod = dataclasses.replace(pod, problem="Unschedulable", message=words)
    members = {**seen.members, (0, 0): dataclasses.replace(member, pod=pod)}
    found = conditions.ready(view(world, dataclasses.replace(seen, members=members)))
    assert found.reason == "ClaimPending", "not Unschedulable: this is its cause"
    assert found.message == f"data-orders-0-0-0 of fast is Pending: {words}"


def test_a_member_that_no_name_server_lists_is_not_registered() -> None:
    world = steady()
    routes = [Route("ns-0:9876", {"orders-0": {0: world.running(0, 0).address}})]
    found = conditions.ready(view(world, dataclasses.replace(world.observe(), routes=routes)))
    assert found.reason == "NotRegistered"
    assert "orders-0-1" in found.message


def test_a_closed_master_is_draining() -> None:
    world = steady()
    world.running(0, 0).config["brokerPermission"] = "4"
    assert conditions.ready(view(world)).reason == "Draining"


def test_a_cluster_that_was_never_ready_is_being_created() -> None:
    world = steady()
    world.status = {}
    seen = with_member(world, 0, 1, "pod", ready=False)
    assert conditions.ready(view(world, seen)).reason == "Creating"


# --- ConfigApplied -------------------------------------------------------------------------------


def test_a_live_key_that_a_broker_answers_differently_is_out_of_sync() -> None:
    world = steady()
    world.running(0, 1).config["slaveReadEnable"] = "true"
    found = conditions.config_applied(view(world))
    assert (found.value, found.reason) == (False, "OutOfSync")
    assert "slaveReadEnable on orders-0-1" in found.message


def test_a_key_that_needs_a_restart_is_pending() -> None:
    world = steady()
    world.running(0, 1).config["flushDiskType"] = "SYNC_FLUSH"
    found = conditions.config_applied(view(world))
    assert found.reason == "PendingRestart"
    assert "flushDiskType on orders-0-1" in found.message


def test_values_are_compared_by_their_type() -> None:
    world = steady()
    config = {"slaveReadEnable": "FALSE", "brokerPermission": "06"}
    world.running(0, 1).config |= config
    assert conditions.config_applied(view(world)).value is True


def test_a_silent_broker_makes_the_configuration_unknown() -> None:
    world = steady()
    world.silent.add((0, 1))
    found = conditions.config_applied(view(world))
    assert (found.value, found.reason) == (None, "UnableToRetrieve")


def test_an_unknown_key_can_not_be_verified_by_its_echo() -> None:
    world = steady()
    world.annotate(accept_unknown_key="fileReservedTimes")
    world.edit(config={"fileReservedTimes": "48"})
    Run(world).until_steady()
    found = conditions.config_applied(view(world))
    assert (found.value, found.reason) == (None, "UnknownKey")


def test_a_rejected_key_stays_rejected_while_it_differs() -> None:
    world = steady()
    world.running(0, 1).config["slaveReadEnable"] = "true"
    entry = {"type": "ConfigApplied", "status": "False", "reason": "RejectedKey", "message": "m"}
    world.status = {**world.status, "conditions": [entry]}
    assert conditions.config_applied(view(world)).reason == "RejectedKey"


# --- RolesConsistent -----------------------------------------------------------------------------


def test_two_members_that_say_master_are_two_masters() -> None:
    world = steady()
    world.running(0, 1).config["brokerRole"] = "ASYNC_MASTER"
    found = conditions.roles_consistent(view(world))
    assert found.reason == "TwoMasters"
    assert "orders-0-1 is not the master member" in found.message


def test_a_foreign_master_beside_ours_is_two_masters() -> None:
    world = steady()
    seen = dataclasses.replace(world.observe(), recent_masters={0: ("10.9.9.9:10911",)})
    found = conditions.roles_consistent(view(world, seen))
    assert found.reason == "TwoMasters"
    assert "10.9.9.9:10911" in found.message
    followed = conditions.replication_healthy(view(world, seen))
    assert (followed.value, followed.reason) == (False, "SlaveFollowsStranger")


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (conditions.config_applied, "no answer of orders-0-1: "),
        (conditions.roles_consistent, "no answer of orders-0-1: "),
        (conditions.replication_healthy, "lag of orders-0-1 is not known: "),
        (conditions.metadata_synced, "tables of orders-0-1 are not known: "),
    ],
)
def test_what_is_not_known_says_why(condition: Condition, words: str) -> None:
    world = steady()
    why = "10.0.0.2:10911 answered code 17: no permission"
    nothing = dict.fromkeys(("config", "end", "topics", "groups", "offsets"))
    found = condition(view(world, with_member(world, 0, 1, "broker", problem=why, **nothing)))
    assert (found.value, found.reason) == (None, "UnableToRetrieve")
    assert found.message == words + why


def test_name_servers_that_do_not_answer_say_why() -> None:
    world = steady()
    routes = [Route("ns:9876", problem="connect to ns:9876 failed: no such name")] * 2
    seen = dataclasses.replace(world.observe(), routes=routes)
    for condition in (conditions.ready, conditions.roles_consistent):
        words = condition(view(world, seen)).message
        assert words == "no name server answers: connect to ns:9876 failed: no such name"


def test_a_foreign_slave_is_a_stale_registration() -> None:
    world = steady()
    ids = {**world.registered["orders-0"], 7: "10.9.9.9:10911"}
    seen = dataclasses.replace(world.observe(), routes=[Route("ns-0:9876", {"orders-0": ids})])
    found = conditions.roles_consistent(view(world, seen))
    assert (found.value, found.reason) == (False, "StaleRegistration")
    assert "10.9.9.9:10911" in found.message


def test_a_broker_in_another_role_than_wanted_is_a_mismatch() -> None:
    world = steady()
    world.running(0, 1).config["brokerId"] = "3"
    found = conditions.roles_consistent(view(world))
    assert found.reason == "RoleMismatch"
    assert found.message == "orders-0-1 says brokerId=3, wanted 1"


def test_roles_are_unknown_while_nobody_answers() -> None:
    world = steady()
    seen = dataclasses.replace(world.observe(), routes=[Route("ns-0:9876")])
    assert conditions.roles_consistent(view(world, seen)).value is None


# --- ReplicationHealthy --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [("Diverged", "Diverged"), ("SlaveAhead", "SlaveAhead"), ("TooFarBehind", "SlaveLagging")],
)
def test_a_log_that_is_not_the_masters_is_told(prefix: str, reason: str) -> None:
    world = steady()
    seen = with_member(world, 0, 1, "pod", prefix=prefix, prefix_message="words")
    found = conditions.replication_healthy(view(world, seen))
    assert (found.value, found.reason) == (False, reason)
    claim = seen.member(0, 1).claim
    assert claim is not None
    mark = f"failback.dev/force-resync-member={claim.uid}"
    assert found.message == f"orders-0-1: words; {mark} wipes its volume"


MI = 1024 * 1024


@pytest.mark.parametrize(
    ("behind", "stalled", "before", "bucket"),
    [
        (0, None, None, "Zero"),
        (-5, None, None, "Zero"),
        (100, None, "Zero", "Zero"),
        (100, None, None, "Zero"),
        (100, None, "Under1Mi", "Under1Mi"),
        (100, 20.0, "Zero", "Under1Mi"),
        (100, 5.0, "Zero", "Zero"),
        (MI, None, "Zero", "Under256Mi"),
        (256 * MI, None, "Zero", "FallenBehind"),
        (None, None, "Zero", "Unknown"),
    ],
)
def test_lag_buckets(
    behind: int | None, stalled: float | None, before: str | None, bucket: str
) -> None:
    now = 1000.0
    master = Broker("m", end=10**9)
    slave = Broker(
        "s",
        end=None if behind is None else 10**9 - behind,
        stalled_since=None if stalled is None else now - stalled,
    )
    assert facts.lag_bucket(master, slave, before, now) == bucket


def test_a_slave_that_stands_still_behind_its_master_is_disconnected() -> None:
    world = steady()
    end = world.observe().member(0, 0).broker
    assert end is not None
    assert end.end is not None
    seen = with_member(world, 0, 1, "broker", end=end.end - 1, stalled_since=world.now - 60)
    assert conditions.replication_healthy(view(world, seen)).reason == "SlaveDisconnected"


def test_without_slaves_replication_is_healthy() -> None:
    found = conditions.replication_healthy(view(steady(slavesPerPair=0)))
    assert (found.value, found.reason) == (True, "NoSlaves")


# --- MetadataSynced ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topics": {}}, "TopicMissingOnSlave"),
        ({"groups": {}}, "GroupMissingOnSlave"),
        ({"offsets": {"T@g": {0: 9}}}, "SlaveAheadOfMaster"),
        ({"offsets": {"T@g": {0: 2}}}, "OffsetSyncStale"),
        ({"offsets": None}, "UnableToRetrieve"),
    ],
)
def test_tables_that_differ_are_named(changes: dict[str, Any], reason: str) -> None:
    world = steady()
    tables: dict[str, Any] = {
        "topics": {"T": {"perm": 6}},
        "groups": {"g": {"brokerId": 0}},
        "offsets": {"T@g": {0: 5}},
        "offsets_before": {"T@g": {0: 4}},
    }
    seen = with_member(world, 0, 0, "broker", **tables)
    slave = seen.member(0, 1)
    assert slave.broker is not None
    broker = dataclasses.replace(slave.broker, **{**tables, **changes})
    members = {**seen.members, (0, 1): dataclasses.replace(slave, broker=broker)}
    found = conditions.metadata_synced(view(world, dataclasses.replace(seen, members=members)))
    assert found.reason == reason


# --- ScalingDown, Reconciling, Warning -----------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("DrainPair", "PendingConfigApplied"),
        ("WaitEmpty", "PendingEmpty"),
        ("Unregister", "PendingDelete"),
        ("DeleteMembers", "PendingDelete"),
    ],
)
def test_a_leaving_pair_says_how_far_it_is(step: str, reason: str) -> None:
    leaving = Operation("id", "ScaleDown", step, pair=0)
    found = conditions.scaling_down(view(steady(), operations=(leaving,)))
    assert (found.value, found.reason) == (True, reason)


def test_reconciling_names_the_operation_and_what_it_waits_for() -> None:
    blocked = Operation("id", "Roll", "EvictMember", 0, blocked_by=("PDBAllows", "PairFree"))
    other = Operation("other", "RoleSwitch", "DrainWrites", 0)
    found = conditions.reconciling(view(steady(), operations=(other, blocked)))
    assert found.message == (
        "RoleSwitch of orders-0 is at DrainWrites; Roll of orders-0 is at EvictMember, "
        "waits for PDBAllows, PairFree (RoleSwitch of orders-0)"
    )


@pytest.mark.parametrize(
    ("spec", "marks", "reason"),
    [
        ({}, {"pause_reconcilation": "true"}, "UnknownAnnotation"),
        ({}, {"hold_member": "orders-0-1"}, "MemberHeld"),
        ({"pairOverrides": [{"index": 5}]}, {}, "OverrideForMissingPair"),
        ({"pairOverrides": [{"index": 0, "masterMember": 1}]}, {}, "MasterMemberEdited"),
        ({"slaveReadEnable": True, "slavesPerPair": 0}, {}, "SlaveReadWithoutSlaves"),
        ({"config": {"fileReservedTimes": "48"}}, {}, "UnknownConfigKey"),
        ({"metrics": {"podMonitor": {"enabled": True}}}, {}, "PodMonitorCrdMissing"),
        (
            {"podTemplate": {"securityContext": {"runAsNonRoot": False}}},
            {},
            "PodSecurityWeakened",
        ),
        ({"sync": {"inSyncReplicas": 1}}, {}, "InSyncReplicasIgnored"),
    ],
)
def test_what_is_legal_but_unwise_is_a_warning(
    spec: dict[str, Any], marks: dict[str, str], reason: str
) -> None:
    world = steady()
    world.edit(**spec)
    world.annotate(**marks)
    found = warnings.warning(view(world), "0.1.0")
    assert (found.value, found.reason) == (True, reason)


@pytest.mark.parametrize(
    ("protects", "in_force", "told"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_a_protection_that_has_no_effect_is_a_warning(
    protects: bool, in_force: bool, told: bool
) -> None:
    world = steady(deletionProtection=protects)
    found = warnings.warning(view(world), "0.1.0", Permits(admission_policies=in_force))
    assert (found.reason == "DeletionUnprotected") is told


def test_no_warning_is_said_too() -> None:
    found = warnings.warning(view(steady()), "0.1.0")
    assert (found.value, found.reason) == (False, "")


def test_an_unknown_key_comes_with_the_nearest_that_is_known() -> None:
    found = warnings.warning(view(steady(config={"fileReservedTimes": "48"})), "0.1.0")
    assert 'did you mean "fileReservedTime"?' in found.message
