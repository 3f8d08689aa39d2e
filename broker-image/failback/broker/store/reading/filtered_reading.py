"""Reading through a filter over properties: every record is read, not only its queue entry.

Which records count as in memory, and with them the limits of an answer, is decided as in
``reading.py`` (the 40 % test): a change of one is a change of both.

DefaultMessageStore.getMessage with a filter of the commit log, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from failback.broker.store.config import StoreConfig
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.log.record import Record, read_record
from failback.broker.store.log.results import GetResult, GetStatus
from failback.broker.store.queues.consume_queue import ENTRY
from failback.protocol.message import decode_properties

PropertyFilter = Callable[[Mapping[str, str]], bool]


def scan_filtered(
    log: CommitLog,
    config: StoreConfig,
    entries: memoryview,
    *,
    queue_offset: int,
    ends: tuple[int, int],
    max_messages: int,
    matches: PropertyFilter,
) -> GetResult:
    """Walk ``entries``, which begin at ``queue_offset`` of a queue with these two ends."""
    in_memory_from = log.tail - config.in_memory_bytes
    file_bytes, log_start = log.files.file_bytes, log.min_offset
    status = GetStatus.NO_MATCHED_MESSAGE
    chunks: list[memoryview] = []
    examined = total = 0
    skip_below = last_examined = -1
    for physical_offset, size, _ in ENTRY.iter_unpack(entries):
        last_examined = physical_offset
        if physical_offset < skip_below:
            examined += 1
            continue
        if physical_offset < in_memory_from:
            most, most_bytes = config.max_transfer_count_on_disk, config.max_transfer_bytes_on_disk
        else:
            most = config.max_transfer_count_in_memory
            most_bytes = config.max_transfer_bytes_in_memory
        if chunks and (len(chunks) >= min(most, max_messages) or total + size > most_bytes):
            break
        examined += 1
        view = log.read(physical_offset, size) if physical_offset >= log_start else memoryview(b"")
        if len(view) != size:
            skip_below = physical_offset - physical_offset % file_bytes + file_bytes
            status = GetStatus.MESSAGE_WAS_REMOVING
            continue
        record = read_record(view, 0, physical_offset, check_crc=False)
        skip_below = -1
        if isinstance(record, Record) and matches(_properties_of(record)):
            chunks.append(view)
            total += size
        else:
            status = GetStatus.NO_MATCHED_MESSAGE
    low, high = ends
    return GetResult(
        GetStatus.FOUND if chunks else status,
        queue_offset + examined,
        low,
        high,
        last_examined < in_memory_from,
        tuple(chunks),
        len(chunks),
        total,
    )


def _properties_of(record: Record) -> dict[str, str]:
    """Decode as Java does: bytes that are no UTF-8 must not stop a queue."""
    return decode_properties(record.properties.decode(errors="replace"))
