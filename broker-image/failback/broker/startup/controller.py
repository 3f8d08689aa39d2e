"""The broker process as a whole: composes the parts, starts them and stops them in order.

Start: bind the ports, recover the store, load the tables, replicate, register, serve. Stop:
refuse sends, stop accepting, leave the name servers, let slaves catch up, persist the offsets,
stop replication, close the connections, close the store; its ``abort`` file goes last, so a stop
that does not get that far counts as a crash.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from failback.broker.cluster.hand_back import HandBack, Members
from failback.broker.cluster.outer_api import BrokerOuterApi, RegisterResult
from failback.broker.cluster.registration import FIRST_DELAY_MS, Registration
from failback.broker.cluster.slave_synchronize import FIRST_DELAY_MS as SYNC_FIRST_DELAY_MS
from failback.broker.cluster.slave_synchronize import PERIOD_MS as SYNC_PERIOD_MS
from failback.broker.cluster.slave_synchronize import LogNews, SlaveSynchronize
from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.config.mounted_file import MountedFile
from failback.broker.filters.consumer_filters import PERSIST_PERIOD_MS as FILTERS_MS
from failback.broker.filters.consumer_filters import ConsumerFilterManager
from failback.broker.ha.config import HaConfig, batch_bytes_of
from failback.broker.ha.service import HaService
from failback.broker.messaging.delay_service import DelayService
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.monitoring.health_endpoints import (
    ORDERS,
    RUNNING,
    BrokerPhase,
    HealthEndpoints,
)
from failback.broker.monitoring.metrics import BrokerCollector, render
from failback.broker.monitoring.statistics import GROUP_SAMPLE_MS, SAMPLE_MS, BrokerStatistics
from failback.broker.monitoring.stats_items import PERIOD_MS as STATS_PERIOD_MS
from failback.broker.processors.compose import Parts, register_processors
from failback.broker.processors.consumers.heartbeats import SCAN_PERIOD_MS
from failback.broker.processors.pulling.pull import HOLD_PASS_MS
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.limits import PeerLimits
from failback.broker.remoting.server import RemotingServer
from failback.broker.startup.store_settings import apply_live, store_config
from failback.broker.store.log.results import WriteRefused
from failback.broker.store.message_store import MessageStore
from failback.client.clock import Scheduler
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.own_access import KEY_FILE, OwnAccess, OwnSettings
from failback.client.remoting.http_server import HttpServer
from failback.client.remoting.port_owner import bind_error
from failback.client.remoting.tls_server import LOOK_MS as LOOK_AT_TLS_MS
from failback.client.remoting.tls_server import ServerTls
from failback.common.text import where_and_why, why
from failback.protocol.errors import ConfigError
from failback.protocol.message import REAL_TOPIC, decode_record

if TYPE_CHECKING:
    from failback.broker.remoting.access import AccessGuard

logger = logging.getLogger(__name__)

PERSIST_FIRST_DELAY_MS: Final = 10_000
EXPIRE_FIRST_DELAY_MS: Final = 60_000
LOOK_AT_DISK_MS: Final = 1_000
"""How soon a disk that is nearly full refuses messages, and one that has room again takes them.
4.9.8 looks every 10 s."""
LOOK_AT_ACCOUNTS_MS: Final = 5_000
"""As 4.9.8."""
EXPIRE_WAITING_MS: Final = 100
UNREAD_PERIOD_MS: Final = 1000
DRAIN_POLL_MS: Final = 20


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class BrokerController:
    """One broker. :meth:`run` it once, on a running event loop."""

    def __init__(self, config: BrokerConfig) -> None:
        """Build the parts; nothing is opened yet.

        Raises:
            ConfigError: The configuration can't be that of a broker.
        """
        loop = asyncio.get_running_loop()
        self.config = config
        self.identity = identity = BrokerIdentity.of(config)
        self._scale = config.time_scale
        self._boot_ms = wall_ms()
        self.phase = BrokerPhase()
        self._shutdown = asyncio.Event()
        self._persisted_at = self._synced_at = loop.time()
        self.statistics = BrokerStatistics()
        self._store_settings = store_config(config, identity)
        self.store = MessageStore(self._store_settings)
        self._make_tables(Path(config.store_path_root_dir) / "config")
        self.tls = ServerTls(config.access_folder, lambda: config.failback_tls_mode)
        self.own_access = access = self._own_access()
        ha_config = dataclasses.replace(
            HaConfig.of(config), tls=self.tls, dial_tls=lambda: access.tls
        )
        self.ha = HaService(self.store, ha_config)
        if self.ha.config.is_guarded and identity.is_slave:
            self._guard_replication()
        remoting = RemotingSettings(time_scale=config.failback_time_scale, access=access)
        self.client = RemotingClient(
            settings=remoting,
            on_close=lambda address, _: self.registration.name_server_lost(address),
        )
        self.outer = BrokerOuterApi(
            self.client, config.name_servers, timeout_ms=self._scale.ms(3000)
        )
        self.members = Members(lambda: config.members)
        self.slave_synchronize = SlaveSynchronize(
            self.outer,
            self.topics,
            self.groups,
            self.offsets,
            self.delay_offsets,
            own_address=identity.address,
            is_guarded=lambda: config.failback_guard_slave_offsets,
            log_end=lambda: self.store.max_physical_offset,
            deletions_heard=lambda: self.log_news.deletions,
        )
        self.log_news = LogNews(
            self.topics,
            self.groups,
            self.offsets,
            scale=self._scale,
            synchronise=self._synchronise,
        )
        self.hand_back = HandBack(
            self.outer,
            self.offsets,
            broker_name=identity.broker_name,
            own_address=identity.address,
            members=self.members,
        )
        self.offsets_raised = 0
        """How many consumer offsets were taken from slaves at the start."""
        self.registration = Registration(
            config=config,
            identity=identity,
            topics=self.topics,
            outer=self.outer,
            on_result=self._registered,
        )
        self.topics.on_change = self.registration.topic_created
        self.server = RemotingServer(self.store, PeerLimits(config), on_fatal=self._fail)
        self.server.protect = self.tls.protect
        self.access = self._access_guard() if config.acl_enable else None
        if self.access is not None:
            self.server.guard = self.access
        self._compose_processors(loop.time)
        self.scheduler = Scheduler(loop.time, self._scale.seconds)
        """One job at a time, as 4.9's scheduler thread: persist, register, synchronise."""
        self.housekeeping = Scheduler(loop.time, self._scale.seconds)
        """What must not wait for a slow peer: held pulls, scans, samples."""
        self.cleaning = Scheduler(loop.time, self._scale.seconds)
        """Expiry, which takes its time between two files."""
        self.health = HttpServer(self._endpoints.by_path(), orders=ORDERS)

    def _make_tables(self, folder: Path) -> None:
        config = self.config
        self.topics = TopicConfigManager(folder / "topics.json", config)
        self.groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", config)
        self.offsets = ConsumerOffsetManager(
            folder / "consumerOffset.json",
            is_atomic=lambda: config.failback_guard_offset_file,
            most_rows=lambda: config.failback_max_offsets,
            is_topic=lambda topic: topic in self.topics.table,
            is_group=lambda group: group in self.groups.table,
        )
        is_atomic = self.offsets.file.is_guarded
        self.delay_offsets = DelayOffsets(folder / "delayOffset.json", is_atomic=is_atomic)
        self.filters = ConsumerFilterManager(
            folder / "consumerFilter.json", wall_ms, is_atomic=is_atomic
        )
        self.joined_writes = (self.topics.writes, self.groups.writes)
        tables = (self.topics, self.groups, self.offsets, self.delay_offsets, self.filters)
        self._table_files = [table.file for table in tables]

    def _compose_processors(self, clock: Callable[[], float]) -> None:
        config, identity, server, store = self.config, self.identity, self.server, self.store
        self.parts = parts = Parts(
            config=config,
            identity=identity,
            server=server,
            store=store,
            ha=self.ha,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            delay_offsets=self.delay_offsets,
            filters=self.filters,
            statistics=self.statistics,
            phase=self.phase,
            access=self.access,
            registrar=self.registration,
            check_config_change=self._check_config_change,
            on_config_change=self._config_changed,
            boot_ms=self._boot_ms,
            clock=clock,
            clock_ms=wall_ms,
        )
        self.clients, self.gate = parts.clients, parts.gate
        self.admission, self.calls = parts.admission, parts.calls
        self.stats_items, self.transaction_check = parts.stats_items, parts.transaction_check
        self.send, self.pull = register_processors(parts)
        self.delays = parts.build(DelayService, scale=self._scale)
        collector = parts.build(
            BrokerCollector,
            tls=self.tls,
            tables_waiting=lambda: sum(file.is_waiting for file in self._table_files),
            persist_age_seconds=lambda: clock() - self._persisted_at,
            sync_age_seconds=lambda: clock() - self._synced_at if identity.is_slave else None,
            not_believed=lambda: self.members.refused,
            held_pulls=lambda: len(self.pull.hold),
            offsets_kept=lambda: self.offsets_raised + self.slave_synchronize.master_offsets.kept,
        )
        self._endpoints = HealthEndpoints(
            phase=self.phase,
            has_name_servers=lambda: bool(self.outer.name_servers),
            registered_at=lambda: self.registration.registered_at,
            remaining_bytes=lambda: self.remaining_bytes,
            render_metrics=lambda: render(collector),
            replication_problem=lambda: self.ha.client.refusal,
        )
        server.on_closed = self._closed
        server.on_drained = self.pull.drained
        server.after_commit = self._after_commit
        server.after_answers = self.pull.hold.wake
        self.ha.on_ack = self.gate.waiting.replicated
        if not identity.is_slave and config.long_polling_enable:
            # A 4.9 slave does not wake held pulls on arrival: they wait for the 5 s pass.
            store.on_arrive = self.pull.hold.arrived

    def _guard_replication(self) -> None:
        from failback.broker.ha.guard import judge_of  # what others do not need they do not load

        folder = Path(self.config.store_path_commit_log)
        self.ha.client.judge = judge_of(
            self.store, folder, lambda: self.slave_synchronize.master_addr, self.own_access
        )

    def _own_access(self) -> OwnAccess:
        """Return how this broker asks others: the key that signs, and TLS."""
        config = self.config
        access = OwnAccess(lambda: OwnSettings(config.access_folder, config.use_tls))
        access.load()
        if config.acl_enable and access.key_file is None:
            logger.warning(
                "access: there is no %s in %s: a master that checks requests refuses this broker's",
                KEY_FILE,
                config.access_folder,
            )
        return access

    def _access_guard(self) -> AccessGuard:
        from failback.broker.remoting.access import AccessGuard
        from failback.client.remoting.access.rules_file import RulesFiles

        config = self.config
        if config.access_folder is None:
            problem = "must be set: there is no broker.conf beside which plain_acl.yml could be"
            raise ConfigError("failbackAccessFolder", problem)
        files = RulesFiles(config.access_folder, wall_ms)
        topic_at = self._topic_at if config.failback_rules == "guarded" else None
        return AccessGuard(files, lambda: config.failback_acl_mode, topic_at)

    def _topic_at(self, physical_offset: int) -> str | None:
        record = self.store.record_at(physical_offset)
        if record is None:
            return None
        message, _ = decode_record(record, decompress=False)
        return message.properties.get(REAL_TOPIC, message.topic)

    # --- life cycle --------------------------------------------------------------------------

    async def run(self, shutdown: asyncio.Event, on_ready: Callable[[], None]) -> None:
        """Serve until ``shutdown`` is set, then stop in order.

        Raises:
            ConfigError: A port is in use.
            StoreError: The store can't be opened, or its disk failed while running.
        """
        self._shutdown = shutdown
        try:
            await self._bind()
            self.phase.name = "recovering"
            await self._load()
            try:
                if not self.identity.is_slave and self.config.failback_guard_returned_offsets:
                    take = self.hand_back.take_returned_offsets
                    self.offsets_raised = await take(self.store)
                await self._serve(shutdown, on_ready)
            finally:
                self.store.close()
        finally:
            await self.health.close()
            await self.server.close()
            await self.client.close()
        if self.phase.fatal is not None:
            raise self.phase.fatal

    async def _bind(self) -> None:
        host, port = self.config.failback_bind_address, self.config.listen_port
        await self.server.bind(host, port)
        await self.server.bind(host, port - 2, is_fast_port=True)
        if self.config.failback_http_port:
            await self._bind_health(host, self.config.failback_http_port)

    async def _bind_health(self, host: str, port: int) -> None:
        """Open the port of health and metrics.

        A default port that is in use is skipped with a warning."""
        is_wanted = "failbackHttpPort" in self.config.given
        is_for_slaves = port == self.config.listen_port + 1
        try:
            if is_wanted or not is_for_slaves:
                await self.health.listen(host, port)
                return
            problem = "replication needs it"
        except OSError as error:
            if is_wanted:
                raise bind_error(host, port, error, port_key="failbackHttpPort") from error
            problem = why(error)
        logger.warning("no health and metrics on port %d: %s; set failbackHttpPort", port, problem)

    async def _load(self) -> None:
        # In a thread, so that /livez and /readyz answer while a large log is scanned.
        await asyncio.to_thread(self.store.load)
        try:
            self.topics.load()
            self.groups.load()
            self.offsets.load()
            self.filters.load()
            self.delay_offsets.load()
            if self.identity.is_slave:
                self.store.deletions.hear(self.log_news.deleted, self.log_news.met_queue)
        except BaseException:
            self.store.close()
            raise

    async def _serve(self, shutdown: asyncio.Event, on_ready: Callable[[], None]) -> None:
        stop_store, stop_ha = asyncio.Event(), asyncio.Event()
        try:
            async with asyncio.TaskGroup() as services:
                services.create_task(self.store.run(stop_store))
                services.create_task(self._replicate(stop_ha))
                schedulers = [services.create_task(self._start(on_ready))]
                try:
                    await shutdown.wait()
                finally:
                    self.phase.is_stopping = self.phase.is_draining = True
                    self.server.stop_accepting()
                    for task in schedulers:
                        task.cancel()
                await self._leave()
                stop_ha.set()
                await self.server.close()
                stop_store.set()
        except BaseExceptionGroup as group:
            raise _first_of(group) from group

    async def _replicate(self, stop: asyncio.Event) -> None:
        host, port = self.config.failback_bind_address, self.config.listen_port + 1
        try:
            await self.ha.run(stop)
        except OSError as error:
            raise bind_error(host, port, error, port_key="listenPort") from error

    async def _start(self, on_ready: Callable[[], None]) -> None:
        """Begin to serve, register, then work through the periodic jobs."""
        await self.ha.listening.wait()
        await self.server.start_serving()
        self._schedule()
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self.housekeeping.run())
            if not self.identity.is_slave and not self.config.failback_guard_returned_offsets:
                loops.create_task(self.hand_back.count_lost_offsets())
            await self.registration.register_all()
            self.clients.registered()
            self.phase.name = RUNNING
            on_ready()
            gc.collect()
            gc.freeze()
            loops.create_task(self.scheduler.run())
            loops.create_task(self.cleaning.run())
            loops.create_task(self.log_news.run() if self.identity.is_slave else self.delays.run())
            if self.identity.is_slave and self.config.failback_guard_ask_members:
                loops.create_task(self._keep_members())

    async def _keep_members(self) -> None:
        """Ask the members of groups while the master is down (``failbackGuardAskMembers``)."""
        from failback.broker.clients.own_members import OwnMembers  # only guarded slaves load it
        from failback.carry.keeper import Keeper, MasterWatch
        from failback.client.admin.admin import AdminClient

        identity, scaled = self.identity, lambda seconds: self._scale.seconds(1000 * seconds)
        own = self.parts.build(OwnMembers, broker_name=identity.broker_name, scaled=scaled)
        servers = self.outer.name_servers
        settings = RemotingSettings(access=self.own_access)
        timeout_ms = self._scale.ms(3000)
        async with AdminClient(servers, timeout_ms=timeout_ms, settings=settings) as admin:
            watch = MasterWatch(admin, identity.cluster_name, identity.broker_name)

            async def is_away() -> bool:
                return not self.ha.client.connected and await watch.is_away()

            await Keeper(own, is_away, scaled).run()

    def _schedule(self) -> None:
        # ``in_order`` has what 4.9.8 runs on one thread: a late job delays the next. ``every`` has
        # the rest, which must not be late for it.
        config, in_order, every = self.config, self.scheduler.every, self.housekeeping.every
        persist_ms, register = config.flush_consumer_offset_interval, self.registration.register_all
        in_order(
            "persist consumer offsets", PERSIST_FIRST_DELAY_MS, persist_ms, self._persist_offsets
        )
        in_order("register", FIRST_DELAY_MS, config.register_period_ms, register)
        if self.identity.is_slave:
            in_order("synchronise", SYNC_FIRST_DELAY_MS, SYNC_PERIOD_MS, self._synchronise)
        else:
            delay_period_ms = config.flush_delay_offset_interval
            persist_delays = self.delay_offsets.persist
            every("persist delay offsets", PERSIST_FIRST_DELAY_MS, delay_period_ms, persist_delays)
            check_ms = config.transaction_check_interval
            every("check transactions", check_ms, check_ms, self._check_transactions)
        every("persist filters", FILTERS_MS, FILTERS_MS, self.filters.persist)
        clean_ms = config.clean_resource_interval
        self.cleaning.every("expire", EXPIRE_FIRST_DELAY_MS, clean_ms, self.store.expire)
        every("disk", LOOK_AT_DISK_MS, LOOK_AT_DISK_MS, self._look_at_disk)
        hold_ms = HOLD_PASS_MS if config.long_polling_enable else config.short_polling_time_mills
        if config.mounted is not None:
            mounted = MountedFile(config.mounted, config, self.parts.admin.change)
            every("mounted file", LOOK_AT_DISK_MS, LOOK_AT_DISK_MS, mounted.look)
        if self.access is not None:
            every("accounts", LOOK_AT_ACCOUNTS_MS, LOOK_AT_ACCOUNTS_MS, self.access.files.look)
        every("tls", LOOK_AT_TLS_MS, LOOK_AT_TLS_MS, self.tls.look)
        every("held pulls", hold_ms, hold_ms, self.pull.hold_pass)
        every("clients", SCAN_PERIOD_MS, SCAN_PERIOD_MS, self._scan_clients)
        every("unread answers", UNREAD_PERIOD_MS, UNREAD_PERIOD_MS, self.server.close_unread)
        every("statistics", SAMPLE_MS, SAMPLE_MS, self.statistics.sample)
        every("group rates", GROUP_SAMPLE_MS, GROUP_SAMPLE_MS, self.statistics.sample_groups)
        every("stats items", 0, STATS_PERIOD_MS, self.stats_items.sample)
        every("waiting answers", EXPIRE_WAITING_MS, EXPIRE_WAITING_MS, self.gate.expire)

    async def _leave(self) -> None:
        """Stop in order, as far as others are concerned."""
        await self.registration.unregister()
        await self._drain()
        self.gate.waiting.give_up()
        for writes in self.joined_writes:
            await writes.settled()
        try:
            await self._persist_offsets()
            if not self.identity.is_slave:
                self.delay_offsets.persist()
            self.filters.persist()  # last: the least that could be missing
        except OSError as error:  # the rest of the stop must go on
            logger.error("a table could not be written: %s", where_and_why(error))
        for file in self._table_files:
            if file.is_waiting:
                logger.error("%s could not be written: its newest content is lost", file.path)

    async def _drain(self) -> None:
        """Wait until the connected slaves hold the log and all answers are out."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.failback_drain_seconds * self._scale.factor
        while self.remaining_bytes or len(self.gate.waiting):
            if loop.time() >= deadline:
                break
            await asyncio.sleep(self._scale.seconds(DRAIN_POLL_MS))
        if self.remaining_bytes:
            logger.warning("stopping with %d bytes that no slave has", self.remaining_bytes)

    @property
    def remaining_bytes(self) -> int:
        """Log bytes that a connected slave has not acknowledged; 0 without a slave."""
        if self.identity.is_slave or not self.ha.connection_count:
            return 0
        return max(0, self.store.max_physical_offset - self.ha.push2slave_max_offset)

    def _fail(self, error: Exception) -> None:
        """The store can't go on: stop the broker, report ``error`` at the end."""
        if isinstance(error, WriteRefused):
            return  # the senders of that run lost their connections; there may be room again
        if self.phase.fatal is None:
            self.phase.fatal = error
        self._shutdown.set()

    # --- hooks ---------------------------------------------------------------------------------

    def _after_commit(self) -> None:
        self.statistics.committed(self.server.run_seconds())
        self.gate.after_commit()

    def _closed(self, connection: BrokerConnection) -> None:
        self.clients.closed(connection)
        self.calls.closed(connection)
        self.pull.hold.drop(connection)

    def _registered(self, result: RegisterResult) -> None:
        """Take the master and the ordered topics of a name server's answer."""
        if self.identity.is_slave:
            self.slave_synchronize.set_master_addr(result.master_addr)
            if not self.ha.config.master_address and result.ha_server_addr:
                self.ha.update_master_address(result.ha_server_addr)
        if result.order_topics is not None:
            self.admission.order_topics = frozenset(result.order_topics)
            self.topics.update_order(result.order_topics.keys())

    def _check_config_change(self, planned: BrokerConfig) -> None:
        self.tls.check(planned.failback_tls_mode)
        self.own_access.check(OwnSettings(self.config.access_folder, planned.use_tls))

    def _config_changed(self, changed: set[str]) -> None:
        apply_live(self._store_settings, self.config)
        self.send.take_settings()
        self.outer.take(self.config.name_servers)
        role = self.config.broker_role
        if self.identity.is_slave or role == "SLAVE":
            role = self._store_settings.broker_role  # a change of sides needs a restart
        self._store_settings.broker_role = role
        self.gate.set_role(role)
        self.ha.config = dataclasses.replace(
            self.ha.config,
            role=role,
            batch_bytes=batch_bytes_of(self.config),
            fallbehind_max=self.config.ha_slave_fallbehind_max,
        )
        if "longPollingEnable" in changed and not self.identity.is_slave:
            arrived = self.pull.hold.arrived
            self.store.on_arrive = arrived if self.config.long_polling_enable else None

    def _look_at_disk(self) -> None:
        self.store.look_at_disk()
        for file in self._table_files:
            file.retry()

    async def _persist_offsets(self) -> None:
        await self.offsets.persist_aside()
        if self.offsets.file.is_waiting:
            return
        self._persisted_at = asyncio.get_running_loop().time()

    async def _synchronise(self) -> None:
        if await self.slave_synchronize.sync_all():
            self._synced_at = asyncio.get_running_loop().time()

    def _check_transactions(self) -> None:
        self.transaction_check.run_once()

    def _scan_clients(self) -> None:
        self.clients.close_expired()
        idle_ms = self.config.server_channel_max_idle_time_seconds * 1000
        self.server.close_idle(self._scale.seconds(idle_ms))


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the services: the first that is no group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
