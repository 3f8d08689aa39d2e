"""The consume-log hook: where a client says what it does, and the writer that keeps it.

:class:`ConsumeHook` does nothing and is the default. :class:`LogHook` writes the tables of
``failback.client.consumelog``. Both are called on the event loop's thread, synchronously: the
begin row of a delivery is stored before the handler runs, or the handler does not run.

Times are nanoseconds of ``Clock.mono_ns``. ``queue`` is always the physical queue, so the topic in
it is the one that the group pulls from, ``%RETRY%group`` included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from failback.client.consumelog.hot_format import ConsumeLogError
from failback.client.consumelog.lab_id import LAB_ID_PROPERTY, parse_lab_id
from failback.client.model import Message
from failback.protocol.body import MessageQueue
from failback.protocol.message import KEYS, ORIGIN_MESSAGE_ID, UNIQ_KEY, MessageExt

if TYPE_CHECKING:
    from failback.client.consumelog.writer import ConsumeLog

OrderKeyOf = Callable[[MessageExt], tuple[str | None, int | None]]
"""Finds ordering key and its sequence in a received message; the workload knows its own bodies."""


@dataclass(frozen=True, slots=True)
class StartOffset:
    """Where a queue begins after an assignment, and how that was found out.

    Attributes:
        offset: First offset to pull, or negative: not known, the queue waits for the next round.
        source: STORE, MAX, MIN, TIMESTAMP or MEMORY (``consumelog.schema.ASSIGN_SOURCES``).
        branch: The rule that decided, in the client's words.
        addr, broker_id: The broker that answered.
        code: The answer's code to the offset query; 0 is success, ``None`` no answer.
    """

    offset: int
    source: str
    branch: str
    addr: str | None = None
    broker_id: int | None = None
    code: int | None = None


@dataclass(slots=True)
class PullRecord:
    """One pull attempt: filled in while it goes on, reported once at its end."""

    pull_id: int
    pqe: int
    queue: MessageQueue
    req_offset: int
    t0: int
    commit_offset: int | None = None
    commit_bit: bool = False
    addr: str | None = None
    broker_id: int | None = None
    channel: int | None = None
    t1: int = 0
    result: str = "ERR"
    code: int | None = None
    next_offset: int | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    count: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    suggested: int | None = None


@dataclass(slots=True)
class ProduceRecord:
    """One send attempt. ``result`` is one of ``consumelog.schema.SEND_RESULTS``."""

    message: Message
    attempt: int
    t0: int
    queue: MessageQueue | None = None
    addr: str | None = None
    broker_id: int | None = None
    t1: int = 0
    result: str = "UNKNOWN"
    code: int | None = None
    offset_msg_id: str | None = None
    queue_offset: int | None = None


class ConsumeHook:
    """Does nothing. Subclass it and override what is of interest."""

    def bind(self, on_failure: Callable[[Exception], None]) -> None:
        """Register what to call when rows can no longer be stored."""

    def produce(self, record: ProduceRecord) -> None:
        """A send attempt ended."""

    def pull(self, group: str, record: PullRecord) -> None:
        """A pull attempt ended."""

    def deliver_begin(
        self,
        group: str,
        client_id: str,
        call_id: int,
        pqe: int,
        pull_id: int | None,
        queue: MessageQueue,
        message: MessageExt,
    ) -> int:
        """A handler is about to get ``message``. Returns the delivery's id, for its end."""
        return 0

    def deliver_end(
        self, did: int, status: str, applied: bool | None, remove_result: int | None
    ) -> None:
        """The handler returned. ``applied`` is false if the queue was given up meanwhile."""

    def assign(
        self, group: str, client_id: str, pqe: int, queue: MessageQueue, t: int, start: StartOffset
    ) -> None:
        """A queue was taken."""

    def assign_end(
        self, group: str, pqe: int, queue: MessageQueue, end_t: int, reason: str
    ) -> None:
        """A queue was given up."""

    def rebalance(
        self,
        group: str,
        topic: str,
        t: int,
        trigger: str,
        answered_by: str | None,
        members: Sequence[str],
        queues: int,
        result: int,
    ) -> None:
        """A topic was rebalanced; ``members`` is empty when the list was not to be had."""

    def commit(
        self,
        group: str,
        client_id: str,
        queue: MessageQueue,
        offset: int,
        *,
        previous: int | None,
        kind: str,
        addr: str | None,
        broker_id: int | None,
        t: int,
        sent: bool,
        result: str | None,
    ) -> None:
        """An offset was committed, or that failed."""

    def sendback(
        self,
        group: str,
        client_id: str,
        message: MessageExt,
        *,
        rt_next: int,
        reason: str,
        path: str,
        ok: bool,
        addr: str | None,
        t0: int,
        t1: int,
    ) -> None:
        """A failed message was sent back, or that failed."""

    def route(self, topic: str, before: str | None, after: str | None, trigger: str) -> None:
        """The cached route of a topic changed."""

    def heartbeat(self, addr: str, ok: bool, code: int | None) -> None:
        """A heartbeat was sent."""

    def life(self, state: str) -> None:
        """The client changed its state."""


NO_HOOK = ConsumeHook()


class LogHook(ConsumeHook):
    """Writes every table through a :class:`ConsumeLog`.

    A failed write calls everything bound by :meth:`bind`: clients stop then. Nothing may be handled
    or sent that isn't logged. So :meth:`deliver_begin` and :meth:`produce` raise from then on. The
    other rows, which accompany what has happened, are left out in silence.

    Args:
        log: One per process; its ``proc_no`` is the ``inc`` of all rows.
        order_key_of: Finds ordering key and sequence for ``deliver`` rows.
    """

    def __init__(self, log: ConsumeLog, order_key_of: OrderKeyOf | None = None) -> None:
        self._log = log
        self._order_key_of = order_key_of
        self._on_failure: list[Callable[[Exception], None]] = []
        self._failure: Exception | None = None
        self._omid_prefixes: dict[tuple[str, int], bytes] = {}

    def bind(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure.append(on_failure)

    def produce(self, record: ProduceRecord) -> None:
        message, queue = record.message, record.queue
        lane, lseq = _lane_of(message.properties.get(LAB_ID_PROPERTY))
        self._check()
        self._write(
            "produce",
            lane=lane,
            lseq=lseq,
            att=record.attempt,
            ukey=message.properties.get(UNIQ_KEY),
            topic=message.topic,
            broker=queue.broker_name if queue else None,
            qid=queue.queue_id if queue else None,
            bid=record.broker_id,
            addr=record.addr,
            due=message.due_ns if message.due_ns is not None else record.t0,
            t0=record.t0,
            t1=record.t1,
            res=record.result,
            code=record.code,
            offset_msg_id=_id_bytes(record.offset_msg_id),
            queue_offset=record.queue_offset,
            okey=message.okey,
            kseq=message.kseq,
        )
        self._check()

    def pull(self, group: str, record: PullRecord) -> None:
        queue = record.queue
        self._write(
            "pull",
            pull_id=record.pull_id,
            grp=group,
            inc=self._log.proc_no,
            pqe=record.pqe,
            broker=queue.broker_name,
            ptopic=queue.topic,
            qid=queue.queue_id,
            req_offset=record.req_offset,
            commit_offset=record.commit_offset,
            commit_bit=record.commit_bit,
            addr=record.addr,
            bid=record.broker_id,
            chan=record.channel,
            t0=record.t0,
            t1=record.t1,
            res=record.result,
            code=record.code,
            next=record.next_offset,
            min=record.min_offset,
            max=record.max_offset,
            n=record.count,
            first_off=record.first_offset,
            last_off=record.last_offset,
            suggested=record.suggested,
        )

    def deliver_begin(
        self,
        group: str,
        client_id: str,
        call_id: int,
        pqe: int,
        pull_id: int | None,
        queue: MessageQueue,
        message: MessageExt,
    ) -> int:
        properties = message.properties
        lane, lseq = _lane_of(properties.get(LAB_ID_PROPERTY))
        okey, kseq = self._order_key_of(message) if self._order_key_of else (None, None)
        self._check()
        try:
            return self._log.deliver_begin(
                call_id,
                group,
                client_id,
                pqe,
                pull_id,
                queue.broker_name,
                queue.topic,
                queue.queue_id,
                message.queue_offset,
                message.physical_offset,
                self._omid(message),
                properties.get(UNIQ_KEY),
                properties.get(KEYS),
                lane,
                lseq,
                okey,
                kseq,
                message.topic,
                message.reconsume_times,
                properties.get(ORIGIN_MESSAGE_ID),
                message.born_timestamp,
                message.store_timestamp,
                message.body_crc,
            )
        except ConsumeLogError as error:
            self._failed(error)
            raise

    def deliver_end(
        self, did: int, status: str, applied: bool | None, remove_result: int | None
    ) -> None:
        if self._failure is None:
            try:
                self._log.deliver_end(did, status, applied, remove_result)
            except ConsumeLogError as error:
                self._failed(error)

    def assign(
        self, group: str, client_id: str, pqe: int, queue: MessageQueue, t: int, start: StartOffset
    ) -> None:
        self._write(
            "assign",
            grp=group,
            inc=self._log.proc_no,
            pqe=pqe,
            broker=queue.broker_name,
            ptopic=queue.topic,
            qid=queue.queue_id,
            t=t,
            start_off=start.offset,
            src=start.source,
            src_addr=start.addr,
            src_bid=start.broker_id,
            read_code=start.code,
            branch=start.branch,
            client_id=client_id,
        )

    def assign_end(
        self, group: str, pqe: int, queue: MessageQueue, end_t: int, reason: str
    ) -> None:
        self._write(
            "assign_end",
            inc=self._log.proc_no,
            pqe=pqe,
            broker=queue.broker_name,
            ptopic=queue.topic,
            qid=queue.queue_id,
            end_t=end_t,
            end_reason=reason,
        )

    def rebalance(
        self,
        group: str,
        topic: str,
        t: int,
        trigger: str,
        answered_by: str | None,
        members: Sequence[str],
        queues: int,
        result: int,
    ) -> None:
        self._write(
            "rebalance",
            grp=group,
            inc=self._log.proc_no,
            ltopic=topic,
            t=t,
            trigger=trigger,
            answered_by=answered_by,
            members=list(members),
            queues=queues,
            result=result,
        )

    def commit(
        self,
        group: str,
        client_id: str,
        queue: MessageQueue,
        offset: int,
        *,
        previous: int | None,
        kind: str,
        addr: str | None,
        broker_id: int | None,
        t: int,
        sent: bool,
        result: str | None,
    ) -> None:
        self._write(
            "commit",
            grp=group,
            inc=self._log.proc_no,
            broker=queue.broker_name,
            ptopic=queue.topic,
            qid=queue.queue_id,
            off=offset,
            prev=previous,
            kind=kind,
            addr=addr,
            bid=broker_id,
            t=t,
            sent=sent,
            result=result,
            client_id=client_id,
        )

    def sendback(
        self,
        group: str,
        client_id: str,
        message: MessageExt,
        *,
        rt_next: int,
        reason: str,
        path: str,
        ok: bool,
        addr: str | None,
        t0: int,
        t1: int,
    ) -> None:
        lane, lseq = _lane_of(message.properties.get(LAB_ID_PROPERTY))
        self._write(
            "sendback",
            lane=lane,
            lseq=lseq,
            grp=group,
            omid=self._omid(message),
            rt_next=rt_next,
            reason=reason,
            path=path,
            ok=ok,
            addr=addr,
            t0=t0,
            t1=t1,
            client_id=client_id,
            ukey=message.properties.get(UNIQ_KEY),
        )

    def route(self, topic: str, before: str | None, after: str | None, trigger: str) -> None:
        self._write("route", before=before, after=after, trigger=f"{trigger}:{topic}")

    def heartbeat(self, addr: str, ok: bool, code: int | None) -> None:
        self._write("heartbeat", addr=addr, ok=ok, code=code)

    def life(self, state: str) -> None:
        self._write("life", state=state)

    def _write(self, table: str, **columns: object) -> None:
        if self._failure is None:
            try:
                self._log.write(table, **columns)
            except ConsumeLogError as error:
                self._failed(error)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: Exception) -> None:
        self._failure = error
        for on_failure in self._on_failure:
            on_failure(error)

    def _omid(self, message: MessageExt) -> bytes:
        """The decoded offsetMsgId: store host and physical offset, 16 or 28 bytes."""
        prefix = self._omid_prefixes.get(message.store_host)
        if prefix is None:
            prefix = bytes.fromhex(message.offset_msg_id)[:-8]
            self._omid_prefixes[message.store_host] = prefix
        return prefix + message.physical_offset.to_bytes(8, "big", signed=True)


def _lane_of(lab_id: str | None) -> tuple[int | None, int | None]:
    return parse_lab_id(lab_id) or (None, None)


def _id_bytes(offset_msg_id: str | None) -> bytes | None:
    """Decode an offsetMsgId; of a batch's comma list the first."""
    return bytes.fromhex(offset_msg_id.split(",", 1)[0]) if offset_msg_id else None
