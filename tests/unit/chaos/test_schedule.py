"""Drawn values: the same for a seed, independent of each other, in the order of time."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from failback.chaos.experiment.model import Fault
from failback.chaos.experiment.schedule import (
    PURPOSES,
    PlannedFault,
    in_order,
    plan_run,
    run_id,
    sub_seed,
)
from failback.chaos.faults.catalogue import load_experiment

EVERY = Path(__file__).parent / "data" / "every-fault.yaml"


@given(st.integers(0, 2**64 - 1), st.integers(0, 49))
def test_sub_seeds_differ_by_purpose_and_repetition(seed: int, repetition: int) -> None:
    seeds = [sub_seed(seed, purpose, repetition) for purpose in PURPOSES]
    assert len(set(seeds)) == len(PURPOSES)
    assert seeds == [sub_seed(seed, purpose, repetition) for purpose in PURPOSES]
    assert seeds[0] != sub_seed(seed, PURPOSES[0], repetition + 1)
    assert all(0 <= each < 2**64 for each in seeds)


def test_repetitions_draw_different_times_and_phases() -> None:
    experiment = load_experiment(EVERY)
    plans = [plan_run(experiment, experiment.arms[0], number) for number in (0, 0, 1)]
    assert plans[0] == plans[1]
    assert plans[0].start_phases != plans[2].start_phases
    times = [
        next(each.at_seconds for each in plan.faults if each.fault.id == "f1") for plan in plans
    ]
    assert times[0] == times[1] != times[2]
    assert all(5 <= at <= 8 for at in times)


def test_members_start_within_their_spread() -> None:
    experiment = load_experiment(EVERY)
    phases = plan_run(experiment, experiment.arms[0], 0).start_phases
    assert set(phases) == {"billing-0", "billing-1"}
    assert all(0 <= phase <= 30 for phase in phases.values())


def test_faults_are_in_order_and_waiting_ones_follow_their_milestone() -> None:
    experiment = load_experiment(EVERY)
    order = [each.fault.id for each in plan_run(experiment, experiment.arms[0], 0).faults]
    assert order.index("f0") < order.index("f1") < order.index("f3")
    assert order.index("f1") < order.index("f2")
    assert order.index("f1") < order.index("f4")


def test_of_several_that_wait_for_one_fault_the_earlier_milestone_goes_first() -> None:
    def planned(fid: str, at: float, after: str = "") -> PlannedFault:
        fault = Fault.model_validate({"id": fid, "fault": "kill", "at": at})
        return PlannedFault(fault, at, after)

    late = planned("late", 0.5, "accept:f1")
    found = in_order(
        [
            late,
            planned("serving", 0, "slave-serving:f1"),
            planned("second", 2, "gone:f1"),
            planned("f1", 5),
            planned("after-late", 0, "gone:late"),
            planned("first", 1, "gone:f1"),
            planned("apart", 9),
        ]
    )
    order = [each.fault.id for each in found]
    assert order == ["f1", "first", "second", "serving", "late", "after-late", "apart"]


def test_a_run_is_named_by_experiment_arm_repetition_and_start() -> None:
    first = run_id("e", "a", 3, 42, 1_000)
    assert first.startswith("e-a-3-")
    assert first == run_id("e", "a", 3, 42, 1_000) != run_id("e", "a", 3, 42, 1_001)
