"""`failback demo` told to stop: what it did is undone, nothing runs on, and the code says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.common.polling import wait_until


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
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"stopped; what the runs logged is in {folder}" in log.read_text()
    assert not (folder / "roots").exists()
    wait_until(lambda: not processes_under(tmp_path / "runs"), "no process is left")
