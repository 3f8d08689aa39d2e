"""A producer and a consumer of Kafka that write the rows of the consume log.

The consumer is what most applications have: one loop, automatic commits. It asks for the committed
offsets itself when partitions are assigned and starts there, so that the row has what it used.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from functools import partial
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from failback.chaos.compare.rows import OK, Holding, Plan, Rows, body_of
from failback.chaos.compare.settings import QUEUES, TOPIC


def produce(plan: Plan, rows: Rows, stop: Event) -> None:
    """Send the backlog, then at a fixed rate until asked to stop; wait for all answers."""
    producer = Producer({"bootstrap.servers": plan.servers, "enable.idempotence": True})
    began = due = time.monotonic_ns()

    def answered(qid: int, lseq: int, due: int, t0: int, error: Any, _message: Any) -> None:
        result = OK if error is None else "TIMEOUT" if "TIMED_OUT" in error.name() else "BROKER_ERR"
        rows.produce(qid, lseq, 1, due, t0, result)

    for number in itertools.count():
        if number == plan.preload:
            producer.flush()
            began = time.monotonic_ns()
        if number >= plan.preload:
            due = began + round((number - plan.preload) / plan.per_second * 1e9)
        while not stop.is_set() and (left := (due - time.monotonic_ns()) / 1e9) > 0:
            producer.poll(min(left, 0.1))
        if stop.is_set():
            break
        lseq, qid = divmod(number, QUEUES)
        on_delivery = partial(answered, qid, lseq, due, time.monotonic_ns())
        producer.produce(TOPIC, body_of(qid, lseq), partition=qid, on_delivery=on_delivery)
        producer.poll(0)
    producer.flush()


def consume(plan: Plan, rows: Rows, stop: Event) -> None:
    """Handle messages until asked to stop, then leave the group."""
    _Member(plan, rows).run(stop)


class _Member:
    def __init__(self, plan: Plan, rows: Rows) -> None:
        self._rows = rows
        self._held: dict[int, Holding] = {}
        self._stopping = False
        settings = {
            "bootstrap.servers": plan.servers,
            "group.id": plan.group,
            "client.id": plan.client_id,
            "auto.offset.reset": "earliest",
            "on_commit": self._committed,
        }
        self._consumer = Consumer({**settings, **plan.client})

    def run(self, stop: Event) -> None:
        self._consumer.subscribe(
            [TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        while not stop.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                holding = self._held[message.partition()]
                stored_ms = message.timestamp()[1]
                self._rows.handle(holding, message.offset(), message.value(), stored_ms)
        self._stopping = True
        self._consumer.close()
        self._end([*self._held], "SHUTDOWN")

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        starts = [(each.partition, each.offset) for each in self._asked(consumer, partitions)]
        for qid, offset in starts:
            self._held[qid] = self._rows.assign(qid, offset if offset >= 0 else None)
        consumer.assign([TopicPartition(TOPIC, *each) for each in starts])

    def _asked(self, consumer: Consumer, asked: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The group's offsets, below 0 where it has none; waits for a coordinator that moves."""
        while True:
            with contextlib.suppress(KafkaException):
                found: list[TopicPartition] = consumer.committed(list(asked), timeout=5.0)
                if all(each.error is None for each in found):
                    return found
            time.sleep(0.2)

    def _revoked(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        reason = "SHUTDOWN" if self._stopping else "REBALANCE"
        self._end([each.partition for each in partitions], reason)

    def _lost(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._end([each.partition for each in partitions], "MEMBERSHIP_LOST")

    def _end(self, qids: Sequence[int], reason: str) -> None:
        for qid in qids:
            holding = self._held.pop(qid, None)
            if holding is not None:
                self._rows.assign_end(holding, reason)

    def _committed(self, error: Any, partitions: Sequence[TopicPartition]) -> None:
        kind = "SHUTDOWN" if self._stopping else "TIMER"
        for each in partitions:
            failed = error or each.error
            if each.offset >= 0:
                result = OK if failed is None else failed.name()
                self._rows.commit(each.partition, each.offset, kind, result)
