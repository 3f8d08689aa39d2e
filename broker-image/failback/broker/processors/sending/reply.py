"""Replies (324, 325): the answer to a message goes straight to the client that asked (326).

Source: ReplyMessageProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from failback.broker.clients.client_calls import ClientCalls, ClientGone
from failback.broker.clients.client_manager import ProducerManager
from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.messaging.send_rules import SendRefused
from failback.broker.messaging.topic_admission import Target, TopicAdmission
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.processors.consumers.client_requests import CALL_MS
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer, RemotingServer
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import StoreError
from failback.protocol.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    from_ext,
)
from failback.protocol.message import (
    TAGS,
    decode_properties,
    encode_properties,
    offset_msg_id,
    tags_code,
)

logger = logging.getLogger(__name__)

REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"


@dataclass(slots=True)
class ReplyProcessor:
    """Forwards replies, and stores them where ``storeReplyMessageEnable`` is set."""

    config: BrokerConfig
    identity: BrokerIdentity
    server: RemotingServer
    store: MessageStore
    admission: TopicAdmission
    producers: ProducerManager[BrokerConnection]
    calls: ClientCalls
    statistics: BrokerStatistics
    clock_ms: Callable[[], int]

    @handles(RequestCode.SEND_REPLY_MESSAGE)
    @handles(RequestCode.SEND_REPLY_MESSAGE_V2)
    def reply(
        self, connection: BrokerConnection, request: RemotingCommand
    ) -> Answer | Awaitable[Answer]:
        """Push the reply, store it, and answer whether the client that asked has taken it."""
        region, trace = self.config.region_id, self.config.trace_on
        ext = {"MSG_REGION": region, "TRACE_ON": "true" if trace else "false"}
        header = _header_of(request)
        try:
            target = self.admission.target_of(connection, header)
        except SendRefused as refused:
            return request.response(refused.code, refused.remark, ext=ext)
        return self._replied(connection, request, header, target, ext)

    async def _replied(
        self,
        connection: BrokerConnection,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        target: Target,
        ext: dict[str, str],
    ) -> Answer:
        problem = await self._push(connection, header, request.body)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = random.randrange(max(target.config.write_queue_nums, 1))
        place = SendMessageResponseHeader("0", queue_id, 0) if problem is None else None
        if self.config.store_reply_message_enable:
            stored = self._append(connection, header, target, queue_id, request.body)
            place = stored or place
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        return request.response(code, problem, place, ext)

    async def _push(
        self, connection: BrokerConnection, header: SendMessageRequestHeader, body: bytes
    ) -> str | None:
        """Return why the client that asked did not take the reply; ``None``: it did."""
        properties = decode_properties(header.properties or "")
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        member = self.producers.find(client_id)
        if member is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = self.clock_ms()
        push = RemotingCommand.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ReplyMessageRequestHeader(
                producer_group=header.producer_group,
                topic=header.topic,
                default_topic=header.default_topic,
                default_topic_queue_nums=header.default_topic_queue_nums,
                queue_id=header.queue_id,
                sys_flag=header.sys_flag,
                born_timestamp=header.born_timestamp,
                flag=header.flag,
                born_host=connection.address,
                store_host=self.identity.address,
                store_timestamp=now,
                properties=encode_properties(properties | {PUSH_REPLY_TIME: str(now)}),
                reconsume_times=header.reconsume_times,
                unit_mode=header.unit_mode,
            ),
            body,
        )
        seconds = self.config.time_scale.seconds(CALL_MS)
        try:
            answer = await self.calls.call(member.connection, push, seconds)
        except (TimeoutError, ClientGone) as error:
            logger.warning("reply to %s not taken: %s", client_id, error or "no answer")
        else:
            if answer.code == ResponseCode.SUCCESS:
                return None
            logger.warning("reply to %s refused: %s", client_id, answer.remark)
        return f"push reply message to {client_id} fail."

    def _append(
        self,
        connection: BrokerConnection,
        header: SendMessageRequestHeader,
        target: Target,
        queue_id: int,
        body: bytes,
    ) -> SendMessageResponseHeader | None:
        """Store the reply unchanged; a failure is only logged, as in the original."""
        properties = header.properties or ""
        try:
            appended = self.store.append(
                topic=target.topic,
                queue_id=queue_id,
                flag=header.flag,
                sys_flag=0,
                born_timestamp=header.born_timestamp,
                born_host=connection.born_host,
                reconsume_times=header.reconsume_times or 0,
                body=body,
                properties=properties.encode(),
                tags_code=tags_code(decode_properties(properties).get(TAGS)),
            )
        except StoreError as error:
            logger.warning("reply on %s not stored: %s", header.topic, error)
            return None
        where = appended.physical_offset
        size = appended.end_offset - where
        target.messages_in += 1
        target.bytes_in += size
        self.statistics.put_messages += 1
        self.statistics.put_bytes += size
        self.server.note_append()
        message_id = offset_msg_id(self.identity.store_host, where)
        return SendMessageResponseHeader(message_id, queue_id, appended.queue_offset)


def _header_of(request: RemotingCommand) -> SendMessageRequestHeader:
    if request.code == RequestCode.SEND_REPLY_MESSAGE:
        return from_ext(SendMessageRequestHeader, request.ext_fields)
    header = from_ext(SendMessageRequestHeaderV2, request.ext_fields)
    return SendMessageRequestHeader.from_v2(header)
