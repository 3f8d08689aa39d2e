"""Processes of this host, identified by pid and start ticks, signals by pidfd.

A pid alone can be re-used between a look and a signal. ``pidfd_open`` names the process that has
the pid now; its start ticks are compared after that, so a signal goes to the meant one or nowhere.
"""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import ProcessState, SignalReceipt
from failback.chaos.errors import TargetError

_TICKS_FIELD = 19  # starttime, counted from the state field that follows the command's ")"


def read_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; ``None`` when there is no such pid."""
    fields = _stat_fields(pid)
    return int(fields[_TICKS_FIELD]) if fields else None


def state_of(pid: int, ticks: int) -> ProcessState:
    """State of one process identity: a zombie counts as gone, another process as replaced."""
    fields = _stat_fields(pid)
    if fields is None:
        return ProcessState.GONE
    if int(fields[_TICKS_FIELD]) != ticks:
        return ProcessState.REPLACED
    match fields[0]:
        case "Z" | "X" | "x":
            return ProcessState.GONE
        case "T" | "t":
            return ProcessState.STOPPED
        case _:
            return ProcessState.RUNNING


def alive(pid: int, ticks: int) -> bool:
    return state_of(pid, ticks) in (ProcessState.RUNNING, ProcessState.STOPPED)


def send_signal(pid: int, ticks: int, signum: int) -> SignalReceipt:
    """Send ``signum`` to exactly this process.

    Raises:
        TargetError: It is gone or the pid belongs to another process now; nothing was sent.
    """
    name = signal.Signals(signum).name
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        raise TargetError(f"{name} to pid {pid}", f"no such process: {error}") from error
    try:
        found = state_of(pid, ticks)
        if found in (ProcessState.GONE, ProcessState.REPLACED):
            raise TargetError(
                f"{name} to pid {pid}",
                f"the chosen process is {found.value}",
                {"pid": pid, "ticks": ticks, "found_ticks": read_ticks(pid)},
            )
        issued = now()
        try:
            signal.pidfd_send_signal(descriptor, signum)
        except OSError as error:
            raise TargetError(f"{name} to pid {pid}", str(error)) from error
        return SignalReceipt(signum, issued, now())
    finally:
        os.close(descriptor)


def await_exit(pid: int, ticks: int, timeout: float) -> bool:
    """Wait until this process is dead, as the kernel says it; false when the time is over."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        if not alive(pid, ticks):
            return True
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(int(timeout * 1000)))
    finally:
        os.close(descriptor)


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name may hold blanks and brackets: fields count from the last one.
    return text[text.rindex(")") + 2 :].split()
