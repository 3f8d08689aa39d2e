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
    assert found == Judgement("somebody", (".spec.maxUnavailable",), force=True, tell=True)


def test_repeated_conflicts_wait_from_one_minute_to_an_hour() -> None:
    clock = Clock()
    conflicts = Conflicts(clock=clock)
    forced: list[float] = []
    while len(forced) < 9:
        if judge(conflicts).force:
            forced.append(clock.now)
        clock.now += 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(forced)]
    assert pauses == [MINUTE * each for each in (1, 1, 2, 4, 8, 16, 32, 60)]


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
    judge(conflicts)
    assert not judge(conflicts).force
    assert judge(conflicts, manager="another").force
    assert judge(conflicts, name="orders-1").force
