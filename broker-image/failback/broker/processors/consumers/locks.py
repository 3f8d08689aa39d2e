"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ (41, 42); how long a lock holds is in ``queue_locks``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.processors.consumers.queue_locks import QueueLocks
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.names import (
    check_broker_name,
    check_client_id,
    check_group,
    check_topic,
)
from failback.protocol.route import LockBatchRequestBody, LockBatchResponseBody


@dataclass(slots=True)
class LockProcessor:
    """Locks queues for ordered consumers."""

    locks: QueueLocks
    groups: SubscriptionGroupManager
    clock_ms: Callable[[], int]

    @handles(RequestCode.LOCK_BATCH_MQ)
    def lock(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        body = LockBatchRequestBody.from_json(request.body)
        if body.consumer_group not in self.groups.table:
            check_group(body.consumer_group)
        check_client_id(body.client_id)
        for queue in body.mq_set:
            check_topic(queue.topic)
            check_broker_name(queue.broker_name)
        held = self.locks.lock(body.consumer_group, body.client_id, body.mq_set, self.clock_ms())
        answer = LockBatchResponseBody(held)
        return request.response(ResponseCode.SUCCESS, body=answer.to_json())

    @handles(RequestCode.UNLOCK_BATCH_MQ)
    def unlock(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        body = LockBatchRequestBody.from_json(request.body)
        self.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return request.response(ResponseCode.SUCCESS)
