"""Starts brokers by forking a process that has everything imported: ready in some 50 ms.

A test that kills hundreds of brokers would otherwise spend its time importing. The child is a real
process of its own, running the same ``main``; it is killed by a real signal.

Run as ``python -m tests.faults.store.fork_server``. It reads ``conf<TAB>log`` lines, answers ``pid
N``, and says ``dead N STATUS`` for each that ended. It ends, with its children, when its input
does.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Thread

from failback.broker.__main__ import main as broker_main
from tests.support.common.polling import SCALE
from tests.support.processes.child_process import ROOT, failback_environment


def serve() -> None:
    import uvloop  # noqa: F401 - what a child would import first

    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    children: set[int] = set()
    rest = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 64)
            _reap(children)
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                conf, _, log = line.decode().partition("\t")
                children.add(_fork(conf, log, woken, wake))
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def _reap(children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        children.discard(pid)
        _say(f"dead {pid} {os.waitstatus_to_exitcode(status)}")


def _fork(conf: str, log: str, woken: int, wake: int) -> int:
    pid = os.fork()
    if pid:
        _say(f"pid {pid}")
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(woken)
        os.close(wake)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        code = broker_main(["-c", conf])
    finally:
        sys.stdout.flush()
        os._exit(code)


class ForkServer:
    """Use as a context; :meth:`start` brokers, :meth:`kill` them, :meth:`wait` for their end."""

    def __enter__(self) -> ForkServer:
        environment = {**os.environ, **failback_environment()}
        environment["PYTHONPATH"] += f":{ROOT}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.store.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=ROOT,
        )
        self._pids: list[int] = []
        self._dead: dict[int, int] = {}
        self._told = Condition()
        self._ended = False
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30 * SCALE)
        self._reader.join(30 * SCALE)
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, *numbers = line.split()
            with self._told:
                if what == b"pid":
                    self._pids.append(int(numbers[0]))
                else:
                    self._dead[int(numbers[0])] = int(numbers[1])
                self._told.notify_all()
        with self._told:
            self._ended = True
            self._told.notify_all()

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        with self._told:
            found = self._told.wait_for(lambda: self._ended or condition(), 60 * SCALE)
            assert found, f"not within {60 * SCALE:g} s: {what}"
            assert condition(), f"the fork server ended before: {what}"

    def start(self, conf: Path, log: Path) -> int:
        """Start a broker; return its pid."""
        assert self._process.stdin is not None
        count = len(self._pids)
        self._process.stdin.write(f"{conf}\t{log}\n".encode())
        self._process.stdin.flush()
        self._await(lambda: len(self._pids) > count, "a broker is forked")
        return self._pids[-1]

    def is_dead(self, pid: int) -> bool:
        return pid in self._dead

    def wait(self, pid: int) -> int:
        """Wait for the end of ``pid``; return its exit code, negative for a signal."""
        self._await(lambda: pid in self._dead, f"pid {pid} has ended")
        return self._dead[pid]

    def end(self, pid: int, number: int) -> int:
        """Send a signal and wait; one that ended by itself is an error."""
        assert not self.is_dead(pid), f"pid {pid} ended by itself with {self._dead.get(pid)}"
        os.kill(pid, number)
        return self.wait(pid)


if __name__ == "__main__":
    serve()
