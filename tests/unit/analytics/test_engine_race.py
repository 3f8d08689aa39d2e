"""What a race of the engines measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.analytics import bench, usage
from tests.benchmarks.analytics.synthetic import Plan, generate


def test_a_lap_says_whether_its_answer_is_right(tmp_path: Path) -> None:
    generate(Plan(rows=5_000, queues=2), tmp_path / "run")
    entry = bench.Entry("local-counts", tmp_path / "run")
    best = bench.race([entry, entry])[entry]
    assert best.right
    assert best.cpu_seconds > 0


CHILD = """
import time
while time.process_time() < 0.6: pass
print("burned", flush=True)
input()
"""
PARENT = f"""
import signal, subprocess, sys
if sys.argv[1] == "ignores":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdin=subprocess.PIPE)
sys.stdin.readline()
child.communicate(b"on")
print("over", flush=True)
sys.stdin.readline()
"""


class Family:
    """A process whose child uses 0.6 s of CPU, and ends when it is told to."""

    def __init__(self, parent: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PARENT, parent],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._says("burned")

    def end_child(self) -> None:
        print("on", file=self._process.stdin, flush=True)
        self._says("over")

    def end(self) -> None:
        self._process.communicate("", timeout=60)

    def _says(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{word}\n"


@pytest.mark.parametrize("parent", ["ignores", "waits for"])
def test_what_an_ended_grandchild_used_counts_once(parent: str) -> None:
    with usage.CpuMeter() as cpu:
        family = Family(parent)
        living = cpu.seconds()
        assert living > 0.55
        family.end_child()
        assert living <= cpu.seconds() < living + 0.5
        family.end()
    assert living <= cpu.seconds() < living + 0.5


@pytest.mark.parametrize("parent", ["ignores", "waits for"])
def test_what_was_used_before_the_meter_never_counts(parent: str) -> None:
    family = Family(parent)
    with usage.CpuMeter() as cpu:
        family.end_child()
        assert 0 <= cpu.seconds() < 0.5
        family.end()
    assert 0 <= cpu.seconds() < 0.5


def test_children_too_short_for_a_look_count_if_they_were_waited_for() -> None:
    burn = "import time\nwhile time.process_time() < 0.1: pass\n"
    with usage.CpuMeter() as cpu:
        for _ in range(8):
            subprocess.run([sys.executable, "-c", burn], check=True)
        assert cpu.seconds() > 0.7
