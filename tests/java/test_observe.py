"""``failback observe`` beside Apache brokers that it does not run: a master is killed.

The truth is what unmodified Java consumers print. Outages are short; no timer is scaled.
"""

from __future__ import annotations

import asyncio
import shlex

import pytest

from failback.carry.command import main as carry
from failback.carry.offline import table_of_file
from tests.support.common.polling import wait_until
from tests.support.java.java_lab import Lab
from tests.support.observe.cluster import Observed
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


def printed(observed: Observed, start: str) -> str:
    """The last line of the observer that has a command."""

    def lines() -> list[str]:
        return [line for line in observed.observer.lines() if start in line]

    wait_until(lambda: lines() != [], start, 60)
    return lines()[-1]


def would_raise(observed: Observed, capsys: pytest.CaptureFixture[str]) -> int:
    """How many offsets the printed command for the master's host would raise."""
    line = printed(observed, "failback carry --conf")
    words = shlex.split(line.replace("BROKER.CONF", f"{observed.master.folder}/broker.conf"))
    capsys.readouterr()
    assert carry([*words[2:], "--dry-run"]) == 0
    return int(capsys.readouterr().out.splitlines()[-1].partition("would raise ")[2].split()[0])


def test_2_killed_and_handed_over_while_it_is_away(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    observed = begun(lab)

    def leave_and_ask() -> None:
        observed.leave()
        assert would_raise(observed, capsys) > 0
        (kept,) = (observed.out / "carry").iterdir()
        assert kept.name == f"{observed.slave.address}.json"
        _, table = table_of_file(kept)
        assert len(table["orders@billing"]) == 4

    observed.outage(AWAY_SECONDS, during=leave_and_ask)
    assert str(observed.out) in printed(observed, "failback offsets restore")
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


@pytest.mark.soak
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
