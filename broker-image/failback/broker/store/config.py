"""Settings of one message store. The broker builds them from broker.conf and changes live ones."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ENTRY_BYTES: Final = 20
"""One consume-queue entry."""

_LEAST_QUEUE_FILES: Final = 128
_MOST_QUEUE_FILES: Final = 16_384
_OTHER_DESCRIPTORS: Final = 2048
"""For connections and everything else, where queue files could take the rest."""

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def machine_memory_bytes() -> int:
    """Return the machine's RAM in bytes: what the 40 % rule measures against, as 4.9 does."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def queue_files_to_keep_open() -> int:
    """Return how many queue files may be open: as many as there are descriptors to spare.

    One that is not open costs its opening with the next message, so a broker of thousands of queues
    wants all of them. It raises its limit of descriptors to what the system allows.
    """
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return _MOST_QUEUE_FILES
    spare = (descriptors - _OTHER_DESCRIPTORS) // 2
    return max(_LEAST_QUEUE_FILES, min(_MOST_QUEUE_FILES, spare))


@dataclass(slots=True)
class StoreConfig:
    """Sizes in bytes, intervals in milliseconds.

    They are read on every use, so the broker may change any field while the store runs. Only the
    paths and the two file sizes are fixed, by the first file on the disk.
    """

    root: Path
    """Holds ``consumequeue``, ``checkpoint``, ``abort`` and ``lock``."""
    store_host: bytes
    """Packed address and port written into every record: 8 bytes, 20 for IPv6."""
    commit_log_path: Path | None = None
    """Default: ``commitlog`` under :attr:`root`. Its parent must be on the same file system."""
    broker_role: str = "ASYNC_MASTER"
    """ASYNC_MASTER, SYNC_MASTER or SLAVE. A slave refuses appends and takes raw log bytes."""
    mapped_file_bytes: int = 1 << 30
    """Exact size of a commit-log file. Another value than the files on disk have is refused."""
    consume_queue_file_bytes: int = 6_000_000
    """Exact size of a consume-queue file, rounded up to whole entries. 300 000 entries."""
    max_message_bytes: int = 4 << 20
    """Largest body; a whole record may have 65 536 more."""
    flush_disk_type: str = "ASYNC_FLUSH"
    """SYNC_FLUSH makes the broker wait for the disk before it answers a send."""
    flush_interval_ms: float = 500
    flush_timed: bool = True
    """ASYNC_FLUSH: whether the log is flushed in intervals only. False: as soon as enough pages
    are dirty, at the latest after the interval. 4.4.0 did so; more syncs, less to lose."""
    flush_least_pages: int = 4
    """Dirty 4 KiB pages below which a timed flush waits for the thorough one."""
    flush_thorough_interval_ms: float = 10_000
    """The longest a quiet log stays unflushed with ASYNC_FLUSH."""
    sync_flush_timeout_ms: float = 5_000
    consume_queue_flush_interval_ms: float = 1_000
    consume_queue_flush_least_pages: int = 2
    consume_queue_flush_thorough_interval_ms: float = 60_000
    """After this one the checkpoint is written; longer means more to re-read after a crash."""
    check_crc_on_recover: bool = True
    access_message_in_memory_max_ratio: int = 40
    """Percent of :attr:`physical_memory_bytes` behind the log's end that count as in memory."""
    max_transfer_bytes_in_memory: int = 262_144
    max_transfer_count_in_memory: int = 32
    max_transfer_bytes_on_disk: int = 65_536
    max_transfer_count_on_disk: int = 8
    offset_check_in_slave: bool = False
    """Whether a slave corrects a pull offset outside its queue, as a master does."""
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    delay_scale: float = 1.0
    """Multiplies the delays."""
    physical_memory_bytes: int = field(default_factory=machine_memory_bytes)
    delete_when: str = "04"
    """Hours of the day, local time, ``;`` between them, in which expired files are deleted."""
    file_reserved_ms: int = 72 * 3_600_000
    """A log file may go when it was last written so long ago."""
    disk_max_used_ratio: int = 75
    """Percent of the disk above which expired files are deleted at any hour."""
    clean_file_forcibly: bool = True
    """Whether files of any age go where the disk is nearly full."""
    delete_log_files_interval_ms: float = 100
    message_index_enable: bool = True
    """Whether new records are found by their keys."""
    max_hash_slot_num: int = 5_000_000
    """Slots of an index file. A file of another size is removed and its records entered again."""
    max_index_num: int = 20_000_000
    """Entries of an index file, one more than it takes."""
    max_msgs_num_batch: int = 64
    """The most records that one question by key brings."""
    max_mapped_log_files: int = 4
    """Log files mapped at a time; the coldest is unmapped first."""
    max_mapped_queue_files: int = field(default_factory=queue_files_to_keep_open)
    """Queue files open and mapped at a time, two descriptors each."""

    @property
    def commit_log_directory(self) -> Path:
        return self.commit_log_path or self.root / "commitlog"

    @property
    def consume_queue_directory(self) -> Path:
        return self.root / "consumequeue"

    @property
    def index_directory(self) -> Path:
        return self.root / "index"

    @property
    def queue_file_bytes(self) -> int:
        """:attr:`consume_queue_file_bytes` rounded up to whole entries."""
        return -(-self.consume_queue_file_bytes // ENTRY_BYTES) * ENTRY_BYTES

    @property
    def is_slave(self) -> bool:
        return self.broker_role == "SLAVE"

    @property
    def in_memory_bytes(self) -> int:
        """How far behind the log's end a record still counts as in memory."""
        return self.physical_memory_bytes * self.access_message_in_memory_max_ratio // 100
