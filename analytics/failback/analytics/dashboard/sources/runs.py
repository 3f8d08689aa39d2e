"""The run folders below the folder of runs: which there are, how each ended, its report."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.segment_ids import RUN_CHARS, RUN_PATTERN
from failback.analytics.lake.store import readable
from failback.analytics.observe.folder import is_observed
from failback.analytics.report.measures.point_rows import Point, points_of
from failback.analytics.report.outcome import NO_LIMIT, evidence_badge, outcome_badge
from failback.analytics.run.documents import OBSERVED, checked_run
from failback.analytics.run.run_lock import is_held
from failback.common.files import open_file, read_object
from failback.common.text import typed, where_and_why, why

logger = logging.getLogger(__name__)

DEEPEST: Final = 4
_SKIPPED: Final = frozenset({"roots", "lake", "hot", "snap", "logs", "report"})
_CACHED_REPORTS: Final = 8
UNREADABLE: Final = "unreadable"
_WRONG: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""Errors of reading a document of another program."""
Json = dict[str, Any]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One run folder. Figures are ``None`` until there is a report."""

    run: str
    experiment: str = ""
    arm: str = ""
    repetition: int = 0
    path: Path
    folder: str
    """Path below the folder of runs, with slashes."""
    state: str
    """``running``, ``closed``, ``reported``, ``orphaned`` or ``unreadable``: see ``sentence``."""
    started_ns: int
    engine: str = ""
    rules: str = ""
    source: str = ""
    """``observe`` or what else its rows are of; empty: an experiment's."""
    verdict: str | None = None
    evidence: str | None = None
    """``complete`` or ``incomplete``."""
    outcome: Json | None = None
    """``limit`` and ``met``, of the report."""
    sentence: str = ""
    delivered: int | None = None
    dup: int | None = None
    dup_span: str = ""
    """Of an observation, instead of ``dup``: ``212 to 291``, or ``not known yet``."""
    dup_ratio: float | None = None
    lost: int | None = None
    produce_rto_ms: float | None = None
    consume_rto_ms: float | None = None

    def document(self) -> Json:
        """For the API."""
        names = [name for name in self.__slots__ if name != "path"]
        return {name: getattr(self, name) for name in names} | {
            "started": rfc3339(self.started_ns),
            "next": self.next_step,
        }

    @property
    def is_observed(self) -> bool:
        return self.source == OBSERVED

    @property
    def next_step(self) -> str:
        """What to do next with it."""
        if self.is_observed:  # its report can be made at any time
            return typed("failback", "report", self.path)
        return {
            "running": typed("failback", "experiment", "abort", self.path),
            "orphaned": typed("failback", "experiment", "heal", self.path),
            "closed": typed("failback", "report", self.path),
            UNREADABLE: typed("failback", "report", self.path),
        }.get(self.state, typed("failback", "predict", self.path))


def rfc3339(ns: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Cache:
    """A few values by key, the least used dropped. Thread-safe; made without the lock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], _Value]) -> _Value:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                found: _Value = self._values[key]
                return found
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value


class RunIndex:
    """Finds runs by walking; a folder is read again when one of its documents changed."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._known: dict[Path, tuple[tuple[int, ...], RunEntry | None]] = {}
        """What was read of a folder at which times of change; ``None``: it is no run."""
        self._reports = Cache(_CACHED_REPORTS)
        self._points = Cache(_CACHED_REPORTS)

    def scan(self) -> list[RunEntry]:
        """All runs, the newest first. Blocks; for one thread at a time."""
        found: dict[str, RunEntry] = {}
        entries: list[RunEntry] = []
        known = {}
        for folder in sorted(_run_folders(self.runs)):
            entry = self._entry(folder)
            known[folder] = self._known[folder]
            if entry is not None:
                entries.append(entry)
        for entry in sorted(entries, key=lambda each: each.state == UNREADABLE):
            found.setdefault(entry.run, entry)  # a copied folder: the first stands
        self._known = known
        return sorted(found.values(), key=lambda each: (-each.started_ns, each.run))

    def _entry(self, folder: Path) -> RunEntry | None:
        times = [_mtime(folder / name) for name in _DOCUMENTS]
        stamp = (*times, is_held(folder))
        known = self._known.get(folder)
        if known is not None and known[0] == stamp:
            return known[1]
        entry: RunEntry | None
        try:
            entry = read_entry(folder, self.runs)
        except (*_WRONG, ReportInputError) as error:
            logger.warning("%s is no run that can be shown: %r", folder, error)
            entry = unreadable(folder, self.runs, error)
        self._known[folder] = (stamp, entry)
        return entry

    def report(self, entry: RunEntry) -> Json | None:
        """The run's report; ``None`` when there is none yet."""
        return _kept(self._reports, entry.path / "report" / "report.json", read_object)

    def points(self, entry: RunEntry) -> list[Point]:
        """The points of the run's plots."""
        path = entry.path / "report" / "figures-data.parquet"
        return _kept(self._points, path, read_points) or []

    def report_tag(self, entry: RunEntry) -> str:
        """Changes with the report: for ``ETag``."""
        return f"{_mtime(entry.path / 'report' / 'report.json'):x}"


def _kept(cache: Cache, path: Path, read: Callable[[Path], _Value]) -> _Value | None:
    """What was read of a file as it is now; ``None`` where there is none."""
    stamp = _mtime(path)
    return cache.get((path, stamp), lambda: read(path)) if stamp else None


_DOCUMENTS: Final = ("run.json", "closed.json", "manifest.json", "report/report.json")


def _run_folders(root: Path, depth: int = 0) -> Iterator[Path]:
    try:
        entries = [each for each in os.scandir(root) if each.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for each in entries:
        if each.name.startswith(".") or each.name in _SKIPPED:
            continue
        path = Path(each.path)
        if (path / "run.json").exists() or (path / "run.json").is_symlink():
            yield path
        elif depth < DEEPEST:
            yield from _run_folders(path, depth + 1)


def read_entry(folder: Path, runs: Path) -> RunEntry:
    """Read one run folder. Raises what a missing or wrong document raises."""
    run = _read_object(folder / "run.json")
    if "schema" in run:
        checked_run(run, folder / "run.json")
    name = str(run["run"])
    if len(name) > RUN_CHARS or not re.fullmatch(RUN_PATTERN, name):
        raise ValueError(f"{name!r} is no name of a run")
    report_file = folder / "report" / "report.json"
    state = state_of(folder, run, reported=report_file.exists())
    report = _read_object(report_file) if report_file.exists() and state != "running" else None
    # An observation has intervals, which its sentence says; nobody counted every delivery.
    totals = report["totals"] if report and not is_observed(run) else {}
    rto = report.get("rto", []) if report else []
    produce = [each["produce_ms"] for each in rto if each.get("produce_ms") is not None]
    consume = [(each.get("consume_ms") or {}).get("max") for each in rto]
    started_ns = int((run.get("zero") or {}).get("wall_ns") or _mtime(folder / "run.json"))
    rfc3339(started_ns)  # pages of all runs show it: a time that is none is refused here
    return RunEntry(
        run=name,
        experiment=str(run.get("experiment") or ""),
        arm=str(run.get("arm") or ""),
        repetition=int(run.get("repetition") or 0),
        path=folder,
        folder=folder.relative_to(runs).as_posix(),
        state=state,
        started_ns=started_ns,
        engine=str(run.get("engine") or ""),
        rules=str((run.get("system") or {}).get("rules") or ""),
        source=str(run.get("source") or ""),
        verdict=report["verdict"]["value"] if report else None,
        evidence=evidence_badge(report).text.partition(": ")[2] if report else None,
        outcome=report.get("outcome", dict(NO_LIMIT)) if report else None,
        sentence=report["verdict"]["sentence"] if report else "",
        delivered=totals.get("delivered"),
        dup=totals.get("dup"),
        dup_span=_observed_span(report) if report and "observation" in report else "",
        dup_ratio=totals.get("dup_ratio"),
        lost=totals.get("lost"),
        produce_rto_ms=max(produce, default=None),
        consume_rto_ms=max((each for each in consume if each is not None), default=None),
    )


def _observed_span(report: Json) -> str:
    """``212 to 291``, or what the report says where that is not known."""
    span, _, state = outcome_badge(report).text.removeprefix("Re-consumed").partition(": ")
    return span.strip().removesuffix("s").removesuffix(" message") or state


def unreadable(folder: Path, runs: Path, error: Exception) -> RunEntry | None:
    """What is shown of a run folder that cannot be read; ``None`` where its name is no run's."""
    name = folder.name
    if len(name) > RUN_CHARS or not re.fullmatch(RUN_PATTERN, name):
        return None
    if isinstance(error, ReportInputError):
        sentence = str(error)
    elif isinstance(error, OSError):
        sentence = where_and_why(error)
    elif isinstance(error, KeyError):
        sentence = f"{folder}: a document has no field {error}"
    else:
        sentence = f"{folder}: a document cannot be used: {why(error)}"
    return RunEntry(
        run=name,
        path=folder,
        folder=folder.relative_to(runs).as_posix(),
        state=UNREADABLE,
        started_ns=_mtime(folder / "run.json") or _mtime(folder),
        sentence=sentence,
    )


def state_of(folder: Path, run: Json, *, reported: bool) -> str:
    observed = is_observed(run)  # it may go on when it has ended
    is_over = (folder / "closed.json").exists() and (folder / "manifest.json").exists()
    if (observed or not is_over) and is_held(folder):
        return "running"
    return ("reported" if reported else "closed") if observed or is_over else "orphaned"


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _read_object(path: Path) -> Json:
    try:
        return read_object(path)
    except ValueError as error:
        raise ReportInputError(why(error), path) from error


def read_points(path: Path) -> list[Point]:
    """Read the long table of points. Raises ``ReportInputError``."""
    from failback.analytics.lake.parquet_guard import read_table

    with readable(str(path)), open_file(path) as file:
        return points_of(read_table(file))


def chosen(
    entries: list[RunEntry], *, experiment: str = "", verdict: str = "", text: str = ""
) -> list[RunEntry]:
    """The runs that match. ``verdict`` may be a state too: what runs has no verdict yet."""
    needle = text.lower()
    return [
        each
        for each in entries
        if experiment in ("", each.experiment)
        and verdict in ("", each.verdict, each.state)
        and (
            not needle
            or needle in f"{each.run} {each.experiment} {each.arm} {each.sentence}".lower()
        )
    ]
