"""The Lease of a pair, which keeps every other operator from working on it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from failback.operator.planning.plan.encoding import from_time
from failback.operator.planning.plan.types import ReleaseLease, TakeLease
from failback.operator.planning.state.cluster_state import ClusterState

LEASE_SECONDS: Final = 60
RENEW_SECONDS: Final = 15


@dataclass(frozen=True, slots=True)
class PairLease:
    """A pair's Lease, as an operation that wants to hold it sees it."""

    name: str
    holder: str
    """The operation that asks."""
    spec: Mapping[str, Any]
    """Empty when there is no such Lease."""
    now: float

    @classmethod
    def of(cls, state: ClusterState, pair: int, holder: str) -> PairLease:
        """Return the Lease of a pair."""
        name = f"failback-{state.cluster.name}-{pair}"
        return cls(name, holder, (state.observed.leases.get(name) or {}).get("spec", {}), state.now)

    @property
    def is_ours(self) -> bool:
        """The operation that asks holds it."""
        return bool(self.spec.get("holderIdentity") == self.holder)

    @property
    def is_taken(self) -> bool:
        """Another one holds it, and it has not expired."""
        holder = self.spec.get("holderIdentity")
        if not holder or holder == self.holder:
            return False
        return self._age < float(self.spec.get("leaseDurationSeconds", LEASE_SECONDS))

    @property
    def is_due(self) -> bool:
        """It can be taken, or must be renewed."""
        return not self.is_taken and (not self.is_ours or self._age >= RENEW_SECONDS)

    @property
    def _age(self) -> float:
        renewed = from_time(self.spec.get("renewTime"))
        return float("inf") if renewed is None else max(0.0, self.now - renewed)

    def take(self) -> TakeLease:
        """Return the action that takes or renews it."""
        return TakeLease(self.name, self.holder, LEASE_SECONDS)

    def release(self) -> ReleaseLease:
        """Return the action that lets it go."""
        return ReleaseLease(self.name, self.holder)
