"""Queue locks of ordered consumers, and their requests LOCK_BATCH_MQ and UNLOCK_BATCH_MQ (41, 42).

A lock lets one client consume a queue, for a minute after its last renewal. Locks are in memory
only: a client that disconnects keeps its locks, and a broker that ends loses all of them.
Source: RebalanceLockManager, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.protocol.body import MessageQueue
from failback.protocol.clients import LockBatchRequestBody, LockBatchResponseBody
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.names import (
    check_broker_name,
    check_client_id,
    check_group,
    check_room,
    check_topic,
)

LOCK_LIVE_MS: Final = 60_000
MOST_LOCKS: Final = 200_000
"""Locks of all groups together; ordered consumers of a real cluster have far fewer queues."""


@dataclass(slots=True)
class Lock:
    client_id: str
    last_update_ms: int


class QueueLocks:
    """Locks by consumer group and queue."""

    def __init__(self, live_ms: int = LOCK_LIVE_MS) -> None:
        self._live_ms = live_ms
        self._groups: dict[str, dict[MessageQueue, Lock]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Lock queues that are free or expired, renew own locks; return the queues now locked.

        Raises:
            TableFull: :data:`MOST_LOCKS` unexpired locks exist.
        """
        self._make_room(now_ms)
        locks = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or self._is_over(lock, now_ms) or lock.client_id == client_id:
                locks[queue] = Lock(client_id, now_ms)
                held.append(queue)
        return held

    def _make_room(self, now_ms: int) -> None:
        """Drop locks that were not renewed in time, where there are many."""
        if sum(map(len, self._groups.values())) + len(self._groups) < MOST_LOCKS:
            return
        for group, locks in list(self._groups.items()):
            for queue in [key for key, lock in locks.items() if self._is_over(lock, now_ms)]:
                del locks[queue]
            if not locks:
                del self._groups[group]
        check_room("queue locks", sum(map(len, self._groups.values())), MOST_LOCKS)

    def _is_over(self, lock: Lock, now_ms: int) -> bool:
        return now_ms - lock.last_update_ms > self._live_ms

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release what ``client_id`` holds; another one's locks stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]


@dataclass(slots=True)
class LockProcessor:
    """Locks queues for ordered consumers."""

    locks: QueueLocks
    groups: SubscriptionGroupManager
    steady_ms: Callable[[], int]

    @handles(RequestCode.LOCK_BATCH_MQ)
    def lock(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        body = LockBatchRequestBody.from_json(request.body)
        if body.consumer_group not in self.groups.table:
            check_group(body.consumer_group)
        check_client_id(body.client_id)
        for queue in body.mq_set:
            check_topic(queue.topic)
            check_broker_name(queue.broker_name)
        held = self.locks.lock(body.consumer_group, body.client_id, body.mq_set, self.steady_ms())
        answer = LockBatchResponseBody(held)
        return request.response(ResponseCode.SUCCESS, body=answer.to_json())

    @handles(RequestCode.UNLOCK_BATCH_MQ)
    def unlock(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        body = LockBatchRequestBody.from_json(request.body)
        self.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return request.response(ResponseCode.SUCCESS)
