"""Cleaning on request: 306, 316 and 329.

Source: AdminBrokerProcessor, DefaultMessageStore, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.topics import TopicConfigManager, system_topic_names
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class CleaningProcessor:
    """Removes what can no longer be read."""

    config: BrokerConfig
    store: MessageStore
    topics: TopicConfigManager

    @handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    def clean_queues(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        """Delete the queues all of whose messages have expired; such a queue begins again at 0."""
        logger.warning("expired queues are cleaned for %s", connection.address)
        self.store.clean_expired_queues()
        return request.response(ResponseCode.SUCCESS)

    @handles(RequestCode.CLEAN_UNUSED_TOPIC)
    def clean_topics(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        """Delete the queues of topics that this broker does not have."""
        logger.warning("unused topics are cleaned for %s", connection.address)
        kept = self.topics.table.keys() | system_topic_names(self.config)
        for topic in {topic for topic, _ in self.store.queues()} - kept:
            logger.warning("topic %s is not here: its queues are deleted", topic)
            self.store.delete_topic(topic)
        return request.response(ResponseCode.SUCCESS)

    @handles(RequestCode.DELETE_EXPIRED_COMMITLOG)
    def delete_log_files(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        """Let the next rounds of expiry delete files that are old enough, at any hour."""
        logger.warning("expired files are deleted for %s", connection.address)
        self.store.expire_by_hand()
        return request.response(ResponseCode.SUCCESS)
