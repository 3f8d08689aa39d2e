"""Which queues this member holds, and where it begins in a queue that it takes.

A queue that is given up is dropped, committed one-way, and forgotten, even when the commit failed.
A queue that is taken is asked for at the store. Nothing waits for the old owner, so an ordinary
rebalance already hands the uncommitted tail to the new one a second time.

Start of a queue, by the store's answer and ``consumeFromWhere``:

| store answers | LAST_OFFSET | FIRST_OFFSET | TIMESTAMP |
|---|---|---|---|
| an offset | it | it | it |
| no entry | retry topic: 0; else the queue's end | 0 | retry topic: the end; else by time |
| unknown | not now | not now | not now |

End and time are asked of the master only, so with the master down LAST and TIMESTAMP wait where
FIRST begins at 0 from the slave.

Source: RebalanceImpl, RebalancePushImpl.computePullFromWhereWithException, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from failback.client.consumelog.hook import StartOffset
from failback.client.consumer.context import ConsumerContext
from failback.client.consumer.offset_store import NO_ENTRY, OffsetStore, StoredOffset
from failback.client.consumer.process_queue import ProcessQueue
from failback.client.consumer.strategies import AllocationImpossible, Strategy, java_string_order
from failback.client.errors import BrokerUnknown, ClientError
from failback.client.model import ConsumeFrom, FoundBroker
from failback.client.remoting.api import CALL_ERRORS
from failback.protocol.body import MessageQueue
from failback.protocol.message import RETRY_PREFIX

logger = logging.getLogger(__name__)

StartPulling = Callable[[MessageQueue, ProcessQueue, int], None]


class Rebalancer:
    """The held queues of one group on one instance.

    Args:
        start_pulling: Begins the pull loop of a queue that was taken.
    """

    def __init__(
        self,
        context: ConsumerContext,
        store: OffsetStore,
        strategy: Strategy,
        start_pulling: StartPulling,
    ) -> None:
        self.held: dict[MessageQueue, ProcessQueue] = {}
        self.subscribe_info: dict[str, frozenset[MessageQueue]] = {}
        self._context = context
        self._store = store
        self._strategy = strategy
        self._start_pulling = start_pulling
        self._last_known: dict[MessageQueue, int] = {}

    async def rebalance(self, trigger: str) -> None:
        """One round over all subscribed topics; an error leaves that topic as it is."""
        for topic in list(self._context.subscriptions):
            try:
                await self._rebalance_topic(topic, trigger)
            except (ClientError, *CALL_ERRORS) as error:
                if not topic.startswith(RETRY_PREFIX):
                    logger.warning("rebalance of %s failed: %s", topic, error)
        self._drop_unsubscribed()

    async def _rebalance_topic(self, topic: str, trigger: str) -> None:
        queues = self.subscribe_info.get(topic)
        if queues is None:
            if not topic.startswith(RETRY_PREFIX):
                logger.warning("rebalance of %s: the queues of %s are unknown", topic, topic)
            return
        t = self._context.clock.mono_ns()
        members: list[str] | None = [self._context.client_id]
        answered_by: str | None = None
        mine: Collection[MessageQueue] | None = queues
        if self._context.is_clustering:
            answered_by, members = await self._context.instance.consumer_list(
                topic, self._context.group
            )
            mine = self._allocate(topic, queues, members)
        if mine is not None and await self._apply(topic, mine):
            await self._queues_changed(topic)
        self._context.hook.rebalance(
            self._context.group,
            topic,
            t,
            trigger,
            answered_by,
            members or [],
            len(queues),
            len(mine) if mine is not None else self._held_of(topic),
        )

    def _allocate(
        self, topic: str, queues: frozenset[MessageQueue], members: list[str] | None
    ) -> list[MessageQueue] | None:
        """This member's share, or ``None`` when the topic must be left as it is."""
        if members is None:
            return None
        try:
            return self._strategy(
                self._context.client_id, sorted(queues), sorted(members, key=java_string_order)
            )
        except AllocationImpossible as error:
            logger.warning("allocation of %s: %s", topic, error)
            return None

    async def _apply(self, topic: str, mine: Collection[MessageQueue]) -> bool:
        """updateProcessQueueTableInRebalance: removals, then additions. True if any."""
        wanted = set(mine)
        changed = False
        now = self._context.clock.now
        expired_seconds = self._context.settings.pull_expired_ms / 1000
        for queue, process_queue in list(self.held.items()):
            if queue.topic != topic:
                continue
            if queue not in wanted:
                await self._give_up(queue, process_queue, "REBALANCE")
                changed = True
            elif process_queue.is_pull_expired(now(), expired_seconds):
                logger.error("queue %s was not pulled for %g s: dropped", queue, expired_seconds)
                await self._give_up(queue, process_queue, "PULL_EXPIRED")
                changed = True
        taken = []
        for queue in sorted(wanted - self.held.keys()):
            added = await self._take(queue)
            if added is not None:
                taken.append((queue, added))
        for queue, process_queue in taken:
            self._start_pulling(queue, process_queue, process_queue.first_offset)
        return changed or bool(taken)

    async def _take(self, queue: MessageQueue) -> ProcessQueue | None:
        context = self._context
        self._store.remove(queue)  # a leftover in memory would pass for progress of this life
        try:
            start = await compute_start_offset(context, self._store, queue)
        except (ClientError, *CALL_ERRORS) as error:
            logger.warning("start offset of %s is not to be had: %s", queue, error)
            return None
        start = self._not_below_last_known(queue, start)
        # A shutdown that began meanwhile has ended all assignments already.
        if start.offset < 0 or queue in self.held or not context.is_running:
            return None
        now = context.clock.now()
        process_queue = ProcessQueue(next(context.instance.manager.pqes), now, start.offset)
        context.hook.assign(
            context.group,
            context.client_id,
            process_queue.pqe,
            queue,
            context.clock.mono_ns(),
            start,
        )
        self.held[queue] = process_queue
        logger.info(
            "take %s from offset %d by %s of %s", queue, start.offset, start.branch, start.addr
        )
        return process_queue

    def _not_below_last_known(self, queue: MessageQueue, start: StartOffset) -> StartOffset:
        """Counter-measure ``monotonic_start``: own knowledge of a former life of the queue wins
        over a store that fell back."""
        last = self._last_known.get(queue, -1)
        if not self._context.settings.monotonic_start or not 0 <= start.offset < last:
            return start
        self._store.update(queue, last, increase_only=False)
        return StartOffset(last, "MEMORY", "LAST_KNOWN", start.addr, start.broker_id, start.code)

    async def _give_up(self, queue: MessageQueue, process_queue: ProcessQueue, reason: str) -> None:
        self.drop(queue, process_queue, reason)
        await self._persist_and_forget(queue, "REMOVE")
        if self.held.get(queue) is process_queue:
            del self.held[queue]
        logger.info("give up %s: %s", queue, reason)

    async def remove(self, queue: MessageQueue, kind: str, reason: str) -> None:
        """removeProcessQueue: give up one queue now; the next rebalance may take it again."""
        process_queue = self.held.pop(queue, None)
        if process_queue is not None:
            self.drop(queue, process_queue, reason)
            await self._persist_and_forget(queue, kind)

    def drop(self, queue: MessageQueue, process_queue: ProcessQueue, reason: str) -> None:
        """Mark as given up: results that are still to come don't count from here on."""
        process_queue.dropped = True
        if process_queue.end_noted:
            return
        process_queue.end_noted = True
        context = self._context
        context.hook.assign_end(
            context.group, process_queue.pqe, queue, context.clock.mono_ns(), reason
        )

    async def _persist_and_forget(self, queue: MessageQueue, kind: str) -> None:
        offset = self._store.memory(queue)
        if offset >= 0:
            self._last_known[queue] = offset
        await self._store.persist(queue, kind)
        self._store.remove(queue)

    async def _queues_changed(self, topic: str) -> None:
        """messageQueueChanged: new subscription version, new thresholds, heartbeat to all."""
        context = self._context
        subscription = context.subscriptions.get(topic)
        if subscription is not None:
            subscription.version = context.clock.wall_ms()
        if self.held:
            settings, count = context.settings, len(self.held)
            if settings.pull_threshold_for_topic != -1:
                share = settings.pull_threshold_for_topic // count
                context.threshold_for_queue = max(1, share)
            if settings.pull_threshold_mib_for_topic != -1:
                share = settings.pull_threshold_mib_for_topic // count
                context.threshold_mib_for_queue = max(1, share)
        await context.instance.heartbeat_all()

    def _drop_unsubscribed(self) -> None:
        """truncateMessageQueueNotMyTopic: here the offset is neither persisted nor forgotten."""
        for queue, process_queue in list(self.held.items()):
            if queue.topic not in self._context.subscriptions:
                self.drop(queue, process_queue, "UNSUBSCRIBE")
                del self.held[queue]

    def _held_of(self, topic: str) -> int:
        return sum(queue.topic == topic for queue in self.held)


async def compute_start_offset(
    context: ConsumerContext, store: OffsetStore, queue: MessageQueue
) -> StartOffset:
    """Find the first offset to pull; negative means: leave the queue alone this round.

    Raises:
        ClientError, RemotingError, BrokerError: The master could not be asked for end or time.
    """
    stored = await store.read_store(queue)
    if stored.value >= 0:
        return _start(stored.value, "STORE", "STORED", stored)
    if stored.value != NO_ENTRY:
        return _start(-1, "STORE", "UNKNOWN", stored)
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    match context.consume_from:
        case ConsumeFrom.FIRST_OFFSET:
            return _start(0, "MIN", "FIRST_ZERO", stored)
        case ConsumeFrom.LAST_OFFSET if is_retry:
            return _start(0, "MIN", "LAST_RETRY_ZERO", stored)
        case ConsumeFrom.LAST_OFFSET:
            return await _ask_end(context, queue, "LAST_MAX", stored)
        case ConsumeFrom.TIMESTAMP if is_retry:
            return await _ask_end(context, queue, "TIMESTAMP_RETRY_MAX", stored)
        case ConsumeFrom.TIMESTAMP:
            master = await _master(context, queue)
            offset = await context.instance.api.search_offset(
                master.addr, queue, context.consume_timestamp_ms
            )
            start = _start(offset, "TIMESTAMP", "TIMESTAMP_SEARCH", stored)
            return replace(start, addr=master.addr, broker_id=master.broker_id)


async def _ask_end(
    context: ConsumerContext, queue: MessageQueue, branch: str, stored: StoredOffset
) -> StartOffset:
    master = await _master(context, queue)
    offset = await context.instance.api.max_offset(master.addr, queue)
    start = _start(offset, "MAX", branch, stored)
    return replace(start, addr=master.addr, broker_id=master.broker_id)


async def _master(context: ConsumerContext, queue: MessageQueue) -> FoundBroker:
    found = await context.instance.find_admin_broker(queue)
    if found is None:
        raise BrokerUnknown(queue.broker_name)
    return found


def _start(offset: int, source: str, branch: str, stored: StoredOffset) -> StartOffset:
    return StartOffset(offset, source, branch, stored.addr, stored.broker_id, stored.code)
