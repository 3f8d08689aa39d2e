"""Processes as the kernel knows them: identity, state, and a signal that reaches no other one."""

from __future__ import annotations

import os
import signal
import time
from typing import Final, NamedTuple

_STATE, _START_TICKS = 0, 19  # fields 3 and 22 of /proc/PID/stat, counted from the third
DEAD_STATES: Final = ("Z", "X", "x")


class Identity(NamedTuple):
    """A process: its pid, and its start in clock ticks since boot. Never equal for two."""

    pid: int
    ticks: int


class Stamp(NamedTuple):
    """One instant on both clocks of the host."""

    wall_ns: int
    mono_ns: int

    @classmethod
    def now(cls) -> Stamp:
        return cls(time.time_ns(), time.monotonic_ns())


class Gone(Exception):
    """The process has ended; its pid may belong to another one."""


def identity_of(pid: int) -> Identity | None:
    """Return the identity of a process, a zombie's too, or ``None``."""
    fields = _stat(pid)
    return None if fields is None else Identity(pid, int(fields[_START_TICKS]))


def state_of(process: Identity) -> str | None:
    """Return the kernel's letter (``R S D T Z``) for exactly this process, or ``None``."""
    fields = _stat(process.pid)
    if fields is None or int(fields[_START_TICKS]) != process.ticks:
        return None
    return fields[_STATE]


def pid_namespace() -> str:
    """Name the PID namespace that our pids are of."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def boot_id() -> str:
    """Return the machine's boot id; empty where it can't be read."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def process_space() -> str:
    """Name the machine's life and the PID namespace within which an :class:`Identity` means one."""
    return f"{boot_id()}/{pid_namespace()}"


def send(process: Identity, signum: int) -> tuple[Stamp, Stamp]:
    """Signal exactly this process; return the instants before and after the call.

    The descriptor pins the process, and its start time is read after it was opened. So a pid that
    was given to another process in between is found out.

    Raises:
        Gone: It has ended, also if only its zombie is left.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        raise Gone from None
    try:
        if state_of(process) in (None, *DEAD_STATES):
            raise Gone
        issued = Stamp.now()
        signal.pidfd_send_signal(descriptor, signum)
        return issued, Stamp.now()
    except ProcessLookupError:
        raise Gone from None
    finally:
        os.close(descriptor)


def children_of(pid: int) -> list[int]:
    """Return the children of a single-threaded process, zombies included."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _stat(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` from the third (the state) on."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
