"""The Lease object: its fields, and when it has run out. Pure but for the wall clock's stamp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from failback.kube.resources import Object


def stamp() -> str:
    """Return the time of now as a Lease spells it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def held_by(holder: str, seconds: int) -> Object:
    """Return the fields of a Lease that a holder takes or renews now."""
    return {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": stamp()}


def lease(name: str, namespace: str, spec: Mapping[str, Any], **metadata: Any) -> Object:
    """Return a Lease object; ``metadata`` is what it has beside its name."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": dict(spec),
    }


def holder_of(found: Mapping[str, Any] | None) -> str:
    """Return the holder of a Lease; empty = it is free, or there is none."""
    return str((found or {}).get("spec", {}).get("holderIdentity") or "")


def has_run_out(spec: Mapping[str, Any], default_seconds: float = 0.0) -> bool:
    """Whether a Lease has ended by its own times and this machine's clock."""
    try:
        renewed = datetime.fromisoformat(str(spec.get("renewTime") or ""))
    except ValueError:
        return True
    age = (datetime.now(UTC) - renewed).total_seconds()
    return age > float(spec.get("leaseDurationSeconds") or default_seconds)


@dataclass(slots=True)
class LeaseView:
    """A Lease as it was seen last, and since when; the clocks of two machines are not compared."""

    seen: tuple[Any, ...] = ()
    since: float = 0.0

    def has_run_out(self, spec: Mapping[str, Any], now: float, default_seconds: float) -> bool:
        """Tell whether the Lease was not renewed for as long as it lasts.

        Args:
            now: Seconds of a clock that does not jump.
        """
        seen = tuple(spec.get(key) for key in ("holderIdentity", "renewTime"))
        if seen != self.seen:
            self.seen, self.since = seen, now
        return now - self.since > float(spec.get("leaseDurationSeconds") or default_seconds)
