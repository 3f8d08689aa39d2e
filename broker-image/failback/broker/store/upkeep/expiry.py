"""Expiry: deleting the oldest files, and refusing messages while the disk is full.

A log file goes before the queue files that speak of nothing else, so a kill in between leaves no
gap. Its queue entries are synced first: without its records nothing can make them again.

Source: DefaultMessageStore.CleanCommitLogService and CleanConsumeQueueService,
MappedFileQueue.deleteExpiredFileByTime, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final

from failback.broker.store.config import ENTRY_BYTES, StoreConfig
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.log.files import Files
from failback.broker.store.log.mapped_file import MappedFile
from failback.broker.store.log.syncing import sync_files
from failback.broker.store.queues.queue_table import QueueTable

logger = logging.getLogger(__name__)

MOST_FILES_PER_ROUND: Final = 10
ORDERED_ROUNDS: Final = 20
"""How many rounds look for old files at any hour after an order."""
FULL_RATIO: Final = 0.90
"""Above this share of the disk messages are refused (diskSpaceWarningLevelRatio)."""
FORCED_RATIO: Final = 0.85
"""Above this, files of any age go (diskSpaceCleanForciblyRatio)."""


def local_hour(now_ms: int) -> int:
    return time.localtime(now_ms / 1000).tm_hour


@dataclass(slots=True)
class Expiry:
    """Deletes log files that are old enough, and the queue files that only spoke of them.

    Attributes:
        is_full: Whether the disk was above :data:`FULL_RATIO` at the last look.
        followers: Called with the physical offset before which the log is gone. They return the
            paths that speak of nothing else and may be deleted.
    """

    files: Files
    config: StoreConfig
    log: CommitLog
    queues: QueueTable
    _: KW_ONLY
    clock_ms: Callable[[], int]
    hour_of: Callable[[int], int] = local_hour
    is_full: bool = field(init=False, default=False)
    followers: list[Callable[[int], list[Path]]] = field(init=False, default_factory=list)
    _ordered: int = field(init=False, default=0)
    _cleaned_before: int = field(init=False, default=0)
    """The queues hold no file that only speaks of what lies before this physical offset."""

    def order(self) -> None:
        """Let the next :data:`ORDERED_ROUNDS` rounds delete what is old enough at any hour."""
        self._ordered = ORDERED_ROUNDS

    async def run_round(self, entered_offset: int) -> list[Path]:
        """Look at clock and disk and delete what may go; return the paths, oldest first.

        Records before ``entered_offset`` are in their queues; a log file that has others stays.

        Raises:
            OSError: A file could not be deleted.
        """
        used = self.look()
        forced = self.config.clean_file_forcibly and used > FORCED_RATIO
        is_ordered, self._ordered = self._ordered > 0, max(0, self._ordered - 1)
        is_full = used > self.config.disk_max_used_ratio / 100
        is_due = self._is_hour() or is_full or is_ordered
        deleted = await self._delete_log_files(forced, entered_offset) if is_due else []
        low = self.log.min_offset
        if low > self._cleaned_before:  # at the first round too: the last process may have died
            # A power loss must not bring files of the log back without their queue entries.
            directory = self.config.commit_log_directory
            await asyncio.to_thread(self.files.sync_directory, directory)
            deleted += await self._delete(self.queues.drop_before(low))
            for follower in self.followers:
                deleted += await self._delete(follower(low))
            self.queues.correct_min_offsets(low)
            self._cleaned_before = low
        return deleted

    def look(self) -> float:
        """Set :attr:`is_full`; return how full the fuller disk is, 0 to 1."""
        paths = (self.config.commit_log_directory, self.config.root)
        used = max(self.files.used_ratio(path) for path in paths)
        if self.is_full != (used > FULL_RATIO):
            self.is_full = not self.is_full
            what = "no messages are taken" if self.is_full else "messages are taken again"
            logger.error("disk of %s is %.0f %% full: %s", self.config.root, used * 100, what)
        return used

    def _is_hour(self) -> bool:
        hours = [hour.strip() for hour in self.config.delete_when.split(";")]
        now = self.hour_of(self.clock_ms())
        return any(hour.isdecimal() and int(hour) == now for hour in hours)

    async def _delete_log_files(self, forced: bool, entered_offset: int) -> list[Path]:
        """Delete from the oldest on, never the last, up to the first that has to stay."""
        deleted: list[Path] = []
        files = self.log.files
        while len(files.files) > 1 and len(deleted) < MOST_FILES_PER_ROUND:
            first = files.files[0]
            if first.end > entered_offset:
                break
            age_ms = self.clock_ms() - self.files.modified_ms(first.path)
            if not forced and age_ms < self.config.file_reserved_ms:
                break
            if deleted:
                await asyncio.sleep(self.config.delete_log_files_interval_ms / 1000)
            await self._sync_before(first)
            deleted += await self._delete([files.drop_first()])
        return deleted

    async def _sync_before(self, file: MappedFile) -> None:
        """Make durable what a power loss must not take once ``file`` of the log is deleted.

        The file itself: its deletion may be undone, and without its end the log would stop there.
        And the queue entries of its records: without those a queue can't be made again, and would
        count its offsets from an older one. Both are long done for files of the usual age.
        """
        if self.log.flushed_offset < file.end:
            written = self.log.files.to_sync(file.start, file.end)
            await asyncio.to_thread(sync_files, self.files, written)
        for queue in list(self.queues):
            start, end = queue.flushed_offset, queue.max_offset
            entry = queue.entry(start)
            if entry is None or entry[0] >= file.end:
                continue
            written = queue.files.to_sync(start * ENTRY_BYTES, end * ENTRY_BYTES)
            await asyncio.to_thread(sync_files, self.files, written)
            if queue.unsynced_directory:
                await asyncio.to_thread(self.files.sync_directory, queue.files.directory)
            queue.flushed_offset = max(queue.flushed_offset, end)

    async def _delete(self, paths: list[Path]) -> list[Path]:
        """Delete in a thread: the file system may take its time over a large file."""
        for path in paths:
            logger.info("expired: %s is deleted", path)
            await asyncio.to_thread(self.files.delete, path)
        return paths
