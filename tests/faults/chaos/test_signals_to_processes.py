"""Signals go to exactly the process that was chosen, or nowhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from failback.chaos.cluster import processes
from failback.chaos.cluster.view import ProcessState
from failback.chaos.errors import TargetError
from tests.support.common.polling import wait_until


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        yield child
        child.kill()


def ticks_of(child: subprocess.Popen[bytes]) -> int:
    ticks = processes.read_ticks(child.pid)
    assert ticks is not None
    return ticks


@pytest.mark.sample
def test_a_process_is_stopped_and_continued(child: subprocess.Popen[bytes]) -> None:
    ticks = ticks_of(child)
    processes.send_signal(child.pid, ticks, signal.SIGSTOP)
    wait_until(lambda: processes.state_of(child.pid, ticks) is ProcessState.STOPPED, "T")
    assert processes.alive(child.pid, ticks)
    processes.send_signal(child.pid, ticks, signal.SIGCONT)
    wait_until(lambda: processes.state_of(child.pid, ticks) is ProcessState.RUNNING, "not T")


def test_a_receipt_holds_the_times_around_the_call(child: subprocess.Popen[bytes]) -> None:
    ticks = ticks_of(child)
    receipt = processes.send_signal(child.pid, ticks, signal.SIGKILL)
    assert receipt.issued.mono_ns <= receipt.returned.mono_ns
    assert processes.await_exit(child.pid, ticks, 10)
    assert child.wait(10) == -signal.SIGKILL
    assert processes.state_of(child.pid, ticks) is ProcessState.GONE


def test_a_zombie_is_gone(child: subprocess.Popen[bytes]) -> None:
    ticks = ticks_of(child)
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: processes.state_of(child.pid, ticks) is ProcessState.GONE, "zombie")
    with pytest.raises(TargetError, match="GONE"):
        processes.send_signal(child.pid, ticks, signal.SIGTERM)


def test_a_pid_with_other_ticks_belongs_to_a_stranger(child: subprocess.Popen[bytes]) -> None:
    """What a re-used pid looks like: the same number, another start."""
    ticks = ticks_of(child)
    assert processes.state_of(child.pid, ticks - 1) is ProcessState.REPLACED
    with pytest.raises(TargetError, match="REPLACED"):
        processes.send_signal(child.pid, ticks - 1, signal.SIGKILL)
    assert child.poll() is None


def test_a_pid_that_never_was_is_refused(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    with pytest.raises(TargetError, match="no such process"):
        processes.send_signal(child.pid, 1, signal.SIGKILL)
