"""One client instance: sockets, tables, timers, and the groups that share them.

Producers and consumers of a process whose client ids are equal share one instance. It knows the
routes, sends heartbeats to the brokers, and runs the periodic tasks and the rebalance loop.

Source: MQClientInstance, MQClientManager, RebalanceService, ClientConfig, RemotingUtil,
apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from failback.client.clock import REAL_CLOCK, Clock, Scheduler
from failback.client.consumelog.hook import NO_HOOK, ConsumeHook
from failback.client.errors import ClientError, RouteQueryFailed
from failback.client.instance.broker_requests import ConsumerMember, answer_request
from failback.client.instance.identity import ip_of
from failback.client.instance.route_table import (
    BrokerAddressTable,
    is_route_changed,
    pick_broker_of_topic,
    publish_queues,
    subscribe_queues,
    write_queue_counts,
)
from failback.client.model import INNER_PRODUCER_GROUP, FoundBroker
from failback.client.remoting.api import CALL_ERRORS, ClientApi, InstanceRemoting
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.settings import ClientSettings
from failback.client.sending.publish import PublishInfo
from failback.client.sending.sender import Sender
from failback.protocol.body import MessageQueue
from failback.protocol.clients import HeartbeatData, ProducerData
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, ProtocolError, RemotingError
from failback.protocol.message import UniqKeyGenerator
from failback.protocol.route import TopicRouteData

logger = logging.getLogger(__name__)


class ClientManager:
    """The instances of one process by client id, and the counters that are unique in it."""

    def __init__(self) -> None:
        self._instances: dict[str, MQClientInstance] = {}
        self.pqes = itertools.count(1)
        """Numbers for new lives of queues."""
        self.pull_ids = itertools.count(1)
        self.call_ids = itertools.count(1)

    def get_or_create(
        self,
        client_id: str,
        settings: ClientSettings,
        *,
        clock: Clock = REAL_CLOCK,
        hook: ConsumeHook = NO_HOOK,
        rng: random.Random | None = None,
    ) -> MQClientInstance:
        """Return the instance of ``client_id``; the first user's settings and hook are its own."""
        instance = self._instances.get(client_id)
        if instance is None:
            instance = MQClientInstance(
                client_id, settings, manager=self, clock=clock, hook=hook, rng=rng
            )
            self._instances[client_id] = instance
        return instance

    def remove(self, instance: MQClientInstance) -> None:
        if self._instances.get(instance.client_id) is instance:
            del self._instances[instance.client_id]


CLIENT_MANAGER = ClientManager()
"""The process's own. Tests that play several processes in one give each its manager."""


class MQClientInstance:
    """See the module. Made by :class:`ClientManager`; started by its first user.

    Args:
        settings: Not yet scaled.
    """

    def __init__(
        self,
        client_id: str,
        settings: ClientSettings,
        *,
        manager: ClientManager,
        clock: Clock,
        hook: ConsumeHook,
        rng: random.Random | None,
    ) -> None:
        self.client_id = client_id
        self.manager = manager
        self.clock = clock
        self.rng = rng or random.Random()
        self.time_scale = settings.time_scale
        settings = settings.with_phase(self.rng)
        self.start_phase_ms = settings.start_phase_ms
        self.settings = settings.scaled()
        self.brokers = BrokerAddressTable()
        self.routes: dict[str, TopicRouteData] = {}
        self.producers: dict[str, Sender] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self.remoting = InstanceRemoting(
            settings=RemotingSettings(
                connect_timeout_ms=settings.connect_timeout_ms,
                fail_inflight_on_eof=settings.fail_inflight_on_eof,
                idle_seconds=settings.connection_idle_ms / 1000,
                time_scale=settings.time_scale,
                access=settings.access,
            ),
            on_request=self._on_request,
            on_connect=self._on_connect,
        )
        self.api = ClientApi(self.remoting, self.settings, self.rng)
        self.uniq_keys = UniqKeyGenerator(
            ip_of(client_id), os.getpid() & 0xFFFF, self.rng.getrandbits(31), clock.wall_ms
        )
        self.inner_producer = Sender(
            INNER_PRODUCER_GROUP,
            self,
            replace(self.settings, send_latency_fault_enable=False),
            hook=NO_HOOK,
            rng=self.rng,
        )
        self.producers[INNER_PRODUCER_GROUP] = self.inner_producer
        self.pull_gate = asyncio.Lock()
        """Held while a pull is issued, connecting included (``strict_single_thread``)."""
        self._hook = hook
        self._route_lock = asyncio.Lock()
        self._routes_asked = 0
        self._routes_answered: dict[tuple[str, bool], int] = {}
        """Topic and whether the default topic's route is meant, to the number of the last question
        that was answered."""
        self._heartbeat_lock = asyncio.Lock()
        self._heartbeat_is_due = False
        self._wake = asyncio.Event()
        self._trigger = "tick"
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting: asyncio.Task[None] | None = None

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start timers and loops once; later callers wait for the first one's start."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name=f"start {self.client_id}")
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        if self.settings.start_phase_ms:
            await asyncio.sleep(self.settings.start_phase_ms / 1000)
        self._hook.life("INSTANCE_START")
        every = self.settings
        polls = beats = commits = Scheduler(self.clock.now)
        if not every.strict_single_thread:
            beats, commits = Scheduler(self.clock.now), Scheduler(self.clock.now)
        first, interval = every.poll_name_server_first_ms, every.poll_name_server_interval_ms
        polls.every("route poll", first, interval, self.poll_routes)
        first, interval = every.heartbeat_first_ms, every.heartbeat_interval_ms
        beats.every("heartbeat", first, interval, self._heartbeat_tick)
        first, interval = every.persist_offset_first_ms, every.persist_offset_interval_ms
        commits.every("persist offsets", first, interval, self._persist_all)
        for scheduler in dict.fromkeys((polls, beats, commits)):
            self.spawn(scheduler.run(), "scheduler")
        self.spawn(self._rebalance_loop(), "rebalance")

    async def shutdown_if_unused(self) -> None:
        """Stop when no group but the inner producer is left."""
        if self.consumers or set(self.producers) - {INNER_PRODUCER_GROUP}:
            return
        self.manager.remove(self)
        own = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not own]
        if self._starting is not None and not self._starting.done():
            tasks.append(self._starting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.remoting.close()
        self._hook.life("INSTANCE_STOP")

    def spawn(self, job: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run ``job`` as a task that ends with this instance at the latest."""
        task = asyncio.create_task(job, name=f"{name} {self.client_id}")
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("task %s failed", task.get_name(), exc_info=task.exception())

    # --- groups -----------------------------------------------------------------------------

    def register_producer(self, sender: Sender) -> None:
        if sender.group in self.producers:
            raise ClientError(f"producer group {sender.group} is already on {self.client_id}")
        self.producers[sender.group] = sender

    def register_consumer(self, group: str, member: ConsumerMember) -> None:
        if group in self.consumers:
            raise ClientError(f"consumer group {group} is already on {self.client_id}")
        self.consumers[group] = member

    async def unregister(self, producer_group: str | None, consumer_group: str | None) -> None:
        """Remove a group from this instance and notify every known broker address."""
        if producer_group is not None:
            self.producers.pop(producer_group, None)
        if consumer_group is not None:
            self.consumers.pop(consumer_group, None)
        for name, _, addr in self.brokers:
            try:
                await self.api.unregister(addr, self.client_id, producer_group, consumer_group)
            except CALL_ERRORS as error:
                logger.warning("unregister from %s at %s failed: %s", name, addr, error)

    # --- routes -----------------------------------------------------------------------------

    async def poll_routes(self) -> None:
        """Refresh every topic a consumer subscribes to or a producer touched."""
        topics = dict.fromkeys(
            topic for member in self.consumers.values() for topic in member.subscribed_topics()
        )
        for sender in self.producers.values():
            topics.update(dict.fromkeys(sender.publish_table))
        for topic in topics:
            try:
                await self.refresh_route(topic, trigger="poll")
            except RouteQueryFailed as error:
                logger.warning("route poll of %s ended: %s", self.client_id, error.__cause__)
                return

    async def refresh_route(self, topic: str, *, trigger: str, use_default: bool = False) -> bool:
        """updateTopicRouteInfoFromNameServer: ask, compare, and take over what changed.

        Any answer but a route leaves everything as it was. Callers at once share one question: what
        was asked and answered while this call waited for its turn is not asked again.

        Returns:
            Whether this call took anything over.

        Raises:
            RouteQueryFailed: The name server could not be asked.
        """
        wait_ms, asked_before = self.settings.route_lock_wait_ms, self._routes_asked
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._route_lock.acquire()
        except TimeoutError:
            logger.warning("route of %s: lock not free within %g ms, skipped", topic, wait_ms)
            return False
        try:
            if self._routes_answered.get((topic, use_default), 0) > asked_before:
                return False
            self._routes_asked = number = self._routes_asked + 1
            route = await self._ask_route(topic, use_default=use_default)
            self._routes_answered[topic, use_default] = number
            if route is None:
                return False
            before = self.routes.get(topic)
            if not (is_route_changed(before, route) or self._is_route_needed(topic)):
                return False
            self._take_route(topic, route)
            if is_route_changed(before, route):
                after = route.to_json().decode()
                old = before.to_json().decode() if before is not None else None
                self._hook.route(topic, old, after, trigger)
            return True
        finally:
            self._route_lock.release()

    async def _ask_route(self, topic: str, *, use_default: bool) -> TopicRouteData | None:
        asked = self.settings.default_topic if use_default else topic
        try:
            route = await self.api.route(asked)
        except RemotingError as error:
            raise RouteQueryFailed(asked, error) from error
        except (BrokerError, ProtocolError) as error:
            logger.info("no route of %s: %s", asked, str(error).partition("\n")[0])
            return None
        if use_default:
            for data in route.queue_datas:
                count = min(self.settings.default_topic_queue_nums, data.read_queue_nums)
                data.read_queue_nums = data.write_queue_nums = count
        return route

    def _is_route_needed(self, topic: str) -> bool:
        return any(s.is_publish_info_needed(topic) for s in self.producers.values()) or any(
            member.is_subscribe_info_needed(topic) for member in self.consumers.values()
        )

    def _take_route(self, topic: str, route: TopicRouteData) -> None:
        for broker in route.broker_datas:
            self.brokers.replace(broker.broker_name, broker.broker_addrs)
        info = PublishInfo(
            publish_queues(topic, route), has_route=True, write_queues=write_queue_counts(route)
        )
        for sender in self.producers.values():
            sender.publish_table[topic] = info
        queues = subscribe_queues(topic, route)
        for member in self.consumers.values():
            member.update_subscribe_info(topic, queues)
        self.routes[topic] = route

    # --- addresses --------------------------------------------------------------------------

    async def find_offset_broker(self, queue: MessageQueue) -> FoundBroker | None:
        """Return the target of offset queries and commits, by the rule of the settings.

        Since 4.9.3 it is the master. If the master isn't known the route is refreshed, and then
        a slave is good enough. So a consumer notices the master's return with its next commit.
        """
        if self.settings.offset_broker_rule == "admin_first_entry":
            found = self.brokers.find_admin(queue.broker_name)
            if found is None:
                await self.refresh_route(queue.topic, trigger="offset")
                found = self.brokers.find_admin(queue.broker_name)
            return found
        found = self.brokers.find_subscribe(queue.broker_name, 0, only_this=True)
        if found is None:
            await self.refresh_route(queue.topic, trigger="offset")
            found = self.brokers.find_subscribe(queue.broker_name, 0, only_this=False)
        return found

    async def find_pull_broker(self, queue: MessageQueue, broker_id: int) -> FoundBroker | None:
        """Return the target of a pull: the suggested id, else any. Refresh if none is known."""
        found = self.brokers.find_subscribe(queue.broker_name, broker_id, only_this=False)
        if found is None:
            await self.refresh_route(queue.topic, trigger="pull")
            found = self.brokers.find_subscribe(queue.broker_name, broker_id, only_this=False)
        return found

    async def find_admin_broker(self, queue: MessageQueue) -> FoundBroker | None:
        """Return the target of max and search offset calls: the master only, after one refresh."""
        found = self.brokers.find_publish(queue.broker_name)
        if found is None:
            await self.refresh_route(queue.topic, trigger="admin")
            found = self.brokers.find_publish(queue.broker_name)
        return found

    async def consumer_list(self, topic: str, group: str) -> tuple[str | None, list[str] | None]:
        """findConsumerIdList: ask one random broker of the topic.

        Returns:
            The address asked, and the members; ``None`` without a list.
        """
        found = self._broker_of_topic(topic)
        if found is None:
            await self.refresh_route(topic, trigger="members")
            found = self._broker_of_topic(topic)
        if found is None:
            return None, None
        try:
            return found.addr, await self.api.consumer_list(found.addr, group)
        except CALL_ERRORS as error:
            logger.warning("members of %s unknown to %s: %s", group, found.addr, error)
            return found.addr, None

    def _broker_of_topic(self, topic: str) -> FoundBroker | None:
        route = self.routes.get(topic)
        return pick_broker_of_topic(route, self.rng) if route is not None else None

    # --- periodic work ----------------------------------------------------------------------

    async def _heartbeat_tick(self) -> None:
        self.brokers.drop_offline(self.routes.values())
        await self.heartbeat_all()

    async def heartbeat_all(self) -> None:
        """Send a heartbeat to every broker, or have the one under way followed by another.

        A subscription may have changed since that one began. The reference leaves this to the next
        tick: brokers answer pulls with 25 for up to 30 s then.
        """
        self._heartbeat_is_due = True
        if self._heartbeat_lock.locked():
            return
        async with self._heartbeat_lock:
            while self._heartbeat_is_due:
                self._heartbeat_is_due = False
                data = self._heartbeat_data()
                for _, broker_id, addr in self.brokers:
                    if self.consumers or broker_id == 0:
                        await self._heartbeat(addr, data)

    def _on_connect(self, addr: str) -> None:
        """Counter-measure ``heartbeat_on_connect``: the heartbeat is the first request of a
        connection. The reference leaves it to the next tick, up to 30 s later."""
        if self.settings.heartbeat_on_connect and any(addr == known for *_, known in self.brokers):
            self.spawn(self._heartbeat(addr, self._heartbeat_data()), "heartbeat on connect")

    async def _heartbeat(self, addr: str, data: HeartbeatData) -> None:
        try:
            await self.api.heartbeat(addr, data)
        except CALL_ERRORS as error:
            logger.info("heartbeat to %s failed: %s", addr, error)
            code = error.code if isinstance(error, BrokerError) else None
            self._hook.heartbeat(addr, ok=False, code=code)
        else:
            self._hook.heartbeat(addr, ok=True, code=0)

    def _heartbeat_data(self) -> HeartbeatData:
        return HeartbeatData(
            self.client_id,
            [ProducerData(group) for group in self.producers],
            [member.heartbeat_data() for member in self.consumers.values()],
        )

    async def _persist_all(self) -> None:
        for member in list(self.consumers.values()):
            await member.persist_offsets()

    # --- rebalancing ------------------------------------------------------------------------

    def wake_rebalance(self, trigger: str) -> None:
        """Rebalance now. Wake-ups during a run are one further run."""
        self._trigger = trigger
        self._wake.set()

    async def _rebalance_loop(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.settings.rebalance_interval_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            trigger, self._trigger = self._trigger, "tick"
            self._wake.clear()
            for member in list(self.consumers.values()):
                await member.rebalance(trigger)

    def _on_request(self, addr: str, request: RemotingCommand) -> RemotingCommand | None:
        return answer_request(self, addr, request)
