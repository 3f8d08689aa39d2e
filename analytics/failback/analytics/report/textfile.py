"""Figures of reports for Prometheus: a file for node_exporter's textfile collector. Pure.

Names and labels are those of the live metrics, as far as a report can know them; a report counts
one run, so its counters stand for that run. Samples of a run also carry ``run``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from failback.analytics.analysis.causes.labels import REPORT_GROUPS

Report = Mapping[str, Any]

MAX_SERIES: Final = 200
"""Groups x topics of a report with names of their own; what is beyond them is ``other``."""
OTHER: Final = "other"
PHASE_BUCKETS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
STAGE_BUCKETS: Final = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_SOURCES: Final = {"RESTART": "restart", "OVERWRITE": "slave_sync"}
_PLACE: Final = ["cluster", "run", "consumer_group", "topic"]


def render_textfile(reports: Sequence[Report]) -> bytes:
    """The samples of all reports in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Samples(reports))
    return generate_latest(registry)


class _Samples(Collector):
    def __init__(self, reports: Sequence[Report]) -> None:
        self._reports = reports

    def collect(self) -> Iterable[Metric]:
        yield self._reconsumed()
        yield self._wasted()
        yield from self._regressions()
        yield self._divergence()
        yield self._exposure()
        yield self._phases()
        yield self._verdicts()
        yield self._stages()

    def _named(self) -> Iterator[tuple[str, Report, Mapping[tuple[str, str], tuple[str, str]]]]:
        for report in self._reports:
            cluster = report["system"].get("cluster") or ""
            yield str(cluster), report, _budget(report)

    def _reconsumed(self) -> Metric:
        family = CounterMetricFamily(
            "rocketmq_reconsumed_messages",
            "Messages delivered again, by why.",
            labels=[*_PLACE, "broker", "cause"],
        )
        for cluster, report, names in self._named():
            found: Counter[tuple[str, ...]] = Counter()
            for queue in report["queues"]:
                known = names[queue["group"], queue["topic"]]
                counts = queue.get("report_groups") or {}
                for cause in REPORT_GROUPS:
                    found[(*known, queue["broker"], cause)] += counts.get(cause, 0)
            for labels, count in sorted(found.items()):
                family.add_metric([cluster, report["run"], *labels], count)
        return family

    def _wasted(self) -> Metric:
        family = CounterMetricFamily(
            "rocketmq_reconsume_wasted_seconds",
            "Seconds of handlers spent on messages that had been handled before.",
            labels=_PLACE,
        )
        for cluster, report, _ in self._named():
            shown = sorted(report["groups"], key=lambda each: -each["wasted_seconds"])
            rest = 0.0
            for number, group in enumerate(shown):
                if number < MAX_SERIES:
                    labels = [cluster, report["run"], group["group"], group["topic"]]
                    family.add_metric(labels, group["wasted_seconds"])
                else:
                    rest += group["wasted_seconds"]
            if len(shown) > MAX_SERIES:
                family.add_metric([cluster, report["run"], OTHER, OTHER], round(rest, 6))
        return family

    def _regressions(self) -> Iterator[Metric]:
        labels = ["cluster", "run", "broker", "node_role", "consumer_group", "topic", "source"]
        times: Counter[tuple[str, ...]] = Counter()
        messages: Counter[tuple[str, ...]] = Counter()
        for cluster, report, names in self._named():
            for drop in report["offset_drops"]:
                if drop["source"] != "code43":
                    continue  # the file shows the same drop a second time
                role = "master" if drop["bid"] == 0 else "slave"
                known = names.get((drop["group"], drop["topic"]), (OTHER, OTHER))
                source = _SOURCES.get(drop["label"], "client_commit")
                if role == "master" and source == "slave_sync":
                    source = "client_commit"  # nobody copies into a master
                key = (cluster, report["run"], drop.get("broker", ""), role, *known, source)
                times[key] += 1
                messages[key] += drop["from"] - drop["to"]
        for name, text, counts in (
            ("rocketmq_offset_regressions", "Times a stored offset went down.", times),
            ("rocketmq_offset_regression_messages", "By how much they went down.", messages),
        ):
            family = CounterMetricFamily(name, text, labels=labels)
            for labelled, count in sorted(counts.items()):
                family.add_metric(list(labelled), count)
            yield family

    def _divergence(self) -> Metric:
        family = GaugeMetricFamily(
            "rocketmq_slave_offset_divergence_messages",
            "How far the offset tables of master and slave lay apart at the end of the run.",
            labels=["cluster", "run", "broker", "consumer_group", "direction"],
        )
        for cluster, report, names in self._named():
            found: Counter[tuple[str, str, str]] = Counter()
            for queue in report["queues"]:
                master, slave = queue["master_offset"], queue["slave_offset"]
                if master is None or slave is None:
                    continue
                group = names[queue["group"], queue["topic"]][0]
                found[queue["broker"], group, "slave_ahead"] += max(0, slave - master)
                found[queue["broker"], group, "master_ahead"] += max(0, master - slave)
            for key, count in sorted(found.items()):
                family.add_metric([cluster, report["run"], *key], count)
        return family

    def _exposure(self) -> Metric:
        family = GaugeMetricFamily(
            "rocketmq_reconsume_exposure_messages",
            "Most that a kill of the master would have repeated at any second of the run.",
            labels=["cluster", "run", "broker", "consumer_group"],
        )
        for cluster, report, _ in self._named():
            for group, row in sorted(report["exposure"].items())[:MAX_SERIES]:
                if row["max"] is not None:
                    family.add_metric(
                        [cluster, report["run"], row.get("broker") or "", group], row["max"]
                    )
        return family

    def _phases(self) -> Metric:
        family = HistogramMetricFamily(
            "rocketmq_failover_phase_seconds",
            "Seconds from the loss of a master to each phase of recovery.",
            labels=["cluster", "run", "broker", "phase"],
        )
        for cluster, report, _ in self._named():
            found: dict[tuple[str, str], list[float]] = {}
            for row in report["rto"]:
                start = row["phases"].get("kill")
                for phase, at in row["phases"].items():
                    if at is not None and start is not None and phase != "kill":
                        key = (row["broker"] or "", phase)
                        found.setdefault(key, []).append((at - start) / 1e9)
            for (broker, phase), values in sorted(found.items()):
                family.add_metric(
                    [cluster, report["run"], broker, phase],
                    buckets=_buckets(values, PHASE_BUCKETS),
                    sum_value=sum(values),
                )
        return family

    def _verdicts(self) -> Metric:
        family = GaugeMetricFamily(
            "failback_run_verdict",
            "1 for what the report concluded.",
            labels=["experiment", "arm", "verdict", "run"],
        )
        for report in self._reports:
            family.add_metric(
                [
                    report["experiment"] or "",
                    report["arm"] or "",
                    report["verdict"]["value"],
                    report["run"],
                ],
                1,
            )
        return family

    def _stages(self) -> Metric:
        family = HistogramMetricFamily(
            "failback_report_seconds", "Seconds per stage of a report.", labels=["engine", "stage"]
        )
        found: dict[tuple[str, str], list[float]] = {}
        for report in self._reports:
            for stage, value in report["timings"].items():
                found.setdefault((report["engine"], stage), []).append(value)
        for key, values in sorted(found.items()):
            family.add_metric(
                list(key), buckets=_buckets(values, STAGE_BUCKETS), sum_value=sum(values)
            )
        return family


def _budget(report: Report) -> dict[tuple[str, str], tuple[str, str]]:
    """The labels of each (group, topic): its own names for those with most duplicates."""
    counts: Counter[tuple[str, str]] = Counter()
    for queue in report["queues"]:
        counts[queue["group"], queue["topic"]] += queue["dup"]
    ordered = sorted(counts, key=lambda key: (-counts[key], key))
    return {
        key: key if number < MAX_SERIES else (OTHER, OTHER) for number, key in enumerate(ordered)
    }


def _buckets(values: Sequence[float], edges: Sequence[float]) -> list[tuple[str, float]]:
    found = [(str(edge), float(sum(value <= edge for value in values))) for edge in edges]
    return [*found, ("+Inf", float(len(values)))]
