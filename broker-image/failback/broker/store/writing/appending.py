"""Appending: records are laid out, get their places and wait in the pending run of the log.

One call for each message, or one for a batch. Nothing is written here: the run goes to the disk
when the store commits it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from failback.broker.native import kernels
from failback.broker.store.config import StoreConfig
from failback.broker.store.index.index_keys import RecordParts
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.log.record import (
    MAX_PROPERTIES_BYTES,
    TAGS,
    has_queue_entry,
    pack_property_length,
    tags_code_of,
)
from failback.broker.store.log.results import (
    Appended,
    AppendedBatch,
    MessageIllegal,
    ServiceNotAvailable,
)
from failback.broker.store.queues.consume_queue import ENTRY, ConsumeQueue
from failback.broker.store.queues.queue_table import QueueTable
from failback.broker.store.writing.dispatch import Dispatcher
from failback.protocol.codes import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
)
from failback.protocol.message import RECORD_HEADS, V1_MAGIC, BatchElement, decode_batch

_RECORD_OVERHEAD_LIMIT: Final = 65_536
"""What a record may have beyond ``max_message_bytes``."""

_HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6

_LaidOut = tuple[bytes, list[bytes], list[int], "list[RecordParts]", list[int]]
"""Records, queue entries, tags codes, what the index needs, places."""
_Encoded = bytes | memoryview
_measure_batch: Final[Callable[[_Encoded, bytes, int], tuple[int, int] | None] | None] = (
    kernels.measure_batch if kernels is not None else None
)
_lay_out_batch: Final[
    Callable[[_Encoded, bytes, bytes, bytes, int, int, int, int, int], _LaidOut] | None
] = kernels.lay_out_batch if kernels is not None else None


class Appender:
    """Adds records to the pending run of the log and their entries to the pending of their queues.

    Attributes:
        refusal: Why messages are refused; None while they are accepted.
        store_timestamp: Of the last record, ms.
        touched: Queues with pending entries.
        keyed: Of the pending records, those that the index may have keys of.
    """

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        clock_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._clock_ms = clock_ms
        self.refusal: str | None = "the store is not loaded"
        self.store_timestamp = 0
        self.touched: dict[ConsumeQueue, None] = {}
        self.keyed: list[RecordParts] = []

    @property
    def is_writable(self) -> bool:
        return self.refusal is None and not self._config.is_slave

    def append(
        self,
        *,
        topic: bytes,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        body: bytes,
        properties: bytes,
        tags_code: int,
        prepared_transaction_offset: int = 0,
        was_accepted: bool = False,
    ) -> Appended:
        """Add one record to the pending run; ``commit_pending`` writes it.

        One of a message that ``was_accepted`` before may be larger than the configuration allows
        now. Hosts are packed (``pack_host``). ``tags_code`` is the hash of the TAGS property; the
        delivery time of a delayed message is worked out here, since it depends on the store's
        clock.

        Raises:
            MessageIllegal: A limit is broken; the pending run is as before.
            ServiceNotAvailable: The store takes no writes, or the disk has no room for this one.
            WriteFailed: The disk is broken.
        """
        if self.refusal is not None or self._config.broker_role == "SLAVE":
            raise ServiceNotAvailable(self.refusal or "this broker is a slave")
        queue = self._queues.find(topic, queue_id) or self._queues.find_or_create(topic, queue_id)
        store_host = self._config.store_host
        body_bytes, property_bytes = len(body), len(properties)
        size = queue.fixed_bytes + body_bytes + property_bytes
        if sys_flag & _HOST_BITS or len(born_host) != 8 or len(store_host) != 8:
            sys_flag, size = _with_hosts(sys_flag, size, born_host, store_host)
        limit = self._config.max_message_bytes
        if (
            body_bytes > limit
            or property_bytes > MAX_PROPERTIES_BYTES
            or size > limit + _RECORD_OVERHEAD_LIMIT
        ) and not (was_accepted and property_bytes <= MAX_PROPERTIES_BYTES):
            raise MessageIllegal(
                f"body of {body_bytes}, properties of {property_bytes}, record of {size} bytes; "
                f"the body's limit is {limit}"
            )
        log = self._log
        if log.pending_tail == log.tail:
            self._read_clock()
        store_timestamp = self.store_timestamp
        entered = has_queue_entry(sys_flag) if sys_flag & TRANSACTION_MASK else True
        queue_offset = queue.next_offset if entered else 0
        physical_offset = log.place(size)
        try:
            head = RECORD_HEADS[len(born_host), len(store_host)].pack(
                size,
                V1_MAGIC,
                zlib.crc32(body) & 0x7FFFFFFF,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
                body_bytes,
            )
        except struct.error as error:
            log.pending_tail = physical_offset
            raise MessageIllegal(f"a number does not fit its field: {error}") from error
        log.pieces += (
            head,
            body,
            queue.topic_piece,
            pack_property_length(property_bytes),
            properties,
        )
        if entered:
            if queue.is_schedule:
                tags_code = self._dispatcher.entry_code(queue, properties, store_timestamp)
            queue.add(physical_offset, size, tags_code)
            self.touched[queue] = None
        if sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            self.keyed.append((physical_offset, store_timestamp, queue.topic_piece, properties))
        return Appended(physical_offset, queue_offset, physical_offset + size, store_timestamp)

    def room(self) -> tuple[int, int, int, bytes] | None:
        """Return what a run of records has to keep to; None while none is taken without a look.

        Where it begins, where it must end, the largest body, and the store host.
        """
        if not self.is_writable:
            return None
        log, config = self._log, self._config
        if log.room_end <= log.pending_tail:
            return None
        return log.pending_tail, log.room_end, config.max_message_bytes, config.store_host

    def find(self, topic: bytes, queue_id: int) -> tuple[ConsumeQueue, int] | None:
        """Return a queue that is in use and the store timestamp of a run; None without such."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.is_schedule:
            return None
        if self._log.pending_tail == self._log.tail:
            self._read_clock()
        return queue, self.store_timestamp

    def append_run(self, records: bytes, end_offset: int, keyed: list[RecordParts]) -> None:
        """Add records that were laid out from where :meth:`room` said to ``end_offset``.

        The caller adds their entries to the queues, and these to :attr:`touched`.
        """
        self._log.pieces.append(records)
        self._log.pending_tail = end_offset
        self.keyed += keyed

    def append_batch(
        self,
        *,
        topic: bytes,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        elements: Sequence[BatchElement],
        batch_properties: bytes,
    ) -> AppendedBatch:
        """Add all messages of a batch, or none of them.

        They get consecutive queue offsets, one store timestamp and adjacent places in one file.
        ``batch_properties`` are added to those of each element.

        Raises:
            MessageIllegal: A limit is broken, for one element or for the sum.
            ServiceNotAvailable: The store takes no writes.
        """
        self._check_takes_batch(sys_flag)
        shared_bytes = len(elements) * len(batch_properties)
        if shared_bytes > self._log.files.file_bytes:  # they would take that much memory, too
            raise MessageIllegal(f"properties of {shared_bytes} bytes do not fit a file")
        joined = _join_properties(elements, batch_properties)
        self._check_batch(elements, joined)
        queue = self._queues.find_or_create(topic, queue_id)
        store_host = self._config.store_host
        sys_flag, fixed = _with_hosts(sys_flag, queue.fixed_bytes, born_host, store_host)
        log = self._log
        if log.pending_tail == log.tail:
            self._read_clock()
        store_timestamp = self.store_timestamp
        sizes = [
            fixed + len(element.body) + len(properties)
            for element, properties in zip(elements, joined, strict=True)
        ]
        start = physical_offset = log.place(sum(sizes))
        first_queue_offset = queue_offset = queue.next_offset
        # Not append() for each: what the elements share is worked out once, and a failure leaves
        # nothing behind.
        pack, crc32 = RECORD_HEADS[len(born_host), len(store_host)].pack, zlib.crc32
        topic_piece, pack_entry, pack_length = queue.topic_piece, ENTRY.pack, pack_property_length
        shared = (
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            0,  # preparedTransactionOffset
        )
        pieces: list[bytes] = []
        entries: list[bytes] = []
        codes: list[int] = []
        keyed: list[RecordParts] = []
        try:
            for element, properties, size in zip(elements, joined, sizes, strict=True):
                body = element.body
                pieces += (
                    pack(
                        size,
                        V1_MAGIC,
                        crc32(body) & 0x7FFFFFFF,
                        queue_id,
                        element.flag,
                        queue_offset,
                        physical_offset,
                        *shared,
                        len(body),
                    ),
                    body,
                    topic_piece,
                    pack_length(len(properties)),
                    properties,
                )
                code = 0
                if queue.is_schedule:
                    code = self._dispatcher.entry_code(queue, properties, store_timestamp)
                elif TAGS in properties:
                    code = tags_code_of(properties)
                entries.append(pack_entry(physical_offset, size, code))
                codes.append(code)
                keyed.append((physical_offset, store_timestamp, topic_piece, properties))
                physical_offset += size
                queue_offset += 1
        except struct.error as error:
            log.pending_tail = start
            raise MessageIllegal(f"a number does not fit its field: {error}") from error
        log.pieces += pieces
        self.keyed += keyed
        if entries:
            queue.add_run(entries, codes, physical_offset)
            self.touched[queue] = None
        places = [parts[0] for parts in keyed]
        return AppendedBatch(places, first_queue_offset, physical_offset, store_timestamp)

    def append_encoded_batch(
        self,
        *,
        topic: bytes,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        body: _Encoded,
        batch_properties: bytes,
    ) -> AppendedBatch:
        """Add all messages of a batch that is as its producer packed it, or none of them.

        As :meth:`append_batch` of what ``decode_batch`` finds, at a tenth of the cost where there
        are kernels. What those don't know, and every error, is left to the former.

        Raises:
            MessageIllegal: As append_batch, or there is no message.
            ServiceNotAvailable: The store takes no writes.
            ProtocolError: The lengths in ``body`` contradict each other.
        """
        appended = self._lay_out(
            topic,
            queue_id,
            sys_flag,
            born_timestamp,
            born_host,
            reconsume_times,
            body,
            batch_properties,
        )
        if appended is not None:
            return appended
        elements = decode_batch(body)
        if not elements:
            raise MessageIllegal("the batch holds no message")
        return self.append_batch(
            topic=topic,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            born_host=born_host,
            reconsume_times=reconsume_times,
            elements=elements,
            batch_properties=batch_properties,
        )

    def _lay_out(
        self,
        topic: bytes,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        body: _Encoded,
        batch_properties: bytes,
    ) -> AppendedBatch | None:
        """Add a plain batch with the kernels; None if it is none, and nothing of it was added."""
        if _measure_batch is None or _lay_out_batch is None:
            return None
        measured = _measure_batch(body, batch_properties, self._config.max_message_bytes)
        if measured is None:
            return None
        self._check_takes_batch(sys_flag)
        queue = self._queues.find(topic, queue_id) or self._queues.find_or_create(topic, queue_id)
        if queue.is_schedule:
            return None
        store_host = self._config.store_host
        sys_flag, fixed = _with_hosts(sys_flag, queue.fixed_bytes, born_host, store_host)
        log = self._log
        if log.pending_tail == log.tail:
            self._read_clock()
        store_timestamp = self.store_timestamp
        try:
            # The kernel fills in the zeros: they differ from message to message.
            head = RECORD_HEADS[len(born_host), len(store_host)].pack(
                *(0, V1_MAGIC, 0, queue_id, 0, 0, 0, sys_flag, born_timestamp, born_host),
                *(store_timestamp, store_host, reconsume_times, 0, 0),
            )
        except struct.error:
            return None
        count, payload_bytes = measured
        total = count * fixed + payload_bytes
        start, queue_offset = log.place(total), queue.next_offset
        try:
            records, entries, codes, keyed, places = _lay_out_batch(
                body,
                batch_properties,
                head,
                queue.topic_piece,
                store_timestamp,
                count,
                total,
                queue_offset,
                start,
            )
        except BaseException:  # no memory, or a fault of ours: the log must not have a gap
            log.pending_tail = start
            raise
        log.pieces.append(records)
        self.keyed += keyed
        queue.add_run(entries, codes, start + total)
        self.touched[queue] = None
        return AppendedBatch(places, queue_offset, start + total, store_timestamp)

    def _check_takes_batch(self, sys_flag: int) -> None:
        if not self.is_writable:
            raise ServiceNotAvailable(self.refusal or "this broker is a slave")
        if sys_flag & TRANSACTION_MASK:
            raise MessageIllegal("a batch can't be part of a transaction")

    def _check_batch(self, elements: Sequence[BatchElement], joined: Sequence[bytes]) -> None:
        limit = self._config.max_message_bytes
        if sum([len(element.body) for element in elements]) > limit:
            raise MessageIllegal(f"the bodies of a batch together are above {limit} bytes")
        longest = max(map(len, joined), default=0)
        if longest > MAX_PROPERTIES_BYTES:
            raise MessageIllegal(f"properties of {longest} bytes")

    def take_keyed(self) -> list[RecordParts]:
        """Return :attr:`keyed` and begin a new one."""
        keyed, self.keyed = self.keyed, []
        return keyed

    def _read_clock(self) -> None:
        """Read the clock for the pending run; store timestamps never decrease."""
        self.store_timestamp = max(self.store_timestamp, self._clock_ms())


def _with_hosts(sys_flag: int, size: int, born_host: bytes, store_host: bytes) -> tuple[int, int]:
    """Return the flag and the size of a record with these hosts instead of two IPv4 ones.

    Raises:
        MessageIllegal: A host has neither 8 nor 20 bytes.
    """
    sys_flag &= ~_HOST_BITS
    for host, bit in ((born_host, BORN_HOST_V6), (store_host, STORE_HOST_V6)):
        if len(host) == 20:
            sys_flag |= bit
            size += 12
        elif len(host) != 8:
            raise MessageIllegal(f"host of {len(host)} bytes")
    return sys_flag, size


def _join_properties(elements: Sequence[BatchElement], batch: bytes) -> list[bytes]:
    """Return the properties of a batch's messages: the own ones, then those of the batch."""
    if not batch:
        return [element.properties for element in elements]
    behind = b"\x02" + batch
    return [
        own + behind if (own := element.properties) and own[-1] != 2 else own + batch
        for element in elements
    ]
