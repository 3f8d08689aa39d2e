"""One injected fault: what was intended, issued and observed, and when each milestone was seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from failback.chaos.cluster.view import Member, ProcessIdentity, Stamp
from failback.chaos.errors import Aborted


@dataclass(slots=True)
class FaultRecord:
    """Everything known of one injected fault. Filled in by injector and witness as it happens."""

    fid: str
    fault: str
    rule: str
    seed: int
    victim: Member | None = None
    identity: ProcessIdentity | None = None
    others: tuple[ProcessIdentity, ...] = ()
    """Processes that it ends and that are no brokers."""
    restarted: frozenset[str] = frozenset()
    """Pods whose processes the platform ends and starts while it is in effect."""
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
    heals_itself: bool = False
    """Its own module proves the heal; what witnesses see of the broker does not."""
    called_off: bool = False
    keeps_process: bool = False
    """The victim runs on, or goes on: no other process takes its place."""
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
    def effect(self) -> Stamp | None:
        """When its effect was seen."""
        found: Stamp | None = self.observed.get("gone_ns") or self.observed.get("effect_ns")
        return found

    @property
    def in_window(self) -> bool:
        """About to be injected, or not yet seen healed: everybody looks closely."""
        return not self.called_off and "healed_ns" not in self.observed

    def hits(self, pod: str, pid: int, ticks: int) -> bool:
        """Whether the end of this process is, or may be, what the fault brought about."""
        hit = (*self.others, *([self.identity] if self.identity else ()))
        is_hit = any((each.pod, each.pid, each.ticks) == (pod, pid, ticks) for each in hit)
        ends = self.signum is not None or not self.keeps_process
        return (is_hit and self.issued is not None and ends) or (
            self.in_effect and pod in self.restarted
        )

    def settle(self) -> None:
        """Every step up to the effect was looked at: it is proved unless one was doubted."""
        if self.effect is None and not self.why:
            self.add_unproved_reason("its effect was not seen at any time")
        if self.proved is None:
            self.proved = True

    def add_unproved_reason(self, why: str) -> None:
        """A step is missing or contradicts: the fault is not proved."""
        self.proved = False
        self.why = f"{self.why}; {why}" if self.why else why


def reference(identity: ProcessIdentity | None) -> str | None:
    """Return how rows name a process: pod, pid and start time."""
    return f"{identity.pod}/{identity.pid}/{identity.ticks}" if identity else None


HEALED = "healed"
SLAVE_SYNCED = "slave-synced"  # one of catalogue.MILESTONES


class Milestones:
    """First observation of every ``(fid, milestone)``; later ones are ignored."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._seen: dict[tuple[str, str], Stamp] = {}

    def post(self, fid: str, milestone: str, stamp: Stamp) -> bool:
        """Record an observation; false when this milestone was already reached."""
        with self._condition:
            if (fid, milestone) in self._seen:
                return False
            self._seen[fid, milestone] = stamp
            self._condition.notify_all()
            return True

    def get(self, fid: str, milestone: str) -> Stamp | None:
        with self._condition:
            return self._seen.get((fid, milestone))

    def wait(
        self, fid: str, milestone: str, deadline: float, stopped: Callable[[], str] = lambda: ""
    ) -> Stamp | None:
        """Wait until the monotonic ``deadline`` in seconds; ``None`` when it passed.

        Raises:
            Aborted: ``stopped`` gave a reason; it is asked four times a second.
        """
        with self._condition:
            while (fid, milestone) not in self._seen:
                reason = stopped()
                if reason:
                    raise Aborted(reason)
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._condition.wait(min(left, 0.25))
            return self._seen[fid, milestone]
