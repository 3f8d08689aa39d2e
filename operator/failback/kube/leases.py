"""The Lease object: its fields, and when it has run out. Pure but for the wall clock's stamp."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from failback.kube.resources import Object


def stamp() -> str:
    """Return the time of now as a Lease spells it."""
    return _stamp_of(time.time())


def _stamp_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


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
        seen = _renewal(spec)
        if seen != self.seen:
            self.seen, self.since = seen, now
        return now - self.since > float(spec.get("leaseDurationSeconds") or default_seconds)


SKEW_SECONDS: Final = 600.0
"""By more than this no two clocks differ: an older renewal is one of a holder that is gone."""


class SeenLeases:
    """Leases whose renewals have the time of this machine: its clock is compared with no other.

    One that is seen for the first time counts as renewed now. So none has run out before this
    process has watched it for as long as it lasts.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[tuple[Any, ...], float]] = {}

    def of_own_clock(self, found: Object) -> Object:
        """Return the Lease with a ``renewTime`` of when this renewal was seen first."""
        spec, metadata = found.get("spec") or {}, found["metadata"]
        renewed = _seconds(spec.get("renewTime"))
        now = self._clock()
        if renewed is None or now - renewed > SKEW_SECONDS:
            return found
        key, state = (metadata.get("namespace", ""), metadata["name"]), _renewal(spec)
        known = self._seen.get(key)
        if known is None or known[0] != state:
            known = self._seen[key] = (state, now)
        return {**found, "spec": {**spec, "renewTime": _stamp_of(known[1])}}


def has_run_out(spec: Mapping[str, Any], now: float, default_seconds: float = 0.0) -> bool:
    """Tell whether a Lease ended by its own times, at ``now`` in Unix seconds of one clock.

    Give it one that :class:`SeenLeases` returned: times of another machine's clock say nothing.
    """
    renewed = _seconds(spec.get("renewTime"))
    lasts = float(spec.get("leaseDurationSeconds") or default_seconds)
    return renewed is None or now - renewed > lasts


def _renewal(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(spec.get(key) for key in ("holderIdentity", "renewTime"))


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text or "")).timestamp()
    except ValueError:
        return None
