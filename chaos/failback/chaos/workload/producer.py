"""A producer process: open-loop sending at a fixed rate.

A send that is late keeps its planned time, so a stall of the brokers shows as latency and not as
load that was never offered. The workload itself sends nothing a second time but what its plan says
to: a share of the acknowledged messages (``resend_ratio``, as an application does that forgot what
it had sent), and messages whose send failed (``resend_failed``).
"""

from __future__ import annotations

import asyncio
import bisect
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from failback.chaos.workload.life import Operation, hot_log, living
from failback.chaos.workload.plan import Draft, MessageMaker, ProducerPlan, TopicPlan, due_times
from failback.client.consumelog.hook import LogHook
from failback.client.consumelog.hot_format import ConsumeLogError
from failback.client.consumelog.lab_id import LAB_ID_PROPERTY
from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.protocol.errors import FailbackError, RemotingConnectError

logger = logging.getLogger(__name__)

MAX_UNDER_WAY: Final = 2048
PRELOAD_UNDER_WAY: Final = 64
TIMER_SECONDS: Final = 0.001
GROUP: Final = "failback-workload"
_KEPT_TIMES: Final = 100_000


def _message(topic: str, draft: Draft, due_ns: int) -> Message:
    return Message(
        topic,
        draft.body,
        keys=draft.lid,
        properties={LAB_ID_PROPERTY: draft.lid},
        delay_level=draft.delay_level,
        due_ns=due_ns,
        okey=draft.okey,
        kseq=draft.kseq,
    )


def _reason_of(failure: BaseException) -> str:
    """The first cause of a failed send, in a few words with the address."""
    while isinstance(failure.__cause__, FailbackError):
        failure = failure.__cause__
    if isinstance(failure, RemotingConnectError) and failure.is_refused:
        return f"{failure.addr} refused"
    return str(failure)


class ProducerProcess:
    """All topics of one producer process."""

    def __init__(self, plan: ProducerPlan) -> None:
        self._plan = plan
        self._stop = asyncio.Event()
        self._no_more = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._attempted = 0
        self._acknowledged = 0
        self._failed = 0
        self._last_failure: FailbackError | None = None
        self._preloaded: set[str] = set()
        self._sending = True
        self._ok_times: list[int] = []
        self._log_error: ConsumeLogError | None = None

    async def run(self) -> None:
        """Send until asked to stop. Raises ``ConsumeLogError`` when the log takes no more rows."""
        process = self._plan.process
        settings = process.settings(
            send_timeout_ms=self._plan.send_timeout_ms,
            retry_times_when_send_failed=self._plan.retries,
        )
        operations: dict[str, Operation] = {
            "stats": self._stats,
            "first-ok": self._first_ok,
            "stop-sending": lambda _: self._no_more.set(),
            "stop": lambda _: self._stop.set(),
        }
        with hot_log(process, "producer") as self._log:
            hook = LogHook(self._log)
            producer = Producer(f"{GROUP}-{self._plan.index}", settings, hook=hook)
            async with living(process, self._log, operations, self._stop), producer:
                await self._send_all(producer)
            if self._log_error is not None:
                raise self._log_error

    @property
    def reached_nobody(self) -> bool:
        """Has every send failed?"""
        return self._failed > 0 and not self._acknowledged

    def summary(self) -> str:
        """What became of the sends, and why the last one failed that did."""
        told = f"sent {self._acknowledged} of {self._attempted}"
        if self._last_failure is not None:
            told += f", {self._failed} failed: {_reason_of(self._last_failure)}"
        unknown = self._attempted - self._acknowledged - self._failed
        return f"{told}, {unknown} not answered" if unknown else told

    async def _send_all(self, producer: Producer) -> None:
        senders = [
            asyncio.create_task(self._send_topic(producer, topic), name=f"send {topic.name}")
            for topic in self._plan.topics
        ]
        ended = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            if self._plan.seconds is not None:
                await asyncio.wait([ended], timeout=self._plan.seconds)
                self._no_more.set()
            everything: asyncio.Future[Any] = asyncio.gather(*senders)
            waited: list[asyncio.Future[Any]] = [everything, ended]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            self._no_more.set()
            await everything
            self._sending = False
            if self._under_way:
                await asyncio.wait(list(self._under_way))
            has_end = self._plan.seconds is not None or all(
                topic.limit is not None for topic in self._plan.topics
            )
            if not has_end:
                await self._stop.wait()
        finally:
            self._no_more.set()
            ended.cancel()
            for sender in senders:
                sender.cancel()
            await asyncio.gather(ended, *senders, return_exceptions=True)
            for task in list(self._under_way):
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _send_topic(self, producer: Producer, topic: TopicPlan) -> None:
        maker = MessageMaker(topic, self._plan.index, self._plan.process.seed)
        await self._preload(producer, topic, maker)
        for sent, due in enumerate(due_times(topic, time.monotonic())):
            if self._ended() or (topic.limit is not None and sent >= topic.limit):
                return
            await self._sleep_until(due)
            if self._ended():
                return
            while len(self._under_way) >= MAX_UNDER_WAY:
                await asyncio.wait(list(self._under_way), return_when=asyncio.FIRST_COMPLETED)
            self._begin(producer, topic, maker, round(due * 1e9))

    async def _preload(self, producer: Producer, topic: TopicPlan, maker: MessageMaker) -> None:
        """Send the backlog as fast as a bounded number of sends allows; return when it is sent."""
        left, mine = topic.preload_messages, set[asyncio.Task[None]]()
        while (left > 0 or mine) and not self._ended():
            room = PRELOAD_UNDER_WAY - len(self._under_way)
            for _ in range(min(room, left)):
                mine.add(self._begin(producer, topic, maker, time.monotonic_ns()))
                left -= 1
            if self._under_way:
                await asyncio.wait(
                    list(self._under_way), timeout=1, return_when=asyncio.FIRST_COMPLETED
                )
            mine &= self._under_way
        if not left and not mine:
            self._preloaded.add(topic.name)

    def _begin(
        self, producer: Producer, topic: TopicPlan, maker: MessageMaker, due_ns: int
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(self._send(producer, topic, maker, due_ns))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _send(
        self, producer: Producer, topic: TopicPlan, maker: MessageMaker, due_ns: int
    ) -> None:
        draft = maker.next()
        message = _message(topic.name, draft, due_ns)
        sent = await self._send_one(producer, message)
        for _ in range(topic.resend_failed):
            if sent or self._stop.is_set():
                break
            sent = await self._send_one(producer, message)  # the same object: the same unique key
        if sent and draft.resend:
            # A message of its own: another unique key, the same identity.
            await self._send_one(producer, _message(topic.name, draft, time.monotonic_ns()))

    async def _send_one(self, producer: Producer, message: Message) -> bool:
        """Send a message; whether it was acknowledged."""
        self._attempted += 1
        try:
            await producer.send(message)
        except ConsumeLogError as error:
            self._log_error = error
            self._stop.set()
        except FailbackError as error:
            self._failed += 1
            self._last_failure = error
            logger.debug("send of %s failed: %s", message.properties[LAB_ID_PROPERTY], error)
        else:
            self._acknowledged += 1
            self._ok_times.append(time.monotonic_ns())
            if len(self._ok_times) > 2 * _KEPT_TIMES:
                del self._ok_times[:_KEPT_TIMES]
            return True
        return False

    async def _sleep_until(self, due: float) -> None:
        await asyncio.sleep(0)
        # A loop's timers are a millisecond fine and count from the begin of its turn, so they may
        # fire early; a send may not.
        while not self._ended() and (left := due - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left + TIMER_SECONDS):
                    await self._no_more.wait()

    def _ended(self) -> bool:
        return self._no_more.is_set() or self._stop.is_set()

    # --- control channel -------------------------------------------------------------------------

    def _stats(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "attempted": self._attempted,
            "acknowledged": self._acknowledged,
            "failed": self._failed,
            "in_flight": len(self._under_way),
            "preloaded": self._preloaded == {topic.name for topic in self._plan.topics},
            "sending": self._sending,
            "last_seq": self._log.last_seq,
            "client_id": None,
        }

    def _first_ok(self, request: Mapping[str, Any]) -> dict[str, Any]:
        place = bisect.bisect_right(self._ok_times, int(request["after_ns"]))
        found = self._ok_times[place] if place < len(self._ok_times) else None
        return {"first_ok_ns": found}
