"""Consumer offsets (14, 15, 43, 45), their reset (222), and those of several groups (308, 314).

Source: ConsumerManageProcessor, AdminBrokerProcessor, Broker2Client, ConsumerOffsetManager,
apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from failback.broker.clients.client_manager import ConsumerManager
from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.broker.store.message_store import MessageStore
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.fastjson import dumps
from failback.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from failback.protocol.stats import QueryCorrectionOffsetBody, ResetOffsetBody

logger = logging.getLogger(__name__)

_RESET_BY_BROKER: Final = 28  # V3_0_7_SNAPSHOT: older clients don't take an offset
NOT_FOUND: Final = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
_BEHIND_NOBODY: Final = 2**63 - 1


@dataclass(slots=True)
class OffsetProcessor:
    """Answers, stores and resets the offsets of groups."""

    identity: BrokerIdentity
    store: MessageStore
    topics: TopicConfigManager
    offsets: ConsumerOffsetManager
    delay_offsets: DelayOffsets
    consumers: ConsumerManager[BrokerConnection]
    _opaque: Iterator[int] = field(init=False, default_factory=itertools.count)

    @handles(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader)
    def query(self, header: QueryConsumerOffsetRequestHeader, request: RemotingCommand) -> Answer:
        """Answer a stored offset, 0 for a young queue, else 22.

        A 4.9 client reads *every* code but 0 as "none stored" and jumps to the queue's end, so no
        other code is answered here. A group without an offset starts at 0 on a queue that never
        lost data and whose first record still counts as in memory.
        """
        offset = self.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            if not self._starts_at_zero(header.topic, header.queue_id):
                return request.response(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND, ext={})
            offset = 0
        return request.response(
            ResponseCode.SUCCESS, header=QueryConsumerOffsetResponseHeader(offset)
        )

    def _starts_at_zero(self, topic: str, queue_id: int) -> bool:
        if self.store.min_queue_offset(topic, queue_id) > 0:
            return False
        return not self.store.is_on_disk(topic, queue_id, 0)

    @handles(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader)
    def update(self, header: UpdateConsumerOffsetRequestHeader, request: RemotingCommand) -> Answer:
        """Store the value that the client sends, without a check."""
        self.offsets.commit(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset
        )
        return request.response(ResponseCode.SUCCESS, ext={})

    @handles(RequestCode.GET_ALL_CONSUMER_OFFSET)
    def all_offsets(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        return request.response(ResponseCode.SUCCESS, ext={}, body=self.offsets.to_json())

    @handles(RequestCode.GET_ALL_DELAY_OFFSET)
    def all_delay_offsets(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        return request.response(ResponseCode.SUCCESS, body=self.delay_offsets.to_json())

    @handles(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader)
    def reset(self, header: ResetOffsetRequestHeader, request: RemotingCommand) -> Answer:
        """Send a group's members to a time (222). The broker's own table stays as it is."""
        topic, group = header.topic, header.group
        config = self.topics.get(topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        table = {}
        for queue_id in range(config.write_queue_nums):
            stored = self.offsets.query(group, topic, queue_id)
            if stored < 0:
                remark = f"THe consumer group <{group}> not exist"
                return request.response(ResponseCode.SYSTEM_ERROR, remark)
            target = self._reset_target(topic, queue_id, header.timestamp)
            queue = MessageQueue(topic, self.identity.broker_name, queue_id)
            table[queue] = target if header.is_force or target < stored else stored
        answer = self._send_reset(request, header, table)
        if answer.code == ResponseCode.SUCCESS:
            targets = {queue.queue_id: target for queue, target in table.items()}
            self.offsets.regressions.expect_reset(topic, group, targets)
        return answer

    def _reset_target(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms == -1:
            return self.store.max_queue_offset(topic, queue_id)
        return max(0, self.store.search_offset(topic, queue_id, timestamp_ms))

    def _send_reset(
        self,
        request: RemotingCommand,
        header: ResetOffsetRequestHeader,
        table: dict[MessageQueue, int],
    ) -> RemotingCommand:
        online = self.consumers.groups.get(header.group)
        if online is None or not online.members:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}"
            )
            return request.response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        for member in online.members.values():
            if member.version < _RESET_BY_BROKER:
                remark = (
                    "the client does not support this feature. version="
                    f"{member.version} client={member.client_id}"
                )
                return request.response(ResponseCode.SYSTEM_ERROR, remark)
        for member in online.members.values():
            body = reset_body(table, as_list=member.language == "CPP")
            push = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body, oneway=True
            )
            push.opaque = next(self._opaque) & 0x7FFFFFFF
            member.connection.push(push.encode())
            logger.info("told %s to reset %s of %s", member.client_id, header.topic, header.group)
        body = reset_body(table, as_list=request.language == "CPP")
        return request.response(ResponseCode.SUCCESS, body=body)


def reset_body(table: dict[MessageQueue, int], *, as_list: bool) -> bytes:
    """Encode offsets by queue: an object, or the list that C++ clients read."""
    if not as_list:
        return ResetOffsetBody(table).to_json()
    entries = [
        {
            "brokerName": queue.broker_name,
            "offset": offset,
            "queueId": queue.queue_id,
            "topic": queue.topic,
        }
        for queue, offset in table.items()
    ]
    return dumps({"offsetTable": entries})


@dataclass(slots=True)
class GroupOffsetProcessor:
    """Compares and copies what groups have committed."""

    store: MessageStore
    topics: TopicConfigManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager[BrokerConnection]

    @handles(RequestCode.QUERY_CORRECTION_OFFSET, QueryCorrectionOffsetHeader)
    def correction(self, header: QueryCorrectionOffsetHeader, request: RemotingCommand) -> Answer:
        """Answer per queue the smallest offset of all groups but the filtered ones.

        The largest long marks a queue in which it is ahead of the compared group. Offsets of
        messages that are gone don't count. 4.9.8 also forgets the offsets of the filtered groups,
        on every topic; a question changes nothing here.
        """
        filtered = set((header.filter_groups or "").split(","))
        smallest: dict[int, int] = {}
        for group in self.offsets.groups_of(header.topic) - filtered:
            for queue_id, offset in self.offsets.of(group, header.topic).items():
                if offset >= max(0, self.store.min_queue_offset(header.topic, queue_id)):
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        for queue_id, offset in self.offsets.of(header.compare_group, header.topic).items():
            if smallest.get(queue_id, offset) > offset:
                smallest[queue_id] = _BEHIND_NOBODY
        body = QueryCorrectionOffsetBody(smallest).to_json(unquoted_int_keys=True)
        return request.response(ResponseCode.SUCCESS, body=body)

    @handles(RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader)
    def clone(self, header: CloneGroupOffsetRequestHeader, request: RemotingCommand) -> Answer:
        """Give one group the offsets of another, on one topic or on all of them.

        4.9.8 copies nothing when no topic is named; here no topic means all of them.
        """
        source, topic = header.src_group, (header.topic or "").strip()
        for name in sorted({topic} if topic else self.offsets.topics_of(source)):
            if self.topics.get(name) is None:
                logger.warning("offsets on %s not cloned: there is no such topic", name)
            elif not header.offline and self.consumers.subscribes_elsewhere(source, name):
                logger.warning("offsets on %s not cloned: %s does not consume it", name, source)
            else:
                self.offsets.clone(source, header.dest_group, name)
        return request.response(ResponseCode.SUCCESS)
