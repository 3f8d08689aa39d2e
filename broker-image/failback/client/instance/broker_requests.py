"""Requests that brokers send to clients: 40, 220, 221 and 307 (ClientRemotingProcessor, 4.9.8).

Transaction checks (39), direct consumption (309) and replies (326) are not implemented: a client
answers that it does not know them.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, Protocol

from failback.protocol.body import MessageQueue
from failback.protocol.clients import ConsumerData
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
    from_ext,
)
from failback.protocol.stats import ConsumerRunningInfo, GetConsumerStatusBody, ResetOffsetBody

logger = logging.getLogger(__name__)


class ConsumerMember(Protocol):
    """One group on one instance."""

    def subscribed_topics(self) -> Iterable[str]:
        """Topics whose routes are polled, ``%RETRY%group`` among them."""

    def is_subscribe_info_needed(self, topic: str) -> bool:
        """Tell whether a route must be applied even if the cached route equals it."""

    def update_subscribe_info(self, topic: str, queues: frozenset[MessageQueue]) -> None:
        """Take over the queues of a topic from a new route."""

    def heartbeat_data(self) -> ConsumerData:
        """Describe the group to brokers."""

    async def persist_offsets(self) -> None:
        """Commit what is in memory for every held queue (the 5 s tick)."""

    async def rebalance(self, trigger: str) -> None:
        """Take and give up queues of every subscribed topic."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Move queues of ``topic`` to given offsets (request 220)."""

    def memory_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets in memory (request 221)."""

    def running_info(self) -> ConsumerRunningInfo:
        """The held queues and their offsets (request 307)."""


class Instance(Protocol):
    """The part of a client instance that answers."""

    @property
    def consumers(self) -> Mapping[str, ConsumerMember]: ...

    def wake_rebalance(self, trigger: str) -> None: ...

    def spawn(self, job: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]: ...


def answer_request(
    instance: Instance, addr: str, request: RemotingCommand
) -> RemotingCommand | None:
    """Serve one request of the broker at ``addr``; ``None`` means no answer."""
    serve = _TABLE.get(request.code)
    if serve is None:
        remark = f"request type {request.code} not supported"
        return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
    return serve(instance, addr, request)


def _notify_consumer_ids_changed(
    instance: Instance, addr: str, request: RemotingCommand
) -> RemotingCommand | None:
    header = from_ext(NotifyConsumerIdsChangedRequestHeader, request.ext_fields)
    logger.info("broker %s says that the members of %s changed", addr, header.consumer_group)
    instance.wake_rebalance("notify")
    return None


def _reset_offset(
    instance: Instance, addr: str, request: RemotingCommand
) -> RemotingCommand | None:
    header = from_ext(ResetOffsetRequestHeader, request.ext_fields)
    member = instance.consumers.get(header.group)
    if member is None:
        logger.info("broker %s resets %s, which is not here", addr, header.group)
        return None
    offsets = ResetOffsetBody.from_json(request.body).offset_table
    logger.info("broker %s resets %s on %s: %s", addr, header.group, header.topic, offsets)
    instance.spawn(member.reset_offsets(header.topic, offsets), "reset offsets")
    return None


def _consumer_status(
    instance: Instance, addr: str, request: RemotingCommand
) -> RemotingCommand | None:
    header = from_ext(GetConsumerStatusRequestHeader, request.ext_fields)
    member = instance.consumers.get(header.group)
    table = member.memory_offsets(header.topic) if member is not None else {}
    return request.response(
        ResponseCode.SUCCESS, body=GetConsumerStatusBody(message_queue_table=table).to_json()
    )


def _running_info(
    instance: Instance, addr: str, request: RemotingCommand
) -> RemotingCommand | None:
    header = from_ext(GetConsumerRunningInfoRequestHeader, request.ext_fields)
    member = instance.consumers.get(header.consumer_group)
    if member is None:
        remark = f"The Consumer Group <{header.consumer_group}> not exist in this consumer"
        return request.response(ResponseCode.SYSTEM_ERROR, remark)
    info = member.running_info()
    if header.jstack_enable:
        info.jstack = _stacks()
    return request.response(ResponseCode.SUCCESS, body=info.to_json())


def _stacks() -> str:
    """The stacks of all tasks: what a thread dump is to the Java client."""
    text = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=text)
    return text.getvalue()


_TABLE: Final[Mapping[int, Callable[[Instance, str, RemotingCommand], RemotingCommand | None]]] = {
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _notify_consumer_ids_changed,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _reset_offset,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _consumer_status,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
}
