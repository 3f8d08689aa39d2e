"""Child processes, identified so that no signal ever reaches another one.

A pid alone is re-used; a pid with its start time (ticks, field 22 of ``/proc/PID/stat``) is not. A
child starts behind a gate: it waits for a line before it becomes the pod's command. That line is
sent after its identity is on disk. So a runtime killed at any instant leaves no process that
``failback down`` cannot find.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_GATE: Final = 'read -r go || exit 127; exec "$@" </dev/null'
_START_TICKS_FIELD: Final = 22
_ZOMBIE_STATES: Final = ("Z", "X")


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, never equal for two."""

    pid: int
    ticks: int

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """Return the identity of a live process, or ``None``."""
        fields = _stat(pid)
        if fields is None or fields[0] in _ZOMBIE_STATES:
            return None
        return cls(pid, int(fields[_START_TICKS_FIELD - 3]))

    def alive(self) -> bool:
        """Tell whether this very process still runs (stopped counts, zombie does not)."""
        return Identity.of(self.pid) == self


@dataclass(frozen=True, slots=True)
class Death:
    """How a child ended: its wait status, and when its parent saw it, on both clocks."""

    identity: Identity
    wstatus: int
    wall_ns: int
    mono_ns: int

    @property
    def text(self) -> str:
        """``signal 9`` or ``exit code 3``."""
        code = os.waitstatus_to_exitcode(self.wstatus)
        return f"signal {-code}" if code < 0 else f"exit code {code}"


class Child:
    """One process of ours, in a process group and session of its own."""

    def __init__(self, process: subprocess.Popen[bytes], identity: Identity) -> None:
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._death: Death | None = None
        self.identity = identity

    @classmethod
    def spawn(
        cls, argv: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> Child:
        """Start ``argv`` behind the gate; its output is appended to ``log``."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _GATE, "sh", *argv],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        identity = Identity.of(process.pid)
        if identity is None:  # it was killed within these microseconds
            identity = Identity(process.pid, 0)
        return cls(process, identity)

    def open_gate(self) -> None:
        """Let the child become its command. Call it when its identity is recorded."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def signal(self, signum: int) -> None:
        """Send a signal to the child's group. Does nothing once it is gone."""
        if self._death is None:  # not reaped, so its pid and group are still its own
            with suppress(ProcessLookupError):
                os.killpg(self.identity.pid, signum)

    async def wait(self) -> Death:
        """Return how the child ended. What is left of its group is killed."""
        if self._death is None:
            await _readable(self._pidfd)
        if self._death is None:  # it was not reaped while we waited
            self._death = self._reap()
        return self._death

    def _reap(self) -> Death:
        """Take the wait status of a child that has ended, and end the rest of its group."""
        wall_ns, mono_ns = time.time_ns(), time.monotonic_ns()
        self.signal(signal.SIGKILL)  # still a zombie, so the group's number is still its own
        _, status = os.waitpid(self.identity.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        os.close(self._pidfd)
        return Death(self.identity, status, wall_ns, mono_ns)

    async def terminate(self, grace_seconds: float) -> Death:
        """SIGTERM, then SIGKILL when ``grace_seconds`` are over."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                return await self.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await self.wait()


def end_stranger(identity: Identity, grace_seconds: float) -> str:
    """End a process that is not our child (its runtime was killed); say how it went."""
    if not identity.alive():
        return "was gone already"
    descriptor = os.pidfd_open(identity.pid)
    try:
        if not identity.alive():  # the descriptor may be of a successor of that pid
            return "was gone already"
        with suppress(ProcessLookupError):
            os.killpg(identity.pid, signal.SIGTERM)
            os.killpg(identity.pid, signal.SIGCONT)  # a frozen one could not obey
        if _gone_within(identity, grace_seconds):
            how = "stopped"
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            how = "killed" if _gone_within(identity, 10.0) else "does not die"
        return how
    finally:
        os.close(descriptor)


def _gone_within(identity: Identity, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while identity.alive():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _stat(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` from the third on (the state)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    # Several tasks may wait for one child: each watches a descriptor of its own.
    own = os.dup(descriptor)
    loop.add_reader(own, wake)
    try:
        await ready
    finally:
        loop.remove_reader(own)
        os.close(own)
