"""Single sends by the compiled kernel: all plain messages that follow each other in one read.

A message is plain if its topic and queue are in use, and it is neither delayed nor half nor a batch
nor retried. The kernel takes frames as long as they are such, and lays out records, queue entries
and answers. :class:`SendProcessor` handles the other messages one by one; its result for the plain
ones would be the same. Nothing between two of them can change what the checks depend on. So the
configuration is asked once a read, and each queue once as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType
from typing import cast

from failback.broker.messaging.topic_admission import Target, TopicAdmission
from failback.broker.monitoring.health_endpoints import BrokerPhase
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.processors.sending.durability import DurabilityGate
from failback.broker.remoting.answers import SendAnswers
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import RemotingServer
from failback.broker.store.index.index_keys import RecordParts
from failback.broker.store.message_store import MessageStore
from failback.broker.store.queues.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

_Later = tuple[int, int, int, int, int]
"""An answer to be made: opaque, physical offset, queue id, queue offset; end of the record."""
_Added = tuple[list[bytes], list[int], int, int]
"""What one queue gets: entries, tags codes, end of its last record, bytes of all its records."""
_Taken = tuple[int, bytes, int, list[_Added], list[RecordParts], bytes | list[bytes | _Later]]
"""Where the next frame begins; records, their end, entries by queue, keys; answers."""
Place = tuple[int, bytes, int, int]
"""What records of a queue have in common: queue offset of the next one, topic behind its length,
the topic's part of sysFlag, store timestamp."""


class PlainSends:
    """Stores runs of plain messages."""

    def __init__(
        self,
        kernels: ModuleType,
        *,
        server: RemotingServer,
        store: MessageStore,
        admission: TopicAdmission,
        gate: DurabilityGate,
        statistics: BrokerStatistics,
        phase: BrokerPhase,
        cluster_property: str,
    ) -> None:
        self._take_sends = cast(Callable[..., _Taken | None], kernels.take_sends)
        self._server = server
        self._appender = store.appender
        self._admission = admission
        self._gate = gate
        self._statistics = statistics
        self._phase = phase
        self._cluster_property = cluster_property.encode()
        self.answers: SendAnswers
        """Set whenever settings are applied: see SendProcessor.take_settings."""
        self._found: list[tuple[Target, ConsumeQueue]] = []
        """The queues that the kernel asked for, in this order."""

    def take(self, connection: BrokerConnection, data: bytes, position: int) -> int:
        """Store the plain messages at ``position`` of a read; return where the next frame begins.

        That is ``position`` itself when the first one is none.
        """
        room = self._appender.room()
        if room is None or self._phase.is_draining or not self._admission.is_unconditional:
            return position
        self._found.clear()
        try:
            taken = self._take_sends(
                data,
                position,
                self._find,
                *room,
                connection.born_host,
                self._cluster_property,
                self.answers.pieces,
                self._gate.is_open,
            )
        # As in SendProcessor.fast, which takes the messages now: nothing of them was stored.
        except Exception:
            logger.exception("the send kernel failed")
            return position
        if taken is None:
            return position
        end, records, end_offset, added, keyed, answered = taken
        self._add(records, end_offset, added, keyed)
        self._server.uncommitted = True
        if answered and isinstance(answered, bytes):
            connection.push(answered)
            return end
        self._server.note_append()
        if not isinstance(answered, bytes):
            self._answer_singly(connection, answered)
        return end

    def _find(self, topic: str, queue_id: int) -> Place | None:
        """Tell the kernel of a queue, once in a run; None if its messages are not plain."""
        target = self._admission.known(topic, queue_id)
        if target is None:
            return None
        found = self._appender.find(target.topic, queue_id)
        if found is None:
            return None
        queue, timestamp = found
        self._found.append((target, queue))
        return queue.next_offset, queue.topic_piece, target.sys_flag, timestamp

    def _add(
        self, records: bytes, end_offset: int, added: list[_Added], keyed: list[RecordParts]
    ) -> None:
        self._appender.append_run(records, end_offset, keyed)
        touched = self._appender.touched
        for (target, queue), (entries, codes, end, stored_bytes) in zip(
            self._found, added, strict=True
        ):
            if entries:  # none: the only message for this queue was not plain
                queue.add_run(entries, codes, end)
                touched[queue] = None
                target.messages_in += len(entries)
                target.bytes_in += stored_bytes
        self._statistics.put_messages += len(keyed)
        self._statistics.put_bytes += len(records)

    def _answer_singly(self, connection: BrokerConnection, answered: list[bytes | _Later]) -> None:
        """Send the answers that need not wait, hold the others back, in their order."""
        for each in answered:
            if isinstance(each, bytes):
                connection.push(each)
            else:
                *arguments, end_offset = each
                self._gate.answer_later(connection, self.answers.one, tuple(arguments), end_offset)
