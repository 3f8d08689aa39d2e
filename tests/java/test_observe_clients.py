"""``failback observe --ask-clients`` on Apache: what members hold makes intervals narrower."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from failback.analytics.observe.folder import looks_in
from failback.analytics.observe.observation import Observation
from tests.support.java.java_lab import Lab
from tests.support.observe.cluster import Observed
from tests.support.observe.truth import AWAY_SECONDS, ON_4_AND_5, begun, cost, holds, settled

pytestmark = ON_4_AND_5

BEHIND_SECONDS = 20
"""For so long what is sent piles up, until it is more than a client holds of a queue."""


def unasked(observed: Observed) -> dict[str, Any]:
    """What the same looks say without the members' words."""
    looks = (msgspec.structs.replace(look, clients=()) for look in looks_in(observed.out))
    return {"observation": Observation.of(looks).document()}


@pytest.mark.soak
def test_a_slow_group_is_handed_over_while_the_master_is_away(lab: Lab) -> None:
    slow = {"handler": 1000, "threshold": 100}
    observed = begun(lab, options=("--ask-clients",), consumers=slow)
    time.sleep(BEHIND_SECONDS)
    observed.outage(AWAY_SECONDS, during=observed.leave)
    observed.join()
    report = settled(observed)
    holds(report, observed.again())
    before = unasked(observed)
    holds(before, observed.again())
    asked, alone = cost(report), cost(before)
    assert asked["lo"] >= alone["lo"]
    assert asked["hi"] < alone["hi"]
    assert asked["owner_changed"]
    by_client: dict[str, list[float]] = {}
    for look in looks_in(observed.out):
        for each in look.clients:
            by_client.setdefault(each.client, []).append(each.at)
    assert len(by_client) == 2
    for times in by_client.values():
        assert all(later - earlier > 4.9 for earlier, later in pairwise(times))
