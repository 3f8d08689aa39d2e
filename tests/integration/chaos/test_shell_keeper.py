"""The scripts that a shell runs inside a container of an Apache image, in the shells of images."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from failback.chaos.cluster import processes
from failback.chaos.targets.kube import shell
from failback.chaos.targets.kube.inside import announcement
from failback.chaos.targets.kube.shell import MAIN_CLASS, ShellKeeper
from failback.operator.render.broker import WHEN_RELEASED
from tests.support.common.polling import wait_until

SHELLS = [
    words for words in (["sh"], ["bash"], ["busybox", "sh"]) if shutil.which(words[0]) is not None
]
KEEPER = ShellKeeper()


@pytest.fixture(params=SHELLS, ids=lambda words: str(words[0]))
def interpreter(request: pytest.FixtureRequest) -> list[str]:
    words: list[str] = request.param
    return words


def run(interpreter: Sequence[str], argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    assert argv[0] == "sh"
    command = [*interpreter, *argv[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like the broker's JVM: its name, and its class among its words."""
    java = tmp_path / "java"
    java.symlink_to(os.path.realpath(sys.executable))
    command = [str(java), "-ISc", "import time; time.sleep(600)", MAIN_CLASS, "-c", "broker.conf"]
    with subprocess.Popen(command) as process:
        path = Path(f"/proc/{process.pid}/comm")
        wait_until(lambda: path.read_text() == "java\n", "the process by its own name")
        yield process
        process.kill()


def ticks_of(process: subprocess.Popen[bytes]) -> int:
    found = processes.read_ticks(process.pid)
    assert found is not None
    return found


@pytest.mark.sample
def test_the_process_that_is_meant_is_killed(
    interpreter: list[str], broker: subprocess.Popen[bytes]
) -> None:
    ticks = ticks_of(broker)
    done = run(interpreter, KEEPER.kill(signal.SIGKILL, broker.pid, ticks))
    words = f"failback-chaos: {announcement(signal.SIGKILL, broker.pid, ticks)}\n"
    assert (done.returncode, done.stderr) == (0, words)
    assert broker.wait(60) == -signal.SIGKILL


def test_a_process_that_has_the_pid_of_another_one_is_left_alone(
    interpreter: list[str], broker: subprocess.Popen[bytes]
) -> None:
    ticks = ticks_of(broker)
    done = run(interpreter, KEEPER.kill(signal.SIGKILL, broker.pid, ticks + 1))
    assert done.returncode == 4
    assert done.stderr == f"process {broker.pid} began at {ticks}, not {ticks + 1}\n"
    assert broker.poll() is None


def test_nothing_is_signalled_where_nothing_runs(
    interpreter: list[str], broker: subprocess.Popen[bytes]
) -> None:
    ticks = ticks_of(broker)
    broker.kill()
    broker.wait()
    done = run(interpreter, KEEPER.kill(signal.SIGKILL, broker.pid, ticks))
    assert (done.returncode, done.stderr) == (1, f"process {broker.pid} has ended\n")
    done = run(interpreter, KEEPER.kill(signal.SIGKILL, 1, 0))
    assert done.returncode == 4
    assert "PID 1, which SIGKILL does not reach" in done.stderr


def test_the_jvm_is_found_with_its_state_and_its_scripts_are_not(
    interpreter: list[str], broker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Looked at one process at a time: other brokers may run on this machine."""
    command = ["sh", "-c", "read line", "mqbroker", MAIN_CLASS]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as script:  # ends with its input
        folder = tmp_path / "proc"
        folder.mkdir()
        for process in (broker, script):
            (folder / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        argv = [word.replace("/proc/[0-9]*", f"{folder}/[0-9]*") for word in KEEPER.status()]
        broker.send_signal(signal.SIGSTOP)
        wait_until(lambda: state(broker) == "T", "a stopped process")
        found = KEEPER.read_status(run(interpreter, argv).stdout.encode())
    assert found.child is not None
    assert (found.child.pid, found.child.ticks) == (broker.pid, ticks_of(broker))
    assert found.child.state == "T"


def state(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_hold_is_seen_until_it_is_released(
    interpreter: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hold"
    monkeypatch.setattr(shell, "HOLD_FILE", str(file))
    for by in ("u0001", "somebody else"):
        assert run(interpreter, KEEPER.hold(by)).returncode == 0
    assert file.read_text() == "u0001\n"
    assert run(interpreter, KEEPER.status()).stdout.startswith("held\n")
    for _ in range(2):
        assert run(interpreter, KEEPER.release()).returncode == 0
    assert not file.exists()
    assert run(interpreter, KEEPER.status()).stdout.startswith("free\n")


@pytest.mark.few(2, 2)
@pytest.mark.parametrize("fault", ["stop", "hold"])
def test_what_a_harness_left_ends_by_itself_once_it_renews_no_more(
    interpreter: list[str],
    broker: subprocess.Popen[bytes],
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold = tmp_path / "hold"
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / str(broker.pid)).symlink_to(f"/proc/{broker.pid}")
    monkeypatch.setattr(shell, "HOLD_FILE", str(hold))
    monkeypatch.setattr(shell, "LIMIT_SECONDS", 4)

    def here(argv: list[str]) -> list[str]:
        """Among this test's processes alone; others may look like brokers too."""
        known = [word.replace("for process in /proc/", f"for process in {proc}/") for word in argv]
        return [word.replace("process#/proc/", f"process#{proc}/") for word in known]

    def is_left() -> bool:
        return state(broker) == "T" if fault == "stop" else hold.exists()

    argv = KEEPER.hold("u1")
    if fault == "stop":
        argv = KEEPER.kill(signal.SIGSTOP, broker.pid, ticks_of(broker))
    done = run(interpreter, here(argv))
    assert done.returncode == 0, done.stderr
    wait_until(is_left, "the fault")
    for _ in range(3):
        time.sleep(2)
        assert run(interpreter, here(KEEPER.renew())).returncode == 0
        assert is_left(), "it is renewed"
    wait_until(lambda: not is_left(), "its end")
    assert not hold.exists()


def test_a_start_waits_for_the_release(interpreter: list[str], tmp_path: Path) -> None:
    hold, started = tmp_path / "hold", tmp_path / "started"
    hold.touch()
    command = [*interpreter, "-c", WHEN_RELEASED, str(hold), "touch", str(started)]
    with subprocess.Popen(command) as start:
        with pytest.raises(subprocess.TimeoutExpired):
            start.wait(1.5)
        assert not started.exists()
        hold.unlink()
        assert start.wait(60) == 0
    assert started.exists()
