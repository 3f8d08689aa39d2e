"""Errors of the chaos harness and the exit codes that they become.

Divided by the one that must act, as everywhere: ``ConfigError`` (of failback.protocol) is the
user's, ``GuardRefused`` says the cluster must not be touched, ``TargetError`` that it could not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from failback.protocol.errors import FailbackError


class ExitCode(IntEnum):
    """What a process of ours returns."""

    PASS = 0
    FAIL = 1
    BAD_INPUT = 2
    INCONCLUSIVE = 3
    GUARD_REFUSED = 4
    NOT_HEALED = 5
    LOG_FULL = 74


class ChaosError(FailbackError):
    """Base of the harness's own errors."""


class TargetError(ChaosError):
    """The target could not do, or could not prove, what was asked."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why


class NotProved(ChaosError):
    """A fault was injected, and it is not proved that it did what was asked."""


class GuardRefused(ChaosError):
    """A guard says no: nothing was injected."""

    def __init__(self, guard: str, why: str) -> None:
        super().__init__(f"{guard}: {why}")
        self.guard = guard
        self.why = why


class NotHealed(ChaosError):
    """Something that the harness did is still in place; ``left`` names it."""

    def __init__(self, left: Sequence[str], command: str) -> None:
        super().__init__(f"not healed: {', '.join(left)}; run: {command}")
        self.left = tuple(left)
        self.command = command


class Aborted(ChaosError):
    """The run must stop: abort flag, Ctrl-C, SIGTERM or its time limit."""


class RunFolderError(ChaosError):
    """The run folder cannot be used: someone holds it, or it cannot be written."""
