"""Seals finished hot log files into Parquet files of the lake.

    lake/table=<t>/date=<day>/run=<id>/part-<proc_no>-<index>.parquet

A file is finished once its lock is free: the writer rotated, or it is dead. Sealing is a pure
function of the hot file, and the hot file is deleted last, so a shipper killed anywhere starts over
and writes equal bytes under equal names. Rows of a run that is not open wait, see ``run_days``; the
last pass opens a run that no other process opened. :class:`Shipper` seals into a lake on the same
host; ``upload`` sends to a collector.

Run as ``python -m failback.client.consumelog.upload --hot DIR --to LAKE_FOLDER|http://COLLECTOR``.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

from failback.client.consumelog import hot_format
from failback.client.consumelog.hot_format import BadHotLog
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import TABLES
from failback.client.consumelog.upload.lake_files import arrow_table, lake_rows, write_parquet
from failback.client.consumelog.upload.run_days import known_day, settle
from failback.client.consumelog.upload.segments import SEGMENT_KEY, segments_of
from failback.common.files import place_in

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SealReport:
    """What one pass of the shipper did."""

    sealed: tuple[Path, ...]
    """Hot files that are in the lake now, and deleted."""
    held: tuple[Path, ...]
    """Files whose writer lives."""
    bad: tuple[Path, ...]
    """Files without a readable head; left where they are."""


class Shipper:
    """Seals the hot logs of one folder into a lake on the same host (``--to file``)."""

    def __init__(self, hot_folder: Path, lake: Path) -> None:
        self._hot = hot_folder
        self._lake = lake

    def seal_all(self, *, final: bool = False) -> SealReport:
        """Seal every file whose lock is free, oldest first.

        Args:
            final: No writer is left: unfinished ``*.new`` files are removed, and nothing waits on
                for run zero.
        """
        sealed, held, bad = [], [], []
        for path in sorted(self._hot.glob(f"*{hot_format.SUFFIX}")):
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # another shipper of this folder was faster
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._seal(path)
                sealed.append(path)
            except BlockingIOError:
                held.append(path)
            except BadHotLog as error:
                logger.warning("%s", error)
                bad.append(path)
            except FileNotFoundError:
                continue  # sealed by another shipper between opening and locking it
            finally:
                os.close(fd)
        if final and not held:
            for hidden in self._hot.glob("*.new"):
                hidden.unlink(missing_ok=True)
        settle(self._lake, opening=final and not held)
        return SealReport(tuple(sealed), tuple(held), tuple(bad))

    def run(self, stop: threading.Event, *, period_seconds: float = 1.0) -> bool:
        """Seal until ``stop`` is set, then once more; false if a file could not be read."""
        while not stop.wait(period_seconds):
            self.seal_all()
        report = self.seal_all()
        settle(self._lake, opening=True)
        return not report.bad

    def _seal(self, path: Path) -> None:
        log = read_hot(path)
        day = known_day(self._lake, log.head.run)
        for segment in segments_of(log):
            rows = lake_rows(arrow_table(segment), segment.table)
            write_parquet(rows, place_in(self._lake, self._lake / segment.path(day)))
        if log.torn:
            logger.info("dropped a torn record at byte %d of %s", log.used_bytes, path)
        path.unlink(missing_ok=True)


def segment_metadata(
    lake: Path, run: str, tables: Iterable[str] = TABLES
) -> Iterable[dict[str, Any]]:
    """Metadata of every segment of a run, with ``table`` and ``path`` (below the lake) added."""
    import pyarrow.parquet as pq

    folders = ("table={}/date=*/run={}", "_waiting/run={1}/table={0}")
    for table in tables:
        patterns = [f"{folder.format(table, escape(run))}/*.parquet" for folder in folders]
        for path in sorted(path for pattern in patterns for path in lake.glob(pattern)):
            stored = pq.read_schema(path).metadata or {}
            if SEGMENT_KEY.encode() in stored:
                meta: dict[str, Any] = json.loads(stored[SEGMENT_KEY.encode()])
                yield {"table": table, "path": str(path.relative_to(lake)), **meta}
