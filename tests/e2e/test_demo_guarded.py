"""The demo under the guarded rules: the same outage and handover, and nothing comes again."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.brute_force import BruteForce
from tests.e2e.demo_checks import GROUP, TOPIC, check_stay
from tests.e2e.demo_run import run_demo


def test_a_returned_master_has_heard_of_what_its_slave_served(tmp_path: Path) -> None:
    without_java = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    options = ("--quick", "--rules", "guarded")
    demo = run_demo(tmp_path / "runs", *options, environment=without_java)
    assert demo.done.code == 0, demo.done.output[-4000:] + demo.done.errors[-4000:]
    assert "Spark" not in demo.done.output + demo.done.errors
    check_stay(demo.report("stay"), BruteForce(demo.run_dir("stay")))

    report, counted = demo.report("handover"), BruteForce(demo.run_dir("handover"))
    assert report["verdict"]["value"] == "Pass"
    assert report["system"]["rules"] == "guarded"
    assert counted.duplicates() == []
    assert counted.lost() == []
    before, after = counted.consumers()
    consumed = counted.consumed(TOPIC, before)
    assert consumed != counted.file_of_dead_master(GROUP, TOPIC), "the slave served nothing"
    started = {
        row["qid"]: row["start_off"]
        for row in counted.rows("assign")
        if row["proc_no"] == after and row["ptopic"] == TOPIC
    }
    assert started == consumed
