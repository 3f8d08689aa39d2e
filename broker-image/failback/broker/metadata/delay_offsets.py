"""``config/delayOffset.json``: how far every delay level has been delivered.

The delay service and replication use it. A master answers GET_ALL_DELAY_OFFSET (45) with the table.
A slave writes the answer to its file and does not read it. Source: ScheduleMessageService and
SlaveSynchronize, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from failback.broker.metadata.json_config import TableFile, table_of
from failback.protocol.route import DelayOffsetTable


class DelayOffsets:
    """Next queue offset of SCHEDULE_TOPIC_XXXX per delay level (level n is queue n - 1)."""

    def __init__(self, path: Path, *, is_atomic: Callable[[], bool] = lambda: False) -> None:
        """``is_atomic`` tells for each persist whether the file is replaced in one, synced step."""
        self.file = TableFile(path, is_atomic)
        self.table: dict[int, int] = {}

    def to_json(self) -> bytes:
        """Return the body that answers GET_ALL_DELAY_OFFSET: the table in memory."""
        return DelayOffsetTable(self.table).to_json(unquoted_int_keys=True)

    def write_from_master(self, body: bytes) -> None:
        """Keep a master's answer in the file, byte for byte; the table is not touched.

        Raises:
            ProtocolError: ``body`` is no delay offset table.
            OSError: The disk is broken or read-only.
        """
        DelayOffsetTable.from_json(body)
        text = body.decode()
        self.file.keep(lambda: text)

    def load(self) -> None:
        """Read the file, or its ``.bak``; with neither the table is empty.

        Raises:
            CorruptStore: It is there, can't be read, and its ``.bak`` is no help.
        """
        loaded = self.file.load(table_of(DelayOffsetTable))
        self.table = {} if loaded is None else loaded.offset_table

    def persist(self) -> None:
        """Write the table in memory.

        Raises:
            OSError: The disk is broken or read-only.
        """
        self.file.keep(lambda: DelayOffsetTable(self.table).to_json(pretty=True).decode())
