"""Where claims do not tell the master, the disks are read, and a slave goes on serving reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import product
from typing import Any

from failback.operator.planning.plan.encoding import find_condition, to_time
from failback.operator.planning.plan.types import MarkClaim
from failback.operator.render.common import LOG_END, LOG_END_AT
from tests.support.operator.planning_run import EVERY_WRITE, Run, steady
from tests.support.operator.planning_world import World
from tests.support.operator.simulated_machines import Store
from tests.support.operator.switch_world import delivered
from tests.unit.operator.planning.test_mastership import made_again

SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"slavesPerPair": 2},
    {"engine": {"type": "Apache", "version": "5.3.3"}},
)
END = 288_400


def claim(member: int) -> str:
    return f"data-orders-0-{member}-0"


def filled(end: int = END, **spec: Any) -> World:
    """Return a pair at rest whose members have a log, of which the marks say nothing."""
    world = steady(**spec)
    for each in world.claims.values():
        each.store = dataclasses.replace(each.store, end=end)
    for pod in world.pods.values():
        pod.store = world.claims[f"data-{pod.statefulset}-0"].store
    return world


def lose(world: World, member: int) -> None:
    """Delete a claim and its pod: the controller has made the claim again, empty."""
    world.kill(0, member)
    del world.pods[f"orders-0-{member}-0"]
    old = world.claims[claim(member)]
    world.claims[claim(member)] = dataclasses.replace(old, uid="new", marks={}, store=Store())


def restored(world: World, member: int, end: int) -> None:
    """Put an older snapshot in a claim's place, under the marks of now."""
    old = world.claims[claim(member)]
    store = dataclasses.replace(old.store, end=end)
    world.claims[claim(member)] = dataclasses.replace(
        old, uid=f"restored-{member}", store=store, marks=dict(old.marks)
    )


def ready(world: World) -> tuple[str, str]:
    found = find_condition(world.status, "Ready")
    assert found is not None
    return found["reason"], found["message"]


def order(world: World, member: int) -> None:
    """Order what the message says of a member."""
    uid = world.claims[claim(member)].uid
    words = ready(world)[1].split()
    world.annotate(open_member=next(word for word in words if word.startswith(f"{uid}@")))


def test_a_healthy_slave_goes_on_and_its_end_is_told() -> None:
    for spec in SPECS:
        goes_on(spec)


def goes_on(spec: dict[str, Any]) -> None:
    world = filled(failover={"mode": "SlaveReadOnly"}, **spec)
    slaves = {name: pod.uid for name, pod in world.pods.items() if not pod.is_master}
    lose(world, 0)
    run = Run(world).for_passes(30)
    reason, message = ready(world)
    assert reason == "MasterUnclear"
    assert {name: world.pods[name].uid for name in slaves} == slaves, "not one was stopped"
    for name in slaves:
        assert world.pods[name].up
        assert world.pods[name].config["slaveReadEnable"] == "true"
        assert f"data-{name} (slave of 1, serves reads, its log ends at {END})" in message
    assert "data-orders-0-0-0 (without marks, its log is empty)" in message
    assert not any(pod.is_master for pod in world.pods.values())
    world.log.clear()
    run.for_passes(20)
    assert world.log == [], "nothing is written while a person thinks"

    order(world, 1)
    run.until_steady()
    assert world.running(0, 1).is_master
    assert {pod.store.end for pod in world.pods.values()} == {END}
    assert world.most_masters == 1
    assert ready(world)[0] == "AllReady"


def test_without_the_masters_claim_a_cluster_made_again_reads_what_there_is() -> None:
    for spec in SPECS:
        reads(spec)


def reads(spec: dict[str, Any]) -> None:
    world = filled(**spec)
    made_again(world)
    del world.claims[claim(0)]
    for each in world.claims.values():
        each.marks |= {LOG_END: "12", LOG_END_AT: to_time(world.now)}
    as_of = to_time(world.now)
    run = Run(world).for_passes(1)
    assert f"slave of 1, not read yet, at least to 12 as of {as_of}" in ready(world)[1]
    assert str(END) not in ready(world)[1]
    run.for_passes(20)
    assert ready(world)[0] == "MasterUnclear"
    for member in range(1, len(world.claims) + 1):
        assert f"{claim(member)} (slave of 1, its log ends at {END})" in ready(world)[1]
    assert not any(pod.up for pod in world.pods.values()), "the step before the broker reads"
    order(world, 1)
    run.until_steady()
    assert world.running(0, 1).is_master
    assert {pod.store.end for pod in world.pods.values()} == {END}


def test_a_copy_that_cannot_be_read_is_never_called_short() -> None:
    world = filled()
    made_again(world)
    del world.claims[claim(0)]
    world.broken.add((0, 1))
    Run(world).for_passes(20)
    assert "slave of 1, not read yet, at least to 0 as of 20" in ready(world)[1]


def test_no_mark_outranks_a_disk() -> None:
    """The master's claim is an old snapshot with its marks, which may be newer than the data."""
    for lives, mark in product((False, True), ("0", "300", "99999999")):
        for own, opens in ((300, False), (END, True), (END + 5, True)):
            world = filled()
            world.annotate(hold_member="orders-0-0")
            run = Run(world).for_passes(20)
            if not lives:
                made_again(world)
            restored(world, 0, own)
            world.claims[claim(0)].marks |= {LOG_END: mark}
            world.annotate(hold_member="")
            run = Run(world).for_passes(40)
            case = (lives, mark, own, ready(world))
            if opens:
                assert world.running(0, 0).is_master, case
                continue
            assert ready(world)[0] == "MasterUnclear", case
            told = f"{claim(1)} has more than {claim(0)}, the last master's"
            assert told in ready(world)[1], case
            assert f"its log ends at {own}" in ready(world)[1], case
            assert not any(pod.is_master for pod in world.pods.values()), case
            order(world, 1)
            run.for_passes(40)
            assert world.running(0, 1).is_master, case
            assert world.store(0, 1).end == END, case


def test_over_kept_claims_it_opens_by_itself_once_both_were_read() -> None:
    world = filled()
    made_again(world)
    run = Run(world).for_passes(1)
    assert ready(world)[0] == "ReadingLogs"
    run.until_steady()
    assert world.running(0, 0).is_master
    assert not [each for each in world.events if each.reason == "MasterUnclear"]
    pods = {pod.uid for pod in world.pods.values()}
    Run(world).until_steady()
    assert {pod.uid for pod in world.pods.values()} == pods


def test_with_both_claims_gone_there_is_nothing_to_read() -> None:
    world = filled()
    made_again(world)
    world.claims.clear()
    Run(world).until_steady()
    assert world.running(0, 0).is_master


def deleted_without_the_masters_claim(world: World) -> None:
    made_again(world)
    del world.claims[claim(0)]


def deleted(world: World) -> None:
    made_again(world)


def lost(world: World) -> None:
    lose(world, 0)


def test_an_operator_that_dies_after_every_write_comes_to_the_same() -> None:
    for begin in (deleted_without_the_masters_claim, deleted, lost):
        comes_to_the_same(begin)


def comes_to_the_same(begin: Callable[[World], None]) -> None:
    world = filled()
    begin(world)
    run = Run(world, crashes=EVERY_WRITE)
    for _ in range(60):
        run.one_pass()
        world.tick(1.0)
    if begin is not deleted:
        assert ready(world)[0] == "MasterUnclear"
        order(world, 1)
        for _ in range(120):
            run.one_pass()
            world.tick(1.0)
    assert world.running(0, 0 if begin is deleted else 1).is_master
    assert {pod.store.end for pod in world.pods.values()} == {END}
    assert world.most_masters == 1


def test_nothing_else_is_done_to_a_pair_until_a_person_has_decided() -> None:
    world = delivered(pairs=1, failover="Manual")
    world.traffic = 0
    lose(world, 0)
    world.settle(60)
    pod = world.running(0, 1).uid
    world.ask(mode="Forced")
    world.annotate(force_resync_member=world.claims[claim(1)].uid)
    world.settle(60)
    assert ready(world)[0] == "MasterUnclear"
    assert world.running(0, 1).uid == pod
    assert not world.running(0, 1).is_master


# --- marks ---------------------------------------------------------------------------------------


def written(world: World) -> list[str]:
    found = [each for each in world.log if isinstance(each, MarkClaim)]
    world.log.clear()
    return [each.annotations[LOG_END] for each in found]


def test_the_end_is_written_by_the_file_and_by_the_hour_and_never_at_rest() -> None:
    world = steady(config={"mappedFileSizeCommitLog": "4096"})
    run = Run(world)
    for end, later, marks in (
        (4_000, 60.0, []),
        (4_096, 60.0, ["4096", "4096"]),
        (5_000, 60.0, []),
        (5_000, 3_600.0, ["5000", "5000"]),
        (5_000, 7_200.0, []),
    ):
        for each in world.claims.values():
            each.store.end = end
        world.tick(later)
        run.for_passes(3)
        assert written(world) == marks, end


def test_the_end_is_written_once_the_cluster_is_deleted() -> None:
    world = filled()
    plan = Run(world).one_pass()
    marks = [each for each in plan.last_actions if isinstance(each, MarkClaim)]
    assert {each.claim: each.annotations for each in marks} == {
        claim(member): {LOG_END: str(END), LOG_END_AT: to_time(world.now)} for member in (0, 1)
    }
    assert not [each for each in plan.actions if isinstance(each, MarkClaim)]
