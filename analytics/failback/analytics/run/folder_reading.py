"""Reads a run folder, and hashes again every file that its manifest lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.catalogue import CHANGED
from failback.analytics.lake.layout import partitions
from failback.analytics.lake.store import open_store
from failback.analytics.run.run_folder import (
    CLOSED_SCHEMA,
    RUN_SCHEMA,
    Evidence,
    RunFolder,
    groups_of,
)
from failback.client.consumelog.upload.layout import mark_name
from failback.protocol.words.reasons import why


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
    found = sorted({part.run for part in partitions(open_store(path / "lake"))})
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
        raise ReportInputError(why(error), path) from error
    if not isinstance(content, dict):
        raise ReportInputError("must be an object", path)
    named = content.get("schema", schema)
    if named != schema:
        raise ReportInputError(f"schema is {named!r}, this version reads {schema!r}", path)
    return content


def _check_manifest(path: Path) -> Evidence:
    """Hash every listed file again. A folder without a manifest has nothing to compare."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
    except FileNotFoundError:
        return Evidence(None, 0, (), ())
    except (OSError, ValueError) as error:
        raise ReportInputError(why(error), path / "manifest.json") from error
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
