"""Another manager writes fields of ours again and again: how often we write over it, and say so."""

from __future__ import annotations

import itertools

from failback.kube.errors import ApiError
from failback.operator.kubernetes.conflicts import Conflicts, Judgement

MINUTE = 60.0


class Clock:
    """Seconds, set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def refused(manager: str) -> ApiError:
    """Return what the API server says of an apply that conflicts."""
    cause = {
        "reason": "FieldManagerConflict",
        "message": f'conflict with "{manager}" using policy/v1',
        "field": ".spec.maxUnavailable",
    }
    return ApiError("apply", "poddisruptionbudgets", 409, "Conflict", "1 conflict", causes=(cause,))


def judge(conflicts: Conflicts, manager: str = "somebody", name: str = "orders-0") -> Judgement:
    return conflicts.judge("PodDisruptionBudget", "shop", name, refused(manager))


def test_the_first_conflict_is_forced_and_told_with_manager_and_field() -> None:
    found = judge(Conflicts(clock=Clock()))
    assert found == Judgement("somebody", (".spec.maxUnavailable",), wait=0.0, tell=True)


def test_a_second_edit_is_undone_as_the_first_one_was() -> None:
    clock = Clock()
    conflicts = Conflicts(clock=clock)
    for second in (0.0, 10.0, 20.0):
        clock.now = second
        assert judge(conflicts).wait == 0.0


def test_a_manager_that_writes_back_at_once_is_forced_every_ten_seconds() -> None:
    clock = Clock()
    conflicts = Conflicts(clock=clock)
    forced: list[float] = []
    while len(forced) < 10:
        if not judge(conflicts).wait:
            forced.append(clock.now)
        clock.now += 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(forced)]
    assert pauses == [1.0] * 4 + [10.0] * 5
    clock.now += MINUTE
    assert judge(conflicts).wait == 0.0


def test_the_same_manager_is_told_of_once_an_hour() -> None:
    clock = Clock()
    conflicts = Conflicts(clock=clock)
    told = []
    for minute in range(3 * 60):
        clock.now = minute * MINUTE
        if judge(conflicts).tell:
            told.append(minute)
    assert told == [0, 60, 120]


def test_another_manager_or_object_is_another_dispute() -> None:
    conflicts = Conflicts(clock=Clock())
    for _ in range(5):
        judge(conflicts)
    assert judge(conflicts).wait
    assert not judge(conflicts, manager="another").wait
    assert not judge(conflicts, name="orders-1").wait
