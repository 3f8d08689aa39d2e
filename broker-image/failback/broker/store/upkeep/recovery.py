"""Recovery of the commit log: where it ends, and whether what lies before the end is whole.

The scan begins three files before the end after a clean stop. After an unclean one (``abort``
is there) it begins at the last file whose first record is older than the checkpoint, and every
good record is dispatched again: the queues drop what they have. The log ends behind the last
good record. CommitLog.recoverNormally and recoverAbnormally, apache/rocketmq 4.9.8; unlike it,
a record must carry its own position, and the rest of the last file is zeroed.

**Torn tail or corruption.** At the first position with no good record there may be

* zeros to the end of the data: the regular end;
* other bytes with no good record behind them: a write that did not finish. Nothing behind it
  was ever promised, so the tail is cut off, with a warning;
* other bytes, or zeros, with a good record behind them. Appends go to the disk in order, so as
  long as the page cache lived (the machine did not restart since the store was opened) no
  crash leaves this behind: bytes were damaged, and cutting there would lose records. After a
  restart of the machine the cache may have been written out of order; then unflushed records
  may be missing before others that are there. They are unflushed for sure if they are younger
  than the checkpoint's log time, so only older ones prove damage;
* zeros, but also at the end of the last good record's properties. No CRC covers those, and the
  text of a whole record never ends in a zero byte (the broker puts its cluster's name last), so
  that record is the torn one;
* good records that are *older* than the last good one: what a Java broker left behind an
  earlier cut, since it does not zero the rest. They are no part of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final

from failback.broker.native import kernels
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.log.mapped_file import MappedFile, is_zero
from failback.broker.store.log.record import (
    MAGIC_POSITION,
    V1_MAGIC_BYTES,
    Problem,
    Record,
    read_record,
)
from failback.broker.store.log.unreadable import bad_pages
from failback.protocol.codes import BORN_HOST_V6, STORE_HOST_V6
from failback.protocol.errors import CorruptStore

logger = logging.getLogger(__name__)

_STRETCH_BYTES: Final = 1 << 20


@dataclass(slots=True)
class RecoveryReport:
    """What a start found. Offsets are bytes of the log."""

    clean: bool
    """Whether the last stop was orderly."""
    scanned_from: int = 0
    end_offset: int = 0
    """Where the log ends."""
    records: int = 0
    """Good records seen."""
    scanned_bytes: int = 0
    truncated: tuple[Path, int] | None = None
    """File and position in it from which a torn tail was cut off."""
    removed_files: list[Path] = field(default_factory=list)
    dropped_entries: int = 0
    """Queue entries of records that the log no longer has."""
    dispatched: int = 0
    """Records read for the queues after the scan."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Judge:
    """What decides between a torn tail and corruption; see the module's text."""

    cache_survived: bool
    """Whether everything ever written can still be seen: no restart of the machine between."""
    flushed_timestamp: int
    """Store timestamp before which all of the log is known to be on disk, ms."""

    def proves_damage(self, later: Record, last_good_timestamp: int) -> bool:
        """Whether a good record ``later`` behind a bad place means that the place was good."""
        if later.store_timestamp < last_good_timestamp:
            return False
        return self.cache_survived or later.store_timestamp < self.flushed_timestamp


def choose_first_file(log: CommitLog, *, clean: bool, recover_from: int) -> int:
    """Return the index of the file at which the scan begins."""
    files = log.files.files
    if clean:
        return max(len(files) - 3, 0)
    for index in range(len(files) - 1, 0, -1):
        found = _first_record(log, files[index])
        if found is not None and 0 < found.store_timestamp <= recover_from:
            return index
    return 0


def _first_record(log: CommitLog, file: MappedFile) -> Record | None:
    found = read_record(log.files.handle(file).view(), 0, file.start, check_crc=False)
    return found if isinstance(found, Record) else None


def _good_records(
    view: memoryview, at: int, start: int, last: int, check_crc: bool
) -> tuple[int, int, int]:
    """Return where good records with IPv4 hosts end, how many they are, where the last begins.

    ``view`` begins at ``start`` of the log. None begins at byte ``last`` or behind it. Twin of
    ``native/recovery.c``.
    """
    count, before = 0, at
    while at < last:
        found = read_record(view, at, start + at, check_crc=check_crc)
        if not isinstance(found, Record) or found.sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
            break
        before, at, count = at, at + found.size, count + 1
    return at, count, before


GoodRecords = Callable[[memoryview, int, int, int, bool], tuple[int, int, int]]
_good: GoodRecords = kernels.good_records if kernels is not None else _good_records


@dataclass(slots=True)
class LogScan:
    """One pass over the log; afterwards the log's tail is its end."""

    log: CommitLog
    judge: Judge
    enter: Callable[[memoryview, int, int, int], None] | None
    """Gets good records: a file, its start, and where in it they begin and end."""
    _: KW_ONLY
    check_crc: bool
    _last: tuple[Record, int] | None = field(init=False, default=None)
    """The last good record and its physical offset."""

    @property
    def last_timestamp(self) -> int:
        """Store timestamp of the last good record, ms; 0 without one."""
        return self._last[0].store_timestamp if self._last is not None else 0

    def run(self, first_file: int, report: RecoveryReport) -> None:
        """Scan from file number ``first_file`` on and set the log's end.

        Raises:
            CorruptStore: A bad record lies before good ones.
        """
        files, known = self.log.files.files, bad_pages()
        report.scanned_from = end = files[first_file].start
        problem = None
        for file in files[first_file:]:
            end, problem = self._scan_file(file, report)
            if problem is not Problem.BLANK:
                break
        if problem is not Problem.BLANK:
            if self._last is not None and self._last[0].properties.endswith(b"\0"):
                end, problem = self._last[1], Problem.CUT_OFF
                report.records -= 1
            self._judge_rest(end, problem, report)
        report.end_offset = end
        report.scanned_bytes = end - report.scanned_from
        if bad_pages() != known:
            self._refuse_bad_pages(files[first_file:])
        self._cut(end, report)

    def _refuse_bad_pages(self, scanned: list[MappedFile]) -> None:
        """Cut nothing where the disk could not read: good records may follow."""
        for file in scanned:
            if not self.log.files.is_readable(file):
                raise CorruptStore(file.path, 0, "the disk can't read all of it")

    def _scan_file(self, file: MappedFile, report: RecoveryReport) -> tuple[int, Problem | None]:
        """Return where the good records of ``file`` end, and why."""
        view, start = self.log.files.handle(file).view(), file.start
        at, size, check_crc = 0, len(view), self.check_crc
        while at < size:
            stop = self.log.files.data_end(file, at)
            if stop <= at:  # a hole: nothing begins there
                return start + at, Problem.BAD_MAGIC
            end, count, last = _good(view, at, start, min(at + _STRETCH_BYTES, stop), check_crc)
            found = read_record(view, last, start + last, check_crc=check_crc and not count)
            if not isinstance(found, Record):
                return start + at, found
            if not count:  # a good one all the same, with longer hosts
                end, count = at + found.size, 1
            if self.enter is not None:
                self.enter(view, start, at, end)
            self._last = found, start + last
            report.records += count
            at = end
        return file.end, None

    def _judge_rest(self, end: int, problem: Problem | None, report: RecoveryReport) -> None:
        """Decide what the bytes behind ``end`` are."""
        file = self.log.files.find(end)
        if file is None or not self._has_data(end):
            return
        position = end - file.start
        later = self._next_good_record(end)
        if later is not None and self.judge.proves_damage(later[1], self.last_timestamp):
            what = problem.value if problem else "no record"
            raise CorruptStore(
                file.path, position, f"{what}, but a good record follows at {later[0]}"
            )
        report.truncated = (file.path, position)
        logger.warning(
            "torn tail cut off: file=%s position=%d physical_offset=%d (%s; %s)",
            file.path,
            position,
            end,
            problem.value if problem else "no record",
            f"unflushed or older records from {later[0]} on" if later else "no record follows",
        )

    def _has_data(self, offset: int) -> bool:
        return not all(is_zero(piece) for _, _, piece in self.log.files.data_from(offset))

    def _next_good_record(self, offset: int) -> tuple[int, Record] | None:
        """Return position and record of the first good one behind ``offset``, anywhere."""
        for file, start, piece in self.log.files.data_from(offset + 1):
            view = self.log.files.handle(file).view()
            # A magic may lie across two pieces; three bytes more find it in the first.
            piece_start = start - file.start
            data = bytes(view[piece_start : piece_start + len(piece) + len(V1_MAGIC_BYTES) - 1])
            found = data.find(V1_MAGIC_BYTES)
            while found >= 0:
                at = piece_start + found - MAGIC_POSITION
                if at >= 0 and file.start + at > offset:
                    record = read_record(view, at, file.start + at, check_crc=True)
                    if isinstance(record, Record):
                        return file.start + at, record
                found = data.find(V1_MAGIC_BYTES, found + 1)
        return None

    def _cut(self, end: int, report: RecoveryReport) -> None:
        """Let the log end at ``end``: later files go, the rest of its file becomes zeros."""
        log = self.log
        report.removed_files = log.files.delete_after(end)
        for path in report.removed_files:
            logger.warning("%s removed: the log ends at %d, before it", path, end)
        log.files.zero_from(end)
        log.move_tail(end)
