"""Reads a run folder, and hashes again every file that its manifest lists."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.catalogue import CHANGED
from failback.analytics.lake.layout import partitions
from failback.analytics.lake.store import open_store
from failback.analytics.run.documents import read_closed, read_manifest, read_run
from failback.analytics.run.run_folder import Evidence, RunFolder
from failback.client.consumelog.upload.layout import mark_name
from failback.common.files import has_rows, open_file, parsed, read_file
from failback.common.text import why


def read_run_folder(path: Path) -> RunFolder:
    """Read and check the documents of ``path``.

    Raises:
        ReportInputError: No folder, no ``run.json``, a document of another schema, or a lake that
            holds another run.
    """
    if not path.is_dir():
        what = "is no folder of a run" if path.exists() else "no such run folder"
        raise ReportInputError(what, path)
    run = read_run(path / "run.json")
    closed = read_closed(path / "closed.json")
    lake = path / "lake"
    if (lake.exists() or lake.is_symlink()) and not lake.is_dir():
        raise ReportInputError("is no folder: a run has its rows in it", lake)
    found = sorted({part.run for part in partitions(open_store(lake))})
    if any(name != run.run for name in found):
        raise ReportInputError(f"holds rows of runs {', '.join(found)}, not only {run.run}", path)
    evidence = _check_manifest(path)
    contradicted = _contradicted(lake, run.run)
    evidence = replace(evidence, changed=(*evidence.changed, *contradicted))
    return RunFolder(path, run, closed, evidence)


def _contradicted(lake: Path, run: str) -> tuple[str, ...]:
    """Segments that a collector was sent a second time with other content."""
    try:
        lines = read_file(lake / mark_name(run, CHANGED)).splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise ReportInputError(why(error), lake / mark_name(run, CHANGED)) from error
    return segments_contradicted(lines)


def segments_contradicted(lines: Iterable[bytes]) -> tuple[str, ...]:
    """The segments that a mark of a collector names."""
    return tuple(sorted({f"segment {_segment(line)}" for line in lines if line}))


def _segment(line: bytes) -> str:
    """The segment that a line names. A line that was cut, or has another format, names none."""
    try:
        return str(parsed(line)["id"])
    except (ValueError, KeyError, TypeError):
        return "of a line that cannot be read"


def _check_manifest(path: Path) -> Evidence:
    """Hash every listed file again. A folder without a manifest has nothing to compare."""
    manifest = read_manifest(path / "manifest.json")
    if manifest is None:
        return Evidence()
    files = manifest.files or {}
    changed, absent = [], []
    for name, entry in sorted(files.items()):
        try:
            with open_file(path / name) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            absent.append(name)
            continue
        except (OSError, ValueError):  # no file, or a name that no file can have
            changed.append(name)
            continue
        if digest != entry.sha256:
            changed.append(name)
    lake = path / "lake"
    for extra in sorted(lake.rglob("*.parquet")) if lake.exists() else ():
        name = extra.relative_to(path).as_posix()
        if has_rows(extra.name) and name not in files:
            changed.append(name)
    lines = "".join(f"{files[name].sha256}  {name}\n" for name in sorted(files))
    if manifest.run_sha256 != hashlib.sha256(lines.encode()).hexdigest():
        changed.append("manifest.json")
    return Evidence(manifest.run_sha256, tuple(changed), tuple(absent))
