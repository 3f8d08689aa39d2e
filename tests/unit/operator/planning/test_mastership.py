"""Who is master of a pair is read from its claims; where they do not tell, nobody opens."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from failback.operator.planning.plan.encoding import find_condition
from failback.operator.planning.plan.types import Apply, MarkClaim
from failback.operator.planning.state.claim_marks import claim_marks
from failback.operator.planning.state.decode import decode_claim
from failback.operator.render.common import EPOCH, LOG_END, LOG_ID, MARKED_UID, ROLE_LABEL
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World
from tests.support.operator.switch_world import SwitchWorld, delivered

CLAIMS = ("data-orders-0-0-0", "data-orders-0-1-0")


def switched() -> SwitchWorld:
    """Return a world whose pair has had a switch to member 1, and is at rest."""
    world = delivered(pairs=1)
    world.ask()
    world.run()
    world.settle(60)
    assert world.says("Ready") == "True AllReady"
    return world


def made_again(world: World, uid: str = "cr-2", **spec: Any) -> World:
    """Delete the cluster and apply its manifest again: what is left are the claims."""
    world.objects, world.pods, world.status = {}, {}, {}
    world.registered, world.switches, world.leases = {}, {}, {}
    world.annotations.clear()
    world.document["metadata"] |= {"uid": uid, "generation": 1}
    world.edit(**spec)
    world.log.clear()
    return world


def ready(world: World) -> tuple[str, str]:
    found = find_condition(world.status, "Ready")
    assert found is not None
    return found["reason"], found["message"]


def marks(world: World, member: int) -> dict[str, str]:
    return world.claims[CLAIMS[member]].marks


def forget(world: World, *members: int) -> None:
    """Take all marks from claims."""
    for member in members:
        world.claims[CLAIMS[member]].marks = {}


# --- what is written, and when ----------------------------------------------------------------


def test_a_new_pair_marks_both_claims_and_then_writes_nothing() -> None:
    world = steady()
    assert marks(world, 0)[ROLE_LABEL] == "master"
    assert marks(world, 1)[ROLE_LABEL] == "slave"
    for member in (0, 1):
        assert marks(world, member)[EPOCH] == "1", "the slave has its master's log"
        assert marks(world, member)[LOG_ID] == "cr-1-0"
        assert marks(world, member)[MARKED_UID] == world.claims[CLAIMS[member]].uid
    world.traffic = 1000
    run = Run(world)
    for _ in range(20):
        run.one_pass()
        world.tick(5.0)
    assert not any(isinstance(item, MarkClaim) for item in world.log), "traffic alone"


def test_the_epoch_is_on_the_claim_before_the_new_master_has_its_role() -> None:
    world = delivered(pairs=1)
    world.ask()
    world.run()
    raised = [
        index
        for index, item in enumerate(world.log)
        if isinstance(item, MarkClaim)
        and item.claim == CLAIMS[1]
        and item.annotations[EPOCH] == "2"
        and item.labels[ROLE_LABEL] == "master"
    ]
    given = [
        index
        for index, item in enumerate(world.log)
        if isinstance(item, Apply)
        and item.manifest["metadata"]["name"] == "orders-0-1"
        and "brokerId=0" in item.manifest.get("data", {}).get("broker.conf", "").splitlines()
    ]
    assert raised[0] < given[0]
    assert world.status["pairs"][0]["epoch"] == 2
    world.settle(60)
    assert (marks(world, 0)[ROLE_LABEL], marks(world, 0)[EPOCH]) == ("slave", "2"), "it follows"


def test_nothing_is_written_into_the_users_spec() -> None:
    world = delivered(pairs=1)
    before = copy.deepcopy(world.document)
    world.ask()
    world.run()
    assert world.document == before
    assert world.status["pairs"][0]["masterMember"] == 1


def test_a_member_that_is_stopped_leaves_where_its_log_ended() -> None:
    world = delivered(pairs=1)
    world.settle(30)
    world.annotate(hold_member="orders-0-1")
    world.settle(20)
    assert int(marks(world, 1)[LOG_END]) > 0
    assert int(marks(world, 1)[LOG_END]) <= world.store(0, 0).end


def test_the_ends_of_a_pair_are_written_together_and_no_slave_has_more() -> None:
    world = delivered()
    run = Run(world)
    for member in (0, 1, 0, 1):
        world.annotate(hold_member=f"orders-0-{member}")
        for _ in range(30):
            run.one_pass()
            world.tick(1.0)
        ends = [int(marks(world, each).get(LOG_END, "0")) for each in (0, 1)]
        assert ends[0] >= ends[1] > 0, member


def test_what_a_slave_that_may_start_tells_is_no_more_than_its_master_is_known_to_have() -> None:
    world = steady()
    world.claims[CLAIMS[1]].store.end = world.claims[CLAIMS[0]].store.end = 800
    seen = world.observe()
    view = seen.member(0, 1)
    assert view.pod is not None
    pod = dataclasses.replace(view.pod, ready=False, prefix="Verified", own_end=800)
    late = dataclasses.replace(view, pod=pod, broker=None)
    seen = dataclasses.replace(seen, members={**seen.members, (0, 1): late})
    state = dataclasses.replace(world.state(), observed=seen)
    assert claim_marks(state, {}, ()) == ()


def test_a_slave_that_stays_out_tells_where_its_log_ends_once() -> None:
    world = steady()
    world.claims[CLAIMS[1]].store.end = 500
    world.take_pod(0, 1)
    run = Run(world).for_passes(10)
    assert marks(world, 1)[LOG_END] == "500"
    world.log.clear()
    run.for_passes(20)
    assert not [item for item in world.log if isinstance(item, MarkClaim)]
    made_again(world)
    Run(world).for_passes(10)
    assert ready(world)[0] == "MasterUnclear", "its log is the longer one"


@pytest.mark.parametrize("kept", [False, True])
def test_no_member_loses_its_volume_because_it_is_stopped(kept: bool) -> None:
    world = steady(storage={"deleteClaim": not kept})
    policy = world.objects["StatefulSet", "orders-0-0"]["spec"][
        "persistentVolumeClaimRetentionPolicy"
    ]
    assert policy == {"whenDeleted": "Retain" if kept else "Delete", "whenScaled": "Retain"}


# --- a cluster made again ----------------------------------------------------------------------


@pytest.mark.parametrize("first", [None, 0])
def test_over_kept_claims_the_newest_epoch_opens(first: int | None) -> None:
    overrides = None if first is None else [{"index": 0, "masterMember": first}]
    world = made_again(switched(), pairOverrides=overrides)
    Run(world).until_steady()
    assert world.running(0, 1).is_master
    assert ready(world)[0] == "AllReady"
    assert (marks(world, 1)[EPOCH], marks(world, 1)[LOG_ID]) == ("2", "cr-1-0")
    assert world.status["pairs"][0]["epoch"] == 2


def test_restored_claims_have_another_uid_and_the_same_word() -> None:
    world = made_again(switched())
    for name in CLAIMS:
        world.claims[name].uid = f"restored-{name}"
    Run(world).until_steady()
    assert world.running(0, 1).is_master
    assert marks(world, 1)[MARKED_UID] == f"restored-{CLAIMS[1]}"


def test_claims_of_another_cluster_say_who_was_master_there() -> None:
    world = made_again(switched())
    for name in CLAIMS:
        world.claims[name].marks |= {"failback.dev/cluster": "other", LOG_ID: "foreign-3"}
    Run(world).until_steady()
    assert world.running(0, 1).is_master
    assert {marks(world, each)["failback.dev/cluster"] for each in (0, 1)} == {"orders"}
    assert {marks(world, each)[LOG_ID] for each in (0, 1)} == {"foreign-3"}


def test_both_members_held_before_and_after_keep_who_was_master() -> None:
    world = switched()
    world.annotate(hold_member="orders-0-0,orders-0-1")
    world.settle(20)
    assert not world.pods
    made_again(world)
    Run(world).until_steady()
    assert world.running(0, 1).is_master


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda world: forget(world, 0, 1), id="nothing is said"),
        pytest.param(lambda world: forget(world, 0), id="one says nothing"),
        pytest.param(lambda world: world.claims.pop(CLAIMS[1]), id="the master's is missing"),
        pytest.param(
            lambda world: marks(world, 0).update({ROLE_LABEL: "master"}), id="two are the master's"
        ),
        pytest.param(
            lambda world: marks(world, 0).update({LOG_ID: "foreign-0"}), id="of two pairs"
        ),
        pytest.param(
            lambda world: setattr(world.claims[CLAIMS[0]].store, "end", 99999999),
            id="a slave's is longer",
        ),
    ],
)
def test_an_unclear_case_opens_nobody_until_a_person_decides(spoil: Any) -> None:
    world = made_again(switched())
    spoil(world)
    run = Run(world).for_passes(20)
    reason, message = ready(world)
    assert reason == "MasterUnclear"
    told = [item.message for item in world.events if item.reason == "MasterUnclear"]
    assert len(told) == 1, "once"
    assert not [pod for pod in world.pods.values() if pod.up or not pod.is_gated]
    for name, claim in world.claims.items():
        assert f"{claim.uid}@" in message
        assert f"is {name} (" in message
    assert "masterMember" not in world.status["pairs"][0]

    choice = world.claims[CLAIMS[0]].uid
    order = next(word for word in message.split() if word.startswith(f"{choice}@"))
    world.annotate(open_member=f"{choice}@1")
    if order != f"{choice}@1":
        run.for_passes(5)
        assert ready(world)[0] == "MasterUnclear", "an order of another epoch is none"
    world.annotate(open_member=order)
    run.until_steady()
    assert world.running(0, 0).is_master
    assert marks(world, 0)[EPOCH] == order.rpartition("@")[2]


def test_an_order_counts_once() -> None:
    world = made_again(switched())
    forget(world, 0)
    run = Run(world).for_passes(5)
    order = f"{world.claims[CLAIMS[0]].uid}@3"
    world.annotate(open_member=order)
    run.until_steady()
    assert world.running(0, 0).is_master
    made_again(world)
    world.annotate(open_member=order)
    marks(world, 1).update({ROLE_LABEL: "master", EPOCH: "3"})
    Run(world).for_passes(10)
    assert ready(world)[0] == "MasterUnclear"


# --- claims without marks ---------------------------------------------------------------------


def test_claims_without_marks_take_over_what_the_files_say() -> None:
    world = switched()
    forget(world, 0, 1)
    for row in world.status["pairs"]:
        for key in ("epoch", "firstMaster", "masterClaim"):
            row.pop(key, None)
    pods = {pod.uid for pod in world.pods.values()}
    Run(world).until_steady()
    assert {pod.uid for pod in world.pods.values()} == pods, "nothing is restarted"
    assert (marks(world, 1)[ROLE_LABEL], marks(world, 1)[EPOCH]) == ("master", "1")
    assert (marks(world, 0)[ROLE_LABEL], marks(world, 0)[EPOCH]) == ("slave", "1")


@pytest.mark.parametrize("member", [0, 1])
def test_claims_without_marks_alone_take_what_master_member_says(member: int) -> None:
    world = made_again(switched(), pairOverrides=[{"index": 0, "masterMember": member}])
    forget(world, 0, 1)
    Run(world).until_steady()
    assert world.running(0, member).is_master
    assert marks(world, member)[EPOCH] == "1"


def test_the_status_tells_where_only_the_children_are_gone() -> None:
    world = switched()
    world.objects, world.pods, world.registered = {}, {}, {}
    forget(world, 0, 1)
    for row in world.status["pairs"]:
        for key in ("epoch", "firstMaster", "masterClaim"):
            row.pop(key, None)
    Run(world).until_steady()
    assert world.running(0, 1).is_master


# --- a cluster that lives ---------------------------------------------------------------------


def test_a_mark_that_somebody_took_away_stops_no_master() -> None:
    world = switched()
    forget(world, 1)
    pods = {pod.uid for pod in world.pods.values()}
    Run(world).until_steady()
    assert {pod.uid for pod in world.pods.values()} == pods
    assert (marks(world, 1)[ROLE_LABEL], marks(world, 1)[EPOCH]) == ("master", "2")


def test_a_mark_that_somebody_forged_makes_no_master_beside_one_that_serves() -> None:
    world = switched()
    marks(world, 0).update({ROLE_LABEL: "master", EPOCH: "7"})
    pods = {pod.uid for pod in world.pods.values()}
    Run(world).until_steady()
    assert {pod.uid for pod in world.pods.values()} == pods
    assert world.running(0, 1).is_master
    assert int(marks(world, 1)[EPOCH]) > 7


def test_a_master_whose_claim_was_lost_does_not_open_empty_beside_a_copy() -> None:
    world = switched()
    world.pods.pop("orders-0-1-0")
    lost = world.claims[CLAIMS[1]]
    world.claims[CLAIMS[1]] = dataclasses.replace(lost, uid="new", marks={})
    run = Run(world).for_passes(20)
    assert ready(world)[0] == "MasterUnclear"
    assert not [pod for pod in world.pods.values() if pod.is_master], "nobody is open"
    world.annotate(open_member=f"{world.claims[CLAIMS[0]].uid}@3")
    run.until_steady()
    assert world.running(0, 0).is_master


# --- what a claim says ------------------------------------------------------------------------


def test_an_epoch_that_is_no_number_says_nothing() -> None:
    for text in ("", "-1", "2.5", "two", "\u0664"):
        claim = decode_claim({"metadata": {"name": "c", "uid": "u", "annotations": {EPOCH: text}}})
        assert claim.epoch is None, text


def test_a_pending_claim_has_nothing_unless_it_is_of_something() -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"volumeName": "pv-1"}, False),
        ({"dataSource": {"kind": "VolumeSnapshot", "name": "s"}}, False),
    ]
    for spec, empty in cases:
        claim = decode_claim(
            {"metadata": {"name": "c", "uid": "u"}, "spec": spec, "status": {"phase": "Pending"}}
        )
        assert claim.empty is empty, spec
