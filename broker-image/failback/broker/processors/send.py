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
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from failback.broker.answers import SendAnswers
from failback.broker.config import BrokerConfig
from failback.broker.connection import BrokerConnection
from failback.broker.identity import BrokerIdentity
from failback.broker.statistics import BrokerStatistics
from failback.broker.store.results import MessageIllegal, ServiceNotAvailable
from failback.broker.topics import (
    OFFSET_MOVED_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from failback.broker.waiting_answers import WaitingAnswer, WaitingAnswers
from failback.protocol.codes import (
    BORN_HOST_V6,
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    MULTI_TAGS,
    PERM_READ,
    PERM_WRITE,
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
from failback.protocol.message import (
    DLQ_PREFIX,
    MAX_TOPIC_BYTES,
    NAME_END,
    PROPERTY_END,
    RETRY_PREFIX,
    decode_batch,
    decode_properties,
    encode_properties,
    tags_code,
)
from failback.protocol.route import TopicConfig

if TYPE_CHECKING:
    from failback.broker.groups import SubscriptionGroupManager
    from failback.broker.ha.service import HaService
    from failback.broker.server import RemotingServer
    from failback.broker.store.message_store import MessageStore
    from failback.broker.topics import TopicConfigManager

logger = logging.getLogger(__name__)

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
_TOPIC_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_VERSION_WITH_MAX_RECONSUME: Final = 121  # V3_4_9
_WAIT_KEY: Final = "WAIT" + NAME_END
_TAGS_KEY: Final = "TAGS" + NAME_END
_DELAY_KEY: Final = "DELAY" + NAME_END
_TRAN_KEY: Final = "TRAN_MSG" + NAME_END
_CLUSTER_KEY: Final = "CLUSTER" + NAME_END
_HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6
_MAX_TARGETS: Final = 10_000


class SendRefused(Exception):
    """A check failed: the code and remark to answer."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Target:
    """A topic that passed the checks, with what every record of it shares."""

    __slots__ = ("bytes_in", "config", "group", "messages_in", "queue_limit", "sys_flag", "topic")

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        """Compared by identity: the topic manager replaces what it changes."""
        self.topic = config.topic_name.encode()
        self.queue_limit = max(config.read_queue_nums, config.write_queue_nums)
        self.sys_flag = MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0
        is_retry = config.topic_name.startswith(RETRY_PREFIX)
        self.group = config.topic_name[len(RETRY_PREFIX) :] if is_retry else None
        """The consumer group of a retry topic."""
        self.messages_in = 0
        self.bytes_in = 0


def check_topic_name(topic: str) -> None:
    """Refuse what no topic may be called (TopicValidator).

    Raises:
        SendRefused: With code 1 and what is wrong.
    """
    if not topic.strip():
        raise SendRefused(ResponseCode.SYSTEM_ERROR, "The specified topic is blank.")
    if not _TOPIC_NAME.fullmatch(topic):
        remark = f"The specified topic[{topic[:200]}] contains illegal characters,"
        raise SendRefused(ResponseCode.SYSTEM_ERROR, remark + " allowing only ^[%|a-zA-Z0-9_-]+$")
    if len(topic) > MAX_TOPIC_BYTES:
        remark = f"The specified topic is longer than topic max length {MAX_TOPIC_BYTES}."
        raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)


def property_of(properties: str, key: str) -> str | None:
    """Return the value of ``key`` (its end mark included) in a properties text."""
    start = _find(properties, key)
    if start < 0:
        return None
    end = properties.find(PROPERTY_END, start)
    return properties[start + len(key) : end if end >= 0 else None]


def _find(properties: str, key: str) -> int:
    """Where ``key`` begins as a key, not as the end of another one; -1 if nowhere."""
    start = properties.find(key)
    while start > 0 and properties[start - 1] != PROPERTY_END:
        start = properties.find(key, start + 1)
    return start


def without_wait(properties: str) -> tuple[str, bool]:
    """Cut ``WAIT`` out; also return whether the sender waits for flush and slave."""
    start = _find(properties, _WAIT_KEY)
    if start < 0:
        return properties, True
    end = properties.find(PROPERTY_END, start)
    value = properties[start + len(_WAIT_KEY) : end if end >= 0 else None]
    rest = "" if end < 0 else properties[end + 1 :]
    return properties[:start] + rest, value.lower() == "true"


def with_cluster(properties: str, cluster_property: str) -> str:
    """Append ``CLUSTER``; one that is there already (a message sent on) is replaced."""
    if _find(properties, _CLUSTER_KEY) >= 0:
        table = decode_properties(properties)
        table.pop("CLUSTER", None)
        properties = encode_properties(table)
    if not properties or properties[-1] == PROPERTY_END:
        return properties + cluster_property
    return properties + PROPERTY_END + cluster_property


def delay_level(properties: str) -> int:
    """Return the message's delay level; 0 without one. A text that is no number counts as 0."""
    value = property_of(properties, _DELAY_KEY)
    try:
        return int(value) if value else 0
    except ValueError:
        return 0


class SendProcessor:
    """Stores what producers send."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        identity: BrokerIdentity,
        server: RemotingServer,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        ha: HaService,
        statistics: BrokerStatistics,
        clock: Callable[[], float],
        clock_ms: Callable[[], int],
    ) -> None:
        """``clock`` counts seconds for deadlines, ``clock_ms`` is wall-clock time."""
        self._config = config
        self._server = server
        self._store = store
        self._topics = topics
        self._groups = groups
        self._ha = ha
        self._statistics = statistics
        self._clock = clock
        self._clock_ms = clock_ms
        self._scale = config.time_scale
        self._cluster_property = f"{_CLUSTER_KEY}{identity.cluster_name}"
        self._answers = SendAnswers(identity.store_host, config.region_id, config.trace_on)
        self._errors_ext = {
            "MSG_REGION": config.region_id,
            "TRACE_ON": "true" if config.trace_on else "false",
        }
        self._decode = envelope_decoder(SendMessageRequestHeaderV2).decode
        self.targets: dict[str, Target] = {}
        self.waiting = WaitingAnswers()
        self.order_topics: frozenset[str] = frozenset()
        """Topics of the name server's ORDER_TOPIC_CONFIG."""
        self.draining = False
        """Whether the broker is being stopped: sends are refused with code 14."""
        self._flush_to = 0
        self._sync_flush = config.flush_disk_type == "SYNC_FLUSH"
        self.sync_master = config.broker_role == "SYNC_MASTER"
        """Whether answers wait for a slave; changes while running."""

    def register(self, server: RemotingServer) -> None:
        codes = RequestCode
        for code in (codes.SEND_MESSAGE, codes.SEND_MESSAGE_V2, codes.SEND_BATCH_MESSAGE):
            server.handle(code, self.handle)
        server.handle_fast(codes.SEND_MESSAGE_V2, self.fast)
        server.handle_fast(codes.SEND_BATCH_MESSAGE, self.fast)

    # --- two ways in -------------------------------------------------------------------

    def fast(
        self, connection: BrokerConnection, data: bytes, start: int, header_end: int, end: int
    ) -> bool:
        """Answer a JSON request with V2 names; false when it must be decoded generically."""
        try:
            envelope = self._decode(data[start:header_end])
        except msgspec.MsgspecError:
            return False
        flag = envelope.flag
        if flag & FLAG_RESPONSE:
            return False
        try:
            make, arguments, end_offset, wait = self._store_message(
                connection, envelope.extFields, data[header_end:end], envelope.version
            )
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
        elif wait and (self._sync_flush or self.sync_master):
            server.note_append()
            self._answer_later(connection, make, (envelope.opaque, *arguments), end_offset)
        else:
            connection.push(make(0, envelope.opaque, *arguments))
        return True

    def handle(
        self, connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand | None:
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

        if wait and (self._sync_flush or self.sync_master):
            self._answer_later(connection, make, (), end_offset)
            return None
        return self._typed_answer(request, 0, *arguments)

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
        return request.response(code, header=header, ext=self._errors_ext)

    def refusal(self, request: RemotingCommand, error: Exception) -> RemotingCommand:
        """Answer a message that was not stored."""
        if isinstance(error, SendRefused):
            code, remark = error.code, error.remark
        elif isinstance(error, MessageIllegal):
            code, remark = int(ResponseCode.MESSAGE_ILLEGAL), str(error)
        elif isinstance(error, ServiceNotAvailable):
            code, remark = int(ResponseCode.SERVICE_NOT_AVAILABLE), str(error)
        else:
            if not isinstance(error, StoreError | ProtocolError):
                logger.error("send failed", exc_info=error)
            code, remark = int(ResponseCode.SYSTEM_ERROR), f"{type(error).__name__}: {error}"
        return request.response(code, remark, ext=self._errors_ext)

    # --- checks, in the original's order -----------------------------------------------

    def _store_message(
        self, connection: BrokerConnection, header: SendHeader, body: bytes, version: int
    ) -> tuple[Callable[..., bytes], tuple[Any, ...], int, bool]:
        """Check and append; return how to answer, with what, the record's end, and whether to wait.

        Raises:
            SendRefused, StoreError, ProtocolError: Nothing was stored.
        """
        if self.draining:
            raise SendRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is being stopped")
        target = self.targets.get(header.topic)
        if target is None or self._topics.table.get(header.topic) is not target.config:
            target = self._admit(connection, header)
        elif self._config.start_accept_send_request_time_stamp:
            self._check_started()
        if not self._config.broker_permission & PERM_WRITE:
            self._check_order_topic(header.topic)
        queue_id = header.queue_id
        if queue_id >= target.queue_limit:
            raise SendRefused(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, {target.config} producer: "
                + connection.address,
            )
        if queue_id < 0:
            queue_id = random.randrange(max(target.config.write_queue_nums, 1))
        properties = header.properties or ""
        if header.batch:
            return self._store_batch(connection, header, target, queue_id, properties, body)
        dead = False
        if target.group is not None:
            target, queue_id, dead = self._retry_target(target, queue_id, header, version)
        sys_flag = header.sys_flag
        if _TRAN_KEY in properties or sys_flag & TRANSACTION_MASK:
            self._check_transaction(properties, header)
        if _DELAY_KEY in properties and not dead and delay_level(properties) > 0:
            raise SendRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                "this broker does not deliver delayed messages: send without a delay level",
            )
        tag = property_of(properties, _TAGS_KEY) if _TAGS_KEY in properties else None
        properties, wait = without_wait(properties)
        appended = self._store.append(
            topic=target.topic,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=sys_flag & ~_HOST_BITS | target.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.born_host,
            reconsume_times=header.reconsume_times or 0,
            body=body,
            properties=with_cluster(properties, self._cluster_property).encode(),
            tags_code=tags_code(tag),
        )
        where = appended.physical_offset
        stored_bytes = appended.end_offset - where
        target.messages_in += 1
        target.bytes_in += stored_bytes
        self._statistics.put_messages += 1
        self._statistics.put_bytes += stored_bytes
        arguments = (where, queue_id, appended.queue_offset)
        return self._answers.one, arguments, appended.end_offset, wait

    def _store_batch(
        self,
        connection: BrokerConnection,
        header: SendHeader,
        target: Target,
        queue_id: int,
        properties: str,
        body: bytes,
    ) -> tuple[Callable[..., bytes], tuple[Any, ...], int, bool]:
        """Store every element of a batch as a record of its own, next to each other."""
        if target.group is not None:
            remark = f"batch request does not support retry group {header.topic}"
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if delay_level(properties) > 0 or header.sys_flag & TRANSACTION_MASK:
            remark = "a batch can be neither delayed nor transactional"
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        elements = decode_batch(body)
        if not elements:
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        if len(body) > self._config.max_message_size:
            remark = f"batch of {len(body)} bytes is above {self._config.max_message_size}"
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        # The batch's own WAIT stays, unlike a single message's: 4.9.8 stores it.
        wait = (property_of(properties, _WAIT_KEY) or "true").lower() == "true"
        run = self._store.append_batch(
            topic=target.topic,
            queue_id=queue_id,
            sys_flag=header.sys_flag & ~_HOST_BITS | target.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.born_host,
            reconsume_times=header.reconsume_times or 0,
            elements=elements,
            batch_properties=with_cluster_first(properties, self._cluster_property).encode(),
        )
        first, last = run[0], run[-1]
        stored_bytes = last.end_offset - first.physical_offset
        target.messages_in += len(run)
        target.bytes_in += stored_bytes
        self._statistics.put_messages += len(run)
        self._statistics.put_bytes += stored_bytes
        message_id = self._answers.message_id
        ids = b",".join([message_id(each.physical_offset) for each in run])
        arguments = (ids, queue_id, first.queue_offset)
        return self._answers.many, arguments, last.end_offset, wait

    def _admit(self, connection: BrokerConnection, header: SendHeader) -> Target:
        """Check a topic that is new here or has changed; create it when that is allowed."""
        self._check_started()
        if not self._config.broker_permission & PERM_WRITE:
            self._check_order_topic(header.topic)
        topic = header.topic
        check_topic_name(topic)
        if topic in FORBIDDEN_TOPICS:
            remark = f"Sending message to topic[{topic}] is forbidden."
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        config = self._topics.get(topic) or self._create(connection, header)
        if config is None:
            remark = f"topic[{topic}] not exist, apply first please!"
            raise SendRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        return self._remember(config)

    def _remember(self, config: TopicConfig) -> Target:
        known = self.targets.get(config.topic_name)
        target = Target(config)
        if known is not None:
            target.messages_in, target.bytes_in = known.messages_in, known.bytes_in
        elif len(self.targets) >= _MAX_TARGETS:
            self.targets.clear()
        self.targets[config.topic_name] = target
        return target

    def _create(self, connection: BrokerConnection, header: SendHeader) -> TopicConfig | None:
        created = self._topics.create_in_send(
            header.topic,
            header.default_topic,
            connection.address,
            header.default_topic_queue_nums,
            1 if header.unit_mode else 0,
        )
        if created is None and header.topic.startswith(RETRY_PREFIX):
            created = self._topics.create_in_send_back(header.topic, 1, PERM_READ | PERM_WRITE)
        return created

    def _check_started(self) -> None:
        start_ms = self._config.start_accept_send_request_time_stamp
        if start_ms and self._clock_ms() < start_ms:
            remark = f"broker unable to service, until {start_ms}"
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)

    def _check_order_topic(self, topic: str) -> None:
        if topic in self.order_topics:
            remark = f"the broker[{self._config.broker_ip1}] sending message is forbidden"
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)

    def _retry_target(
        self, target: Target, queue_id: int, header: SendHeader, version: int
    ) -> tuple[Target, int, bool]:
        """Send a message that was retried too often to the group's dead letters.

        Returns target, queue id, and whether it is a dead letter.
        """
        assert target.group is not None
        group = self._groups.find(target.group)
        if group is None:
            remark = f"subscription group not exist, {target.group}"
            raise SendRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        most = group.retry_max_times
        if version >= _VERSION_WITH_MAX_RECONSUME and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if (header.reconsume_times or 0) < most:
            return target, queue_id, False
        config = self._topics.create_in_send_back(
            DLQ_PREFIX + target.group, 1, PERM_READ | PERM_WRITE
        )
        known = self.targets.get(config.topic_name)
        dlq = known if known is not None and known.config is config else self._remember(config)
        return dlq, 0, True

    def _check_transaction(self, properties: str, header: SendHeader) -> None:
        flagged = (property_of(properties, _TRAN_KEY) or "").lower() == "true"
        if not flagged and not header.sys_flag & TRANSACTION_MASK:
            return
        if flagged and (header.reconsume_times or 0) > 0 and delay_level(properties) > 0:
            return  # a retried copy of a transactional message is an ordinary one
        if self._config.reject_transaction_message:
            remark = (
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden"
            )
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        remark = "this broker does not take part in transactions: send without TRAN_MSG"
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)

    # --- answers that wait ---------------------------------------------------------------

    def _answer_later(
        self,
        connection: BrokerConnection,
        make: Callable[..., bytes],
        arguments: tuple[Any, ...],
        end_offset: int,
    ) -> None:
        """Answer when the record is flushed and replicated as far as the configuration asks."""
        answer = WaitingAnswer(connection, make, arguments)
        now_ms = self._clock() * 1000
        flush_deadline = replica_deadline = None
        if self._sync_flush:
            self._flush_to = end_offset
            flush_deadline = now_ms + self._scale.ms(self._config.sync_flush_timeout)
        if self.sync_master:
            if not self._ha.is_slave_ok(end_offset):
                answer.slave_code = int(ResponseCode.SLAVE_NOT_AVAILABLE)
            elif self._ha.push2slave_max_offset < end_offset:
                replica_deadline = now_ms + self._scale.ms(self._config.slave_timeout)
        if flush_deadline is None and replica_deadline is None:
            answer.send()
            return
        self.waiting.add(
            answer,
            end_offset,
            flush_deadline_ms=flush_deadline,
            replica_deadline_ms=replica_deadline,
        )

    def after_commit(self) -> None:
        """The records of this run are written: ask once for the flush that they wait for."""
        flush_to, self._flush_to = self._flush_to, 0
        if flush_to:
            self._store.request_flush(flush_to, lambda flushed: self._flush_done(flush_to, flushed))

    def _flush_done(self, offset: int, flushed: bool) -> None:
        if flushed:
            self.waiting.flushed(offset)
        else:
            self.waiting.flush_failed(offset)

    def expire(self) -> None:
        """Answer what waited beyond its deadline."""
        self.waiting.expire(self._clock() * 1000)


def with_cluster_first(properties: str, cluster_property: str) -> str:
    """Put ``CLUSTER`` before a batch's own properties, where 4.9.8 has it."""
    properties = properties.strip(PROPERTY_END)
    return cluster_property + PROPERTY_END + properties if properties else cluster_property
