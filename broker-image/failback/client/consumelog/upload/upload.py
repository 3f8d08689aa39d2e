"""Ships finished hot log files to a collector and loses none of them while it is down.

A hot file is deleted once the collector has stored a segment for each of its tables (201), or has
had it before (200). Until then it stays where it is: the folder is the buffer, and only a full disk
ends it (then the writer stops, not the shipper). A collector that is down, busy (429), full (507)
or not convinced by the token (401, 403) is asked again later. What it refuses for good (another
content under a known name, a schema that it does not know, a segment that is too large) is moved to
``refused/`` with the answer beside it: never deleted, and never in the way of what comes after it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.client.consumelog import hot_format
from failback.client.consumelog.hot_format import BadHotLog
from failback.client.consumelog.reader import HotLog, read_head, read_hot
from failback.client.consumelog.upload.collector_client import (
    Answer,
    CollectorAway,
    CollectorClient,
)
from failback.client.consumelog.upload.lake_files import stream_bytes
from failback.client.consumelog.upload.segments import segments_of
from failback.common.replacing import replace_file

logger = logging.getLogger(__name__)

REFUSED: Final = "refused"
"""Folder beside the hot files for what the collector will never take."""
FIRST_WAIT_SECONDS: Final = 0.5
LONGEST_WAIT_SECONDS: Final = 30.0
_STORED: Final = frozenset({200, 201})
_FOR_GOOD: Final = frozenset({409, 413, 415, 422})


@dataclass(frozen=True, slots=True)
class ShipReport:
    """What one pass did with the finished files of the folder."""

    shipped: tuple[Path, ...] = ()
    """At the collector, deleted here."""
    refused: tuple[Path, ...] = ()
    bad: tuple[Path, ...] = ()
    """Without a readable head; left where they are."""
    held: tuple[Path, ...] = ()
    """Still written."""
    left: int = 0
    """Finished, and not shipped yet."""
    wait_seconds: float | None = None
    """How long to wait before the next try; ``None`` when nothing failed."""

    @property
    def complete(self) -> bool:
        """Is every finished file at the collector?"""
        return not (self.left or self.refused or self.bad)


class _Later(Exception):
    """The collector cannot take it now."""

    def __init__(self, why: str, after_seconds: float | None = None) -> None:
        self.after_seconds = after_seconds
        super().__init__(why)


class UploadShipper:
    """Ships the finished files of one folder, oldest of each process first."""

    def __init__(
        self, hot_folder: Path, client: CollectorClient, *, textfile: Path | None = None
    ) -> None:
        self._hot = hot_folder
        self._client = client
        self._textfile = textfile
        self._resumed: dict[str, dict[str, str]] = {}  # run/proc -> segment id -> sha256
        self._stored: set[str] = set()  # segments of the file under way
        self._complained: set[Path] = set()
        self._failures = 0
        self._backlog = 0

    def ship_all(self) -> ShipReport:
        """Ship every finished file, or stop at the first that has to wait."""
        shipped: list[Path] = []
        refused: list[Path] = []
        bad: list[Path] = []
        held: list[Path] = []
        wait: float | None = None
        files = sorted(self._hot.glob(f"*{hot_format.SUFFIX}"))
        self._backlog = sum(map(_bytes_of, files))
        for path in files:
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # another shipper of this folder was faster
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not path.exists():
                    continue
                (shipped if self._ship(path) else refused).append(path)
                self._failures = 0
            except BlockingIOError:
                held.append(path)
            except BadHotLog as error:
                if path not in self._complained:
                    logger.warning("%s", error)
                    self._complained.add(path)
                bad.append(path)
            except (_Later, CollectorAway) as error:
                wait = self._note_failure(error)
                break
            finally:
                os.close(fd)
        done = len(shipped) + len(refused) + len(bad) + len(held)
        left = len(files) - done if wait is not None else 0
        self._write_textfile(shipped, refused)
        return ShipReport(tuple(shipped), tuple(refused), tuple(bad), tuple(held), left, wait)

    def run(
        self,
        stop: threading.Event,
        *,
        period_seconds: float = 1.0,
        linger_seconds: float = 30.0,
        now: Callable[[], float],
    ) -> bool:
        """Ship until ``stop`` is set, then what is left; false if any of it had to stay.

        Args:
            linger_seconds: How long after ``stop`` a collector that is down is waited for.
            now: A monotonic clock in seconds.
        """
        refused = False
        while not stop.is_set():
            report = self.ship_all()
            refused |= bool(report.refused)
            stop.wait(period_seconds if report.wait_seconds is None else report.wait_seconds)
        deadline = now() + linger_seconds
        report = self.ship_all()
        pause = threading.Event()
        while report.left and now() < deadline:
            refused |= bool(report.refused)
            pause.wait(min(report.wait_seconds or 0.0, max(0.0, deadline - now())))
            report = self.ship_all()
        return report.complete and not refused

    def _note_failure(self, error: Exception) -> float:
        """Seconds to wait: what was asked for, or twice as long each time, never in step."""
        wished = error.after_seconds if isinstance(error, _Later) else None
        wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(self._failures, 10))
        if self._failures == 0:
            logger.warning("waiting with %d bytes: %s", self._backlog, error)
        self._failures += 1
        if wished is not None:
            return wished + random.uniform(0.0, FIRST_WAIT_SECONDS)
        return random.uniform(wait / 2, wait)

    def _ship(self, path: Path) -> bool:
        """Send what a file holds, then delete it; false if the collector refused a part."""
        log = read_hot(path)
        refusals: dict[str, Answer] = {}
        for segment in segments_of(log):
            body = stream_bytes(segment)
            sha256 = hashlib.sha256(body).hexdigest()
            if segment.segment_id in self._stored or self._is_known(
                log, segment.segment_id, sha256
            ):
                continue
            answer = self._client.send_segment(segment.segment_id, body, sha256, self._backlog)
            if answer.status in _STORED:
                self._stored.add(segment.segment_id)
            elif answer.status in _FOR_GOOD and answer.problem is not None:
                refusals[segment.segment_id] = answer
            else:
                raise _Later(f"{self._client.url}: {answer}", answer.retry_after_seconds)
        if log.torn:
            logger.info("dropped a torn record at byte %d of %s", log.used_bytes, path)
        if refusals:
            self._set_aside(path, refusals)
        else:
            path.unlink(missing_ok=True)
        self._stored.clear()
        return not refusals

    def _is_known(self, log: HotLog, segment_id: str, sha256: str) -> bool:
        """Did the collector have this segment already when this shipper met the process?"""
        head = log.head
        key = f"{head.run}/{head.proc.hex()}"
        if key not in self._resumed:
            answer = self._client.stored(head.run, head.proc.hex())
            if answer.status != 200:
                raise _Later(f"{self._client.url}: {answer}", answer.retry_after_seconds)
            listed = answer.document.get("segments") or []
            self._resumed[key] = {str(each["id"]): str(each["sha256"]) for each in listed}
        return self._resumed[key].get(segment_id) == sha256

    def _set_aside(self, path: Path, refusals: dict[str, Answer]) -> None:
        folder = self._hot / REFUSED
        folder.mkdir(exist_ok=True)
        why = {name: dict(answer.document) for name, answer in refusals.items()}
        (folder / f"{path.name}.json").write_text(json.dumps(why, indent=2), encoding="utf-8")
        path.rename(folder / path.name)
        for name, answer in refusals.items():
            logger.error("%s is refused and kept in %s: %s", name, folder, answer)

    def _write_textfile(self, *gone: list[Path]) -> None:
        """The backlog for a node exporter's textfile collector, if one was asked for."""
        if self._textfile is None:
            return
        waiting: dict[str, int] = {}
        for path in self._hot.glob(f"*{hot_format.SUFFIX}"):
            try:
                run = read_head(path).run
            except (BadHotLog, FileNotFoundError):
                continue
            waiting[run] = waiting.get(run, 0) + _bytes_of(path)
        name = "failback_shipper_backlog_bytes"
        lines = [f"# TYPE {name} gauge"]
        lines += [
            f"{name}{{run={json.dumps(run)}}} {count}" for run, count in sorted(waiting.items())
        ]
        replace_file(self._textfile, ("\n".join(lines) + "\n").encode(), sync=False)


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
