"""What a cluster is at one instant, and what identifies a process. Pure values.

Every time in this package is a pair ``(wall_ns, mono_ns)`` of the harness host: see :class:`Stamp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Literal, NamedTuple

MASTER: Final = "master"
SLAVE: Final = "slave"
Role = Literal["master", "slave"]

LIMIT_SECONDS: Final = 120
"""How long a hold or a stop of a broker lasts where the harness does not renew it."""


class Stamp(NamedTuple):
    """One instant on both clocks of the harness host, in nanoseconds."""

    wall_ns: int
    mono_ns: int


class ProcessState(Enum):
    """State of one process identity, as the kernel shows it."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    GONE = "GONE"
    REPLACED = "REPLACED"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, never equal for two: a pid alone is re-used, a pid with its start ticks is not.

    ``boot_ms`` is the broker's own bootTimestamp (code 28), ``None`` for a process that is no
    broker or did not answer. On Kubernetes a pid counts inside its container, so ``container``
    names that container's incarnation and ``uid`` the pod's; both are empty elsewhere.
    """

    pod: str
    pid: int
    ticks: int
    boot_ms: int | None = None
    container: str = ""
    uid: str = ""

    def same(self, other: ProcessIdentity) -> bool:
        """Whether both name one process. What it answered about itself does not count."""
        return replace(self, boot_ms=None) == replace(other, boot_ms=None)


@dataclass(frozen=True, slots=True)
class Member:
    """One broker of a pair. ``broker_id`` and ``role`` are what the broker itself answered."""

    pair: str
    ordinal: int
    pod: str
    broker_name: str
    broker_id: int
    role: Role
    address: str
    running: bool
    identity: ProcessIdentity | None = None
    store: str = ""
    """Root of its store, a path that the harness can read; empty when it cannot."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A master with its slaves."""

    name: str
    broker_name: str
    members: tuple[Member, ...]

    def member(self, role: Role) -> Member | None:
        return next((member for member in self.members if member.role == role), None)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One instant of a cluster: pairs, name servers, and what contradicts."""

    cluster: str
    namespace: str
    engine: str
    nameservers: tuple[str, ...]
    pairs: tuple[Pair, ...]
    conflicts: tuple[str, ...] = ()
    """Sentences about two masters, or brokers and name servers that disagree."""
    access: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Settings by which a guarded cluster is asked, by the names of their options."""
    images: dict[str, str] = field(default_factory=dict, hash=False)
    """Pod → its broker's image with the digest that runs; empty where there are no images."""

    def pair(self, name: str) -> Pair | None:
        """Find a pair by its broker name."""
        return next((each for each in self.pairs if each.broker_name == name), None)

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(member for pair in self.pairs for member in pair.members)


@dataclass(frozen=True, slots=True)
class SignalReceipt:
    """A signal was handed to the kernel for exactly one process."""

    signum: int
    issued: Stamp
    returned: Stamp


@dataclass(frozen=True, slots=True)
class DeathRecord:
    """How a process ended, from its parent's wait status.

    ``signal`` is ``None`` for an exit, ``code`` is ``None`` for a death by signal. ``doubt`` says
    why it may have died of something else than what it was sent; empty when nothing says so.
    """

    pid: int
    ticks: int
    signal: int | None
    code: int | None
    seen: Stamp
    doubt: str = ""
