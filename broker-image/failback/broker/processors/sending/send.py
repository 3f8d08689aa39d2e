"""SEND_MESSAGE (10, 310, 320): checks, what is stored, and when the answer may go.

:meth:`SendProcessor.fast` is the hot path: one typed decode of the JSON header, no task, an
answer from a template. Anything unusual - a binary header, raw numbers, V1 names - takes
:meth:`SendProcessor.handle`; both share every check.

Source: SendMessageProcessor, AbstractSendMessageProcessor, CommitLog.asyncPutMessage,
apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.messaging.delayed import SCHEDULE_TOPIC_BYTES, waiting_place
from failback.broker.messaging.send_rules import (
    CLUSTER_KEY,
    DELAY_KEY,
    TAGS_KEY,
    TRAN_KEY,
    WAIT_KEY,
    SendRefused,
    check_delay,
    delay_level,
    property_of,
    with_cluster,
    with_cluster_first,
    without_wait,
)
from failback.broker.messaging.topic_admission import SendHeader, Target, TopicAdmission
from failback.broker.messaging.transactions.half_messages import (
    HALF_QUEUE,
    HALF_TOPIC_BYTES,
    HalfMessages,
    half_properties,
)
from failback.broker.metadata.versioned_table import NewNames
from failback.broker.monitoring.health_endpoints import BrokerPhase
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.native import kernels
from failback.broker.processors.registry import handles
from failback.broker.processors.sending.durability import DurabilityGate
from failback.broker.processors.sending.plain_sends import PlainSends
from failback.broker.remoting.answers import SendAnswers
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer, RemotingServer
from failback.broker.store.log.results import PutRefused
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import (
    BORN_HOST_V6,
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    RequestCode,
    ResponseCode,
)
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError, StoreError
from failback.protocol.headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    envelope_decoder,
    from_ext,
)
from failback.protocol.message import join_properties, tags_code

logger = logging.getLogger(__name__)

Stored = tuple[Callable[..., bytes], tuple[Any, ...], int, bool]
"""How to answer, with what arguments; the end of the record; whether the sender waits for it."""

_HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6


class SendProcessor:
    """Stores what producers send."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        identity: BrokerIdentity,
        server: RemotingServer,
        store: MessageStore,
        admission: TopicAdmission,
        gate: DurabilityGate,
        statistics: BrokerStatistics,
        phase: BrokerPhase,
        halves: HalfMessages,
    ) -> None:
        self._config = config
        self._server = server
        self._store = store
        self._admission = admission
        self._gate = gate
        self._statistics = statistics
        self._cluster_property = f"{CLUSTER_KEY}{identity.cluster_name}"
        self._store_host = identity.store_host
        self._decode = envelope_decoder(SendMessageRequestHeaderV2).decode
        self._phase = phase
        self._halves = halves
        self._plain: PlainSends | None = None
        if kernels is not None:
            self._plain = PlainSends(
                kernels,
                server=server,
                store=store,
                admission=admission,
                gate=gate,
                statistics=statistics,
                phase=phase,
                cluster_property=self._cluster_property,
            )
        self.take_settings()

    def take_settings(self) -> None:
        """Take the current region and trace switch: every answer carries both."""
        region, trace_on = self._config.region_id, self._config.trace_on
        self._answers = SendAnswers(self._store_host, region, trace_on)
        if self._plain is not None:
            self._plain.answers = self._answers
        self._extra = {"MSG_REGION": region, "TRACE_ON": "true" if trace_on else "false"}

    def register_hot_path(self, server: RemotingServer) -> None:
        """Take JSON requests before :meth:`handle`, without its decoding."""
        server.handle_fast(RequestCode.SEND_MESSAGE_V2, self.fast)
        server.handle_fast(RequestCode.SEND_BATCH_MESSAGE, self.fast)
        if self._plain is not None:
            server.handle_run(RequestCode.SEND_MESSAGE_V2, self._plain.take)

    # --- two ways in -------------------------------------------------------------------

    def fast(
        self, connection: BrokerConnection, data: bytes, start: int, header_end: int, end: int
    ) -> bool:
        """Answer a JSON request with V2 names; false when it must be decoded generically."""
        try:
            envelope = self._decode(data[start:header_end])
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return False
        flag = envelope.flag
        if flag & FLAG_RESPONSE:
            return False
        header = envelope.extFields
        body = data[header_end:end] if not header.batch else _in_place(data, header_end, end)
        try:
            make, arguments, end_offset, wait = self._store_message(
                connection, header, body, envelope.version
            )
        except NewNames:
            raise
        # The boundary of this processor, as in RemotingServer._generic.
        except Exception as error:
            self._statistics.put_failed += 1
            if not flag & FLAG_ONEWAY:
                request = RemotingCommand(envelope.code, envelope.opaque)
                connection.push(self.refusal(request, error).encode())
            return True
        server = self._server
        server.uncommitted = True
        if flag & FLAG_ONEWAY:
            server.note_append()
        elif self._gate.is_open or not wait:
            connection.push(make(0, envelope.opaque, *arguments))
        else:
            server.note_append()
            self._gate.answer_later(connection, make, (envelope.opaque, *arguments), end_offset)
        return True

    @handles(RequestCode.SEND_MESSAGE)
    @handles(RequestCode.SEND_MESSAGE_V2)
    @handles(RequestCode.SEND_BATCH_MESSAGE)
    def handle(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        """Answer any form of a send request."""
        try:
            header: SendHeader
            if request.code == RequestCode.SEND_MESSAGE:
                header = from_ext(SendMessageRequestHeader, request.ext_fields)
            else:
                header = from_ext(SendMessageRequestHeaderV2, request.ext_fields)
            _, arguments, end_offset, wait = self._store_message(
                connection, header, request.body, request.version
            )
        except (SendRefused, StoreError, ProtocolError) as error:
            self._statistics.put_failed += 1
            return self.refusal(request, error)
        self._server.uncommitted = True
        self._server.note_append()
        if request.is_oneway:
            return None

        def make(code: int) -> bytes:
            return self._typed_answer(request, code, *arguments).encode()

        if self._gate.is_open or not wait:
            return self._typed_answer(request, 0, *arguments)
        self._gate.answer_later(connection, make, (), end_offset)
        return None

    def _typed_answer(
        self,
        request: RemotingCommand,
        code: int,
        where: int | bytes,
        queue_id: int,
        queue_offset: int,
    ) -> RemotingCommand:
        ids = where if isinstance(where, bytes) else self._answers.message_id(where)
        header = SendMessageResponseHeader(ids.decode(), queue_id, queue_offset)
        return request.response(code, header=header, ext=self._extra)

    def refusal(self, request: RemotingCommand, error: Exception) -> RemotingCommand:
        """Answer a message that was not stored."""
        if isinstance(error, SendRefused):
            code, remark = error.code, error.remark
        elif isinstance(error, PutRefused):
            code, remark = error.code, str(error)
        else:
            if not isinstance(error, StoreError | ProtocolError):
                logger.error("send failed", exc_info=error)
            code, remark = ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"
        return request.response(code, remark, ext=self._extra)

    # --- storing -----------------------------------------------------------------------

    def _store_message(
        self, connection: BrokerConnection, header: SendHeader, body: bytes, version: int
    ) -> Stored:
        """Check in the original's order and append.

        Raises:
            SendRefused, StoreError, ProtocolError: Nothing was stored.
            NewNames: Nothing was stored so far.
        """
        if self._phase.is_draining:
            raise SendRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is being stopped")
        target = self._admission.target_of(connection, header)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = random.randrange(max(target.config.write_queue_nums, 1))
        if header.batch:
            return self._store_batch(connection, header, target, queue_id, body)
        is_dead = False
        if target.group is not None:
            target, queue_id, is_dead = self._admission.retry_target(
                target, queue_id, header, version
            )
        properties, sys_flag = header.properties or "", header.sys_flag
        if DELAY_KEY in properties:
            check_delay(properties)
        is_half = (TRAN_KEY in properties or sys_flag & TRANSACTION_MASK) and self._is_half(
            properties, header
        )
        tag = property_of(properties, TAGS_KEY) if TAGS_KEY in properties else None
        stored, wait = without_wait(properties)
        topic, place = target.topic, queue_id
        if is_half:
            self._halves.ensure_half_topic()
            topic, place, sys_flag = HALF_TOPIC_BYTES, HALF_QUEUE, sys_flag & ~TRANSACTION_MASK
            stored = half_properties(properties, target.config.topic_name, queue_id)
        elif DELAY_KEY in properties and not is_dead:
            levels = len(self._store.delays)
            waiting = waiting_place(properties, target.config.topic_name, queue_id, levels)
            if waiting is not None:
                topic, place = SCHEDULE_TOPIC_BYTES, waiting.queue_id
                stored = join_properties(waiting.properties)
        appended = self._store.append(
            topic=topic,
            queue_id=place,
            flag=header.flag,
            sys_flag=sys_flag & ~_HOST_BITS | target.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.born_host,
            reconsume_times=header.reconsume_times or 0,
            body=body,
            properties=with_cluster(stored, self._cluster_property).encode(),
            tags_code=tags_code(tag),
        )
        where = appended.physical_offset
        self._count(target, 1, appended.end_offset - where)
        arguments = (where, queue_id, appended.queue_offset)
        return self._answers.one, arguments, appended.end_offset, wait

    def _store_batch(
        self,
        connection: BrokerConnection,
        header: SendHeader,
        target: Target,
        queue_id: int,
        body: bytes,
    ) -> Stored:
        """Store every element of a batch as a record of its own, next to each other."""
        properties = header.properties or ""
        self._refuse_batch(header, target, properties, body)
        # The batch's own WAIT stays, unlike a single message's: 4.9.8 stores it.
        wait = (property_of(properties, WAIT_KEY) or "true").lower() == "true"
        run = self._store.append_encoded_batch(
            topic=target.topic,
            queue_id=queue_id,
            sys_flag=header.sys_flag & ~_HOST_BITS | target.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.born_host,
            reconsume_times=header.reconsume_times or 0,
            body=body,
            batch_properties=with_cluster_first(properties, self._cluster_property).encode(),
        )
        places, end_offset = run.physical_offsets, run.end_offset
        self._count(target, len(places), end_offset - places[0])
        ids = self._answers.message_ids(places)
        return self._answers.many, (ids, queue_id, run.queue_offset), end_offset, wait

    def _count(self, target: Target, messages: int, stored_bytes: int) -> None:
        target.messages_in += messages
        target.bytes_in += stored_bytes
        self._statistics.put_messages += messages
        self._statistics.put_bytes += stored_bytes

    # --- what this broker does not store -------------------------------------------------

    def _refuse_batch(
        self, header: SendHeader, target: Target, properties: str, body: bytes
    ) -> None:
        remark = None
        if target.group is not None:
            remark = f"batch request does not support retry group {header.topic}"
        elif delay_level(properties) > 0 or header.sys_flag & TRANSACTION_MASK:
            remark = "a batch can be neither delayed nor transactional"
        elif len(body) > self._config.max_message_size:
            remark = f"batch of {len(body)} bytes is above {self._config.max_message_size}"
        if remark is not None:
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _is_half(self, properties: str, header: SendHeader) -> bool:
        """Tell whether a message opens a transaction.

        Raises:
            SendRefused: Transactions are forbidden here, or the message contradicts itself.
        """
        if (property_of(properties, TRAN_KEY) or "").lower() != "true":
            if not header.sys_flag & TRANSACTION_MASK:
                return False
            remark = "transactions begin with TRAN_MSG: sysFlag alone does not open one"
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if (header.reconsume_times or 0) > 0 and delay_level(properties) > 0:
            return False  # a retried copy of a transactional message is an ordinary one
        if self._config.reject_transaction_message:
            broker = self._config.broker_ip1
            remark = f"the broker[{broker}] sending transaction message is forbidden"
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        return True


def _in_place(data: bytes, start: int, end: int) -> bytes:
    """Return a part of ``data`` that is not copied: a batch may be MiBs, and is only read."""
    return cast(bytes, memoryview(data)[start:end])
