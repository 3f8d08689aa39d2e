"""What status, condition and events say of starts of Apache masters; who gets the sidecar when."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from failback.operator.planning.cluster import warnings
from failback.operator.planning.cluster.carried import carried_events, carried_of, carried_verdicts
from failback.operator.planning.cluster.status import pairs
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Carried
from tests.support.operator.planning_run import CONTEXT, Run, steady
from tests.support.operator.planning_world import World
from tests.unit.operator.planning.test_conditions import view, with_member

APACHE = {"type": "Apache", "version": "4.9.7"}
NEWER = dataclasses.replace(CONTEXT, version="0.2.0")
AT = "2026-11-28T10:00:00Z"
GIVEN = Carried("Carried", AT, 1243, 12, 318221, 3, ("10.0.0.12:10911",))
TEXT = (
    "orders-0-0: 1,243 offsets of 12 groups raised, 318,221 messages not delivered again, "
    "3 cut at the end of this log"
)


def sidecars(world: World) -> list[bool]:
    members = sorted(world.observe().members.items())
    return [facts.has_carry(each.statefulset) for _, each in members if each.statefulset]


def made_now(**spec: Any) -> World:
    world = World(engine=APACHE, **spec)
    Run(world, context=NEWER).until_steady()
    world.events.clear()
    return world


def warned(world: World) -> str:
    return warnings.warning(view(world), "4.9.7").message


def test_a_cluster_of_an_earlier_release_is_warned_and_not_restarted() -> None:
    world = steady(engine=APACHE)
    pods = {name: pod.uid for name, pod in world.pods.items()}
    Run(world, context=NEWER).until_steady()
    assert {name: pod.uid for name, pod in world.pods.items()} == pods
    assert sidecars(world) == [False, False]
    assert "CarryNeedsRestart: a start of orders-0-0, orders-0-1 is given" in warned(world)

    world.document["metadata"]["annotations"] = {"failback.dev/restart": "now"}
    Run(world, context=NEWER).until_steady()
    assert sidecars(world) == [True, True]
    assert {name: pod.uid for name, pod in world.pods.items()}.keys() == pods.keys()
    assert not set(pods.values()) & {pod.uid for pod in world.pods.values()}
    assert "CarryNeedsRestart" not in warned(world)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, ""),
        ({"slavesPerPair": 0}, ""),
        ({"offsetCarry": {"mode": "Off"}}, ""),
    ],
)
def test_a_cluster_of_this_release_is_not_warned(spec: dict[str, Any], words: str) -> None:
    assert warned(made_now(**spec)) == words


def test_offsets_in_rocksdb_are_warned_of() -> None:
    world = steady(engine={"type": "Apache", "version": "5.3.3"})
    world.document["spec"]["config"] = {"configManagerVersion": "v2"}
    found = warnings.warning(view(world), "5.3.3").message
    assert "CarryUnsupported: offsets are in RocksDB, no start is given any: orders-0 has " in found
    assert "CarryNeedsRestart" not in found


def seen(world: World, found: Carried | None, ordinal: int = 0) -> Any:
    return view(world, with_member(world, 0, ordinal, "broker", carried=found))


@pytest.mark.parametrize(
    ("found", "value", "reason", "words"),
    [
        (None, None, "NotReturned", ""),
        (GIVEN, True, "Carried", TEXT),
        (Carried("NothingToCarry", AT), True, "NothingToCarry", ""),
        (Carried("WouldCarry", AT, 2, 1, 9), True, "WouldCarry", "2 offsets of 1 groups would be"),
        (Carried("SlaveSilent", AT), False, "SlaveSilent", "orders-0-0 started with its own: no"),
        (Carried("OtherLog", AT), False, "OtherLog", "orders-0-0"),
        (Carried("Unsupported", AT), False, "Unsupported", "orders-0-0"),
        (Carried("DiskFailed", AT), False, "DiskFailed", "orders-0-0"),
        (Carried("Refused", AT), False, "Refused", "orders-0-0"),
    ],
)
def test_the_condition_says_what_became_of_the_last_start_of_a_master(
    found: Carried | None, value: bool | None, reason: str, words: str
) -> None:
    (verdict,) = carried_verdicts(seen(made_now(), found))
    assert (verdict.value, verdict.reason) == (value, reason)
    assert words in verdict.message


def test_without_a_sidecar_there_is_no_condition_and_a_slave_counts_for_nothing() -> None:
    assert not list(carried_verdicts(view(steady())))
    (verdict,) = carried_verdicts(seen(made_now(), Carried("SlaveSilent", AT), ordinal=1))
    assert verdict.reason == "NotReturned"


def test_the_status_keeps_what_was_carried_and_one_start_is_one_event() -> None:
    world = made_now()
    now = seen(world, GIVEN)
    new = {"pairs": pairs(now)}
    assert new["pairs"][0]["members"][0]["carried"] == {
        "outcome": "Carried",
        "at": AT,
        "offsets": 1243,
        "groups": 12,
        "messages": 318221,
        "cut": 3,
        "from": ["10.0.0.12:10911"],
    }
    (event,) = carried_events(now.previous, new)
    assert (event.reason, event.message, event.warning) == ("OffsetsCarried", TEXT, False)
    world.status = {**world.status, **new}
    for later in (GIVEN, None, Carried("Idle", AT)):
        again = seen(world, later)
        assert carried_of(again, again.members[0]) == new["pairs"][0]["members"][0]["carried"]
        assert not list(carried_events(again.previous, {"pairs": pairs(again)}))

    failed = seen(world, Carried("SlaveSilent", "2026-11-28T11:00:00Z"))
    (event,) = carried_events(failed.previous, {"pairs": pairs(failed)})
    assert (event.reason, event.message) == (
        "OffsetsNotCarried",
        "orders-0-0: no slave answered",
    )
    assert event.warning
