"""What the collector counts, under the names that its alerts and dashboards use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LABELLED_RUNS: Final = 200
OTHER: Final = "other"


class CollectorMetrics:
    """All metrics of one collector, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter: dict[str, Any] = {"registry": self.registry, "labelnames": ("code",)}
        self.segments = Counter(
            "failback_ingest_segments", "Segments stored (201) or known (200).", **counter
        )
        self.bytes = Counter("failback_ingest_bytes", "Bytes of their bodies.", **counter)
        self.rejected = Counter("failback_ingest_rejected", "Uploads refused, by code.", **counter)
        self.gaps = Counter(
            "failback_log_gaps",
            "Holes that closing a run found, each counted once per close.",
            registry=self.registry,
            labelnames=("run",),
        )
        self.commit_seconds = Histogram(
            "failback_ingest_commit_seconds",
            "Time from a whole body to its answer.",
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.expired_runs = Counter(
            "failback_ingest_expired_runs", "Runs deleted by retention.", registry=self.registry
        )
        self._runs: set[str] = set()

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show what ``value`` returns at each scrape."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def watch_backlog(self, backlogs: Callable[[], dict[str, int]]) -> None:
        """Show the shippers' backlogs by run."""
        self.registry.register(_Backlog(self, backlogs))

    def run_label(self, run: str) -> str:
        """The run, or ``other`` once there are too many of them for a label."""
        if run not in self._runs and len(self._runs) >= _LABELLED_RUNS:
            return OTHER
        self._runs.add(run)
        return run

    def answered(self, code: int, size: int) -> None:
        """Count one upload."""
        if code in {200, 201}:
            self.segments.labels(str(code)).inc()
            self.bytes.labels(str(code)).inc(size)
        else:
            self.rejected.labels(str(code)).inc()


class _Backlog(Collector):
    def __init__(self, metrics: CollectorMetrics, backlogs: Callable[[], dict[str, int]]) -> None:
        self._metrics = metrics
        self._backlogs = backlogs

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "failback_shipper_backlog_bytes",
            "Hot log bytes that shippers had not sent when they were last heard of.",
            labels=["run"],
        )
        sums: dict[str, int] = {}
        for run, count in self._backlogs().items():
            label = self._metrics.run_label(run)
            sums[label] = sums.get(label, 0) + count
        for label, count in sums.items():
            family.add_metric([label], count)
        yield family
