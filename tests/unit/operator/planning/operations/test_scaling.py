"""Pairs and slaves come and go: metadata first, nothing unread is lost, claims stay."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.planning.operations import scale_down
from failback.operator.planning.plan.types import Delete, PutGroup, PutTopic, SetConfig
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World

TOPIC = {"topicName": "ORDER_PAID", "perm": 6, "readQueueNums": 8}
RETRY = {"topicName": "%RETRY%billing", "perm": 6, "readQueueNums": 1}
GROUP = {"groupName": "billing", "retryMaxTimes": 3}


def with_metadata(**spec: Any) -> World:
    world = steady(**spec)
    store = world.running(0, 0).store
    store.topics = {**store.topics, "ORDER_PAID": TOPIC, "%RETRY%billing": RETRY}
    store.groups = {"billing": GROUP, "TOOLS_CONSUMER": {"groupName": "TOOLS_CONSUMER"}}
    Run(world).until_steady()
    return world


def told(world: World, reason: str) -> list[str]:
    return [event.message for event in world.events if event.reason == reason]


def operation(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.status.get("currentOperation") or {}
    return found


# --- up -----------------------------------------------------------------------------------------


def test_a_new_pair_knows_everything_before_it_takes_writes() -> None:
    world = with_metadata()
    world.edit(pairs=2)
    run = Run(world).until_steady()
    opened = next(i for i, a in enumerate(world.log) if isinstance(a, SetConfig))
    puts = [i for i, a in enumerate(world.log) if isinstance(a, (PutTopic, PutGroup))]
    assert puts
    assert max(puts) < opened
    store = world.running(1, 0).store
    assert store.topics["ORDER_PAID"] == TOPIC
    assert store.topics["%RETRY%billing"] == RETRY
    assert store.groups == {"billing": GROUP}  # brokers make their system groups themselves
    assert "orders-0" not in store.topics
    assert told(world, "PairAdded") == ["orders-1"]
    assert world.running(1, 0).config["brokerPermission"] == "6"
    assert run.steps == [
        "ScaleUp/CreateMembers",
        "ScaleUp/WaitRegistered",
        "ScaleUp/CopyMetadata",
        "ScaleUp/OpenWrites",
    ]


def test_a_topic_that_is_kept_to_other_pairs_is_not_copied() -> None:
    world = with_metadata()
    world.topics = [
        {"metadata": {"name": "t"}, "spec": {"topicName": "ORDER_PAID", "pairs": ["orders-0"]}}
    ]
    world.edit(pairs=2)
    Run(world).until_steady()
    assert "ORDER_PAID" not in world.running(1, 0).store.topics
    assert "%RETRY%billing" in world.running(1, 0).store.topics


def test_several_pairs_at_once_open_one_after_the_other() -> None:
    world = with_metadata()
    world.edit(pairs=4)
    Run(world).until_steady()
    assert told(world, "PairAdded") == ["orders-1", "orders-2", "orders-3"]
    assert all("ORDER_PAID" in world.running(pair, 0).store.topics for pair in range(4))


def test_the_first_pairs_are_made_without_any_operation() -> None:
    world = World(pairs=3)
    run = Run(world).until_steady()
    assert run.steps == []
    assert world.status["replicas"] == 3
    assert world.status["observedGeneration"] == 1


def test_status_counts_pairs_that_are_there_not_pairs_that_are_wanted() -> None:
    world = steady()
    world.edit(pairs=3)
    run = Run(world)
    run.one_pass()
    assert world.status["replicas"] == 1
    run.until_steady()
    assert world.status["replicas"] == 3


def test_a_pair_that_cannot_start_does_not_hold_up_a_live_change() -> None:
    world = steady()
    world.start_seconds = 100_000
    world.edit(pairs=2)
    run = Run(world)
    run.until(lambda: run.at_step("ScaleUp/WaitRegistered"))
    world.edit(slaveReadEnable=True)
    run.until(lambda: world.running(0, 0).config["slaveReadEnable"] == "true")
    run.for_passes(10)
    assert operation(world)["type"] == "ScaleUp"
    world.start_seconds = 3
    run.until_steady()
    assert world.running(1, 0).config["slaveReadEnable"] == "true"


def test_new_slaves_are_awaited_and_nothing_is_closed() -> None:
    world = with_metadata(pairs=2)
    world.log.clear()
    world.edit(slavesPerPair=2)
    Run(world).until_steady()
    assert not [action for action in world.log if isinstance(action, SetConfig)]
    assert told(world, "PairAdded") == [
        "orders-0-2 replicates from offset 0",
        "orders-1-2 replicates from offset 0",
    ]


# --- down ---------------------------------------------------------------------------------------


def test_two_three_two_keeps_claims_and_finds_them_again() -> None:
    world = with_metadata(pairs=2)
    world.edit(pairs=3)
    Run(world).until_steady()
    uids = {name: claim.uid for name, claim in world.claims.items()}
    world.edit(pairs=2)
    run = Run(world).until_steady()
    assert run.steps == [
        "ScaleDown/DrainPair",
        "ScaleDown/WaitEmpty",
        "ScaleDown/Unregister",
        "ScaleDown/DeleteMembers",
    ]
    assert {name: claim.uid for name, claim in world.claims.items()} == uids
    assert not [key for key in world.objects if "orders-2" in key[1]]
    assert world.registered["orders-2"] == {}
    assert world.status["replicas"] == 2
    assert [pair["name"] for pair in world.status["pairs"]] == ["orders-0", "orders-1"]
    world.events.clear()
    world.edit(pairs=3)
    Run(world).until_steady()
    assert told(world, "PairAdded") == ["orders-2 with existing data"]
    assert {name: claim.uid for name, claim in world.claims.items()} == uids


def test_a_pair_is_closed_for_35_seconds_before_it_is_asked_for_its_backlog() -> None:
    world = steady(pairs=2)
    world.edit(pairs=1)
    run = Run(world)
    run.until(lambda: world.running(1, 0).config["brokerPermission"] == "4")
    shut = world.now
    run.until(lambda: run.at_step("ScaleDown/WaitEmpty"))
    assert world.now - shut >= 35


def test_unread_messages_block_without_limit_and_are_named() -> None:
    world = steady(pairs=2)
    world.backlog = {1: {f"g{i}@T": 90 - i for i in range(9)}}
    world.edit(pairs=1)
    run = Run(world)
    run.until(lambda: run.at_step("ScaleDown/WaitEmpty"))
    run.until(lambda: len(told(world, "DrainBlocked")) == 2)
    first, second = told(world, "DrainBlocked")
    assert first == second
    assert "g0@T: 90, g1@T: 89, g2@T: 88, g3@T: 87, g4@T: 86 and 4 more;" in first
    assert "g5@T" not in first
    assert "failback.dev/give-up-groups: g0, g1, g2, g3, g4 and 4 more" in first
    assert operation(world)["blockedBy"] == ["PairEmpty"]
    assert not [action for action in world.log if isinstance(action, Delete)]
    assert world.running(1, 0)
    world.backlog = {}
    run.until_steady()
    assert world.status["replicas"] == 1


def test_unknown_backlog_blocks_too() -> None:
    world = steady(pairs=2)
    world.backlog_known = False
    world.edit(pairs=1)
    run = Run(world)
    run.until(lambda: run.at_step("ScaleDown/WaitEmpty"))
    run.for_passes(100)
    assert operation(world)["step"] == "WaitEmpty"
    assert told(world, "DrainBlocked") == []


@pytest.mark.parametrize("step", ["DrainPair", "WaitEmpty", "Unregister", "DeleteMembers"])
def test_a_scale_down_is_taken_back_at_any_step(step: str) -> None:
    world = with_metadata(pairs=2)
    uids = {name: claim.uid for name, claim in world.claims.items()}
    world.edit(pairs=1)
    run = Run(world)
    run.until(lambda: run.at_step(f"ScaleDown/{step}"))
    run.for_passes(2)
    world.edit(pairs=2)
    run.until_steady()
    assert world.running(1, 0).config["brokerPermission"] == "6"
    assert world.status["replicas"] == 2
    assert "ORDER_PAID" in world.running(1, 0).store.topics or step in ("DrainPair", "WaitEmpty")
    assert {name: claim.uid for name, claim in world.claims.items()} == uids


def test_the_annotation_gives_unread_messages_up_for_one_pair_only() -> None:
    world = steady(pairs=3)
    world.backlog = {1: {"g@T": 5}, 2: {"g@T": 5}}
    world.annotate(skip_scaledown_check="orders-2")
    world.edit(pairs=1)
    run = Run(world)
    run.until(lambda: world.status.get("replicas") == 2)
    run.until(lambda: run.at_step("ScaleDown/WaitEmpty"))
    run.for_passes(20)
    assert "orders-2; given up: g@T: 5" in told(world, "DrainFinished")
    assert operation(world)["pair"] in (1, "orders-1")


def test_named_groups_are_given_up_and_the_figures_are_told() -> None:
    world = steady(pairs=2)
    world.backlog = {1: {"nobody@PAID": 100, "billing@PAID": 7, "audit@PAID": 3}}
    named = {"groupName": "reports", "clusterRef": {"name": "orders"}}
    world.groups = [{"metadata": {"name": "reports"}, "spec": named}]
    world.annotate(give_up_groups="nobody, billing")
    world.edit(pairs=1)
    run = Run(world)
    run.until(lambda: bool(told(world, "DrainBlocked")))
    assert "orders-1 is not consumed: audit@PAID: 3;" in told(world, "DrainBlocked")[0]
    world.annotate(give_up_groups="nobody, billing,audit")
    run.until_steady()
    figures = "nobody@PAID: 100, billing@PAID: 7, audit@PAID: 3"
    (event,) = [item for item in world.events if item.reason == "DrainFinished"]
    assert event.message == f"orders-1; given up: {figures}; never read there: reports"
    assert event.warning


def test_slaves_leave_from_the_highest_ordinal_without_draining() -> None:
    world = steady(pairs=2, slavesPerPair=3)
    world.edit(slavesPerPair=1)
    Run(world).until_steady()
    assert sorted(world.pods) == [
        "orders-0-0-0",
        "orders-0-1-0",
        "orders-1-0-0",
        "orders-1-1-0",
    ]
    assert not [action for action in world.log if isinstance(action, SetConfig)]
    assert "data-orders-0-3-0" in world.claims


def test_the_master_never_leaves_for_want_of_slaves() -> None:
    world = steady(slavesPerPair=2, pairOverrides=[{"index": 0, "masterMember": 2}])
    world.edit(slavesPerPair=1, pairOverrides=[])
    Run(world).for_passes(20)
    assert len(world.pods) == 3
    assert world.running(0, 2).is_master
    text = scale_down.refusals(world.state())
    assert text == ("orders-0: member 2 is the master; switch roles before slavesPerPair 1",)
    assert told(world, "ScaleDownRefused") == list(text)


def test_nothing_leaves_under_an_experiment_or_a_role_switch() -> None:
    world = steady(pairs=2)
    world.edit(pairs=1)
    arm = {"name": "base"}
    world.experiments = [
        {
            "metadata": {"name": "x"},
            "spec": {"arms": [arm]},
            "status": {"phase": "Draining", "activeArm": "base"},
        }
    ]
    Run(world).for_passes(20)
    assert world.status["replicas"] == 2
    assert scale_down.refusals(world.state()) == ("orders-1: an experiment is running",)
    world.experiments = []
    Run(world).until_steady()
    assert world.status["replicas"] == 1


def test_a_master_that_does_not_answer_is_not_given_up() -> None:
    world = steady(pairs=2)
    world.silent.add((1, 0))
    world.edit(pairs=1)
    Run(world).for_passes(60)
    assert operation(world)["blockedBy"] == ["MasterAnswers"]
    assert len(world.pods) == 4
