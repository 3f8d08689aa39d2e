"""Seals finished hot log files into Parquet files of the lake.

    lake/table=<t>/run=<id>/part-<proc_no>-<index>.parquet

A file is finished once its lock is free: the writer rotated, or it is dead. Sealing is a pure
function of the hot file, and the hot file is deleted last, so a shipper killed anywhere starts over
and writes equal bytes under equal names. :class:`Shipper` seals into a lake on the same host;
``upload`` sends to a collector.

Run as ``python -m failback.client.consumelog.ship --hot DIR --to LAKE_FOLDER|http://COLLECTOR``.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failback.client.consumelog import hot_format
from failback.client.consumelog.errors import BadHotLog
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import TABLES
from failback.client.consumelog.upload.lake_files import arrow_table, write_parquet
from failback.client.consumelog.upload.segments import SEGMENT_KEY, segments_of

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
            final: No writer is left, so unfinished ``*.new`` files are removed too.
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
        return SealReport(tuple(sealed), tuple(held), tuple(bad))

    def run(self, stop: threading.Event, *, period_seconds: float = 1.0) -> bool:
        """Seal until ``stop`` is set, then once more; false if a file could not be read."""
        while not stop.wait(period_seconds):
            self.seal_all()
        return not self.seal_all().bad

    def _seal(self, path: Path) -> None:
        log = read_hot(path)
        for segment in segments_of(log):
            write_parquet(arrow_table(segment), self._lake / segment.path)
        if log.torn:
            logger.info("dropped a torn record at byte %d of %s", log.used_bytes, path)
        path.unlink(missing_ok=True)


def segment_metadata(
    lake: Path, run: str, tables: Iterable[str] = TABLES
) -> Iterable[dict[str, Any]]:
    """Metadata of every segment of a run, with ``table`` and ``path`` (below the lake) added."""
    import pyarrow.parquet as pq

    for table in tables:
        for path in sorted((lake / f"table={table}" / f"run={run}").glob("*.parquet")):
            stored = pq.read_schema(path).metadata or {}
            if SEGMENT_KEY.encode() in stored:
                meta: dict[str, Any] = json.loads(stored[SEGMENT_KEY.encode()])
                yield {"table": table, "path": str(path.relative_to(lake)), **meta}
