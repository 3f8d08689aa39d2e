"""What the collector counts, under the names that its alerts and dashboards use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from failback.protocol.metric_families import Family

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LABELLED_RUNS: Final = 200
OTHER: Final = "other"

SEGMENTS: Final = Family(
    "failback_ingest_segments_total", "counter", ("code",), "Segments stored (201) or known (200)."
)
BYTES: Final = Family("failback_ingest_bytes_total", "counter", ("code",), "Bytes of their bodies.")
REJECTED: Final = Family(
    "failback_ingest_rejected_total", "counter", ("code",), "Uploads refused, by code."
)
GAPS: Final = Family(
    "failback_log_gaps_total",
    "counter",
    ("run",),
    "Holes that closing a run found, each counted once per close.",
)
COMMIT_SECONDS: Final = Family(
    "failback_ingest_commit_seconds", "histogram", (), "Time from a whole body to its answer."
)
EXPIRED: Final = Family(
    "failback_ingest_expired_runs_total", "counter", (), "Runs deleted by retention."
)
BACKLOG: Final = Family(
    "failback_shipper_backlog_bytes",
    "gauge",
    ("run",),
    "Hot log bytes that shippers had not sent when they were last heard of.",
)
QUEUE: Final = Family("failback_ingest_queue_bytes", "gauge", (), "Bodies held in memory.")
UPLOADS: Final = Family("failback_ingest_uploads", "gauge", (), "Uploads under way.")
STORED_BYTES: Final = Family(
    "failback_ingest_stored_bytes", "gauge", (), "Bytes of the files in the lake."
)
FREE: Final = Family("failback_ingest_free_bytes", "gauge", (), "Free space below the lake.")
FAMILIES: Final = tuple(each for each in globals().values() if isinstance(each, Family))


class CollectorMetrics:
    """All metrics of one collector, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.segments = self._counter(SEGMENTS)
        self.bytes = self._counter(BYTES)
        self.rejected = self._counter(REJECTED)
        self.gaps = self._counter(GAPS)
        self.commit_seconds = Histogram(
            COMMIT_SECONDS.name, COMMIT_SECONDS.text, registry=self.registry, buckets=_SECONDS
        )
        self.expired_runs = self._counter(EXPIRED)
        self._runs: set[str] = set()

    def _counter(self, family: Family) -> Counter:
        return Counter(family.name, family.text, family.labels, registry=self.registry)

    def watch(self, family: Family, value: Callable[[], float]) -> None:
        """Show what ``value`` returns at each scrape."""
        Gauge(family.name, family.text, registry=self.registry).set_function(value)

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
        family = GaugeMetricFamily(BACKLOG.name, BACKLOG.text, labels=BACKLOG.labels)
        sums: dict[str, int] = {}
        for run, count in self._backlogs().items():
            label = self._metrics.run_label(run)
            sums[label] = sums.get(label, 0) + count
        for label, count in sums.items():
            family.add_metric([label], count)
        yield family
