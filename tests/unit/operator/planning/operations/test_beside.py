"""Operations beside each other: nothing waits for a wait, and no two disturb at once.

Each operation is brought to a state in which it waits for what does not come. Then another one is
asked for, in another pair or in the same one, and must come to its end.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest

from failback.operator.planning.plan.encoding import operations_from_status
from failback.operator.planning.plan.types import Plan
from tests.support.common.counts import some
from tests.support.operator.planning_run import disruptions
from tests.support.operator.switch_world import SwitchWorld

MASTERLESS_SECONDS = 30.0
BEGINS_SECONDS = 10.0
SPEC: dict[str, Any] = {"pairs": 3, "slavesPerPair": 2, "failover": {"mode": "Manual"}}
Begin = Callable[[SwitchWorld, int], None]


@functools.cache
def _at_rest() -> SwitchWorld:
    world = SwitchWorld(**SPEC)
    world.settle(200, tick=2.0)
    assert world.says("Ready") == "True AllReady"
    world.log.clear()
    world.events.clear()
    return world


def at_rest() -> SwitchWorld:
    """Return a cluster at rest: three pairs, three members each."""
    return copy.deepcopy(_at_rest())


def override(world: SwitchWorld, pair: int, **fields: object) -> None:
    """Change one pair's own fields."""
    have = {item["index"]: item for item in world.document["spec"].get("pairOverrides", ())}
    have[pair] = {**have.get(pair, {"index": pair}), **fields}
    world.edit(pairOverrides=list(have.values()))


def running(world: SwitchWorld) -> set[tuple[str, int | None, str]]:
    found = operations_from_status(world.status)
    return {(item.type, item.pair, item.step) for item in found}


# --- what waits for what does not come ----------------------------------------------------------


def leave(world: SwitchWorld, pair: int) -> None:
    """The last pair leaves, and somebody never consumes it."""
    world.backlog[2] = {"billing@orders": 100}
    world.edit(pairs=2)


def slave_leaves(world: SwitchWorld, pair: int) -> None:
    """A slave leaves whose node is lost."""
    world.stuck.add((pair, 2))
    override(world, pair, slavesPerPair=1)


def resync(world: SwitchWorld, pair: int) -> None:
    """A slave is to be wiped, and its pod hangs."""
    world.stuck.add((pair, 2))
    world.annotate(force_resync_member=world.claims[f"data-orders-{pair}-2-0"].uid)


def grow(world: SwitchWorld, pair: int) -> None:
    """Claims of the pair grow, and the storage does not do it."""
    world.resize_hangs = True
    override(world, pair, storageSize="40Gi")


def roll_held(world: SwitchWorld, pair: int) -> None:
    """Every pair rolls, and a slave is held down."""
    world.annotate(hold_member=f"orders-{pair}-2", restart="2026-01-01T00:00:00Z")


def roll_broken(world: SwitchWorld, pair: int) -> None:
    """A member restarts, and does not come back."""
    world.broken.add((pair, 2))
    world.annotate(restart_member=f"orders-{pair}-2")


def widen(world: SwitchWorld, pair: int) -> None:
    """A pair is added whose members never start."""
    world.broken |= {(3, 0), (3, 1), (3, 2)}
    world.edit(pairs=4)


def live(world: SwitchWorld, pair: int) -> None:
    """A broker does not take a live key."""
    world.stubborn[(pair, 2), "fileReservedTime"] = "72"
    world.edit(config={"fileReservedTime": "24"})


def planned(world: SwitchWorld, pair: int) -> None:
    """A planned switch waits for a target that stops to answer."""
    world.ask("waits", pair=f"orders-{pair}", targetMember=2, timeoutSeconds=3000)
    world.run(until=lambda at: ("RoleSwitch", pair, "DrainWrites") in running(at))
    world.silent.add((pair, 2))


def forced(world: SwitchWorld, pair: int) -> None:
    """A forced switch waits for the old master to return."""
    world.kill(pair, 0)
    world.broken.add((pair, 0))
    world.ask("waits", pair=f"orders-{pair}", targetMember=2, mode="Forced")


def hanging(world: SwitchWorld, pair: int) -> None:
    """A forced switch waits for somebody to vouch for the old master's node."""
    world.kill(pair, 0, lost_node=True)
    world.ask("waits", pair=f"orders-{pair}", targetMember=2, mode="Forced")


WAITS: dict[str, tuple[Begin, str]] = {
    "scale-down": (leave, "ScaleDown/WaitEmpty"),
    "slave-leaves": (slave_leaves, "ScaleDown/Unregister"),
    "resync": (resync, "Resync/WipeClaim"),
    "resize": (grow, "VolumeResize/WaitResized"),
    "roll-held": (roll_held, "Roll/ChooseMember"),
    "roll-broken": (roll_broken, "Roll/WaitReady"),
    "scale-up": (widen, "ScaleUp/WaitRegistered"),
    "live": (live, "LiveConfig/SetConfig"),
    "planned": (planned, "RoleSwitch/Replicate"),
    "forced": (forced, "RoleSwitch/RejoinOldMaster"),
    "hanging": (hanging, "RoleSwitch/StopOldMaster"),
}


def waiting(name: str, pair: int) -> SwitchWorld:
    """Return a world in which an operation has been waiting in a pair for minutes."""
    return copy.deepcopy(_waiting(name, pair))


@functools.cache
def _waiting(name: str, pair: int) -> SwitchWorld:
    world = at_rest()
    world.operator.check = one_disruption
    begin, step = WAITS[name]
    begin(world, pair)
    world.run(until=lambda at: at.operator.at_step(step), tick=2.0)
    world.settle(130, tick=5.0)
    assert world.operator.at_step(step), running(world)
    return world


def is_up(world: SwitchWorld, pair: int, ordinal: int) -> bool:
    pod = world.pod(pair, ordinal)
    return pod is not None and pod.up and (pair, ordinal) not in world.silent


def one_disruption(plan: Plan) -> None:
    assert disruptions(plan) <= 1


# --- what does not wait for it ------------------------------------------------------------------


def ask_forced(world: SwitchWorld, pair: int) -> Callable[[SwitchWorld], bool]:
    """The master is gone for good."""
    world.silent.clear()
    master = world.state().master_member(pair)
    target = next(o for o in (1, 2) if o != master and is_up(world, pair, o))
    world.kill(pair, master)
    world.broken.add((pair, master))
    gone = world.now
    world.run(until=lambda at: at.now >= gone + MASTERLESS_SECONDS + 2)
    world.ask("wanted", pair=f"orders-{pair}", targetMember=target, mode="Forced")
    asked = world.now

    def done(at: SwitchWorld) -> bool:
        begun = at.switches["wanted"]["status"].get("phase") not in (None, "Pending")
        assert begun or at.now <= asked + BEGINS_SECONDS, running(at)
        opened = at.pod(pair, target)
        return opened is not None and opened.is_master and opened.config["brokerPermission"] == "6"

    return done


def ask_planned(world: SwitchWorld, pair: int) -> Callable[[SwitchWorld], bool]:
    world.ask("wanted", pair=f"orders-{pair}", targetMember=1)
    return lambda at: at.switches["wanted"]["status"].get("phase") == "Complete"


def ask_live(world: SwitchWorld, pair: int) -> Callable[[SwitchWorld], bool]:
    override(world, pair, slaveReadEnable=True)
    world.edit(config={**world.document["spec"].get("config", {}), "haTransferBatchSize": "65536"})

    def done(at: SwitchWorld) -> bool:
        pods = [pod for pod in at.pods.values() if pod.member[0] == pair and pod.up]
        wanted = {"slaveReadEnable": "true", "haTransferBatchSize": "65536"}
        return all(wanted.items() <= pod.config.items() for pod in pods)

    return done


def ask_repair(world: SwitchWorld, pair: int) -> Callable[[SwitchWorld], bool]:
    """A member that does not run is restarted by hand."""
    world.kill(pair, 1)
    world.broken.add((pair, 1))
    world.settle(10)
    before = world.pods[f"orders-{pair}-1-0"].uid
    world.annotate(restart_member=f"orders-{pair}-1")

    def done(at: SwitchWorld) -> bool:
        pod = at.pod(pair, 1)
        return pod is not None and pod.uid != before

    return done


def ask_resync(world: SwitchWorld, pair: int) -> Callable[[SwitchWorld], bool]:
    name = f"data-orders-{pair}-1-0"
    before = world.claims[name].uid
    world.annotate(force_resync_member=before)
    return lambda at: name in at.claims and at.claims[name].uid != before


def ask_larger(world: SwitchWorld, pair: int) -> Callable[[SwitchWorld], bool]:
    override(world, pair, storageSize="60Gi")

    def done(at: SwitchWorld) -> bool:
        mine = [
            claim for name, claim in at.claims.items() if name.startswith(f"data-orders-{pair}")
        ]
        return all(claim.requested == "60Gi" for claim in mine)

    return done


def ask_fewer(world: SwitchWorld, pair: int) -> Callable[[SwitchWorld], bool]:
    override(world, pair, slavesPerPair=1)
    return lambda at: ("StatefulSet", f"orders-{pair}-2") not in at.objects


ASKED: dict[str, Callable[[SwitchWorld, int], Callable[[SwitchWorld], bool]]] = {
    "forced": ask_forced,
    "planned": ask_planned,
    "live": ask_live,
    "repair": ask_repair,
    "resync": ask_resync,
    "resize": ask_larger,
    "fewer-slaves": ask_fewer,
}


# One annotation names one slave: there is no second resync beside a first.
BESIDE = [(waits, asked) for waits in WAITS for asked in ASKED if {waits, asked} != {"resync"}]


@pytest.mark.few(4, 8)
@pytest.mark.parametrize(("waits", "asked"), some(BESIDE, 5))
def test_in_another_pair_nothing_waits_for_a_wait(waits: str, asked: str) -> None:
    world = waiting(waits, 1)
    done = ASKED[asked](world, 0)
    world.run(until=done, seconds=500)
    assert asked in ("forced", "planned") or not world.violations


SAME_PAIR = sorted(set(WAITS) - {"scale-down", "scale-up", "hanging"})


@pytest.mark.few(3)
@pytest.mark.parametrize("waits", SAME_PAIR)
def test_a_forced_switch_of_the_same_pair_waits_for_nothing(waits: str) -> None:
    world = waiting(waits, 1)
    done = ask_forced(world, 1)
    world.run(until=done, seconds=300, tick=1.0)


@pytest.mark.full
def test_all_goes_on_when_the_operator_dies_after_each_of_its_writes() -> None:
    world = waiting("scale-down", 1)
    done = [ask_planned(world, 0), ask_live(world, 1)]
    world.run_in_short_lives(until=lambda at: all(each(at) for each in done))
    assert world.operator.at_step("ScaleDown/WaitEmpty")
    world.backlog.clear()
    world.run_in_short_lives(until=lambda at: not running(at))
    assert {pair for pair, _ in (pod.member for pod in world.pods.values())} == {0, 1}
    assert all(pod.config["brokerPermission"] == "6" for pod in world.pods.values())
    assert world.running(0, 1).is_master


def test_what_waits_is_named_with_what_it_waits_for() -> None:
    world = at_rest()
    ask_planned(world, 0)
    world.run(until=lambda at: ("RoleSwitch", 0, "DrainWrites") in running(at))
    ask_resync(world, 2)
    world.settle(10)
    found = [event.message for event in world.events if event.reason == "OperationBlocked"]
    text = "at StopMember waits for NoOtherOperation (RoleSwitch of orders-0)"
    assert f"Resync of orders-2 {text}" in found


def test_an_action_that_fails_stops_no_other_pair() -> None:
    world = at_rest()
    world.refuses = {"orders-0-2"}
    world.edit(config={"flushConsumerOffsetInterval": "4000"})
    override(world, 1, slavesPerPair=1)
    world.run(until=lambda at: ("StatefulSet", "orders-1-2") not in at.objects, seconds=500)
