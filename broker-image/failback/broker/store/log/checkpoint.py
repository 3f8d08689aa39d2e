"""The checkpoint file: up to which store timestamp log and queues are known to be on disk.

One page of 4096 bytes, three int64 in front, big-endian, ms:

    | log flushed | queues written and flushed | last full index file |

An unclean start re-reads the log from the last file that begins 3 seconds before both of the
first two. Source: StoreCheckpoint, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from threading import Lock
from typing import Final

from failback.broker.disk_errors import is_fatal
from failback.broker.store.log.files import Files
from failback.common.text import why

logger = logging.getLogger(__name__)

CHECKPOINT_BYTES: Final = 4096
_LAYOUT: Final = struct.Struct(">qqq")
_SLACK_MS: Final = 3000


class StoreCheckpoint:
    """The three times, in memory; :meth:`write` brings them to the disk."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._writing = Lock()
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0

    def load(self) -> None:
        """Read the file, created if there is none. A short one counts as zeros."""
        data = self._files.read_small(self._path)
        if data is None or len(data) != CHECKPOINT_BYTES:
            self._files.delete(self._path)
            self._files.create(self._path, CHECKPOINT_BYTES, durable=True)
            data = bytes(CHECKPOINT_BYTES)
        self._write_at_start(data)
        times = _LAYOUT.unpack_from(data)
        self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp = times

    @property
    def recover_from(self) -> int:
        """Store timestamp before which log and queues are complete on disk, ms."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SLACK_MS, 0)

    def write(self) -> None:
        """Write and sync. Queues and index call it from threads of theirs."""
        with self._writing:
            times = (self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)
            handle = self._files.open(self._path)
            try:
                # 24 bytes in one sector: there is no state between old and new.
                handle.write_at(0, _LAYOUT.pack(*times))
                handle.sync()
            finally:
                handle.close()

    def _write_at_start(self, data: bytes) -> None:
        """Write the first bytes once: they have their room on a disk that is full later."""
        handle = self._files.open(self._path)
        try:
            handle.write_at(0, data)
        except OSError as error:
            if is_fatal(error):
                raise
            logger.warning("%s has no place on the disk yet: %s", self._path, why(error))
        finally:
            handle.close()
