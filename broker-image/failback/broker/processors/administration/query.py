"""Messages by key: 12. Source: QueryMessageProcessor, apache/rocketmq 4.9.8."""

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
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
)

_NOT_FOUND: Final = "can not find message, maybe time range not correct"
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
