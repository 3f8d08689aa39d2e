"""What is found and done inside a broker's container, under every init. Pure.

A keeper is the words to run in the container and the way to read their answers. Our own containers
have ``failback-init`` (:mod:`~failback.chaos.targets.kube.init`). Apache's images have a shell, and
the script that starts their broker heeds the same hold file
(:mod:`~failback.chaos.targets.kube.shell`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from failback.chaos.cluster.view import DeathRecord, ProcessState, Stamp

_DEAD_STATES: Final = "ZXx"
_STOPPED_STATES: Final = "Tt"


@dataclass(frozen=True, slots=True)
class Child:
    """The broker's process, by pids of its container; ``state`` is the kernel's letter."""

    pid: int
    ticks: int
    state: str

    @property
    def process_state(self) -> ProcessState:
        if self.state in _DEAD_STATES:
            return ProcessState.GONE
        return ProcessState.STOPPED if self.state in _STOPPED_STATES else ProcessState.RUNNING


@dataclass(frozen=True, slots=True)
class Death:
    """A death as it was recorded inside, on the node's clocks."""

    pid: int
    ticks: int
    signal: int | None
    code: int | None
    stamp: Stamp
    sent: bool
    """Whether the sender of the signal that it died of is known."""


@dataclass(frozen=True, slots=True)
class Inside:
    """One look into a container."""

    child: Child | None
    held: bool
    deaths: tuple[Death, ...] = ()


class Keeper(Protocol):
    """How one kind of container is asked. Commands end with 0, else they say why on stderr."""

    @property
    def engine(self) -> str:
        """What runs in such containers, as ``spec.engine.type`` names it."""

    @property
    def keeps_deaths(self) -> bool:
        """Whether deaths are recorded inside; else only the container's end tells of them."""

    def status(self) -> Sequence[str]: ...

    def read_status(self, answer: bytes) -> Inside:
        """Read what ``status`` printed. ``ValueError`` when it is no answer."""

    def kill(self, signum: int, pid: int, ticks: int) -> Sequence[str]:
        """Signal exactly this process, or none.

        The last words on stderr before the kernel takes it are :func:`announcement`.
        """

    def read_receipt(self, answer: bytes) -> tuple[Stamp, Stamp] | None:
        """Instants before and after the kernel took a signal, on the node's clocks; ``None`` where
        no probe measures them. ``ValueError`` when ``kill`` printed something else."""

    def hold(self, by: str) -> Sequence[str]:
        """Keep the broker down from its next end on. Safe to repeat."""

    def renew(self) -> Sequence[str]:
        """Let a hold and a stop last as long as a new one from now; empty where none ends by
        itself."""

    def release(self) -> Sequence[str]:
        """Let it start again. Safe to repeat."""


def announcement(signum: int, pid: int, ticks: int) -> str:
    """Return how a ``kill`` ends its line on stderr once nothing is left but the signal itself."""
    return f"signal {signum} to {pid}:{ticks}"


def to_harness(stamp: Stamp, at: Stamp, *, same_host: bool) -> Stamp:
    """Express an instant of a node on the harness's clocks.

    On one host they are the same. Elsewhere the wall clocks stand for each other, and an instant
    never lies after ``at``, when it was heard of.
    """
    if same_host:
        return stamp
    age = max(0, at.wall_ns - stamp.wall_ns)
    return Stamp(at.wall_ns - age, at.mono_ns - age)


def death_record(death: Death, seen: Stamp) -> DeathRecord:
    """A death for the proof. A signal that the init was not asked for came from another sender."""
    doubt = ""
    if death.signal is not None and not death.sent:
        doubt = f"nobody asked the init for signal {death.signal}: out of memory, or another sender"
    return DeathRecord(death.pid, death.ticks, death.signal, death.code, seen, doubt)
