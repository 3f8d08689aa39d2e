"""Requests that are answered by a group's members: 223 (by 221), 307 and 309.

Source: Broker2Client, AdminBrokerProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from failback.broker.clients.client_calls import ClientCalls, ClientGone
from failback.broker.clients.client_manager import ConsumerManager, Member
from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.broker.store.message_store import MessageStore
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError
from failback.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from failback.protocol.message import parse_offset_msg_id
from failback.protocol.stats import GetConsumerStatusBody

logger = logging.getLogger(__name__)

CALL_MS: Final = 10_000
STATUS_MS: Final = 5_000
_TELLS_STATUS: Final = 28  # V3_0_7_SNAPSHOT
_TAKES_CALLS: Final = 62  # V3_1_8_SNAPSHOT


@dataclass(slots=True)
class ClientRequestProcessor:
    """Asks members and forwards their answers."""

    config: BrokerConfig
    identity: BrokerIdentity
    store: MessageStore
    consumers: ConsumerManager[BrokerConnection]
    calls: ClientCalls

    @handles(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequestHeader)
    async def consumer_status(
        self, header: GetConsumerStatusRequestHeader, request: RemotingCommand
    ) -> Answer:
        """Answer the offsets in each member's memory, without members that do not answer."""
        group = self.consumers.groups.get(header.group)
        if group is None:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            return request.response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        wanted = (header.client_addr or "").strip()
        asked = [each for each in group.members.values() if wanted in ("", each.client_id)]
        for member in asked:
            if member.version < _TELLS_STATUS:
                remark = f"the client does not support this feature. version={member.version}"
                return request.response(ResponseCode.SYSTEM_ERROR, remark)
        tables = await asyncio.gather(*(self._status_of(member, header) for member in asked))
        found = {
            member.client_id: table
            for member, table in zip(asked, tables, strict=True)
            if table is not None
        }
        body = GetConsumerStatusBody(consumer_table=found).to_json()
        return request.response(ResponseCode.SUCCESS, body=body)

    async def _status_of(
        self, member: Member[BrokerConnection], header: GetConsumerStatusRequestHeader
    ) -> dict[MessageQueue, int] | None:
        question = RemotingCommand.request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            GetConsumerStatusRequestHeader(header.topic, header.group),
        )
        seconds = self.config.time_scale.seconds(STATUS_MS)
        try:
            answer = await self.calls.call(member.connection, question, seconds)
            if answer.code == ResponseCode.SUCCESS and answer.body:
                return GetConsumerStatusBody.from_json(answer.body).message_queue_table
        except (TimeoutError, ClientGone, ProtocolError) as error:
            logger.warning("consumer %s does not tell its offsets: %s", member.client_id, error)
        return None

    @handles(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader)
    async def running_info(
        self, header: GetConsumerRunningInfoRequestHeader, request: RemotingCommand
    ) -> Answer:
        return await self._hand_on(request, header.consumer_group, header.client_id, b"")

    @handles(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResultRequestHeader)
    async def consume_directly(
        self, header: ConsumeMessageDirectlyResultRequestHeader, request: RemotingCommand
    ) -> Answer:
        """Let one member consume one stored message, out of turn."""
        physical_offset = parse_offset_msg_id(header.msg_id or "")[2]
        record = self.store.record_at(physical_offset)
        if record is None:
            remark = f"can not find message by the offset, {physical_offset}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return await self._hand_on(request, header.consumer_group, header.client_id, bytes(record))

    async def _hand_on(
        self, request: RemotingCommand, group: str, client_id: str | None, body: bytes
    ) -> RemotingCommand:
        """Ask the member the same, and answer what it answers."""
        member = self.consumers.find(group, client_id)
        if member is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        if member.version < _TAKES_CALLS:
            remark = (
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        ext = dict(request.ext_fields or {})
        if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            ext["brokerName"] = self.identity.broker_name
        question = RemotingCommand.request(request.code, body=body, ext=ext)
        seconds = self.config.time_scale.seconds(CALL_MS)
        try:
            answer = await self.calls.call(member.connection, question, seconds)
        except TimeoutError:
            remark = f"consumer <{group}> <{client_id}> Timeout: no answer within {seconds:g} s"
            return request.response(ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        except ClientGone as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return request.response(answer.code, answer.remark, ext=answer.ext_fields, body=answer.body)
