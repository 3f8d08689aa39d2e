"""One child and its parent: what ``failback-init -- COMMAND`` does.

Signals are blocked and taken one after the other by ``sigwaitinfo``, so nothing here runs
asynchronously. As PID 1 the kernel hands us every orphan of the container and ends what is left
when we exit; outside a container (a test, a node runner) we ask for the same: we are the subreaper
of our descendants, kill those that are left when the child is gone, and the child dies with us.

The child waits behind a gate until its identity is in the run directory. So there is no instant at
which it runs and ``kill`` does not find it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

from failback.init.processes import Identity, Stamp, children_of, identity_of, pid_namespace
from failback.init.records import RunDirectory

FORWARDED: Final = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGQUIT,
    }
)
_AWAITED: Final = FORWARDED | {signal.SIGCHLD}
_HOLD_POLL_SECONDS: Final = 0.1
_PAUSE_POLL_SECONDS: Final = 0.5
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTOU)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGNAL_BASE: Final = 128


def run(command: Sequence[str], directory: RunDirectory) -> int:
    """Run ``command`` to its end; return the exit code for our own parent."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        return Supervisor(list(command), directory, mask).run()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Supervisor:
    """The parent of one child. The signals in ``_AWAITED`` are blocked while it runs."""

    def __init__(
        self, command: list[str], directory: RunDirectory, child_mask: set[int | signal.Signals]
    ) -> None:
        self._command = command
        self._child_mask = child_mask
        refusal = directory.claim()
        self._records = directory if refusal is None else None
        if refusal is not None:
            _say(f"no kill, hold or death records: {refusal}")
        self._is_stopped = False
        self._pid1 = os.getpid() == 1
        self._prctl = None if self._pid1 else _Prctl()

    def run(self) -> int:
        """Wait while held, start the child, and stay until it has ended."""
        if self._prctl is not None:
            self._prctl(_PR_SET_CHILD_SUBREAPER, 1)
        stopped_by = self._wait_while_held()
        if stopped_by is not None:
            return _SIGNAL_BASE + stopped_by
        pid, failed = self._start()
        if failed:
            os.waitpid(pid, 0)
            _say(f"{self._command[0]}: {os.strerror(failed)}")
            return _NOT_FOUND if failed in (errno.ENOENT, errno.ENOTDIR) else _NOT_EXECUTABLE
        wstatus = self._watch()
        self._end_the_rest()
        code = os.waitstatus_to_exitcode(wstatus)
        return code if code >= 0 else _SIGNAL_BASE - code

    # --- start -------------------------------------------------------------------------------

    def _wait_while_held(self) -> int | None:
        """Return at once when nothing holds; return a signal that ended the waiting."""
        if self._records is None or not self._records.held():
            return None
        _say(f"held by {self._records.hold_file}; the command starts when it is released")
        while self._records.held():
            info = signal.sigtimedwait(FORWARDED, _HOLD_POLL_SECONDS)
            if info is not None:
                return info.si_signo
        _say("released")
        return None

    def _start(self) -> tuple[int, int]:
        """Start the child; return its pid, and the errno of ``exec`` or 0."""
        gate_out, gate_in = os.pipe()
        error_out, error_in = os.pipe()
        init = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(gate_in)
            self._become_command(gate_out, error_in, init)
        os.close(gate_out)
        os.close(error_in)
        try:
            os.setpgid(pid, pid)
            if sys.stdin is not None and sys.stdin.isatty():
                _to_foreground(pid)
        except OSError:  # it is gone already; the loop will see how
            pass
        self._started = Stamp.now()
        # Until it is reaped, even a dead child has its line in /proc.
        self._child = identity_of(pid) or Identity(pid, 0)
        self._record_child()
        with contextlib.suppress(BrokenPipeError):  # a child that was killed at the gate
            os.write(gate_in, b"g")
        os.close(gate_in)
        with os.fdopen(error_out, "rb") as errors:  # ends when exec closes the child's end
            failed = errors.read()
        return pid, int(failed or b"0")

    def _become_command(self, gate: int, errors: int, init: int) -> None:
        """In the child: wait for the gate, then exec. Never returns."""
        try:
            if os.read(gate, 1) != b"g":
                os._exit(_NOT_FOUND)  # the init died before it could open the gate
            if self._prctl is not None:
                self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                # The kernel sends no signal for a parent that died before this call.
                if os.getppid() != init:
                    os._exit(_NOT_FOUND)
            for signum in _IGNORED_BY_PYTHON:
                signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._child_mask)
            os.execvp(self._command[0], self._command)
        except OSError as error:
            os.write(errors, str(error.errno).encode())
        finally:
            os._exit(_NOT_FOUND)

    def _record_child(self) -> None:
        ours = identity_of(os.getpid()) or Identity(os.getpid(), 0)
        record = {
            **self._child._asdict(),
            "started": self._started._asdict(),
            "init": ours._asdict(),
            "pid_namespace": pid_namespace(),
            "command": self._command,
        }
        self._note(lambda records: records.set_child(record))

    def _note(self, write: Callable[[RunDirectory], None]) -> None:
        """Write a record. A full or lost disk costs the record, never the child."""
        if self._records is None:
            return
        try:
            write(self._records)
        except OSError as error:
            _say(f"{self._records.path}: {error.strerror}; a record is lost")

    # --- life --------------------------------------------------------------------------------

    def _watch(self) -> int:
        """Forward and reap until the child has ended; return its wait status."""
        while True:
            seconds = _PAUSE_POLL_SECONDS if self._is_stopped else None
            info = _next_signal(seconds)
            if info is None:
                self._end_pause()
                continue
            if info.si_signo in FORWARDED:
                self._forward(info)
            wstatus = self._reap()
            if wstatus is not None:
                return wstatus

    def _forward(self, info: signal.struct_siginfo) -> None:
        """Pass a signal on to the child; it is our child and not reaped, so the pid is its own."""
        by = {"by": "forwarded", "from_pid": info.si_pid, "from_uid": info.si_uid}
        self._note(lambda records: records.signal_sent(self._child, info.si_signo, by))
        os.kill(self._child.pid, info.si_signo)

    def _end_pause(self) -> None:
        """Continue a child whose pause ends now: the process that stopped it may be gone."""
        try:
            is_over = self._records is not None and self._records.pause_is_over(self._child)
        except OSError as error:
            _say(f"pause: {error.strerror}")
            return
        if is_over:
            _say("the time of the stop is over: the command is continued")
            by = {"by": "failback-init: the stop's time was over"}
            self._note(lambda records: records.signal_sent(self._child, signal.SIGCONT, by))
            os.kill(self._child.pid, signal.SIGCONT)

    def _reap(self) -> int | None:
        """Take the status of all that changed; return the child's own if it has ended."""
        ended = None
        while True:
            try:
                pid, wstatus = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            if pid != self._child.pid:
                continue  # an orphan that came to us
            if self._changed(wstatus, Stamp.now()):
                ended = wstatus

    def _changed(self, wstatus: int, seen: Stamp) -> bool:
        """Keep what became of the child; tell whether it has ended."""
        if os.WIFSTOPPED(wstatus) or os.WIFCONTINUED(wstatus):
            self._is_stopped = os.WIFSTOPPED(wstatus)
            if not self._is_stopped:
                self._note(lambda records: records.end_pause())
            self._note(lambda records: records.stopped(self._child, wstatus, seen))
            return False
        self._note(
            lambda records: records.died(self._child, wstatus, self._started, seen, self._command)
        )
        return True

    def _end_the_rest(self) -> None:
        """Kill what the child left behind. For PID 1 the kernel does it."""
        if self._pid1:
            return
        while left := children_of(os.getpid()):
            for pid in left:
                os.kill(pid, signal.SIGKILL)  # not reaped, so the pid is still its own
            for pid in left:
                os.waitpid(pid, 0)  # its children come to us and are in the next round


def _next_signal(seconds: float | None) -> signal.struct_siginfo | None:
    """Wait for a signal of ours; ``None`` after ``seconds`` without one."""
    if seconds is None:
        return signal.sigwaitinfo(_AWAITED)
    return signal.sigtimedwait(_AWAITED, seconds)


class _Prctl:
    """``prctl(2)``, loaded where it is needed: inside a container it is not."""

    def __init__(self) -> None:
        import ctypes

        self._call = ctypes.CDLL(None, use_errno=True).prctl

    def __call__(self, option: int, value: int) -> None:
        self._call(option, value, 0, 0, 0)


def _to_foreground(group: int) -> None:
    """Give the terminal to the child's group, as a shell does for its jobs."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(sys.stdin.fileno(), group)


def _say(text: str) -> None:
    print(f"failback-init: {text}", file=sys.stderr, flush=True)
