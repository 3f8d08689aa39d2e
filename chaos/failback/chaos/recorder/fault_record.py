"""One injected fault: what was intended, issued and observed, and whether it is proved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from failback.chaos.cluster.view import Member, ProcessIdentity, Stamp


@dataclass(slots=True)
class FaultRecord:
    """Everything known of one injected fault. Filled in by injector and witness as it happens."""

    fid: str
    fault: str
    rule: str
    seed: int
    victim: Member | None = None
    identity: ProcessIdentity | None = None
    victims: list[dict[str, Any]] = field(default_factory=list)
    intended_ns: int = 0
    issued: tuple[Stamp, Stamp] | None = None
    signum: int | None = None
    resumed: Stamp | None = None
    observed: dict[str, Any] = field(default_factory=dict)
    proof: dict[str, Any] = field(default_factory=dict)
    proved: bool | None = None
    why: str = ""
    undo: str = ""
    down_seconds: float | None = None
    called_off: bool = False
    registered_at: set[str] = field(default_factory=set)
    served_base: dict[tuple[str, str, int], int] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)

    @property
    def is_broker_fault(self) -> bool:
        return self.victim is not None

    @property
    def in_effect(self) -> bool:
        return self.issued is not None and "healed_ns" not in self.observed

    @property
    def in_window(self) -> bool:
        """About to be injected, or not yet seen healed: everybody looks closely."""
        return not self.called_off and "healed_ns" not in self.observed

    def settle(self) -> None:
        """Every step up to the effect was looked at: it is proved unless one was doubted."""
        if self.proved is None:
            self.proved = True

    def add_unproved_reason(self, why: str) -> None:
        """A step is missing or contradicts: the fault is not proved."""
        self.proved = False
        self.why = f"{self.why}; {why}" if self.why else why


def reference(identity: ProcessIdentity | None) -> str | None:
    """Return how rows name a process: pod, pid and start time."""
    return f"{identity.pod}/{identity.pid}/{identity.ticks}" if identity else None
