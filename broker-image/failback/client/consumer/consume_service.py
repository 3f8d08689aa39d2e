"""Runs the handler on pulled messages, N at a time, and acts on its result.

Two rules decide what is handled twice. When the queue was given up while the handler ran, its
result is *discarded*, even a success: no commit covers the message, and the next owner gets it.
And the offset that may be committed is the lowest unfinished one (see ``process_queue``).

Source: ConsumeMessageConcurrentlyService, ProcessQueue.cleanExpiredMsg, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from failback.client.consumelog.hot_format import ConsumeLogError
from failback.client.consumer.context import ConsumerContext
from failback.client.consumer.offset_store import OffsetStore
from failback.client.consumer.process_queue import ProcessQueue
from failback.client.consumer.send_back import SendBack
from failback.client.model import (
    Consumed,
    ConsumeResult,
    Handler,
    HandlerAnswer,
    retry_topic,
)
from failback.protocol.body import MessageQueue
from failback.protocol.message import CONSUME_START_TIME, MessageExt

logger = logging.getLogger(__name__)

EXPIRED_PER_SCAN: Final = 16
EXPIRED_DELAY_LEVEL: Final = 3


class ConsumeRequest(NamedTuple):
    """What one handler call gets."""

    messages: list[MessageExt]
    queue: MessageQueue
    process_queue: ProcessQueue
    pull_id: int | None


class ConcurrentConsumeService:
    """The "consume threads" of one push consumer: tasks on the event loop.

    Args:
        held: Gives the held queues, for the consume-timeout scan.
    """

    def __init__(
        self,
        context: ConsumerContext,
        store: OffsetStore,
        handler: Handler,
        send_back: SendBack,
        held: Callable[[], Iterable[tuple[MessageQueue, ProcessQueue]]],
    ) -> None:
        self.handled = 0
        self._context = context
        self._store = store
        self._handler = handler
        self._send_back = send_back
        self._held = held
        self._settings = context.settings
        self._retry_topic = retry_topic(context.group)
        # Unbounded as in the reference; the thresholds of the pull loops bound what is in it.
        self._requests: asyncio.Queue[ConsumeRequest] = asyncio.Queue()
        self._workers: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.Task[None]] = set()
        self._accepts = True

    def start(self) -> None:
        """Start the workers and the consume-timeout scan."""
        spawn = self._context.instance.spawn
        for number in range(self._settings.consume_threads):
            self._workers.add(spawn(self._work(), f"consume {number}"))
        self._timers.add(spawn(self._scan_expired(), "consume timeout scan"))

    def submit(
        self,
        messages: list[MessageExt],
        queue: MessageQueue,
        process_queue: ProcessQueue,
        pull_id: int | None,
    ) -> None:
        """Queue handler calls of at most ``consume_message_batch_max_size`` messages each."""
        if not self._accepts:
            return  # the reference's executor rejects, and its 5 s retry no longer runs
        size = self._settings.consume_message_batch_max_size
        for start in range(0, len(messages), size):
            batch = messages[start : start + size]
            self._requests.put_nowait(ConsumeRequest(batch, queue, process_queue, pull_id))

    async def stop(self) -> None:
        """Stop timers, let handlers and what is queued run for ``drain_on_shutdown_ms``, then
        interrupt. A handler that is interrupted leaves its messages unacknowledged."""
        await _cancel(self._timers)
        self._accepts = False
        if self._settings.drain_on_shutdown_ms > 0:
            try:
                async with asyncio.timeout(self._settings.drain_on_shutdown_ms / 1000):
                    await self._requests.join()
            except TimeoutError:
                logger.warning("shutdown of %s: handlers still run", self._context.group)
        await _cancel(self._workers)

    async def abort(self) -> None:
        """Stop everything at once, for a consumer that may not go on."""
        self._accepts = False
        await _cancel(self._timers | self._workers)

    # --- one request ------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            request = await self._requests.get()
            try:
                await self._consume(request)
            except ConsumeLogError:
                return  # the hook has called the consumer's stop
            finally:
                self._requests.task_done()

    async def _consume(self, request: ConsumeRequest) -> None:
        messages, queue, process_queue, pull_id = request
        if process_queue.dropped:
            return
        context = self._context
        hook, call_id = context.hook, next(context.instance.manager.call_ids)
        started = context.clock.now()
        stamp = str(context.clock.wall_ms())
        dids = []
        for message in messages:
            self._show_original_topic(message)
            message.properties[CONSUME_START_TIME] = stamp
            process_queue.consume_started[message.queue_offset] = started
            dids.append(
                hook.deliver_begin(
                    context.group,
                    context.client_id,
                    call_id,
                    process_queue.pqe,
                    pull_id,
                    queue,
                    message,
                )
            )
        failure, answer = await self._call_handler(messages, queue)
        self.handled += len(messages)
        acked = _acked(answer, len(messages))
        if process_queue.dropped:
            for index, did in enumerate(dids):
                hook.deliver_end(did, _status(index < acked, failure), False, None)
        elif acked == len(messages) or not context.is_clustering:
            # Nothing is sent back, so there is no await between result and offset.
            removed = self._finish(messages, queue, process_queue)
            for index, did in enumerate(dids):
                hook.deliver_end(did, _status(index < acked, failure), True, removed)
        else:
            for index, did in enumerate(dids):
                hook.deliver_end(did, _status(index < acked, failure), True, None)
            await self._send_failed_back(request, acked, answer)

    async def _call_handler(
        self, messages: list[MessageExt], queue: MessageQueue
    ) -> tuple[str, Consumed]:
        """Call the handler; an exception or ``None`` is RECONSUME_LATER."""
        try:
            # A list of its own: the handler may change it.
            result = self._handler(list(messages))
            answer: HandlerAnswer = await result if inspect.isawaitable(result) else result
        except Exception:  # the user's code may raise anything; the message is retried
            logger.warning("handler failed on %s of %s", messages[0].msg_id, queue, exc_info=True)
            return "EXC", Consumed(ConsumeResult.RECONSUME_LATER)
        if answer is None:
            return "NULL", Consumed(ConsumeResult.RECONSUME_LATER)
        if isinstance(answer, ConsumeResult):
            answer = Consumed(answer)
        return "LATER", answer

    async def _send_failed_back(
        self, request: ConsumeRequest, acked: int, answer: Consumed
    ) -> None:
        """Send what was not acknowledged back; what can't be stays and is retried in 5 s."""
        messages, queue, process_queue, _ = request
        kept = []
        for message in messages[acked:]:
            if message not in process_queue:
                logger.info("%s left its queue meanwhile: not sent back", message.msg_id)
                continue
            if not await self._send_back.send_back(message, queue, answer.delay_level, "FAIL"):
                self._send_back.note_local_retry(message)
                message.reconsume_times += 1
                kept.append(message)
        if kept:
            self._resubmit_later(request._replace(messages=kept))
        done = [message for message in messages if not any(message is other for other in kept)]
        self._finish(done, queue, process_queue)

    def _finish(
        self, messages: list[MessageExt], queue: MessageQueue, process_queue: ProcessQueue
    ) -> int:
        """Take finished messages out and move the offset in memory up; returns what remove said.

        A queue that was given up while messages were sent back keeps its offset forgotten.
        """
        offset = process_queue.remove(messages)
        if offset >= 0 and not process_queue.dropped:
            self._store.update(queue, offset, increase_only=True)
        return offset

    def _resubmit_later(self, request: ConsumeRequest) -> None:
        task = self._context.instance.spawn(self._resubmit(request), "resubmit")
        self._timers.add(task)
        task.add_done_callback(self._timers.discard)

    async def _resubmit(self, request: ConsumeRequest) -> None:
        await asyncio.sleep(self._settings.resubmit_delay_ms / 1000)
        self.submit(request.messages, request.queue, request.process_queue, request.pull_id)

    def _show_original_topic(self, message: MessageExt) -> None:
        """resetRetryAndNamespace: a retry copy shows the topic it came from. Its queue id and
        offset stay those of the retry topic."""
        if message.topic == self._retry_topic:
            message.topic = message.properties.get("RETRY_TOPIC") or message.topic

    # --- consume timeout --------------------------------------------------------------------

    async def _scan_expired(self) -> None:
        every_seconds = self._settings.consume_timeout_ms / 1000
        while True:
            await asyncio.sleep(every_seconds)
            for _, process_queue in list(self._held()):
                await self._send_expired_back(process_queue, every_seconds)

    async def _send_expired_back(self, process_queue: ProcessQueue, limit_seconds: float) -> None:
        """Send heads that run too long back. Their handlers go on: what these say later
        duplicates the retry copies. No offset moves here; the next remove covers it."""
        for _ in range(min(len(process_queue), EXPIRED_PER_SCAN)):
            head = process_queue.head()
            if head is None:
                return
            started = process_queue.consume_started.get(head.queue_offset)
            if started is None or self._context.clock.now() - started <= limit_seconds:
                return
            sent = await self._send_back.send_back(head, None, EXPIRED_DELAY_LEVEL, "EXPIRE")
            if sent and process_queue.head() is head:
                process_queue.remove([head])


def _acked(answer: Consumed, count: int) -> int:
    """How many messages from the first on are acknowledged."""
    if answer.result is not ConsumeResult.SUCCESS:
        return 0
    if answer.ack_index is None:
        return count
    return max(0, min(answer.ack_index + 1, count))


def _status(is_acked: bool, failure: str) -> str:
    return "SUCCESS" if is_acked else failure


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    own = asyncio.current_task()
    pending = [task for task in tasks if task is not own]
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    tasks.clear()
