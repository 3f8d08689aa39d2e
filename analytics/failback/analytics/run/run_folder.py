"""Reads a run folder: what the run was, how it was closed, and whether its files are unchanged.

The formats are ``failback.run/1``, ``failback.closed/1`` and ``failback.manifest/1``. Only what
the report needs is looked at; unknown fields are kept by nobody and harm nobody.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.catalogue import CHANGED, mark_name
from failback.analytics.run.definitions import DEFAULT, FOREVER, Definitions

RUN_SCHEMA: Final = "failback.run/1"
CLOSED_SCHEMA: Final = "failback.closed/1"


@dataclass(frozen=True, slots=True)
class Group:
    """One consumer group on one topic, as ``run.json`` declares it."""

    name: str
    topic: str
    members: int
    model: str
    broadcasting: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """What became of the files that the manifest lists."""

    run_sha256: str | None
    listed: int
    changed: tuple[str, ...]
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The documents of one run. ``closed`` is empty when the run was never closed."""

    path: Path
    run: Mapping[str, Any]
    closed: Mapping[str, Any]
    evidence: Evidence
    groups: tuple[Group, ...] = field(default=())
    definitions: Definitions = DEFAULT

    @property
    def run_id(self) -> str:
        return str(self.run["run"])

    @property
    def lake(self) -> Path:
        return self.path / "lake"

    @property
    def zero_mono_ns(self) -> int:
        return int(self.run["zero"]["mono_ns"])

    @property
    def zero_wall_ns(self) -> int:
        return int(self.run["zero"]["wall_ns"])

    @property
    def phases(self) -> Mapping[str, int | None]:
        """Instants of the run in ns after run zero; what never happened is null."""
        phases: Mapping[str, int | None] = self.closed.get("phases") or {}
        return phases

    @property
    def warmup_end_ns(self) -> int:
        """Rows that begin before this instant are in no figure."""
        value = self.phases.get("warmup_end_ns")
        if value is None:
            value = self.run.get("warmup_end_ns")
        warm = -(1 << 62) if value is None else int(value)
        since = self.definitions.since_ns
        return warm if since is None else max(warm, since)

    @property
    def until_ns(self) -> int:
        """Rows that begin at or after this instant are in no figure."""
        until = self.definitions.until_ns
        return FOREVER if until is None else until

    @property
    def time_scale(self) -> float:
        return float(self.run.get("time_scale") or 1.0)

    @property
    def ordered_topics(self) -> frozenset[str]:
        topics = self.run.get("topics") or []
        return frozenset(topic["name"] for topic in topics if topic.get("ordered"))

    @property
    def broadcasting(self) -> frozenset[str]:
        return frozenset(group.name for group in self.groups if group.broadcasting)

    def exits(self) -> dict[int, int]:
        """When each ended process ended, in ns after run zero, by process number."""
        exits = self.closed.get("exits") or {}
        return {int(proc): int(end["t_ns"]) for proc, end in exits.items() if "t_ns" in end}


def read_run_folder(path: Path) -> RunFolder:
    """Read and check the documents of ``path``.

    Raises:
        ReportInputError: No folder, no ``run.json``, a document of another schema, or a lake that
            holds another run.
    """
    if not path.is_dir():
        raise ReportInputError("no such run folder", path)
    run = _document(path / "run.json", RUN_SCHEMA)
    for name in ("run", "zero"):
        if name not in run:
            raise ReportInputError(f"field {name} is missing", path / "run.json")
    closed_path = path / "closed.json"
    closed = _document(closed_path, CLOSED_SCHEMA) if closed_path.exists() else {}
    found = sorted(
        {part.name.removeprefix("run=") for part in (path / "lake").glob("table=*/run=*")}
    )
    if any(name != run["run"] for name in found):
        raise ReportInputError(
            f"holds rows of runs {', '.join(found)}, not only {run['run']}", path
        )
    evidence = _check_manifest(path)
    contradicted = _contradicted(path / "lake", str(run["run"]))
    evidence = replace(evidence, changed=(*evidence.changed, *contradicted))
    return RunFolder(path, run, closed, evidence, groups_of(run))


def _contradicted(lake: Path, run: str) -> tuple[str, ...]:
    """Segments that a collector was sent a second time with other content."""
    try:
        lines = (lake / mark_name(run, CHANGED)).read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    return segments_contradicted(lines)


def segments_contradicted(lines: Iterable[bytes]) -> tuple[str, ...]:
    """The segments that a mark of a collector names."""
    return tuple(sorted({f"segment {json.loads(line)['id']}" for line in lines if line}))


def _document(path: Path, schema: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ReportInputError("is missing", path) from error
    except (OSError, ValueError) as error:
        raise ReportInputError(f"cannot be read: {error}", path) from error
    if not isinstance(content, dict):
        raise ReportInputError("must be an object", path)
    named = content.get("schema", schema)
    if named != schema:
        raise ReportInputError(f"schema is {named!r}, this version reads {schema!r}", path)
    return content


def groups_of(run: Mapping[str, Any]) -> tuple[Group, ...]:
    """The groups that ``run.json`` declares."""
    return tuple(
        Group(
            name=str(group["name"]),
            topic=str(group["topic"]),
            members=int(group.get("members", 1)),
            model=str(group.get("model", "push")),
            broadcasting=group.get("messageModel") == "BROADCASTING",
        )
        for group in run.get("groups") or []
    )


def _check_manifest(path: Path) -> Evidence:
    """Hash every listed file again. A folder without a manifest has nothing to compare."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
    except FileNotFoundError:
        return Evidence(None, 0, (), ())
    except (OSError, ValueError) as error:
        raise ReportInputError(f"cannot be read: {error}", path / "manifest.json") from error
    files: Mapping[str, Mapping[str, Any]] = manifest.get("files", {})
    changed, absent = [], []
    for name, entry in sorted(files.items()):
        try:
            with (path / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            absent.append(name)
            continue
        if digest != entry["sha256"]:
            changed.append(name)
    lake = path / "lake"
    for extra in sorted(lake.rglob("*.parquet")) if lake.exists() else ():
        name = extra.relative_to(path).as_posix()
        if name not in files:
            changed.append(name)
    lines = "".join(f"{files[name]['sha256']}  {name}\n" for name in sorted(files))
    if manifest.get("run_sha256") != hashlib.sha256(lines.encode()).hexdigest():
        changed.append("manifest.json")
    return Evidence(manifest.get("run_sha256"), len(files), tuple(changed), tuple(absent))
