"""The demo under the guarded rules, on slow brokers with access control and TLS: no repeats."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

from tests.e2e.brute_force import BruteForce
from tests.e2e.demo_checks import GROUP, TOPIC, check_stay
from tests.e2e.demo_run import ARMS, run_demo
from tests.support.common.background_thread import Beside
from tests.support.processes.leftovers import processes_of


class SlowBrokers(Beside):
    """Lets the brokers of each arm stand still while its producer sends the backlog."""

    def __init__(self, runs: Path) -> None:
        super().__init__("slow brokers")
        self.stood_still = set[str]()
        self._runs = runs

    def work(self) -> None:
        while not self.stopping.wait(0.05):
            for arm in ARMS:
                if arm not in self.stood_still and self._produces(arm):
                    self._stand_still(arm)

    def _produces(self, arm: str) -> bool:
        for plan in self._runs.glob(f"demo-*/{arm}/plans/*-producer-0.json"):
            process = json.loads(plan.read_text())["process"]["proc"]
            return any(process in log.name for log in (plan.parents[1] / "hot").iterdir())
        return False

    def _stand_still(self, arm: str) -> None:
        (folder,) = self._runs.glob(f"demo-*/roots/{arm}")
        brokers = [each for each in processes_of(folder) if ".cli broker -c" in each]
        self.stood_still.add(arm)
        for seconds in (0.1, 0.6, 0.1, 0.6, 0.1):  # a send waits for 0.3 s at a tenth of the timers
            wanted = signal.SIGSTOP if seconds > 0.3 else signal.SIGCONT
            for each in brokers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(each.partition(":")[0]), wanted)
            self.stopping.wait(seconds)


def test_a_returned_master_has_heard_of_what_its_slave_served(tmp_path: Path) -> None:
    (tmp_path / "openssl").symlink_to(shutil.which("openssl") or "openssl")
    without_java = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    options = ("--quick", "--rules", "guarded", "--secured")
    with SlowBrokers(tmp_path / "runs") as slow:
        demo = run_demo(tmp_path / "runs", *options, environment=without_java)
    assert demo.done.code == 0, demo.done.output[-4000:] + demo.done.errors[-4000:]
    assert "Spark" not in demo.done.output + demo.done.errors
    assert slow.stood_still == set(ARMS)
    for arm in ARMS:
        results = {row["res"] for row in BruteForce(demo.run_dir(arm)).rows("produce")}
        assert "TIMEOUT" in results, "no broker was too slow for the producer"
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
