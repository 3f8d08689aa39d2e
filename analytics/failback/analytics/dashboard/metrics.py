"""What the dashboard counts of itself."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class DashboardMetrics:
    """One registry; served on a port of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "failback_dashboard_requests",
            "Answers by method and status.",
            ["method", "code"],
            registry=self.registry,
        )

    def answered(self, method: str, code: int) -> None:
        known = method if method in {"GET", "HEAD", "POST", "OPTIONS"} else "other"
        self._requests.labels(known, str(code)).inc()

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(name, text, registry=self.registry).set_function(value)
