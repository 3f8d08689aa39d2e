"""What is in a queue (29-32) and one record by its physical offset (33).

Source: AdminBrokerProcessor, QueryMessageProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from dataclasses import dataclass

from failback.broker.processors.registry import handles
from failback.broker.remoting.server import Answer
from failback.broker.store.message_store import MessageStore
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
)


@dataclass(slots=True)
class QueueMetaProcessor:
    """Reads of the store that hand out no run of messages."""

    store: MessageStore

    @handles(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader)
    def search(self, header: SearchOffsetRequestHeader, request: RemotingCommand) -> Answer:
        """Answer the offset whose store time is nearest; 0 for an unknown or empty queue."""
        offset = self.store.search_offset(header.topic, header.queue_id, header.timestamp)
        return request.response(ResponseCode.SUCCESS, header=SearchOffsetResponseHeader(offset))

    @handles(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader)
    def max_offset(self, header: GetMaxOffsetRequestHeader, request: RemotingCommand) -> Answer:
        offset = self.store.max_queue_offset(header.topic, header.queue_id)
        return request.response(ResponseCode.SUCCESS, header=GetMaxOffsetResponseHeader(offset))

    @handles(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader)
    def min_offset(self, header: GetMinOffsetRequestHeader, request: RemotingCommand) -> Answer:
        offset = max(0, self.store.min_queue_offset(header.topic, header.queue_id))
        return request.response(ResponseCode.SUCCESS, header=GetMinOffsetResponseHeader(offset))

    @handles(RequestCode.GET_EARLIEST_MSG_STORETIME, GetEarliestMsgStoretimeRequestHeader)
    def earliest_store_time(
        self, header: GetEarliestMsgStoretimeRequestHeader, request: RemotingCommand
    ) -> Answer:
        """Answer the store time of a queue's first entry; -1 when there is none."""
        first = self.store.min_queue_offset(header.topic, header.queue_id)
        timestamp = self.store.store_time_of(header.topic, header.queue_id, first)
        return request.response(
            ResponseCode.SUCCESS, header=GetEarliestMsgStoretimeResponseHeader(timestamp)
        )

    @handles(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader)
    def view_message(self, header: ViewMessageRequestHeader, request: RemotingCommand) -> Answer:
        record = self.store.record_at(header.offset)
        if record is None:
            remark = f"can not find message by the offset, {header.offset}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return request.response(ResponseCode.SUCCESS, body=bytes(record))
