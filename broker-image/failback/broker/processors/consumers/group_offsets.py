"""What is done with the offsets of several groups at once: 308 and 314.

Source: AdminBrokerProcessor, ConsumerOffsetManager, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from failback.broker.clients.client_manager import ConsumerManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
)
from failback.protocol.stats import QueryCorrectionOffsetBody

logger = logging.getLogger(__name__)

_BEHIND_NOBODY: Final = 2**63 - 1


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

        The largest long stands where that is ahead of the compared group. Offsets of messages
        that are gone don't count. 4.9.8 also forgets the offsets of the filtered groups, on every
        topic; a question changes nothing here.
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
