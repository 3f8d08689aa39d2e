"""The pull loop of every held queue: when to ask, whom to ask, what to do with the answer.

One loop per queue. It ends when the queue is dropped, and is otherwise kept going through every
error by waiting a little and asking again.

Source: DefaultMQPushConsumerImpl.pullMessage, PullAPIWrapper, PullMessageService,
apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final

from failback.client.consumelog.hook import PullRecord
from failback.client.consumer.context import ConsumerContext
from failback.client.consumer.offset_store import OffsetStore
from failback.client.consumer.process_queue import ProcessQueue
from failback.client.consumer.rebalance import Rebalancer
from failback.client.errors import BrokerUnknown, ClientError
from failback.client.model import FoundBroker, Subscription
from failback.client.remoting.api import CALL_ERRORS, PullAnswer
from failback.protocol.body import MessageQueue
from failback.protocol.codes import (
    PULL_COMMIT,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    ResponseCode,
)
from failback.protocol.errors import (
    BrokerError,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
)
from failback.protocol.headers import PullMessageRequestHeader
from failback.protocol.message import MAX_OFFSET, MIN_OFFSET, TAGS, MessageExt, decode_records

logger = logging.getLogger(__name__)

Dispatch = Callable[[list[MessageExt], MessageQueue, ProcessQueue, int], None]
"""Hands pulled messages to the consume service, with the number of the pull."""

_MIB: Final = 1024 * 1024
_RESULTS: Final = {
    ResponseCode.SUCCESS: "FOUND",
    ResponseCode.PULL_NOT_FOUND: "NO_NEW_MSG",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "NO_MATCHED",
    ResponseCode.PULL_OFFSET_MOVED: "ILLEGAL",
}


class _Position:
    """The state of one queue's loop: the only thing it carries from pull to pull."""

    __slots__ = ("next_offset", "process_queue", "queue")

    def __init__(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        self.queue = queue
        self.process_queue = process_queue
        self.next_offset = offset


class PullService:
    """The pull loops of one push consumer.

    Attributes:
        which_node: Per queue the broker id that answers suggested last; never cleared.
        slave_behind: Pulls that a slave answered without anything new below its own end.
    """

    def __init__(
        self,
        context: ConsumerContext,
        store: OffsetStore,
        rebalancer: Rebalancer,
        dispatch: Dispatch,
    ) -> None:
        self.which_node: dict[MessageQueue, int] = {}
        self.slave_behind = 0
        self._context = context
        self._store = store
        self._rebalancer = rebalancer
        self._dispatch = dispatch
        self._settings = context.settings
        self._loops: set[asyncio.Task[None]] = set()

    def start(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        """Begin to pull a queue that was taken."""
        position = _Position(queue, process_queue, offset)
        self._spawn(self._loop(position), f"pull {queue.broker_name}:{queue.queue_id}")

    def _spawn(self, job: Coroutine[Any, Any, None], name: str) -> None:
        task = self._context.instance.spawn(job, name)
        self._loops.add(task)
        task.add_done_callback(self._loops.discard)

    async def stop(self) -> None:
        """End all loops at once."""
        loops = [task for task in self._loops if task is not asyncio.current_task()]
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def _loop(self, position: _Position) -> None:
        while not position.process_queue.dropped:
            delay_ms = await self._attempt(position)
            if delay_ms:
                await asyncio.sleep(delay_ms / 1000)
            else:
                await asyncio.sleep(0)

    async def _attempt(self, position: _Position) -> float:
        """One pull attempt; returns how long to wait before the next, in ms."""
        position.process_queue.last_pull = self._context.clock.now()
        held_back_ms = self._why_not_now(position)
        if held_back_ms is not None:
            return held_back_ms
        subscription = self._context.subscriptions.get(position.queue.topic)
        if subscription is None:
            return self._settings.pull_error_delay_ms
        record = PullRecord(
            next(self._context.instance.manager.pull_ids),
            position.process_queue.pqe,
            position.queue,
            position.next_offset,
            self._context.clock.mono_ns(),
        )
        try:
            found, answer = await self._ask(position, subscription, record)
            return self._on_answer(position, subscription, found, answer, record)
        except (ClientError, *CALL_ERRORS) as error:
            _note_failure(record, error)
            logger.info("pull of %s at %d failed: %s", position.queue, record.req_offset, error)
            if record.code == ResponseCode.FLOW_CONTROL:
                return self._settings.broker_flow_control_delay_ms
            return self._settings.pull_error_delay_ms
        finally:
            record.t1 = record.t1 or self._context.clock.mono_ns()
            self._context.hook.pull(self._context.group, record)

    def _why_not_now(self, position: _Position) -> float | None:
        """The checks before a pull; ``None`` when it may be issued, else the wait in ms.

        All limits are strict, and a whole batch follows, so they may be overshot.
        """
        context, settings = self._context, self._settings
        held = position.process_queue
        if not context.is_running:
            return settings.pull_error_delay_ms
        if context.is_paused:
            return settings.pull_paused_delay_ms
        if (
            len(held) > context.threshold_for_queue
            or held.body_bytes // _MIB > context.threshold_mib_for_queue
            or held.span() > settings.consume_concurrently_max_span
        ):
            return settings.pull_flow_control_delay_ms
        return None

    async def _ask(
        self, position: _Position, subscription: Subscription, record: PullRecord
    ) -> tuple[FoundBroker, PullAnswer]:
        """Choose the broker and pull. With one issuing thread, a slow connect holds up others."""
        context, settings, queue = self._context, self._settings, position.queue
        commit_offset = self._store.memory(queue) if context.is_clustering else 0
        async with AsyncExitStack() as issuing:
            if settings.strict_single_thread:
                await issuing.enter_async_context(context.instance.pull_gate)
            broker_id = self.which_node.get(queue, 0)
            found = await context.instance.find_pull_broker(queue, broker_id)
            if found is None:
                raise BrokerUnknown(queue.broker_name)
            record.addr, record.broker_id = found
            sys_flag = PULL_SUSPEND
            if settings.post_subscription_when_pull:
                sys_flag |= PULL_SUBSCRIPTION
            if commit_offset > 0 and not found.is_slave:
                sys_flag |= PULL_COMMIT
                record.commit_bit = True
            if commit_offset > 0:
                record.commit_offset = commit_offset
            await self._connect(found, record)
        header = PullMessageRequestHeader(
            consumer_group=context.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=position.next_offset,
            max_msg_nums=settings.pull_batch_size,
            sys_flag=sys_flag,
            commit_offset=max(commit_offset, 0),
            suspend_timeout_millis=round(settings.broker_suspend_max_ms),
            sub_version=subscription.version,
            subscription=(
                subscription.expression if settings.post_subscription_when_pull else None
            ),
            expression_type="TAG",
        )
        return found, await context.instance.api.pull(found.addr, header, queue.broker_name)

    async def _connect(self, found: FoundBroker, record: PullRecord) -> None:
        """Have the connection, and note the commit that the pull carries before it leaves."""
        context = self._context
        try:
            await context.instance.remoting.connect(found.addr)
        except RemotingConnectError:
            self._note_commit(record, found, sent=False)
            raise
        record.channel = context.instance.remoting.channel(found.addr)
        self._note_commit(record, found, sent=True)

    def _note_commit(self, record: PullRecord, found: FoundBroker, *, sent: bool) -> None:
        if not record.commit_bit or record.commit_offset is None:
            return
        context = self._context
        context.hook.commit(
            context.group,
            context.client_id,
            record.queue,
            record.commit_offset,
            previous=None,
            kind="PULL",
            addr=found.addr,
            broker_id=found.broker_id,
            t=context.clock.mono_ns(),
            sent=sent,
            result="SENT" if sent else "RemotingConnectError",
        )

    # --- answers ----------------------------------------------------------------------------

    def _on_answer(
        self,
        position: _Position,
        subscription: Subscription,
        found: FoundBroker,
        answer: PullAnswer,
        record: PullRecord,
    ) -> float:
        """Act on an answer; no await in here, so that no cancellation can split it."""
        self.which_node[position.queue] = answer.suggested_broker_id
        record.result = _RESULTS[ResponseCode(answer.code)]
        record.code = answer.code
        record.next_offset = answer.next_begin_offset
        record.min_offset, record.max_offset = answer.min_offset, answer.max_offset
        record.suggested = answer.suggested_broker_id
        record.t1 = self._context.clock.mono_ns()
        if answer.code == ResponseCode.SUCCESS:
            return self._on_found(position, subscription, answer, record)
        record.count = 0
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            return self._on_offset_illegal(position, answer)
        return self._on_nothing(position, found, answer)

    def _on_found(
        self,
        position: _Position,
        subscription: Subscription,
        answer: PullAnswer,
        record: PullRecord,
    ) -> float:
        messages = decode_records(answer.body)
        position.next_offset = answer.next_begin_offset
        record.count = len(messages)
        if messages:
            record.first_offset = messages[0].queue_offset
            record.last_offset = messages[-1].queue_offset
        if subscription.tags:
            # The broker filters by hash; a collision is sorted out here.
            messages = [m for m in messages if subscription.accepts(m.properties.get(TAGS))]
        if not messages:
            return 0
        min_offset, max_offset = str(answer.min_offset), str(answer.max_offset)
        for message in messages:
            message.properties[MIN_OFFSET] = min_offset
            message.properties[MAX_OFFSET] = max_offset
        # A queue dropped while the answer was under way takes them too; the consume service
        # finds it dropped and does nothing.
        position.process_queue.put(messages)
        self._dispatch(messages, position.queue, position.process_queue, record.pull_id)
        return self._settings.pull_interval_ms

    def _on_nothing(self, position: _Position, found: FoundBroker, answer: PullAnswer) -> float:
        is_behind = (
            found.is_slave
            and answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            and answer.next_begin_offset == position.next_offset
        )
        position.next_offset = answer.next_begin_offset
        if not len(position.process_queue):
            self._store.update(position.queue, position.next_offset, increase_only=True)
        if is_behind:
            # Asked again at once this is a loop as fast as the network, until the master is
            # back; the reference does that.
            self.slave_behind += 1
            return self._settings.slave_behind_backoff_ms
        return 0

    def _on_offset_illegal(self, position: _Position, answer: PullAnswer) -> float:
        """Drop the queue now; move and commit its offset 10 s later, when nothing refers to it."""
        logger.warning(
            "offset %d of %s is illegal; the broker has %d to %d",
            position.next_offset,
            position.queue,
            answer.min_offset,
            answer.max_offset,
        )
        position.next_offset = answer.next_begin_offset
        self._rebalancer.drop(position.queue, position.process_queue, "RESET")
        self._spawn(self._fix_offset(position), "fix offset")
        return 0

    async def _fix_offset(self, position: _Position) -> None:
        await asyncio.sleep(self._settings.offset_illegal_delay_ms / 1000)
        self._store.update(position.queue, position.next_offset, increase_only=False)
        await self._store.persist(position.queue, "ILLEGAL")
        await self._rebalancer.remove(position.queue, "ILLEGAL", "RESET")


def _note_failure(record: PullRecord, error: Exception) -> None:
    """Fill in how a pull failed, in the consume log's words."""
    if isinstance(error, BrokerError):
        record.result, record.code = "ERR", error.code
    elif isinstance(error, RemotingTimeout):
        record.result = "TIMEOUT"
    elif isinstance(error, RemotingSendError):
        record.result = "EOF"
    elif isinstance(error, RemotingConnectError | ClientError):
        record.result = "CONN"
