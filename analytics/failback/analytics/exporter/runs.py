"""Run folders as metrics: running runs, open faults, figures of reports.

Folders are only read. A run goes on while the process that its lock names lives. A fault is active
from its line in the undo ledger until the line that says that it healed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from prometheus_client.core import Metric

from failback.analytics.exporter import families as own
from failback.analytics.exporter.figures import Figures
from failback.analytics.exporter.report_figures import ReportFigures
from failback.analytics.observe.folder import is_observed
from failback.analytics.run.run_lock import is_held
from failback.common.files import read_file, read_object

logger = logging.getLogger(__name__)

_NO_FAULT: Final = "stop-workload"
Document = Mapping[str, Any]


class RunWatch:
    """Looks at all run folders below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._reports: dict[Path, int] = {}
        """Report to its time of change in ns when it was read."""
        self._found = ReportFigures()

    def collect(self) -> Iterator[Metric]:
        """Read what has changed and return all families."""
        now = Figures()
        for lock in sorted(self._root.rglob("lock")):
            if (lock.parent / "run.json").exists() and is_held(lock.parent):
                run = _document(lock.parent / "run.json")
                if is_observed(run):
                    continue  # nothing is done to a cluster there: no alert is to keep calm
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
        yield from now.families()
        yield from self._found.families()

    def _read(self, path: Path) -> None:
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            return
        if self._reports.get(path) == changed:
            return
        self._reports[path] = changed
        report = _document(path)
        try:
            self._found.add(report)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            logger.warning("%s is no report that can be counted: %r", path, error)


def open_faults(ledger: Path) -> set[tuple[str, str]]:
    """Return fault and victim of all entries that are not healed. A torn line is left out."""
    found: dict[str, tuple[str, str]] = {}
    try:
        lines = read_file(ledger).splitlines(keepends=True)
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
    """Return the target of an entry of the ledger, in one word."""
    arguments = record.get("args") or {}
    for name in ("pod", "member", "group", "pid"):
        if name in arguments:
            return str(arguments[name])
    return str(record["call"])


def _document(path: Path) -> Document:
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        logger.debug("%s: %s", path, error)
        return {}
