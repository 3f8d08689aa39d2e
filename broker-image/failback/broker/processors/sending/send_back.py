"""CONSUMER_SEND_MSG_BACK (36): a message that a consumer could not handle is redelivered later.

Source: SendMessageProcessor.asyncConsumerSendMsgBack, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from failback.broker.config.config import BrokerConfig
from failback.broker.messaging.delayed import append_copy, waiting_place
from failback.broker.messaging.put_aside import PutAside
from failback.broker.messaging.send_rules import SendRefused
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.processors.registry import handles
from failback.broker.remoting.server import Answer, RemotingServer
from failback.broker.store.log.results import MessageIllegal, PutRefused
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import PERM_WRITE, SCHEDULE_TOPIC, RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import StoreError
from failback.protocol.headers import ConsumerSendMsgBackRequestHeader
from failback.protocol.message import (
    DELAY,
    DLQ_PREFIX,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
    MessageExt,
    decode_record,
    join_properties,
)
from failback.protocol.route import SubscriptionGroupConfig

FIRST_LEVEL: Final = 3
"""Delay level of a first retry; each later one waits a level longer."""

_VERSION_WITH_MAX_RECONSUME: Final = 121  # V3_4_9
_UNIT_SUBSCRIPTION: Final = 2


@dataclass(slots=True)
class SendBackProcessor:
    """Stores copies in ``%RETRY%group``, delayed, or in ``%DLQ%group`` when there were enough."""

    config: BrokerConfig
    server: RemotingServer
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    statistics: BrokerStatistics
    put_aside: PutAside

    @handles(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader)
    def send_back(
        self, header: ConsumerSendMsgBackRequestHeader, request: RemotingCommand
    ) -> Answer:
        """Answer without a header; a refused message stays with its consumer, which tries on."""
        try:
            self._store_copy(header, request.version)
        except SendRefused as refused:
            return request.response(refused.code, refused.remark)
        except StoreError as error:
            self.statistics.put_failed += 1
            # PutMessageStatus's name is the original's whole remark.
            status = error.code.name if isinstance(error, PutRefused) else "UNKNOWN_ERROR"
            return request.response(ResponseCode.SYSTEM_ERROR, f"{status}: {error}")
        return request.response(ResponseCode.SUCCESS)

    def _store_copy(self, header: ConsumerSendMsgBackRequestHeader, version: int) -> None:
        """Check in the original's order and append.

        Raises:
            SendRefused, StoreError: Nothing was stored.
        """
        group = self.groups.find(header.group)
        if group is None:
            remark = f"subscription group not exist, {header.group}"
            raise SendRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self.config.broker_permission & PERM_WRITE:
            remark = f"the broker[{self.config.broker_ip1}] sending message is forbidden"
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        if group.retry_queue_nums <= 0:
            return
        unit_flag = _UNIT_SUBSCRIPTION if header.unit_mode else 0
        retry = self.topics.retry_topic(group, unit_flag)
        if not retry.perm & PERM_WRITE:
            remark = f"the topic[{retry.topic_name}] sending message is forbidden"
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        message = self._message_at(header.offset)
        properties = dict(message.properties)
        properties.setdefault(RETRY_TOPIC, message.topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, message.offset_msg_id)
        properties[WAIT] = "false"
        if _is_over(header, group, message.reconsume_times, version):
            properties[DELAY] = "0"
            dead = self.topics.create_in_send_back(DLQ_PREFIX + header.group, 1)
            self._append(message, dead.topic_name, 0, properties)
        else:
            level = header.delay_level or FIRST_LEVEL + message.reconsume_times
            properties[DELAY] = str(level)
            queue_id = random.randrange(group.retry_queue_nums)
            self._append(message, retry.topic_name, queue_id, properties)
        self.statistics.sent_back[f"{properties[RETRY_TOPIC]}@{header.group}"] += 1

    def _message_at(self, physical_offset: int) -> MessageExt:
        record = self.store.record_at(physical_offset) if physical_offset >= 0 else None
        if record is None:
            remark = f"look message by offset failed, {physical_offset}"
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        return decode_record(record, decompress=False)[0]

    def _append(
        self, message: MessageExt, topic: str, queue_id: int, properties: dict[str, str]
    ) -> None:
        wanted = topic
        waiting = waiting_place(
            join_properties(properties), topic, queue_id, len(self.store.delays)
        )
        if waiting is not None:
            topic, (queue_id, properties) = SCHEDULE_TOPIC, waiting
        try:
            appended = append_copy(
                self.store,
                message,
                topic=topic,
                queue_id=queue_id,
                properties=properties,
                reconsume_times=message.reconsume_times + 1,
            )
        except MessageIllegal as error:
            # With what a retry says of itself its properties are too long. Its consumer would
            # only try again, and hold up what it has to handle besides.
            self.put_aside.keep(message, message.physical_offset, str(error), wanted)
        else:
            self.statistics.put_messages += 1
            self.statistics.put_bytes += appended.end_offset - appended.physical_offset
        self.server.note_append()


def _is_over(
    header: ConsumerSendMsgBackRequestHeader,
    group: SubscriptionGroupConfig,
    reconsume_times: int,
    version: int,
) -> bool:
    """Whether a message has been tried often enough, or its consumer has given it up."""
    most = group.retry_max_times
    if version >= _VERSION_WITH_MAX_RECONSUME and header.max_reconsume_times is not None:
        most = header.max_reconsume_times
    return reconsume_times >= most or header.delay_level < 0
