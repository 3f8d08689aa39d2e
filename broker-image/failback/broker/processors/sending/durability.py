"""When the answer to a stored message may go: after the flush, the slave, both, or at once.

Source: CommitLog.submitFlushRequest, submitReplicaRequest, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from failback.broker.config.config import BrokerConfig
from failback.broker.ha.service import HaService
from failback.broker.processors.sending.waiting_answers import WaitingAnswer, WaitingAnswers
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import ResponseCode


class DurabilityGate:
    """Holds answers back as far as ``flushDiskType`` and ``brokerRole`` ask."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        ha: HaService,
        clock: Callable[[], float],
    ) -> None:
        """``clock`` counts seconds, for deadlines."""
        self._config = config
        self._store = store
        self._ha = ha
        self._clock = clock
        self._scale = config.time_scale
        self._sync_flush = config.flush_disk_type == "SYNC_FLUSH"
        self._sync_master = config.broker_role == "SYNC_MASTER"
        self._flush_to = 0
        self.waiting = WaitingAnswers()
        self.is_open = not (self._sync_flush or self._sync_master)
        """Whether answers go at once."""

    def set_role(self, role: str) -> None:
        """Take a live change between ASYNC_MASTER and SYNC_MASTER."""
        self._sync_master = role == "SYNC_MASTER"
        self.is_open = not (self._sync_flush or self._sync_master)

    def answer_later(
        self,
        connection: BrokerConnection,
        make: Callable[..., bytes],
        arguments: tuple[Any, ...],
        end_offset: int,
    ) -> None:
        """Answer when the record is flushed and replicated as far as the configuration asks."""
        answer = WaitingAnswer(connection, make, arguments)
        now_ms = self._clock() * 1000
        flush_deadline = replica_deadline = None
        if self._sync_flush:
            self._flush_to = end_offset
            flush_deadline = now_ms + self._scale.ms(self._config.sync_flush_timeout)
        if self._sync_master:
            if not self._ha.is_slave_ok(end_offset):
                answer.slave_code = int(ResponseCode.SLAVE_NOT_AVAILABLE)
            elif self._ha.push2slave_max_offset < end_offset:
                replica_deadline = now_ms + self._scale.ms(self._config.slave_timeout)
        if flush_deadline is None and replica_deadline is None:
            answer.send()
            return
        self.waiting.add(
            answer,
            end_offset,
            flush_deadline_ms=flush_deadline,
            replica_deadline_ms=replica_deadline,
        )

    def after_commit(self) -> None:
        """The records of this run are written: ask once for the flush that they wait for."""
        flush_to, self._flush_to = self._flush_to, 0
        if flush_to:
            self._store.request_flush(flush_to, lambda flushed: self._flush_done(flush_to, flushed))

    def _flush_done(self, offset: int, flushed: bool) -> None:
        if flushed:
            self.waiting.flushed(offset)
        else:
            self.waiting.flush_failed(offset)

    def head_wait_ms(self) -> float:
        """How long the oldest held answer has waited; 0 without one."""
        now_ms = self._clock() * 1000
        waited = 0.0
        flush = self.waiting.first_flush_deadline_ms
        if flush is not None:
            waited = now_ms + self._scale.ms(self._config.sync_flush_timeout) - flush
        replica = self.waiting.first_replica_deadline_ms
        if replica is not None:
            waited = max(waited, now_ms + self._scale.ms(self._config.slave_timeout) - replica)
        return max(0.0, waited)

    def expire(self) -> None:
        """Answer what waited beyond its deadline."""
        self.waiting.expire(self._clock() * 1000)
