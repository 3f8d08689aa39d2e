"""What is in a queue (29-32) and one record by its physical offset (33).

Source: AdminBrokerProcessor, QueryMessageProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from failback.broker.remoting.connection import BrokerConnection
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    ViewMessageRequestHeader,
    from_ext,
)

if TYPE_CHECKING:
    from failback.broker.remoting.server import RemotingServer
    from failback.broker.store.message_store import MessageStore


class QueueMetaProcessor:
    """Reads of the store that hand out no run of messages."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def register(self, server: RemotingServer) -> None:
        server.handle(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self.search)
        server.handle(RequestCode.GET_MAX_OFFSET, self.max_offset)
        server.handle(RequestCode.GET_MIN_OFFSET, self.min_offset)
        server.handle(RequestCode.GET_EARLIEST_MSG_STORETIME, self.earliest_store_time)
        server.handle(RequestCode.VIEW_MESSAGE_BY_ID, self.view_message)

    def search(self, _connection: BrokerConnection, request: RemotingCommand) -> RemotingCommand:
        """Answer the offset whose store time is nearest; 0 for an unknown or empty queue."""
        header = from_ext(SearchOffsetRequestHeader, request.ext_fields)
        offset = self._store.search_offset(header.topic, header.queue_id, header.timestamp)
        return request.response(ResponseCode.SUCCESS, header=SearchOffsetResponseHeader(offset))

    def max_offset(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        header = from_ext(GetMaxOffsetRequestHeader, request.ext_fields)
        offset = self._store.max_queue_offset(header.topic, header.queue_id)
        return request.response(ResponseCode.SUCCESS, header=GetMaxOffsetResponseHeader(offset))

    def min_offset(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        header = from_ext(GetMinOffsetRequestHeader, request.ext_fields)
        offset = max(0, self._store.min_queue_offset(header.topic, header.queue_id))
        return request.response(ResponseCode.SUCCESS, header=GetMinOffsetResponseHeader(offset))

    def earliest_store_time(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer the store time of a queue's first entry; -1 when there is none."""
        header = from_ext(GetEarliestMsgStoretimeRequestHeader, request.ext_fields)
        first = self._store.min_queue_offset(header.topic, header.queue_id)
        timestamp = self._store.store_time_of(header.topic, header.queue_id, first)
        return request.response(
            ResponseCode.SUCCESS, header=GetEarliestMsgStoretimeResponseHeader(timestamp)
        )

    def view_message(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        header = from_ext(ViewMessageRequestHeader, request.ext_fields)
        record = self._store.record_at(header.offset)
        if record is None:
            remark = f"can not find message by the offset, {header.offset}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return request.response(ResponseCode.SUCCESS, body=bytes(record))
