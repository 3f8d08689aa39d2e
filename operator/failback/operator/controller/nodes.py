"""Which nodes take no new pods: what tells of a drain before it reaches a pod.

Asked only about nodes of masters and slaves whose cluster has ``failover.onDrain``, each at most
once in five seconds for all clusters. The right to get nodes is optional in the chart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError

_SECONDS: Final = 5.0
_REFUSED_SECONDS: Final = 60.0
_FORBIDDEN: Final = 403
_TAINTS: Final = frozenset(
    {"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"}
)
"""Taints of Cluster Autoscaler, and of Karpenter since 1.0 and before."""


class Nodes:
    """One for the whole process."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._clock = kube, clock
        self._known: dict[str, tuple[float, str]] = {}
        """Node → when it was asked for, and why it takes no new pods."""
        self._refused_at: float | None = None

    def leaving(self, names: Collection[str]) -> Mapping[str, str] | None:
        """Return, of these nodes, which take no new pods, and why; ``None`` = may not be read."""
        if self._refused_at is not None:
            return None
        known = {name: self._known[name][1] for name in names if name in self._known}
        return {name: why for name, why in known.items() if why}

    async def refresh(self, names: Collection[str]) -> bool:
        """Ask for those that are due; tell whether anything turned out new.

        Raises:
            ApiError: Another refusal than that of the right.
        """
        now, before = self._clock(), self.leaving(names)
        if self._refused_at is not None and now - self._refused_at < _REFUSED_SECONDS:
            return False
        for name in names:
            asked_at, why = self._known.get(name, (-_SECONDS, ""))
            if now - asked_at < _SECONDS:
                continue
            self._known[name] = (now, why)
            try:
                found = await self._kube.get("Node", "", name)
            except ApiError as error:
                if error.code != _FORBIDDEN:
                    raise
                self._refused_at = now
                break
            self._known[name] = (now, _why(name, found or {}))
            self._refused_at = None
        return before != self.leaving(names)


def _why(name: str, node: Mapping[str, Any]) -> str:
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return f"node {name} is unschedulable"
    keys = sorted({taint.get("key") for taint in spec.get("taints") or ()} & _TAINTS)
    return f"node {name} has the taint {keys[0]}" if keys else ""
