"""The push consumer: members of a group share the queues of the topics they subscribe to.

    consumer = PushConsumer("billing", ClientSettings(namesrv_addrs=("127.0.0.1:9876",)), handle)
    consumer.subscribe("orders")
    await consumer.start()
    ...
    await consumer.shutdown()

Handlers run as tasks on the event loop, up to ``consume_threads`` at a time. Concurrent consumption
in CLUSTERING and BROADCASTING is here; orderly consumption is another consume service.

Source: DefaultMQPushConsumerImpl, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from typing import Self

from failback.client.clock import REAL_CLOCK, Clock
from failback.client.consumelog.hook import NO_HOOK, ConsumeHook
from failback.client.consumer.consume_service import ConcurrentConsumeService
from failback.client.consumer.context import ConsumerContext, ConsumerState
from failback.client.consumer.offset_store import (
    LocalFileOffsetStore,
    OffsetStore,
    RemoteBrokerOffsetStore,
)
from failback.client.consumer.process_queue import ProcessQueue
from failback.client.consumer.pull import PullService
from failback.client.consumer.rebalance import Rebalancer
from failback.client.consumer.send_back import SendBack
from failback.client.consumer.strategies import STRATEGIES, Strategy
from failback.client.errors import ClientError, NotRunning
from failback.client.instance.identity import client_id_of
from failback.client.instance.instance import CLIENT_MANAGER, ClientManager, MQClientInstance
from failback.client.model import (
    ConsumeFrom,
    Handler,
    MessageModel,
    Subscription,
    check_group,
    check_topic,
    retry_topic,
)
from failback.client.remoting.settings import ClientSettings
from failback.protocol.body import MessageQueue
from failback.protocol.clients import ConsumerData, SubscriptionData
from failback.protocol.errors import ConfigError
from failback.protocol.message import java_hash
from failback.protocol.stats import ConsumerRunningInfo, ConsumeStatus

logger = logging.getLogger(__name__)

_HALF_HOUR_MS = 30 * 60_000


class PushConsumer:
    """One member of a consumer group.

    Args:
        group: Its name; one per instance.
        settings: Intervals, limits and switches, unscaled.
        handler: Gets a list of messages (one, unless ``consume_message_batch_max_size`` says
            otherwise) and returns a :class:`ConsumeResult`, a :class:`Consumed`, or ``None`` or
            raises, which both mean "later". Usually ``async``.
        hook: The consume log. When it can't store a row the consumer stops; see :meth:`wait`.
        message_model: CLUSTERING shares the queues, BROADCASTING gives every member all of them.
        consume_from: Where a queue without a stored offset begins.
        consume_timestamp_ms: For ConsumeFrom.TIMESTAMP; half an hour ago by default.
        strategy: A name of ``strategies.STRATEGIES`` or a function.
        clock, manager, rng: Replaced by tests.
    """

    def __init__(
        self,
        group: str,
        settings: ClientSettings,
        handler: Handler,
        *,
        hook: ConsumeHook = NO_HOOK,
        message_model: MessageModel | str = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        strategy: str | Strategy = "AVG",
        clock: Clock = REAL_CLOCK,
        manager: ClientManager = CLIENT_MANAGER,
        rng: random.Random | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self.settings = settings
        self.message_model = MessageModel(message_model)
        self.failure: Exception | None = None
        self._handler = handler
        self._hook = hook
        self._consume_from = consume_from
        self._consume_timestamp_ms = consume_timestamp_ms
        self._strategy = _strategy_of(strategy)
        self._clock = clock
        self._manager = manager
        self._rng = rng
        self._wanted: dict[str, str] = {}
        self._parts: _Parts | None = None
        self._state = ConsumerState.CREATED
        self._closed: asyncio.Event = asyncio.Event()
        self._aborting: asyncio.Task[None] | None = None
        self._started_ms = 0

    # --- for users --------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Want messages of ``topic`` whose tag is in ``expression`` (``a || b``, or ``*``)."""
        check_topic(topic)
        subscription = Subscription(topic, expression, 0)  # refuses a bad expression now
        self._wanted[topic] = expression
        if self._parts is not None:
            subscription.version = self._clock.wall_ms()
            self._parts.context.subscriptions[topic] = subscription
            instance = self._parts.context.instance
            instance.spawn(instance.heartbeat_all(), "heartbeat on subscribe")

    def unsubscribe(self, topic: str) -> None:
        """Want no more of ``topic``; its queues are dropped at the next rebalance."""
        self._wanted.pop(topic, None)
        if self._parts is not None:
            self._parts.context.subscriptions.pop(topic, None)

    async def start(self) -> None:
        """Join the group. The first queues are taken within one round of calls.

        Raises:
            ConfigError: Nothing is subscribed to, or no name server is given.
            RouteQueryFailed: No name server could be asked.
        """
        if self._state is not ConsumerState.CREATED:
            raise NotRunning(f"consumer {self.group} was started before: {self._state.value}")
        if not self._wanted:
            raise ConfigError("subscriptions", f"consumer {self.group} subscribes to nothing")
        if not self.settings.namesrv_addrs:
            raise ConfigError("namesrv_addrs", f"consumer {self.group} has no name server")
        self._hook.bind(self._fail)
        self._started_ms = self._clock.wall_ms()
        parts = self._parts = self._build()
        instance = parts.context.instance
        try:
            instance.register_consumer(self.group, self)
        except ClientError:
            self._parts = None
            raise
        try:
            parts.store.load()
            parts.consume.start()
            await instance.start()
            self._set_state(ConsumerState.RUNNING)
            for topic in list(parts.context.subscriptions):
                await instance.refresh_route(topic, trigger="start")
            await instance.heartbeat_all()
            if self.failure is not None:
                raise self.failure
            instance.wake_rebalance("start")
        except BaseException:
            await self._stop_at_once()
            raise

    async def shutdown(self) -> None:
        """Leave the group: stop handlers, commit, unregister, close.

        Nothing confirms the commit; it is sent before the goodbye on the same connection.
        """
        if self._state is not ConsumerState.RUNNING or self._parts is None:
            if self._aborting is not None:
                await asyncio.shield(self._aborting)
            return
        self._set_state(ConsumerState.SHUTDOWN)
        parts = self._parts
        try:
            await parts.consume.stop()
            await parts.store.persist_all(parts.rebalancer.held.keys(), "SHUTDOWN")
            # From here on nothing of these queues is handled any more. The reference marks them
            # last; a successor may already own them by then, and it would look like overlap.
            for queue, process_queue in parts.rebalancer.held.items():
                parts.rebalancer.drop(queue, process_queue, "SHUTDOWN")
            await parts.context.instance.unregister(None, self.group)
        finally:
            await self._close(parts)

    async def wait(self) -> None:
        """Wait until the consumer has ended.

        Raises:
            Exception: What ended it, when that was a failure; a ``ConsumeLogError`` when the
                consume log took no more rows.
        """
        await self._closed.wait()
        if self.failure is not None:
            raise self.failure

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    @property
    def client_id(self) -> str:
        """Known after the start."""
        return self._running_parts().context.client_id

    @property
    def instance(self) -> MQClientInstance:
        return self._running_parts().context.instance

    @property
    def state(self) -> ConsumerState:
        return self._state

    @property
    def held_queues(self) -> Mapping[MessageQueue, ProcessQueue]:
        """The queues this member holds now."""
        return self._running_parts().rebalancer.held if self._parts else {}

    @property
    def offset_store(self) -> OffsetStore:
        return self._running_parts().store

    @property
    def pull_service(self) -> PullService:
        return self._running_parts().pulls

    @property
    def handled(self) -> int:
        """How many messages handlers have returned for."""
        return self._parts.consume.handled if self._parts else 0

    def switches(self) -> dict[str, object]:
        """Every setting as used, for ``run.json``; the start phase as it was drawn."""
        values = self.settings.to_dict()
        if self._parts is not None:
            values["start_phase_ms"] = self._parts.context.instance.start_phase_ms
        return values

    def suspend(self) -> None:
        """Pause pulling and rebalancing."""
        self._running_parts().context.is_paused = True

    def resume(self) -> None:
        """Go on, and rebalance at once."""
        parts = self._running_parts()
        parts.context.is_paused = False
        parts.context.instance.wake_rebalance("resume")

    # --- for the instance (ConsumerMember) --------------------------------------------------

    def subscribed_topics(self) -> Iterable[str]:
        return list(self._running_parts().context.subscriptions)

    def is_subscribe_info_needed(self, topic: str) -> bool:
        parts = self._running_parts()
        return topic in parts.context.subscriptions and topic not in parts.rebalancer.subscribe_info

    def update_subscribe_info(self, topic: str, queues: frozenset[MessageQueue]) -> None:
        parts = self._running_parts()
        if topic in parts.context.subscriptions:
            parts.rebalancer.subscribe_info[topic] = queues

    def heartbeat_data(self) -> ConsumerData:
        context = self._running_parts().context
        return ConsumerData(
            self.group,
            "CONSUME_PASSIVELY",
            self.message_model.value,
            self._consume_from.value,
            [_subscription_data(s) for s in context.subscriptions.values()],
            unit_mode=False,
        )

    async def persist_offsets(self) -> None:
        if self._state is ConsumerState.RUNNING:
            parts = self._running_parts()
            await parts.store.persist_all(parts.rebalancer.held.keys(), "TIMER")

    async def rebalance(self, trigger: str) -> None:
        parts = self._running_parts()
        if self._state is ConsumerState.RUNNING and not parts.context.is_paused:
            await parts.rebalancer.rebalance(trigger)

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        parts = self._running_parts()
        rebalancer = parts.rebalancer
        self.suspend()
        try:
            for queue, process_queue in rebalancer.held.items():
                if queue.topic == topic and queue in offsets:
                    # Given up below, for the log too: until then the timer commits as before.
                    process_queue.dropped = True
                    process_queue.clear()
            await asyncio.sleep(parts.context.settings.reset_wait_ms / 1000)
            for queue in list(rebalancer.held):
                if queue.topic == topic and queue in offsets:
                    parts.store.update(queue, offsets[queue], increase_only=False)
                    await rebalancer.remove(queue, "REMOVE", "RESET")
        finally:
            self.resume()

    def memory_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self._running_parts().store.table(topic)

    def running_info(self) -> ConsumerRunningInfo:
        parts = self._running_parts()
        subscriptions = parts.context.subscriptions
        info = ConsumerRunningInfo(
            properties={
                "PROP_CLIENT_VERSION": "V4_9_8",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMEORDERLY": "false",
                "PROP_NAMESERVER_ADDR": ";".join(self.settings.namesrv_addrs),
                "PROP_THREADPOOL_CORE_SIZE": str(self.settings.consume_threads),
                "consumerGroup": self.group,
                "messageModel": self.message_model.value,
            },
            subscription_set=[_subscription_data(s) for s in subscriptions.values()],
        )
        for queue, held in parts.rebalancer.held.items():
            committed = parts.store.memory(queue)
            info.mq_table[queue] = held.info(committed, self._clock.now(), self._clock.wall_ms())
        info.status_table.update((topic, ConsumeStatus()) for topic in subscriptions)
        return info

    # --- inside -----------------------------------------------------------------------------

    def _build(self) -> _Parts:
        """Put the parts together; nothing is running yet."""
        is_clustering = self.message_model is MessageModel.CLUSTERING
        instance = self._manager.get_or_create(
            client_id_of(self.settings, rename=is_clustering),
            self.settings,
            clock=self._clock,
            hook=self._hook,
            rng=self._rng,
        )
        now_ms = self._clock.wall_ms()
        begin_ms = self._consume_timestamp_ms
        context = ConsumerContext(
            self.group,
            instance,
            self.settings.scaled(),
            self._hook,
            self.message_model,
            self._consume_from,
            now_ms - _HALF_HOUR_MS if begin_ms is None else begin_ms,
        )
        for topic, expression in self._wanted.items():
            context.subscriptions[topic] = Subscription(topic, expression, now_ms)
        if is_clustering:
            retry = retry_topic(self.group)
            context.subscriptions[retry] = Subscription(retry, "*", now_ms)
        return _Parts(context, self._handler, self._strategy)

    def _set_state(self, state: ConsumerState) -> None:
        self._state = state
        if self._parts is not None:
            self._parts.context.state = state
        logger.info("consumer %s is %s", self.group, state.value)
        if state is not ConsumerState.FAILED:
            self._hook.life(state.value)

    def _running_parts(self) -> _Parts:
        if self._parts is None:
            raise NotRunning(f"consumer {self.group} isn't started")
        return self._parts

    def _fail(self, error: Exception) -> None:
        """Stop because rows can't be stored: nothing may be handled that isn't logged."""
        if self.failure is None:
            self.failure = error
            logger.error("consumer %s stops: %s", self.group, error)
            if self._state is ConsumerState.RUNNING:
                self._begin_abort()

    def _begin_abort(self) -> asyncio.Task[None]:
        if self._aborting is None:
            self._set_state(ConsumerState.FAILED)
            self._aborting = asyncio.create_task(self._abort(), name=f"abort {self.group}")
        return self._aborting

    async def _stop_at_once(self) -> None:
        await asyncio.shield(self._begin_abort())

    async def _abort(self) -> None:
        """Stop without committing and without a goodbye."""
        await self._close(self._running_parts())

    async def _close(self, parts: _Parts) -> None:
        """Stop what still runs: everything, after a shutdown that was cancelled."""
        parts.context.instance.consumers.pop(self.group, None)
        await parts.consume.abort()
        await parts.pulls.stop()
        await parts.context.instance.shutdown_if_unused()
        self._closed.set()


class _Parts:
    """What a started consumer consists of, wired."""

    def __init__(self, context: ConsumerContext, handler: Handler, strategy: Strategy) -> None:
        self.context = context
        self.store: OffsetStore = (
            RemoteBrokerOffsetStore(context)
            if context.is_clustering
            else LocalFileOffsetStore(context)
        )
        self.rebalancer = Rebalancer(
            context, self.store, strategy, lambda *taken: self.pulls.start(*taken)
        )
        self.consume = ConcurrentConsumeService(
            context,
            self.store,
            handler,
            SendBack(context),
            lambda: self.rebalancer.held.items(),
        )
        self.pulls = PullService(context, self.store, self.rebalancer, self.consume.submit)


def _strategy_of(strategy: str | Strategy) -> Strategy:
    if not isinstance(strategy, str):
        return strategy
    try:
        return STRATEGIES[strategy]
    except KeyError:
        known = ", ".join(STRATEGIES)
        raise ConfigError("strategy", f"{strategy!r} is not one of {known}") from None


def _subscription_data(subscription: Subscription) -> SubscriptionData:
    tags = sorted(subscription.tags)
    return SubscriptionData(
        subscription.topic,
        subscription.expression,
        tags,
        [java_hash(tag) for tag in tags],
        subscription.version,
    )
