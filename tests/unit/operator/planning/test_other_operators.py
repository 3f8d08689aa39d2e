"""Two operators on one resource are noticed, told, and do not fight over the status."""

from __future__ import annotations

import dataclasses

from failback.operator.planning.cluster.cluster import plan_cluster
from failback.operator.planning.observed.rivals import SECONDS, OtherOperator
from failback.operator.planning.plan.encoding import find_condition
from tests.support.operator.planning_run import CONTEXT, steady

OWN, OTHER = "0.2.0", "0.1.0"


def test_the_version_of_the_release_before_is_no_rival() -> None:
    other = OtherOperator()
    assert other.look(OTHER, OWN, 0) == ((), OWN)
    assert other.look(OWN, OWN, 1) == ((), OWN)


def test_a_version_that_turns_under_our_eyes_is_one_for_five_minutes() -> None:
    other, both = OtherOperator(), (OTHER, OWN)
    other.look(OWN, OWN, 0)
    assert other.look(OTHER, OWN, 10) == (both, OWN), "it learns of us"
    assert other.look(OWN, OWN, 11) == (both, OWN)
    assert other.look(OTHER, OWN, 12) == (both, OTHER), "and we leave it at that"
    assert other.look(OTHER, OWN, 11 + SECONDS) == (both, OTHER)
    assert other.look(OTHER, OWN, 12 + SECONDS) == ((), OWN)


def test_both_operators_come_to_rest_with_the_same_warning() -> None:
    """Each plans twice, from its own status and that of the other, until neither changes it."""
    world = steady()
    contexts = [dataclasses.replace(CONTEXT, version=version) for version in (OTHER, OWN)]
    memories, status = [OtherOperator(), OtherOperator()], dict(world.status)
    told = []
    for turn in range(16):
        context, memory = contexts[turn // 2 % 2], memories[turn // 2 % 2]
        version = str(status.get("operatorVersion", ""))
        others, shown = memory.look(version, context.version, turn)
        seen = dataclasses.replace(world.observe(), other_operators=others, version_shown=shown)
        status = dict(plan_cluster(world.cluster, status, seen, context, world.now).status)
        warning = find_condition(status, "Warning")
        assert warning is not None
        told.append((status["operatorVersion"], warning["reason"], warning["message"]))
    assert len(set(told[8:])) == 1
    assert told[-1][1:] == (
        "AnotherOperator",
        "AnotherOperator: operators of versions 0.1.0 and 0.2.0 both act on it",
    )
