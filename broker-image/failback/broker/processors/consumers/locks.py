"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ (41, 42)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from failback.broker.processors.consumers.queue_locks import QueueLocks
from failback.broker.remoting.connection import BrokerConnection
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.route import LockBatchRequestBody, LockBatchResponseBody

if TYPE_CHECKING:
    from failback.broker.remoting.server import RemotingServer


class LockProcessor:
    """Locks queues for ordered consumers."""

    def __init__(self, locks: QueueLocks, clock_ms: Callable[[], int]) -> None:
        self._locks = locks
        self._clock_ms = clock_ms

    def register(self, server: RemotingServer) -> None:
        server.handle(RequestCode.LOCK_BATCH_MQ, self.lock)
        server.handle(RequestCode.UNLOCK_BATCH_MQ, self.unlock)

    def lock(self, _connection: BrokerConnection, request: RemotingCommand) -> RemotingCommand:
        body = LockBatchRequestBody.from_json(request.body)
        held = self._locks.lock(body.consumer_group, body.client_id, body.mq_set, self._clock_ms())
        answer = LockBatchResponseBody(held)
        return request.response(ResponseCode.SUCCESS, body=answer.to_json())

    def unlock(self, _connection: BrokerConnection, request: RemotingCommand) -> RemotingCommand:
        body = LockBatchRequestBody.from_json(request.body)
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return request.response(ResponseCode.SUCCESS)
