"""Offsets and times of a queue (29-32), a record by its physical offset (33), messages by key (12).

Source: AdminBrokerProcessor, QueryMessageProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, TypeVar

from failback.broker.config.config import BrokerConfig
from failback.broker.processors.registry import handles
from failback.broker.remoting.server import Answer
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    UNIQUE_KEY_QUERY,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    ViewMessageRequestHeader,
)

_NOT_FOUND: Final = "can not find message, maybe time range not correct"


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


_Result = TypeVar("_Result")


@dataclass(slots=True)
class QueryProcessor:
    """Answers with whole records, also on a slave."""

    config: BrokerConfig
    store: MessageStore

    @handles(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader)
    async def query(self, header: QueryMessageRequestHeader, request: RemotingCommand) -> Answer:
        """Answer the newest messages with a key, oldest first; 22 when there is none."""
        is_unique = (request.ext_fields or {}).get(UNIQUE_KEY_QUERY) == "true"
        most = self.config.default_query_max_num if is_unique else header.max_num
        found = await _in_steps(
            self.store.query_message(
                header.topic, header.key, most, header.begin_timestamp, header.end_timestamp
            )
        )
        answer = QueryMessageResponseHeader(
            found.index_last_update_timestamp, found.index_last_update_offset
        )
        if not found.records:
            return request.response(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, header=answer)
        return request.response(ResponseCode.SUCCESS, header=answer, body=b"".join(found.records))


async def _in_steps(work: Generator[None, None, _Result]) -> _Result:
    """Drive ``work`` to its end; others get their turn whenever it yields."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: _Result = done.value
            return result
        await asyncio.sleep(0)
