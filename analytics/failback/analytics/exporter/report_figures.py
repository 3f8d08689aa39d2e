"""The figures of reports as metrics: of many for the exporter, of each for a textfile. No clock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from prometheus_client import generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from failback.analytics.exporter import families as own
from failback.analytics.exporter.figures import Figures
from failback.analytics.exporter.pair_history import Budget
from failback.common.replacing import replace_file
from failback.protocol.metric_families import MAX_SERIES, OTHER, Family

_PHASE_EDGES: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_REPORT_EDGES: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
Report = Mapping[str, Any]
Sample = tuple[Family, tuple[str, ...], float]


class Histogram:
    """Observed seconds by labels."""

    def __init__(self, family: Family, edges: tuple[float, ...]) -> None:
        self._family = family
        self._edges = edges
        self._rows: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def observe(self, labels: tuple[str, ...], seconds: float) -> None:
        """Count one duration."""
        counts, total = self._rows.setdefault(labels, ([0] * (len(self._edges) + 1), [0.0]))
        counts[bisect_left(self._edges, seconds)] += 1
        total[0] += seconds

    def family(self) -> Metric:
        """Return what Prometheus scrapes."""
        metric = HistogramMetricFamily(
            self._family.name, self._family.text, labels=self._family.labels
        )
        for labels, (counts, total) in self._rows.items():
            seen, buckets = 0, list[tuple[str, float]]()
            for edge, count in zip((*map(str, self._edges), "+Inf"), counts, strict=True):
                seen += count
                buckets.append((edge, seen))
            metric.add_metric(labels, buckets, total[0])
        return metric


class ReportFigures:
    """Counters and durations of all reports that were added, and the verdict of each."""

    def __init__(self) -> None:
        self._verdicts: dict[str, tuple[str, str, str]] = {}
        self._counters = Figures()
        self._budget = Budget()
        self._phases = Histogram(own.PHASE_SECONDS, _PHASE_EDGES)
        self._stages = Histogram(own.REPORT_SECONDS, _REPORT_EDGES)
        self._counted: set[str] = set()

    def add(self, report: Report) -> None:
        """Count a report as a whole. Of a run that was counted before only the verdict is taken.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: It has another shape.
        """
        run, verdict = str(report.get("run", "")), (report.get("verdict") or {}).get("value")
        counts, times = list(_counts(report, self._budget)), list(_times(report))
        if not run or not verdict:
            return
        labels = (str(report.get("experiment") or ""), str(report.get("arm") or ""), str(verdict))
        self._verdicts.pop(run, None)
        self._verdicts[run] = labels
        if run in self._counted:
            return
        self._counted.add(run)
        for family, names, value in counts:
            self._counters.set(family, names, value)
        for family, names, value in times:
            histogram = self._phases if family is own.PHASE_SECONDS else self._stages
            histogram.observe(names, value)

    def families(self) -> Iterator[Metric]:
        """Return what Prometheus scrapes; of the verdicts the last ones."""
        verdicts = Figures()
        for run, labels in list(self._verdicts.items())[-MAX_SERIES:]:
            verdicts.set(own.RUN_VERDICT, (run, *labels), 1)
        yield from verdicts.families()
        yield from self._counters.families()
        yield self._phases.family()
        yield self._stages.family()


class _EachReport(Collector):
    """The families of each report. Each sample has the run's id, so files of several runs agree."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for report in self._reports:
            figures = ReportFigures()
            figures.add(report)
            for metric in figures.families():
                kept = found.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                for each in metric.samples:
                    kept.samples.append(
                        each._replace(labels={**each.labels, "run": str(report["run"])})
                    )
        yield from found.values()


def write_textfile(path: Path, reports: Sequence[Report]) -> None:
    """Write the figures of reports for node_exporter's textfile collector: whole or not at all."""
    replace_file(path, generate_latest(_EachReport(reports)))


def _cluster_of(report: Report) -> str:
    return str((report.get("system") or {}).get("cluster") or "")


def _counts(report: Report, budget: Budget) -> Iterator[Sample]:
    """Return the counts of a report. Raises what a wrong shape raises."""
    cluster = _cluster_of(report)
    brokers: dict[tuple[str, str], set[str]] = {}
    for queue in report.get("queues") or ():
        brokers.setdefault((queue["group"], queue["topic"]), set()).add(queue["broker"])
    for each in report.get("groups") or ():
        names = brokers.get((each["group"], each["topic"]), set())
        named = (str(each["topic"]), str(each["group"]))
        topic, group = budget.place("report", cluster, named)
        broker = next(iter(names)) if len(names) == 1 else OTHER
        for cause, messages in (each.get("report_groups") or {}).items():
            yield own.RECONSUMED, (cluster, group, topic, broker, cause), float(messages)
        place = (cluster, group, topic)
        yield own.DELIVERED, place, float(each.get("delivered") or 0)
        yield own.WASTED, place, float(each.get("wasted_seconds") or 0)


def _times(report: Report) -> Iterator[Sample]:
    """Return the durations of a report. Raises what a wrong shape raises."""
    cluster = _cluster_of(report)
    for each in report.get("rto") or ():
        broker, phases = str(each.get("broker") or OTHER), each.get("phases") or {}
        kill = phases.get("kill")
        for name, instant in phases.items():
            if name != "kill" and None not in (kill, instant) and instant >= kill:
                yield own.PHASE_SECONDS, (cluster, broker, name), (instant - kill) / 1e9
    engine = str(report.get("engine", ""))
    for stage, seconds in (report.get("timings") or {}).items():
        if isinstance(seconds, int | float):
            yield own.REPORT_SECONDS, (engine, stage), float(seconds)
