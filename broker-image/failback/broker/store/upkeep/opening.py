"""Opening a store: what a stop or a crash left is made whole before it is read.

The log first, then the queues, then the index. What was not synced is synced, and at the end
``abort`` says that a broker runs here.

A kill of the process loses no page of the file system; a crash of the machine may lose every page
that was not synced. ``abort`` names the boot that wrote it, which tells the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from failback.broker.disk_errors import is_fatal
from failback.broker.store.config import StoreConfig
from failback.broker.store.index.index_service import IndexService
from failback.broker.store.log.checkpoint import StoreCheckpoint
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.log.files import TEMPORARY_PREFIX, Files
from failback.broker.store.queues.queue_table import QueueTable
from failback.broker.store.upkeep.flush import FlushService
from failback.broker.store.upkeep.folders import StoreFolders
from failback.broker.store.upkeep.recovery import Judge, LogScan, RecoveryReport, choose_first_file
from failback.broker.store.writing.dispatch import Dispatcher
from failback.protocol.errors import CorruptStore


@dataclass(frozen=True, slots=True)
class StoreOpening:
    """The parts of a store, not open yet."""

    config: StoreConfig
    files: Files
    log: CommitLog
    queues: QueueTable
    dispatcher: Dispatcher
    checkpoint: StoreCheckpoint
    flush: FlushService
    index: IndexService
    folders: StoreFolders

    def recover(self) -> RecoveryReport:
        """Find the ends of log, queues and index; mark the store as running.

        Raises:
            StoreError: A file does not belong into the store.
            CorruptStore: A bad record lies before good ones; the error says where.
            OSError: The disk can't be used.
        """
        abort = self.config.root / "abort"
        mark, boot = self.files.read_small(abort), self.files.boot_id().encode()
        report = RecoveryReport(clean=mark is None)
        self._remove_temporaries()
        self.log.files.load()
        self.queues.load()
        self.checkpoint.load()
        cache_survived = mark is None or (mark == boot and bool(boot))
        if self.log.files.files:
            self.folders.check_others()
            self._recover_log(report, Judge(cache_survived, self.checkpoint.physic_msg_timestamp))
        else:
            had = self.checkpoint.physic_msg_timestamp > 0
            had = had or any(queue.max_offset > 0 for queue in self.queues)
            self.folders.check_log(had_records=had)
            self.queues.destroy_all()
        self._dispatch_the_rest(report)
        self.queues.correct_min_offsets(max(self.log.min_offset, 0))
        self.index.load(clean=report.clean, cache_survived=cache_survived)
        self.log.flushed_offset = self.log.tail
        if not report.clean:
            self._sync_what_a_crash_left(report.scanned_from)
        report.end_offset = self.log.tail
        if mark != boot:
            self._mark_as_running(abort, boot)
        return report

    def _mark_as_running(self, abort: Path, boot: bytes) -> None:
        try:
            self.files.write_small(abort, boot)
        except OSError as error:
            if is_fatal(error):
                raise
            # A name needs less room. Without the boot's id nothing is taken to have survived.
            self.files.create(abort, 0, durable=True)

    def _remove_temporaries(self) -> None:
        for directory in {self.config.root, self.config.commit_log_directory.parent}:
            for name in self.files.names(directory):
                if name.startswith(TEMPORARY_PREFIX):
                    self.files.delete(directory / name)

    def _recover_log(self, report: RecoveryReport, judge: Judge) -> None:
        first = choose_first_file(
            self.log, clean=report.clean, recover_from=self.checkpoint.recover_from
        )
        enter = None
        ends = [(queue, queue.max_offset) for queue in self.queues]
        if not report.clean:
            start = self.log.files.files[first].start
            self.queues.drop_torn(start, cache_survived=judge.cache_survived)
            enter = self.dispatcher.enter_good
        scan = LogScan(self.log, judge, enter, check_crc=self.config.check_crc_on_recover)
        scan.run(first, report)
        self.dispatcher.write_touched()
        self.dispatcher.store_timestamp = scan.last_timestamp
        if self.queues.max_physical_offset() >= self.log.tail:
            self.queues.truncate(self.log.tail)
        report.dropped_entries = sum(max(end - queue.max_offset, 0) for queue, end in ends)

    def _dispatch_the_rest(self, report: RecoveryReport) -> None:
        """Enter the records behind the last one that any queue has."""
        held = min(self.queues.max_physical_offset(), self.log.tail)
        self.dispatcher.position = max(held, self.log.min_offset, 0)
        report.dispatched = self.dispatcher.catch_up()
        stopped, log = self.dispatcher.position, self.log
        if stopped < log.tail and (file := log.files.find(stopped)) is not None:
            what = "no record here, while the queues end here"
            raise CorruptStore(file.path, stopped - file.start, what)

    def _sync_what_a_crash_left(self, scanned_from: int) -> None:
        """Sync what the dead process wrote and may not have synced.

        From here on ``flushed_offset`` and the checkpoint say that it is on the disk. What lies
        before ``scanned_from`` the checkpoint said already: thousands of old files stay closed.
        """
        if self.log.files.files:  # killed between creating a file and syncing its name
            self.log.files.sync_directory()
        self.log.flushed_offset = max(self.log.files.start, scanned_from)
        for queue in self.queues:
            queue.distrust(scanned_from)
        self.flush.flush_log()
        self.flush.flush_queues()
