"""Makes the catalogue agree with the files of the lake; the files are right.

The collector does this for every run when it starts. By hand, with the collector stopped:
``python -m failback.analytics.lake fsck LAKE``.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.collect.catalogue import Catalogue, Entry
from failback.analytics.collect.decode import UPLOAD_KEY
from failback.analytics.collect.ids import SegmentId, SegmentNote
from failback.client.consumelog.segments import SEGMENT_KEY

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """What was found in one run. Paths are below the lake's root."""

    run: str
    segments: int
    added: tuple[str, ...]
    """Files that had no line."""
    vanished: tuple[str, ...]
    """Lines whose file is gone: records are missing."""
    unreadable: tuple[str, ...]
    """Files whose footer cannot be read, or that say nothing about themselves."""


def entry_of(
    table: str, path: Path, size: int, note: SegmentNote, sha256: str | None, now_ms: int
) -> Entry:
    """The catalogue's line for a file of the lake."""
    return Entry(
        id=str(SegmentId(note.run, note.proc, note.index, table)),
        sha256=sha256,
        path=path.as_posix(),
        bytes=size,
        proc=note.proc,
        proc_no=note.proc_no,
        index=note.index,
        table=table,
        seq_lo=note.seq_lo,
        seq_hi=note.seq_hi,
        rows=note.rows,
        records=note.records,
        stored_ms=now_ms,
    )


def check_run(lake: Path, catalogue: Catalogue, run: str, now_ms: int) -> CheckedRun:
    """Compare the lines of a run with its files, and write the catalogue anew if they differ."""
    files = {
        path.relative_to(lake).as_posix(): path
        for path in sorted(lake.glob(f"table=*/run={run}/*.parquet"))
    }
    lines = list(catalogue.entries(run))
    listed = {entry.path: entry for entry in lines}
    vanished = tuple(sorted(set(listed) - set(files)))
    added, unreadable = [], []
    for name in sorted(set(files) - set(listed)):
        entry = _entry_from_footer(files[name], Path(name), now_ms)
        if entry is None:
            unreadable.append(name)
        else:
            listed[name] = entry
            added.append(name)
    kept = [entry for name, entry in listed.items() if name in files]
    if vanished or added or len(lines) != len(listed):
        catalogue.replace(run, kept)
        logger.warning(
            "catalogue of %s: %d files added, %d lines without a file dropped",
            run, len(added), len(vanished),
        )  # fmt: skip
    return CheckedRun(run, len(kept), tuple(added), vanished, tuple(unreadable))


def _entry_from_footer(path: Path, name: Path, now_ms: int) -> Entry | None:
    table = name.parts[0].removeprefix("table=")
    try:
        metadata = pq.read_schema(path).metadata or {}
        note = msgspec.json.decode(metadata[SEGMENT_KEY.encode()], type=SegmentNote)
    except (KeyError, OSError, pa.ArrowException, msgspec.DecodeError) as error:
        logger.error("%s cannot be catalogued: %s", name, error)
        return None
    sha256 = metadata.get(UPLOAD_KEY.encode())
    return entry_of(
        table, name, path.stat().st_size, note, sha256.decode() if sha256 else None, now_ms
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Check every run of a lake. Returns 1 if a file is gone or cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m failback.analytics.lake")
    commands = parser.add_subparsers(dest="command", required=True)
    fsck = commands.add_parser("fsck", help="make the catalogue agree with the files")
    fsck.add_argument("lake", type=Path, help="folder with table=*/run=*/")
    options = parser.parse_args(argv)
    if not options.lake.is_dir():
        parser.error(f"{options.lake}: no such folder")
    catalogue = Catalogue(options.lake)
    names = {path.name.removeprefix("run=") for path in options.lake.glob("table=*/run=*")}
    code = 0
    for run in sorted(names | set(catalogue.runs())):
        found = check_run(options.lake, catalogue, run, time.time_ns() // 1_000_000)
        print(
            f"{run}: {found.segments} segments, {len(found.added)} added, "
            f"{len(found.vanished)} vanished, {len(found.unreadable)} unreadable"
        )
        for name in (*found.vanished, *found.unreadable):
            print(f"  {name}")
            code = 1
    return code
