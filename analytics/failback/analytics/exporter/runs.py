"""Run folders as metrics: runs that go on, faults that are open, what reports found.

Folders are only read. A run goes on while the process that its lock names lives. A fault is active
from its line in the undo ledger until the line that says that it healed.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from prometheus_client.core import HistogramMetricFamily, Metric

from failback.analytics.exporter import families as own
from failback.analytics.exporter.figures import Figures
from failback.analytics.run.run_lock import is_held
from failback.protocol.metric_families import MAX_SERIES, OTHER, Family

logger = logging.getLogger(__name__)

_NO_FAULT: Final = "stop-workload"
_PHASE_EDGES: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_REPORT_EDGES: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
Document = Mapping[str, Any]
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


class RunWatch:
    """Looks at all run folders below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._reports: dict[Path, int] = {}
        """Report to its time of change in ns when it was read."""
        self._verdicts: dict[str, tuple[str, str, str]] = {}
        self._counters = Figures()
        self._phases = Histogram(own.PHASE_SECONDS, _PHASE_EDGES)
        self._stages = Histogram(own.REPORT_SECONDS, _REPORT_EDGES)
        self._counted: set[str] = set()

    def collect(self) -> Iterator[Metric]:
        """Read what has changed and return all families."""
        now = Figures()
        for lock in sorted(self._root.rglob("lock")):
            if (lock.parent / "run.json").exists() and is_held(lock.parent):
                run = _document(lock.parent / "run.json")
                target = _document(lock.parent / "target.json")
                labels = (run.get("run"), run.get("experiment"), target.get("cluster", ""))
                now.set(own.RUN_ACTIVE, labels, 1)
        for ledger in sorted(self._root.rglob("undo.jsonl")):
            run = _document(ledger.parent / "run.json")
            name = str(run.get("run") or ledger.parent.name)
            for fault, victim in sorted(open_faults(ledger)):
                now.set(own.FAULT_ACTIVE, (fault, victim, name), 1)
        for report in sorted(self._root.rglob("report/report.json")):
            self._read(report)
        for run_id, labels in list(self._verdicts.items())[-MAX_SERIES:]:
            now.set(own.RUN_VERDICT, (run_id, *labels), 1)
        yield from now.families()
        yield from self._counters.families()
        yield self._phases.family()
        yield self._stages.family()

    def _read(self, path: Path) -> None:
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            return
        if self._reports.get(path) == changed:
            return
        self._reports[path] = changed
        report = _document(path)
        run = str(report.get("run", ""))
        try:
            verdict = (report.get("verdict") or {}).get("value")
            counts, times = list(_counts(report, _cluster_of(path))), list(_times(report))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            logger.warning("%s is no report that can be counted: %r", path, error)
            return
        if not run or not verdict:
            return
        labels = (str(report.get("experiment") or ""), str(report.get("arm") or ""), str(verdict))
        self._verdicts.pop(run, None)
        self._verdicts[run] = labels
        if run in self._counted:
            return  # the same run reported once more
        self._counted.add(run)
        for family, names, value in counts:
            self._counters.set(family, names, value)
        for family, names, value in times:
            histogram = self._phases if family is own.PHASE_SECONDS else self._stages
            histogram.observe(names, value)


def _counts(report: Document, cluster: str) -> Iterator[Sample]:
    """What is counted of a report. Raises what a wrong shape raises."""
    brokers: dict[tuple[str, str], set[str]] = {}
    for queue in report.get("queues") or ():
        brokers.setdefault((queue["group"], queue["topic"]), set()).add(queue["broker"])
    for each in report.get("groups") or ():
        group, topic = str(each["group"]), str(each["topic"])
        names = brokers.get((group, topic), set())
        broker = next(iter(names)) if len(names) == 1 else OTHER
        for cause, messages in (each.get("report_groups") or {}).items():
            yield own.RECONSUMED, (cluster, group, topic, broker, cause), float(messages)
        place = (cluster, group, topic)
        yield own.DELIVERED, place, float(each.get("delivered") or 0)
        yield own.WASTED, place, float(each.get("wasted_seconds") or 0)


def _times(report: Document) -> Iterator[Sample]:
    """The durations of a report. Raises what a wrong shape raises."""
    for each in report.get("rto") or ():
        broker, phases = str(each.get("broker") or OTHER), each.get("phases") or {}
        kill = phases.get("kill")
        for name, instant in phases.items():
            if name != "kill" and None not in (kill, instant) and instant >= kill:
                yield own.PHASE_SECONDS, (broker, name), (instant - kill) / 1e9
    engine = str(report.get("engine", ""))
    for stage, seconds in (report.get("timings") or {}).items():
        if isinstance(seconds, int | float):
            yield own.REPORT_SECONDS, (engine, stage), float(seconds)


def open_faults(ledger: Path) -> set[tuple[str, str]]:
    """Return fault and victim of all entries that nobody saw healed; a torn line is no line."""
    found: dict[str, tuple[str, str]] = {}
    try:
        lines = ledger.read_bytes().splitlines(keepends=True)
    except OSError:
        return set()
    for line in lines:
        try:
            record = json.loads(line) if line.endswith(b"\n") else {}
        except ValueError:
            continue
        if not isinstance(record, dict) or "id" not in record:
            continue
        if "call" in record and record["call"] != _NO_FAULT:
            found[record["id"]] = (str(record.get("fid", "")), victim_of(record))
        elif "healed" in record:
            found.pop(record["id"], None)
    return set(found.values())


def victim_of(record: Document) -> str:
    """What an entry of the ledger acts on, in one word."""
    arguments = record.get("args") or {}
    for name in ("pod", "member", "group", "pid"):
        if name in arguments:
            return str(arguments[name])
    return str(record["call"])


def _cluster_of(report: Path) -> str:
    return str(_document(report.parent.parent / "target.json").get("cluster", ""))


def _document(path: Path) -> Document:
    try:
        content = json.loads(path.read_bytes() or b"{}")
    except (OSError, ValueError) as error:
        logger.debug("%s: %s", path, error)
        return {}
    return content if isinstance(content, dict) else {}
