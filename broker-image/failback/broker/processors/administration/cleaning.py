"""Cleaning that somebody asks for: 306, 316 and 329.

Source: AdminBrokerProcessor, DefaultMessageStore, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from failback.broker.metadata.topics import system_topic_names
from failback.broker.remoting.connection import BrokerConnection
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from failback.broker.config.config import BrokerConfig
    from failback.broker.metadata.topics import TopicConfigManager
    from failback.broker.remoting.server import RemotingServer
    from failback.broker.store.message_store import MessageStore

logger = logging.getLogger(__name__)


class CleaningProcessor:
    """Removes what nobody can read any more."""

    def __init__(
        self, *, config: BrokerConfig, store: MessageStore, topics: TopicConfigManager
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics

    def register(self, server: RemotingServer) -> None:
        server.handle(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self.clean_queues)
        server.handle(RequestCode.CLEAN_UNUSED_TOPIC, self.clean_topics)
        server.handle(RequestCode.DELETE_EXPIRED_COMMITLOG, self.delete_log_files)

    def clean_queues(
        self, connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Delete the queues all of whose messages have expired; such a queue begins again at 0."""
        logger.warning("expired queues are cleaned for %s", connection.address)
        self._store.clean_expired_queues()
        return request.response(ResponseCode.SUCCESS)

    def clean_topics(
        self, connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Delete the queues of topics that this broker does not have."""
        logger.warning("unused topics are cleaned for %s", connection.address)
        kept = self._topics.table.keys() | system_topic_names(self._config)
        for topic in {topic for topic, _ in self._store.queues()} - kept:
            logger.warning("topic %s is not here: its queues are deleted", topic)
            self._store.delete_topic(topic)
        return request.response(ResponseCode.SUCCESS)

    def delete_log_files(
        self, connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Let the next rounds of expiry delete files that are old enough, whatever the hour."""
        logger.warning("expired files are deleted for %s", connection.address)
        self._store.expire_by_hand()
        return request.response(ResponseCode.SUCCESS)
