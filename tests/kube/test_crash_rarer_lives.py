"""What happens more rarely, under an operator that is killed, ends as it does undisturbed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.kube.rarer_changes import RARER
from tests.kube.test_crash_lives import LIFE_SECONDS, check_same, killed, live, undisturbed
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_killer import Kill
from tests.support.operator.scripted_clusters import Change

pytestmark = [pytest.mark.kube, pytest.mark.soak]

PAIRS = ("vault-0", "quay-0", "shop-0")
WITHOUT_A_KILL = {("vault", "delete"), ("annex", "reinstall")}
"""The first is left to the garbage collector; the second is an end of the operator itself."""
SEED = 2102


def live_beside_another(
    control_plane: ControlPlane, seed: int, share: float, most: int, seconds: float
) -> list[Kill]:
    """Live with kills and without; check that both end alike; return the kills."""
    killing = killed(control_plane, seed=seed, share=share, most=most, scripts=RARER, pairs=PAIRS)
    with (
        undisturbed(control_plane, scripts=RARER) as reference,
        killing as (victim, killer, masters),
    ):
        live([reference, victim], seconds)
    print(len(killer.kills), killer.kills, killer.counted)
    print([one.life.seconds for one in (reference, victim)])
    check_same(victim, reference)
    assert masters.doubles == []
    assert masters.rounds > 100
    assert len(masters.seen["quay-0"]) == 2, "the role was taken"
    return killer.kills


def test_kills_change_nothing_in_the_end_of_rarer_changes(
    control_plane: ControlPlane, node: NodeProcess
) -> None:
    kills = live_beside_another(control_plane, SEED, 0.6, 2, 2 * LIFE_SECONDS)
    survived = {(kill.cluster, kill.change) for kill in kills}
    assert missing(RARER, survived) == set()


def missing(
    scripts: Mapping[str, tuple[Change, ...]], survived: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return the changes in which the operator was not killed."""
    made = {(cluster, change.name) for cluster, changes in scripts.items() for change in changes}
    return made - survived - WITHOUT_A_KILL


@pytest.mark.parametrize(("seed", "share"), [(0, 1.0), (2, 0.3)])
def test_many_more_kills_change_nothing_in_the_end_of_rarer_changes(
    control_plane: ControlPlane, node: NodeProcess, seed: int, share: float
) -> None:
    """A share of 1 kills after every single write and order."""
    kills = live_beside_another(control_plane, seed, share, 1000, 6 * LIFE_SECONDS)
    assert len(kills) >= (100 if share == 1 else 10)
