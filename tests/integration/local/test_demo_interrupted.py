"""`failback demo` told to stop: what it did is undone, nothing runs on, and the code says so."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import SCALE, wait_until


def processes_under(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in command and entry.parent.name != str(os.getpid()):
            found.append(command)
    return found


@pytest.mark.parametrize("after", ["starting the cluster", "SIGKILL to demo-0-0-0"])
def test_ctrl_c_undoes_everything(tmp_path: Path, after: str) -> None:
    log = tmp_path / "demo.log"
    words = [sys.executable, "-m", "failback.cli", "demo", "--quick"]
    with log.open("wb") as output:
        demo = subprocess.Popen(
            [*words, "--runs", str(tmp_path / "runs")],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            # A shell's background job starts with SIGINT ignored, and so would its children.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
    try:
        wait_until(lambda: after in log.read_text(), after, seconds=90)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=120) == 3, log.read_text()
    finally:
        demo.kill()
        demo.wait()
    assert log.read_text().endswith("error: interrupted\n")
    assert "stopping: undoing the faults" in log.read_text()
    assert "Traceback" not in log.read_text()
    (folder,) = (each for each in (tmp_path / "runs").iterdir() if not each.is_symlink())
    assert f"stopped; what the runs logged is in {folder}" in log.read_text()
    assert not (folder / "roots").exists()
    wait_until(lambda: not processes_under(tmp_path / "runs"), "no process is left")


def in_terminal(words: list[str], folder: Path) -> tuple[int, int]:
    """Start a command as the leader of a terminal; return its pid and the terminal's other end."""
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.chdir(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.execv(sys.executable, [sys.executable, "-m", "failback.cli", *words])
    os.set_blocking(terminal, False)
    return pid, terminal


def close_when(terminal: int, word: str) -> str:
    """Close a terminal once ``word`` was printed; return all that was."""
    shown = ""

    def has_said() -> bool:
        nonlocal shown
        with suppress(BlockingIOError):
            shown += os.read(terminal, 1 << 16).decode(errors="replace")
        return word in shown

    wait_until(has_said, word, seconds=90)
    os.close(terminal)
    return shown


def ended(pid: int, seconds: float) -> bool:
    """Whether a child ends within the time."""
    deadline = time.monotonic() + seconds * SCALE
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.few(1, 1)
@pytest.mark.parametrize("after", ["starting the cluster", "SIGKILL to demo-0-0-0"])
def test_a_closed_terminal_ends_a_demo_and_its_brokers(tmp_path: Path, after: str) -> None:
    pid, terminal = in_terminal(["demo", "--quick"], tmp_path)
    try:
        close_when(terminal, after)
        assert ended(pid, 120)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    (folder,) = (each for each in (tmp_path / "runs").iterdir() if not each.is_symlink())
    assert not (folder / "roots").exists(), "the stores are removed, as after Ctrl-C"
    assert (tmp_path / "runs" / "latest").resolve() == folder
    wait_until(lambda: not processes_under(tmp_path / "runs"), "no process is left")


def test_an_observer_goes_on_without_its_terminal(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        words = ["observe", "-n", cluster.namesrv_addr, "--every", "500ms", "--for", "8s"]
        pid, terminal = in_terminal(words, tmp_path)
        try:
            close_when(terminal, "observed")
            (run,) = (each for each in (tmp_path / "runs").iterdir() if not each.is_symlink())
            kept = (run / "looks.jsonl").stat().st_size
            wait_until(lambda: (run / "looks.jsonl").stat().st_size > kept, "further samples")
            assert ended(pid, 60)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert run.name.startswith("observe-")
    assert (run / "report" / "report.json").exists(), "its report is made at the end"
