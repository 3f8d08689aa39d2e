"""What must hold of the demo's two arms, whichever engine ran them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.e2e.brute_force import BruteForce

TOPIC, GROUP = "orders", "billing"


def check_stay(report: dict[str, Any], counted: BruteForce) -> None:
    """The consumer ran through: from its memory it goes on where it was."""
    assert report["verdict"]["value"] == "Pass", report["verdict"]
    assert report["totals"]["dup"] == 0
    assert report["totals"]["lost"] == 0
    assert counted.duplicates() == []
    assert counted.lost() == []
    assert len(counted.consumers()) == 1
    _check_kill(report, counted)


def check_handover(report: dict[str, Any], counted: BruteForce) -> None:
    """A new consumer asked the returned master, which knew of nothing that the slave served."""
    assert report["verdict"]["value"] == "Pass", report["verdict"]
    totals = report["totals"]
    assert totals["lost"] == 0
    assert counted.lost() == []
    duplicates = counted.duplicates()
    assert totals["dup"] == len(duplicates) > 0
    _check_kill(report, counted)

    before, after = counted.consumers()
    consumed = counted.consumed(TOPIC, before)
    loaded = counted.loaded_by_master(GROUP, TOPIC)
    assert loaded == counted.file_of_dead_master(GROUP, TOPIC)
    started = {
        row["qid"]: row["start_off"]
        for row in counted.rows("assign")
        if row["proc_no"] == after and row["ptopic"] == TOPIC
    }
    assert started == loaded, "the new consumer got what the master had loaded"
    again = Counter(row["qid"] for row in duplicates)
    assert dict(again) == {
        queue: end - loaded[queue] for queue, end in consumed.items() if end > loaded[queue]
    }

    causes: Counter[str] = Counter()
    for group in report["groups"]:
        causes.update(group["causes"])
        assert group["unattributed"] == 0
    assert causes.total() == totals["dup"], "each duplicate has exactly one cause"
    assert causes["ROLLBACK_SLAVE_ONLY_PROGRESS"] > totals["dup"] / 2
    bounds = [row["bound"] for row in report["bounds"]]
    assert bounds
    assert totals["dup"] <= sum(bounds)


def check_carried(report: dict[str, Any], counted: BruteForce) -> None:
    """As a handover, but the returned master was given what the slave knew."""
    assert report["verdict"]["value"] == "Pass", report["verdict"]
    assert (report["totals"]["dup"], report["totals"]["lost"]) == (0, 0)
    assert counted.duplicates() == []
    assert counted.lost() == []
    _check_kill(report, counted)
    before, _ = counted.consumers()
    own = counted.file_of_dead_master(GROUP, TOPIC)
    loaded = counted.loaded_by_master(GROUP, TOPIC)
    assert loaded == counted.consumed(TOPIC, before)
    assert sum(loaded.values()) > sum(own.values()), "without the carry these would be re-consumed"


def _check_kill(report: dict[str, Any], counted: BruteForce) -> None:
    """The master died of SIGKILL, and the report says for how long it was down."""
    (kill,) = (fault for fault in report["faults"] if fault["kind"] == "KILL")
    assert kill["proved"] is True
    assert counted.step("KILL")["signum"] == 9
    away = (counted.step("ACCEPT")["observed"] - counted.step("KILL")["observed"]) / 1e9
    assert abs(kill["down_seconds"] - away) < 0.1 + 0.1 * away
