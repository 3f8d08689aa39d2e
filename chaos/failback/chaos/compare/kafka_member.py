"""A producer and a consumer of Kafka that write the rows of the consume log.

The consumer is what most applications have: one loop, automatic commits. It asks for the committed
offsets itself when partitions are assigned and starts there, so that the row has what it used.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from threading import Event
from typing import Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from failback.chaos.compare.rows import OK, Holding, Plan, Rows, body_of, lane_of_queue
from failback.chaos.compare.settings import QUEUES, TOPIC

_COMMITTED_SECONDS: Final = 120.0
_ANSWER_SECONDS: Final = 5.0


def produce(plan: Plan, rows: Rows, stop: Event) -> None:
    """Send the backlog, then at a fixed rate until asked to stop; wait for all answers."""
    producer = Producer({"bootstrap.servers": plan.servers, "enable.idempotence": True})
    began = time.monotonic_ns()
    for number in itertools.count():
        due = began
        if number >= plan.preload:
            if number == plan.preload:
                producer.flush()
                began = due = time.monotonic_ns()
            due = began + round((number - plan.preload) / plan.per_second * 1e9)
            while (left := (due - time.monotonic_ns()) / 1e9) > 0 and not stop.is_set():
                producer.poll(min(left, 0.1))
        if stop.is_set():
            break
        lseq, qid = divmod(number, QUEUES)
        sent = _Sent(rows, qid, lseq, due)
        body = body_of(lane_of_queue(qid), lseq)
        while True:
            try:
                producer.produce(TOPIC, body, partition=qid, on_delivery=sent.answered)
                break
            except BufferError:  # the queue of the client is full
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


class _Sent:
    """One message on its way."""

    def __init__(self, rows: Rows, qid: int, lseq: int, due: int) -> None:
        self._rows, self._qid, self._lseq, self._due = rows, qid, lseq, due
        self._t0 = time.monotonic_ns()

    def answered(self, error: KafkaError | None, _message: Message) -> None:
        result = OK if error is None else "TIMEOUT" if "TIMED_OUT" in error.name() else "BROKER_ERR"
        self._rows.produce(self._qid, self._lseq, 1, self._due, self._t0, result)


def consume(plan: Plan, rows: Rows, stop: Event) -> None:
    """Handle messages until asked to stop, then leave the group."""
    _Member(plan, rows).run(stop)


class _Member:
    def __init__(self, plan: Plan, rows: Rows) -> None:
        self._plan, self._rows = plan, rows
        self._held: dict[int, Holding] = {}
        self._stopping = False
        self._client_id = f"{plan.group}-{plan.proc_no}"
        self._consumer = Consumer(
            {
                "bootstrap.servers": plan.servers,
                "group.id": plan.group,
                "client.id": self._client_id,
                "auto.offset.reset": "earliest",
                "on_commit": self._committed,
                **plan.client,
            }
        )

    def run(self, stop: Event) -> None:
        self._consumer.subscribe(
            [TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        while not stop.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self._handle(message)
        self._stopping = True
        self._consumer.close()
        self._end([*self._held], "SHUTDOWN")

    def _handle(self, message: Message) -> None:
        qid, offset, body = message.partition(), message.offset(), message.value()
        assert qid is not None
        assert offset is not None
        assert isinstance(body, bytes)
        holding = self._held[qid]
        did = self._rows.deliver(holding, offset, body, message.timestamp()[1], self._client_id)
        time.sleep(self._plan.handler_ms / 1000)
        self._rows.delivered(did, holding, offset)

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        found = self._committed_offsets(consumer, partitions)
        for each in found:
            known = each.offset >= 0
            self._held[each.partition] = self._rows.assign(
                each.partition,
                each.offset if known else 0,
                known=known,
                server=None,
                client_id=self._client_id,
            )
        starts = [(each.partition, max(each.offset, OFFSET_INVALID)) for each in found]
        consumer.assign([TopicPartition(TOPIC, qid, offset) for qid, offset in starts])

    def _committed_offsets(
        self, consumer: Consumer, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartition]:
        """The group's offsets; a coordinator that moves answers after some time.

        Raises:
            KafkaException: It does not within two minutes.
        """
        deadline = time.monotonic() + _COMMITTED_SECONDS
        while True:
            try:
                found: list[TopicPartition] = consumer.committed(
                    list(partitions), timeout=_ANSWER_SECONDS
                )
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
                continue
            if all(each.error is None for each in found):
                return found
            time.sleep(0.2)

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        reason = "SHUTDOWN" if self._stopping else "REBALANCE"
        self._end([each.partition for each in partitions], reason)

    def _lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._end([each.partition for each in partitions], "MEMBERSHIP_LOST")

    def _end(self, qids: Sequence[int], reason: str) -> None:
        for qid in qids:
            holding = self._held.pop(qid, None)
            if holding is not None:
                self._rows.assign_end(holding, reason)

    def _committed(self, error: Any, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            if each.offset < 0:
                continue
            failed = error or each.error
            result = OK if failed is None else failed.name()
            kind = "SHUTDOWN" if self._stopping else "TIMER"
            self._rows.commit(each.partition, each.offset, kind, result, self._client_id)
