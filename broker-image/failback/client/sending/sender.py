"""Sends messages for one producer group over one instance: choice of queue, attempts, body.

Used by :class:`failback.client.producer.producer.Producer` and, as the instance's inner
producer, for messages that a consumer could not send back.

Source: DefaultMQProducerImpl, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from failback.client.clock import Clock
from failback.client.consumelog.hook import ConsumeHook, ProduceRecord
from failback.client.errors import (
    BrokerUnknown,
    ClientError,
    MessageInvalid,
    RouteNotFound,
    SendCallTimeout,
    SendFailed,
)
from failback.client.model import FoundBroker, Message, SendResult, SendStatus, check_message
from failback.client.remoting.api import CALL_ERRORS, ClientApi
from failback.client.remoting.settings import ClientSettings
from failback.client.sending.publish import LatencyFaults, PublishInfo, SendCounter
from failback.protocol.body import MessageQueue
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import (
    BrokerError,
    RemotingConnectError,
    RemotingError,
    RemotingSendError,
    RemotingTimeout,
)
from failback.protocol.headers import SendMessageRequestHeader, SendMessageResponseHeader
from failback.protocol.message import (
    RETRY_PREFIX,
    UNIQ_KEY,
    BatchElement,
    UniqKeyGenerator,
    deflate_body,
    encode_batch,
    encode_properties,
)

logger = logging.getLogger(__name__)

RETRY_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""Answers after which another queue is tried. SYSTEM_BUSY is not among them."""

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


class Masters(Protocol):
    """The addresses that an instance knows."""

    def find_publish(self, broker_name: str) -> FoundBroker | None: ...


class SendingInstance(Protocol):
    """What a sender needs of the instance that it sends over."""

    @property
    def api(self) -> ClientApi: ...
    @property
    def brokers(self) -> Masters: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def time_scale(self) -> float: ...
    @property
    def uniq_keys(self) -> UniqKeyGenerator: ...

    async def refresh_route(
        self, topic: str, *, trigger: str, use_default: bool = False
    ) -> bool: ...


class _Payload(NamedTuple):
    """What all attempts of a send have in common."""

    message: Message
    body: bytes
    sys_flag: int
    is_batch: bool


class Sender:
    """One producer group on one instance.

    Args:
        settings: Scaled.
        hook: Receives every attempt.
    """

    def __init__(
        self,
        group: str,
        instance: SendingInstance,
        settings: ClientSettings,
        hook: ConsumeHook,
        rng: random.Random,
    ) -> None:
        self.group = group
        self.publish_table: dict[str, PublishInfo] = {settings.default_topic: PublishInfo()}
        self._instance = instance
        self._settings = settings
        self._hook = hook
        self._clock = instance.clock
        self._counter = SendCounter(rng)
        self._faults = LatencyFaults(rng, instance.time_scale)

    # --- what the instance asks -------------------------------------------------------------

    def is_publish_info_needed(self, topic: str) -> bool:
        """Tell whether a route must be applied even if the cached route equals it."""
        info = self.publish_table.get(topic)
        return info is None or not info.is_usable

    # --- sending ----------------------------------------------------------------------------

    async def send(self, message: Message, timeout_ms: float | None = None) -> SendResult:
        """Send to a queue of the client's choice, with retries on other queues.

        Raises:
            MessageInvalid, RouteNotFound, SendFailed, SendCallTimeout: See ``errors``.
            BrokerError: The broker refused with a code that is not worth a retry.
        """
        check_message(message, self._settings.max_message_bytes)
        return await self._send_with_retries(self._prepare(message), timeout_ms)

    async def send_batch(
        self, messages: Sequence[Message], timeout_ms: float | None = None
    ) -> SendResult:
        """Send several messages of one topic to one queue, all or none.

        ``msg_id`` and ``offset_msg_id`` of the result are comma-joined; ``queue_offset`` is the
        first message's.

        Raises:
            MessageInvalid: Topics or wait flags differ, or one is delayed or a retry.
        """
        payload = self._prepare_batch(messages)
        return await self._send_with_retries(payload, timeout_ms)

    async def send_to(
        self, message: Message, queue: MessageQueue, timeout_ms: float | None = None
    ) -> SendResult:
        """Send to ``queue``: one attempt only."""
        check_message(message, self._settings.max_message_bytes)
        if queue.topic != message.topic:
            raise MessageInvalid(f"queue is of topic {queue.topic}, message of {message.topic}")
        budget_ms = self._settings.send_timeout_ms if timeout_ms is None else timeout_ms
        return await self._attempt(self._prepare(message), queue, 1, budget_ms)

    async def send_selected(
        self, message: Message, selector: QueueSelector, timeout_ms: float | None = None
    ) -> SendResult:
        """Send to the queue that ``selector`` picks of the topic's: one attempt only."""
        check_message(message, self._settings.max_message_bytes)
        info = await self.find_publish_info(message.topic)
        if not info.is_usable:
            raise RouteNotFound(message.topic)
        return await self.send_to(message, selector(info.queues, message), timeout_ms)

    async def send_async(self, message: Message, timeout_ms: float | None = None) -> SendResult:
        """Send by the rules of the asynchronous call: one choice of queue, and retries only when
        there was no answer. A retry may go to another broker but keeps the queue id."""
        check_message(message, self._settings.max_message_bytes)
        budget_ms = self._settings.send_timeout_ms if timeout_ms is None else timeout_ms
        begin = self._clock.now()
        info = await self.find_publish_info(message.topic)
        if not info.is_usable:
            raise RouteNotFound(message.topic)
        queue = self._select(info, None)
        payload = self._prepare(message)
        broker_name, brokers = queue.broker_name, []
        for attempt in range(1, 2 + self._settings.retry_times_when_send_async_failed):
            brokers.append(broker_name)
            left_ms = budget_ms - self._elapsed_ms(begin)
            if left_ms <= 0:
                break
            aimed = MessageQueue(queue.topic, broker_name, queue.queue_id)
            try:
                return await self._attempt(payload, aimed, attempt, left_ms, async_style=True)
            except (RemotingError, BrokerUnknown) as error:
                failure: Exception = error
                logger.info("async send to %s failed: %s", broker_name, error)
            broker_name = self._select(info, broker_name).broker_name
        elapsed = self._elapsed_ms(begin)
        raise SendFailed(message.topic, len(brokers), brokers, elapsed) from failure

    async def send_oneway(self, message: Message) -> None:
        """Send once without an answer: the outcome stays unknown."""
        check_message(message, self._settings.max_message_bytes)
        info = await self.find_publish_info(message.topic)
        if not info.is_usable:
            raise RouteNotFound(message.topic)
        queue = self._select(info, None)
        payload = self._prepare(message)
        record = ProduceRecord(message, 1, self._clock.mono_ns(), queue)
        try:
            found = await self._find_broker(queue, record)
            header = self._header(payload, queue)
            api = self._instance.api
            await api.send_oneway(found.addr, header, payload.body, queue.broker_name)
        except Exception as error:
            record.result = _result_of(error)
            raise
        finally:
            record.t1 = self._clock.mono_ns()
            self._hook.produce(record)

    async def find_publish_info(self, topic: str) -> PublishInfo:
        """tryToFindTopicPublishInfo: refresh the route if there is no queue to send to.

        A topic with a route but without a master gives an unusable info; one without any route
        gets the queues of the default topic, from which the broker creates it.
        """
        info = self.publish_table.get(topic)
        if info is None or not info.is_usable:
            self.publish_table.setdefault(topic, PublishInfo())
            await self._instance.refresh_route(topic, trigger="send")
            info = self.publish_table[topic]
        if info.has_route or info.is_usable:
            return info
        await self._instance.refresh_route(topic, trigger="send-default", use_default=True)
        return self.publish_table[topic]

    # --- attempts ---------------------------------------------------------------------------

    async def _send_with_retries(self, payload: _Payload, timeout_ms: float | None) -> SendResult:
        budget_ms = self._settings.send_timeout_ms if timeout_ms is None else timeout_ms
        topic = payload.message.topic
        begin = self._clock.now()
        info = await self.find_publish_info(topic)
        if not info.is_usable:
            self._note_no_route(payload.message)
            raise RouteNotFound(topic)
        queue: MessageQueue | None = None
        degraded: SendResult | None = None
        failure: Exception | None = None
        brokers: list[str] = []
        for attempt in range(1, 2 + self._settings.retry_times_when_send_failed):
            queue = self._select(info, queue.broker_name if queue else None)
            elapsed_ms = self._elapsed_ms(begin)
            # Java compares whole milliseconds with <; a full timeout nearly always exceeds the
            # budget there, and always does here: a timed-out send is not retried.
            if elapsed_ms >= budget_ms:
                failure = SendCallTimeout(topic, elapsed_ms)
                break
            brokers.append(queue.broker_name)
            started = self._clock.now()
            try:
                left_ms = budget_ms - elapsed_ms
                result = await self._attempt(payload, queue, attempt, left_ms)
            except BrokerError as error:
                self._note_latency(queue, started, isolate=True)
                if error.code not in RETRY_CODES:
                    if degraded is not None:
                        return degraded
                    raise
                failure = error
                continue
            except (RemotingError, ClientError) as error:
                self._note_latency(queue, started, isolate=True)
                failure = error
                continue
            self._note_latency(queue, started, isolate=False)
            if result.status is SendStatus.SEND_OK:
                return result
            if not self._settings.retry_another_broker_when_not_store_ok:
                return result
            degraded = result
        if degraded is not None:
            return degraded
        if isinstance(failure, SendCallTimeout):
            raise failure
        raise SendFailed(topic, len(brokers), brokers, self._elapsed_ms(begin)) from failure

    async def _attempt(
        self,
        payload: _Payload,
        queue: MessageQueue,
        attempt: int,
        timeout_ms: float,
        *,
        async_style: bool = False,
    ) -> SendResult:
        """sendKernelImpl: one request to the master of the queue's broker."""
        record = ProduceRecord(payload.message, attempt, self._clock.mono_ns(), queue)
        try:
            found = await self._find_broker(queue, record)
            status, header = await self._instance.api.send(
                found.addr,
                self._header(payload, queue),
                payload.body,
                queue.broker_name,
                timeout_ms,
                async_style=async_style,
            )
        except (ClientError, *CALL_ERRORS) as error:
            record.result = _result_of(error)
            record.code = error.code if isinstance(error, BrokerError) else None
            raise
        else:
            return self._result(payload, queue, status, header, record)
        finally:
            record.t1 = self._clock.mono_ns()
            self._hook.produce(record)

    async def _find_broker(self, queue: MessageQueue, record: ProduceRecord) -> FoundBroker:
        found = self._instance.brokers.find_publish(queue.broker_name)
        if found is None:
            await self.find_publish_info(queue.topic)
            found = self._instance.brokers.find_publish(queue.broker_name)
        if found is None:
            raise BrokerUnknown(queue.broker_name)
        record.addr, record.broker_id = found
        return found

    def _result(
        self,
        payload: _Payload,
        queue: MessageQueue,
        status: SendStatus,
        header: SendMessageResponseHeader,
        record: ProduceRecord,
    ) -> SendResult:
        record.result = "OK" if status is SendStatus.SEND_OK else "OK_DEGRADED"
        record.code = _CODE_OF_STATUS[status]
        record.offset_msg_id = header.msg_id
        record.queue_offset = header.queue_offset
        return SendResult(
            status,
            payload.message.properties[UNIQ_KEY],
            header.msg_id,
            MessageQueue(queue.topic, queue.broker_name, header.queue_id),
            header.queue_offset,
        )

    def _note_no_route(self, message: Message) -> None:
        """Log the attempt that could not even choose a queue: the outage shows in its rows."""
        now = self._clock.mono_ns()
        self._hook.produce(ProduceRecord(message, 1, now, t1=now, result="CONN"))

    def _select(self, info: PublishInfo, last_broker: str | None) -> MessageQueue:
        if self._settings.send_latency_fault_enable:
            return self._faults.select(info, self._counter, self._clock.now())
        return info.select(self._counter, last_broker)

    def _note_latency(self, queue: MessageQueue, started: float, *, isolate: bool) -> None:
        if self._settings.send_latency_fault_enable:
            now = self._clock.now()
            latency_ms = (now - started) * 1000
            self._faults.update(queue.broker_name, latency_ms, isolate=isolate, now=now)

    def _elapsed_ms(self, begin: float) -> float:
        return (self._clock.now() - begin) * 1000

    # --- bodies -----------------------------------------------------------------------------

    def _prepare(self, message: Message) -> _Payload:
        self._identify(message)
        if len(message.body) >= self._settings.compress_over_bytes:
            body, sys_flag = deflate_body(message.body, 0, self._settings.compress_level)
            return _Payload(message, body, sys_flag, is_batch=False)
        return _Payload(message, message.body, 0, is_batch=False)

    def _identify(self, message: Message) -> None:
        """Set UNIQ_KEY only if absent: retries and resends of one object share it."""
        if UNIQ_KEY not in message.properties:
            message.properties[UNIQ_KEY] = self._instance.uniq_keys.next()

    def _prepare_batch(self, messages: Sequence[Message]) -> _Payload:
        if not messages:
            raise MessageInvalid("a batch needs at least one message")
        first = messages[0]
        for message in messages:
            check_message(message, self._settings.max_message_bytes)
            if message.topic != first.topic:
                raise MessageInvalid("the topics of a batch's messages must be the same")
            if message.topic.startswith(RETRY_PREFIX) or message.delay_level > 0:
                raise MessageInvalid("retry topics and delays are not supported for batches")
            if message.properties.get("WAIT") != first.properties.get("WAIT"):
                raise MessageInvalid("the wait flags of a batch's messages must be the same")
            self._identify(message)
        body = encode_batch(
            BatchElement(m.flag, m.body, encode_properties(m.properties).encode()) for m in messages
        )
        whole = Message(first.topic, body, due_ns=first.due_ns)
        whole.properties["WAIT"] = first.properties["WAIT"]
        check_message(whole, self._settings.max_message_bytes)
        whole.properties[UNIQ_KEY] = ",".join(m.properties[UNIQ_KEY] for m in messages)
        return _Payload(whole, body, 0, is_batch=True)

    def _header(self, payload: _Payload, queue: MessageQueue) -> SendMessageRequestHeader:
        message = payload.message
        properties = dict(message.properties)
        if payload.is_batch:
            del properties[UNIQ_KEY]  # the elements have their own
        reconsume_times, max_reconsume_times = 0, None
        if message.topic.startswith(RETRY_PREFIX):
            # The reference moves both from the message's properties into the header.
            reconsume_times = int(properties.pop("RECONSUME_TIME", 0))
            limit = properties.pop("MAX_RECONSUME_TIMES", None)
            max_reconsume_times = int(limit) if limit is not None else None
        return SendMessageRequestHeader(
            producer_group=self.group,
            topic=message.topic,
            default_topic=self._settings.default_topic,
            default_topic_queue_nums=self._settings.default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=payload.sys_flag,
            born_timestamp=self._clock.wall_ms(),
            flag=message.flag,
            properties=encode_properties(properties),
            reconsume_times=reconsume_times,
            unit_mode=False,
            max_reconsume_times=max_reconsume_times,
            batch=payload.is_batch,
        )


_CODE_OF_STATUS: Final = {
    SendStatus.SEND_OK: 0,
    SendStatus.FLUSH_DISK_TIMEOUT: 10,
    SendStatus.SLAVE_NOT_AVAILABLE: 11,
    SendStatus.FLUSH_SLAVE_TIMEOUT: 12,
}


def _result_of(error: BaseException) -> str:
    """What an attempt's failure is called in the consume log."""
    if isinstance(error, BrokerError):
        return "BROKER_ERR"
    if isinstance(error, RemotingTimeout):
        return "TIMEOUT"
    if isinstance(error, RemotingSendError):
        # A call that timed out closes the connection under all others: theirs may be stored.
        return "UNKNOWN" if error.under_way else "WRITE_FAILED"
    if isinstance(error, RemotingConnectError | ClientError):
        return "CONN"
    return "UNKNOWN"
