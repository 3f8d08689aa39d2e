"""What a fault injector needs of a running cluster, on every platform.

Methods block, take a deadline where they wait, and return evidence or raise ``TargetError``. None
of them chooses a victim: :func:`failback.chaos.faults.victims.choose` does, from a view.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from failback.chaos.cluster.link import Cut
from failback.chaos.cluster.view import (
    ClusterView,
    DeathRecord,
    Member,
    ProcessIdentity,
    ProcessState,
    SignalReceipt,
)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock, in seconds."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    def left(self) -> float:
        return max(0.0, self.at - time.monotonic())

    def over(self) -> bool:
        return time.monotonic() >= self.at


@dataclass(frozen=True, slots=True)
class FileStat:
    """A store file: size, modification time and content hash."""

    bytes: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Injection:
    """What is about to be injected, for the guards. ``seconds`` is how long its effect lasts."""

    fault: str
    seconds: float = 0.0
    others_in_effect: bool = False
    """Another fault of the run is not healed yet, so the cluster is not what it should be."""
    consent: frozenset[str] = frozenset()


class Target(Protocol):
    """One running cluster, as a fault injector needs it."""

    @property
    def kind(self) -> Literal["local", "kubernetes"]: ...

    def view(self) -> ClusterView:
        """Pairs, members and name servers at one instant, roles as the brokers say."""

    def identity(self, member: Member) -> ProcessIdentity:
        """The process of this member now. Raises ``TargetError`` when it has none."""

    def signal(self, victim: ProcessIdentity, signum: int) -> SignalReceipt:
        """Send a signal to exactly this process, or raise ``TargetError`` and send none."""

    def process_state(self, victim: ProcessIdentity) -> ProcessState:
        """State from the kernel, not from what we did to it."""

    def await_gone(self, victim: ProcessIdentity, deadline: Deadline) -> DeathRecord:
        """Wait for the death of this process; return how it died."""

    def deaths(self, since: int) -> Sequence[tuple[int, str, DeathRecord]]:
        """All deaths with number > ``since``: ``(number, pod, record)``."""

    def hold(self, member: Member, undo: str) -> None:
        """Keep this member down once it is dead, until released; survives the harness."""

    def release(self, member: Member) -> None:
        """Take the hold away; safe to repeat."""

    def start(self, member: Member) -> None:
        """Start a stopped member; safe to repeat."""

    def pod_state(self, pod: str) -> str:
        """The platform's own word for the state of a pod."""

    def read_store(self, member: Member, path: str) -> bytes:
        """A file below the store's root. Raises ``FileNotFoundError``."""

    def stat_store(self, member: Member, path: str) -> FileStat | None:
        """Size, time and hash of a store file, ``None`` when it is not there."""

    def refuse_unsafe(self, injection: Injection) -> None:
        """Raise ``GuardRefused`` when the platform says that this must not be done now."""

    def close(self) -> None:
        """Let go of sockets; the cluster stays as it is."""


@runtime_checkable
class LinkCutter(Protocol):
    """A target's ``network``: hits packets of a broker or name server, named by its address."""

    def cut(self, address: str, cut: Cut) -> None:
        """Put the rules of a cut in force; they end by themselves when this process is gone.

        Raises:
            TargetError: They were not put in force.
        """

    def join(self, address: str, link: str) -> None:
        """Take the rules of a link away; safe to repeat."""

    def resent(self, address: str) -> int:
        """Segments of TCP that its kernel has sent again so far: what lost packets bring about."""


@runtime_checkable
class NameServers(Protocol):
    """A target whose name servers can be hit as well."""

    def nameserver_pods(self) -> tuple[Member, ...]:
        """Each name server of the cluster, for what takes a member; its role means nothing."""


@runtime_checkable
class FaultSetter(Protocol):
    """A target that can change what is around a broker's process: its clock, its disk."""

    def possible_faults(self, member: Member) -> frozenset[str]:
        """What can be changed at this member now."""

    def set_fault(self, member: Member, fault: str, value: Mapping[str, Any]) -> None:
        """Change it. It ends by itself unless this target lives on.

        Raises:
            TargetError: It could not be changed.
        """

    def end_faults(self, member: Member) -> None:
        """Make it what it was; safe to repeat."""


@runtime_checkable
class VersionChanger(Protocol):
    """A target that can have a broker start as another version of its engine."""

    def set_version(self, member: Member, version: str) -> None:
        """Run this version from the next start on, on the same store.

        Raises:
            TargetError: There is no such version here. The broker stays what it was.
        """


@runtime_checkable
class RoleSwitcher(Target, Protocol):
    """A target whose platform can switch the roles of a pair."""

    def switch_roles(self, name: str, member: Member, offset_policy: str) -> None:
        """Ask for a switch of this name, after which the member is master.

        Raises:
            TargetError: It is refused.
        """

    def switch_phase(self, name: str) -> str:
        """How far a switch is, in the platform's words; empty: there is none."""


@runtime_checkable
class StoreWriter(Protocol):
    """A target that can also change what a broker finds when it starts."""

    def write_store(self, member: Member, path: str, data: bytes | None) -> None:
        """Put a file below the store's root, whole or not at all; ``None`` removes it.

        Raises:
            TargetError: The broker is not held down: it would write over it, or half read it.
        """
