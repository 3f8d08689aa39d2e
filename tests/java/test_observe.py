"""``failback observe`` beside Apache brokers that it does not run: a master is killed.

The truth is what unmodified Java consumers print. Outages are short; no timer is scaled.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.java.java_lab import Lab
from tests.support.observe.truth import (
    AWAY_SECONDS,
    ON_4_AND_5,
    begun,
    cost,
    holds,
    kinds,
    nothing_is_written,
    settled,
)

pytestmark = [ON_4_AND_5, pytest.mark.long]


@pytest.mark.soak
def test_1_killed_and_the_consumers_stay(lab: Lab) -> None:
    observed = begun(lab)
    observed.outage(AWAY_SECONDS)
    report = settled(observed)
    holds(report, observed.again())
    found = cost(report)
    assert (found["lo"], found["hi"], found["owner_changed"]) == (0, 0, False)
    assert report["verdict"]["value"] == "Observed"
    assert {"MasterGone", "MasterBack"} <= kinds(report) <= {
        "MasterGone", "SlaveServes", "MasterBack", "OffsetsWentBack", "SlaveOverwritten",
    }  # fmt: skip


def test_2_killed_and_handed_over_while_it_is_away(lab: Lab) -> None:
    observed = begun(lab)
    observed.outage(AWAY_SECONDS, during=observed.leave)
    observed.join()
    report = settled(observed)
    again = observed.again()
    holds(report, again)
    assert again.total() > 0
    found = cost(report)
    assert found["owner_changed"]
    assert "ROLLBACK_SLAVE_ONLY_PROGRESS" in found["causes"]


@pytest.mark.soak
def test_3_killed_and_handed_over_after_the_return(lab: Lab) -> None:
    observed = begun(lab)
    observed.outage(AWAY_SECONDS)
    observed.leave()
    observed.join()
    report = settled(observed)
    holds(report, observed.again())


@pytest.mark.soak
def test_6_two_groups_of_which_one_is_handed_over(lab: Lab) -> None:
    observed = begun(lab, groups=("billing", "audit"))
    observed.outage(AWAY_SECONDS, during=observed.leave)
    observed.join()
    report = settled(observed)
    for group in ("billing", "audit"):
        holds(report, observed.again(group), group)
    assert cost(report, "billing")["lo"] > 0
    assert cost(report, "audit")["hi"] == 0


def test_a_trace_makes_counts_exact(lab: Lab) -> None:
    observed = begun(lab, is_traced=True)
    observed.outage(AWAY_SECONDS, during=observed.leave)
    observed.join()
    report = settled(observed)
    again = observed.again()
    assert again.total() > 0
    found = cost(report)
    counted = {queue["qid"]: (queue["lo"], queue["hi"]) for queue in found["queues"]}
    assert counted == {queue: (again[queue], again[queue]) for queue in counted}, found
    assert (found["exact"], found["lo"]) == (True, again.total())
    assert found["basis"] == ["E1", "E2", "E3", "E4"]
    asyncio.run(nothing_is_written(observed, observed.master, *observed.keepers))
