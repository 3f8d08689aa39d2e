"""A consumer process: one member of one group, every delivery logged before it is handled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from failback.chaos.workload.handler import WorkloadHandler, order_key_of
from failback.chaos.workload.life import Operation, hot_log, living
from failback.chaos.workload.plan import ConsumerPlan
from failback.client.consumelog.hook import LogHook
from failback.client.consumer.consumer import PushConsumer
from failback.client.errors import NotRunning
from failback.client.model import ConsumeFrom, MessageModel

logger = logging.getLogger(__name__)

_CONSUME_FROM: Final = {"LAST": ConsumeFrom.LAST_OFFSET, "FIRST": ConsumeFrom.FIRST_OFFSET}


class ConsumerProcess:
    """One member. SIGTERM and ``stop`` end it in order; a full log ends it with exit code 74."""

    def __init__(self, plan: ConsumerPlan) -> None:
        self._plan = plan
        self._stop = asyncio.Event()
        self._handler = WorkloadHandler(plan.handler, plan.process.seed)
        self._consumer: PushConsumer | None = None
        self._assigned = False
        self._has_topic = False
        self._problem = ""

    @property
    def reached_nobody(self) -> bool:
        """Whether the topic was on no broker at the end, or no broker was ready to serve."""
        return not self._has_topic or bool(self._problem and not self._handler.delivered)

    def summary(self) -> str:
        """What was consumed, or why nothing was."""
        if self.reached_nobody and self._problem:
            return f"consumed nothing: {self._problem}"
        if self.reached_nobody:
            servers = ", ".join(self._plan.process.namesrv)
            return f"consumed nothing: topic {self._plan.topic} is on no broker of {servers}"
        return f"consumed {self._handler.delivered} messages"

    async def run(self) -> None:
        """Consume until asked to stop. Raises ``ConsumeLogError`` when rows cannot be stored."""
        plan, process = self._plan, self._plan.process
        settings = process.settings(
            start_phase_ms=plan.start_phase_ms,
            max_reconsume_times=plan.max_reconsume_times,
            consume_threads=plan.threads,
            pull_threshold_for_queue=plan.pull_threshold_for_queue,
            **self._own_offsets(),
        )
        operations: dict[str, Operation] = {
            "stats": self._stats,
            "set-handler": lambda request: self._handler.set_knobs(dict(request)),
            "unsubscribe": lambda _: self._started().unsubscribe(plan.topic),
            "subscribe": self._subscribe,
            "stop": lambda _: self._stop.set(),
        }
        with hot_log(process, "consumer") as self._log:
            consumer = PushConsumer(
                plan.group,
                settings,
                self._handler,
                hook=LogHook(self._log, order_key_of),
                message_model=MessageModel(plan.message_model),
                consume_from=_CONSUME_FROM[plan.consume_from],
            )
            consumer.subscribe(plan.topic)
            async with living(process, self._log, operations, self._stop):
                await self._consume(consumer)

    def _own_offsets(self) -> dict[str, Any]:
        """Where offsets are a file of the member: one per member, in the run, kept by its name."""
        plan = self._plan
        if plan.message_model != MessageModel.BROADCASTING.value or plan.process.control is None:
            return {}
        name = f"{plan.group}-{plan.member}"
        folder = plan.process.hot.parent / "offsets" / name
        return {"instance_name": name, "local_offset_store_dir": folder}

    async def _consume(self, consumer: PushConsumer) -> None:
        ended = asyncio.create_task(self._stop.wait(), name="stop")
        starting = asyncio.create_task(consumer.start(), name="start")
        try:
            await asyncio.wait([ended, starting], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return  # stopped before its start phase was over
            await starting
            self._consumer = consumer
            failed = asyncio.create_task(consumer.wait(), name="wait")
            try:
                await asyncio.wait(
                    [ended, failed],
                    timeout=self._plan.seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if failed.done():
                    await failed
            finally:
                failed.cancel()
                await asyncio.gather(failed, return_exceptions=True)
        finally:
            ended.cancel()
            starting.cancel()
            await asyncio.gather(ended, starting, return_exceptions=True)
            with suppress(NotRunning):
                self._has_topic = self._plan.topic in consumer.instance.routes
                self._problem = consumer.instance.remoting.problem
            await consumer.shutdown()

    # --- control channel -------------------------------------------------------------------------

    def _stats(self, _: Mapping[str, Any]) -> dict[str, Any]:
        consumer = self._consumer
        held = list(consumer.held_queues) if consumer is not None else []
        topic = self._plan.topic
        self._assigned = self._assigned or bool(held)
        return {
            "delivered": self._handler.delivered,
            "unfinished": self._handler.under_way,
            "bad_bodies": self._handler.bad_bodies,
            "handler": self._handler.stats(),
            "assigned": self._assigned,
            "queues": len(held),
            "topic_queues": [
                f"{queue.broker_name}/{queue.queue_id}" for queue in held if queue.topic == topic
            ],
            "subscribed": consumer is not None and topic in consumer.subscribed_topics(),
            "last_seq": self._log.last_seq,
            "client_id": consumer.client_id if consumer is not None else None,
            "offsets": self._offsets(),
        }

    def _offsets(self) -> dict[str, dict[str, int]] | None:
        """Broker → queue id → next offset, of a member whose broker does not know it."""
        consumer, plan = self._consumer, self._plan
        if consumer is None or plan.message_model != MessageModel.BROADCASTING.value:
            return None
        found: dict[str, dict[str, int]] = {}
        for queue, offset in consumer.memory_offsets(plan.topic).items():
            found.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
        return found

    def _subscribe(self, _: Mapping[str, Any]) -> None:
        consumer, topic = self._started(), self._plan.topic
        if topic not in consumer.subscribed_topics():
            consumer.subscribe(topic)

    def _started(self) -> PushConsumer:
        if self._consumer is None:
            raise ValueError("the consumer has not started yet")
        return self._consumer
