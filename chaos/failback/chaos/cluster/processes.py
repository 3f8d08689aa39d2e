"""Processes of this host, identified by pid and start ticks, signals by pidfd.

A pid alone can be re-used between a look and a signal: a signal goes to the meant one or nowhere.
"""

from __future__ import annotations

import os
import select
import signal

from failback.chaos.cluster.view import ProcessState, SignalReceipt, Stamp
from failback.chaos.errors import TargetError
from failback.init.processes import DEAD_STATES, Gone, Identity, identity_of, send
from failback.init.processes import state_of as letter_of


def read_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; ``None`` when there is no such pid."""
    found = identity_of(pid)
    return found.ticks if found is not None else None


def state_of(pid: int, ticks: int) -> ProcessState:
    """State of one process identity: a zombie counts as gone, another process as replaced."""
    found = identity_of(pid)
    if found is not None and found.ticks != ticks:
        return ProcessState.REPLACED
    letter = letter_of(Identity(pid, ticks))
    if letter in (None, *DEAD_STATES):
        return ProcessState.GONE
    return ProcessState.STOPPED if letter in ("T", "t") else ProcessState.RUNNING


def alive(pid: int, ticks: int) -> bool:
    return state_of(pid, ticks) in (ProcessState.RUNNING, ProcessState.STOPPED)


def send_signal(pid: int, ticks: int, signum: int) -> SignalReceipt:
    """Send ``signum`` to exactly this process.

    Raises:
        TargetError: It is gone or the pid belongs to another process now; nothing was sent.
    """
    what = f"{signal.Signals(signum).name} to pid {pid}"
    try:
        issued, returned = send(Identity(pid, ticks), signum)
    except Gone:
        if read_ticks(pid) is None:
            raise TargetError(what, "no such process") from None
        found = state_of(pid, ticks).value
        raise TargetError(what, f"the chosen process is {found}") from None
    except OSError as error:
        raise TargetError(what, str(error)) from error
    return SignalReceipt(signum, Stamp(*issued), Stamp(*returned))


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
