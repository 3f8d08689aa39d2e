"""What the dashboard counts of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from failback.protocol.metric_families import Family

REQUESTS: Final = Family(
    "failback_dashboard_requests_total",
    "counter",
    ("method", "code"),
    "Answers by method and status.",
)
READERS: Final = Family("failback_dashboard_readers", "gauge", (), "Open event streams.")
LOOKS: Final = Family("failback_dashboard_looks_total", "counter", (), "Samples of the clusters.")
LOOK_SECONDS: Final = Family(
    "failback_dashboard_look_seconds", "gauge", (), "How long the last sample of the clusters took."
)
FAMILIES: Final = (REQUESTS, READERS, LOOKS, LOOK_SECONDS)


class DashboardMetrics(Collector):
    """One registry; served on a port of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            REQUESTS.name, REQUESTS.text, REQUESTS.labels, registry=self.registry
        )
        self._watched: list[tuple[Family, Callable[[], float]]] = []
        self.registry.register(self)

    def answered(self, method: str, code: int) -> None:
        known = method if method in {"GET", "HEAD", "POST", "OPTIONS"} else "other"
        self._requests.labels(known, str(code)).inc()

    def watch(self, family: Family, value: Callable[[], float]) -> None:
        """Show what ``value`` returns at each scrape."""
        self._watched.append((family, value))

    def collect(self) -> Iterator[Metric]:
        """Return what is watched."""
        for family, value in self._watched:
            counter = family.kind == "counter"
            make = CounterMetricFamily if counter else GaugeMetricFamily
            metric = make(family.name, family.text, labels=family.labels)
            metric.add_metric((), value())
            yield metric
