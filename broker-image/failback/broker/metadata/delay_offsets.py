"""``config/delayOffset.json``: how far every delay level has been delivered.

The delay service and replication use it. A master answers GET_ALL_DELAY_OFFSET (45) with the table.
A slave writes the answer to its file and does not read it. Source: ScheduleMessageService and
SlaveSynchronize, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from pathlib import Path

from failback.broker.metadata.json_config import load_json_config, persist_json_config
from failback.protocol.route import DelayOffsetTable


class DelayOffsets:
    """Next queue offset of SCHEDULE_TOPIC_XXXX per delay level (level n is queue n - 1)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.table: dict[int, int] = {}

    def to_json(self) -> bytes:
        """Return the body that answers GET_ALL_DELAY_OFFSET: the table in memory."""
        return DelayOffsetTable(self.table).to_json(unquoted_int_keys=True)

    def write_from_master(self, body: bytes) -> None:
        """Keep a master's answer in the file, byte for byte; the table is not touched.

        Raises:
            ProtocolError: ``body`` is no delay offset table.
            OSError: The file could not be written.
        """
        DelayOffsetTable.from_json(body)
        persist_json_config(self._path, body.decode())

    def load(self) -> None:
        """Read the file, or its ``.bak``; with neither the table is empty.

        Raises:
            CorruptStore: Both are there and unreadable.
        """
        self.table = load_json_config(self._path, _decode) or {}

    def persist(self) -> None:
        """Write the table in memory.

        Raises:
            OSError: The file could not be written.
        """
        text = DelayOffsetTable(self.table).to_json(pretty=True).decode()
        persist_json_config(self._path, text)


def _decode(text: str) -> dict[int, int]:
    return DelayOffsetTable.from_json(text).offset_table
