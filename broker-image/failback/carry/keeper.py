"""Tells a slave what its members have finished, while its master is down.

Each second it asks every member of every group through the slave (203, then 307) and tells the
slave the offsets that it lacks (15). As soon as the master is back it asks and tells nothing. It
keeps no file: a carry, a hand-back and a member that starts on the slave find the offsets there.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from failback.carry.keeping import Keeping, Order
from failback.carry.merge import Table
from failback.client.admin.admin import AdminClient
from failback.client.admin.survey import Silences, connection_of
from failback.client.remoting.addresses import addresses_of
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.protocol import calls
from failback.protocol.body import MessageQueue
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import ConfigError, FailbackError, RemotingError, RemotingTimeout
from failback.protocol.route import split_offset_key
from failback.protocol.stats import ProcessQueueInfo

logger = logging.getLogger(__name__)
T = TypeVar("T")

INTERVAL_SECONDS: Final = 1.0
SAY_SECONDS: Final = 10.0
MOST_A_SECOND: Final = 500
"""Members beyond these are asked less often."""
ANSWER_SECONDS: Final = 3.0
_PROBE_MS: Final = 1000
_SLOW_AT_ONCE: Final = 4
"""Questions to members that were silent: each takes one of a broker's 16 admin threads for 10 s."""


class Slave(Protocol):
    """The broker that is told. All but ``broker_name`` raise :class:`FailbackError`, OSError."""

    @property
    def broker_name(self) -> str: ...

    async def table(self) -> Table:
        """Return its offsets, ``topic@group`` to queue id to offset."""

    async def members(self, group: str) -> Sequence[str]:
        """Return the client ids of a group; none of a group that broadcasts."""

    async def held(self, group: str, client: str) -> Mapping[MessageQueue, ProcessQueueInfo]:
        """Ask a member; :class:`TimeoutError` or :class:`RemotingError` without an answer."""

    async def tell(self, order: Order) -> bool:
        """Raise an offset; return false where the slave knows more by now."""


class MasterWatch:
    """Whether the master of a broker name is down."""

    def __init__(self, admin: AdminClient, cluster: str, broker_name: str) -> None:
        """``admin`` has the name servers to ask."""
        self._admin = admin
        self._pair = cluster, broker_name
        self.address = ""
        """Of the master as last listed; empty if no name server has listed it."""

    async def is_away(self) -> bool:
        """Tell whether no name server lists a broker with id 0, and its port does not answer.

        Without an answer of any name server it is not known to be away.
        """
        answers = await asyncio.gather(*map(self._listed, await self._admin.name_servers()))
        if masters := [each for each in answers if each]:
            self.address = masters[0]
            return False
        if all(each is None for each in answers):
            return False
        return not self.address or not await self._answers()

    async def _listed(self, name_server: str) -> str | None:
        """Return the master's address, empty without one; ``None`` without an answer."""
        try:
            members = (await self._admin.cluster_info_at(name_server)).members()
        except (FailbackError, OSError) as error:
            logger.debug("%s", error)
            return None
        masters = (each for each in members if (*each[:2], each.broker_id) == (*self._pair, 0))
        return next((each.addr for each in masters), "")

    async def _answers(self) -> bool:
        try:
            await self._admin.call(self.address, calls.runtime_info(), _PROBE_MS)
        except RemotingError:
            return False
        except FailbackError:
            pass
        return True


class Keeper:
    """Asks and tells while the master is down; :meth:`run` it once."""

    def __init__(
        self,
        slave: Slave,
        is_away: Callable[[], Awaitable[bool]],
        scaled: Callable[[float], float] = lambda seconds: seconds,
    ) -> None:
        """``scaled`` makes real seconds of those of the module."""
        self._slave = slave
        self._is_away = is_away
        self._scaled = scaled
        self._keeping: Keeping | None = None
        """``None`` while the master is there."""
        self._table: Table = {}
        self._members: dict[str, int] = {}
        self._silences = Silences()
        self._slow = asyncio.Semaphore(_SLOW_AT_ONCE)
        self._under_way: set[tuple[str, str]] = set()
        self._named: set[str] = set()
        self._now = asyncio.get_running_loop().time
        self._said_at = 0.0
        self._asked: set[tuple[str, str]] = set()
        """Members that answered since the last line."""
        self.told = 0
        """Offsets that the slave took since the master went."""

    async def run(self) -> None:
        """Look at the master each second until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                began = self._now()
                await self._look(tasks)
                left = began + self._scaled(self._interval()) - self._now()
                await asyncio.sleep(max(0.0, left))

    async def _look(self, tasks: asyncio.TaskGroup) -> None:
        name = self._slave.broker_name
        if not await self._is_away():
            if self._keeping is not None:
                logger.info("the master of %s is back: %d offsets were told", name, self.told)
                self._keeping = None
            return
        if self._keeping is None:
            logger.info("the master of %s is down: its members are asked each second", name)
            self._keeping, self._silences, self.told = Keeping(name), Silences(), 0
            self._said_at = self._now()
            self._named.clear()
            self._members.clear()
        await self._ask_all(tasks)
        if self._now() - self._said_at >= self._scaled(SAY_SECONDS):
            self._said_at = self._now()
            asked, self._asked = len(self._asked), set()
            logger.info(
                "the master of %s is down: %d members answered, %d offsets told in all",
                name,
                asked,
                self.told,
            )

    def _interval(self) -> float:
        """Return seconds between two questions to one member."""
        return max(1.0, sum(self._members.values()) / MOST_A_SECOND) * INTERVAL_SECONDS

    async def _ask_all(self, tasks: asyncio.TaskGroup) -> None:
        table = await self._named_errors("the slave's offsets", self._slave.table())
        if table is None:
            return
        self._table = table
        for group in {split_offset_key(key)[1] for key in table}:
            self._start(tasks, (group, ""), partial(self._list, tasks, group))

    def _start(
        self,
        tasks: asyncio.TaskGroup,
        what: tuple[str, str],
        work: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Begin a question, unless the last one of its kind still waits."""

        async def once() -> None:
            try:
                await work()
            finally:
                self._under_way.discard(what)

        if what not in self._under_way:
            self._under_way.add(what)
            tasks.create_task(once())

    async def _list(self, tasks: asyncio.TaskGroup, group: str) -> None:
        keeping = self._keeping
        clients = await self._named_errors(f"members of {group}", self._slave.members(group))
        if clients is None or keeping is None or keeping is not self._keeping:
            return
        keeping.present(group, clients)
        before, self._members[group] = self._interval(), len(clients)
        if before == INTERVAL_SECONDS < self._interval():
            logger.warning("over %d members: each is asked less than once a second", MOST_A_SECOND)
        for client in clients:
            if self._silences.may_ask((group, client), self._now()):
                self._start(tasks, (group, client), partial(self._ask, keeping, group, client))

    async def _ask(self, keeping: Keeping, group: str, client: str) -> None:
        member = group, client
        turn = self._slow if self._silences.was_silent(member) else nullcontext()
        async with turn:
            try:
                async with asyncio.timeout(self._scaled(ANSWER_SECONDS)):
                    held = await self._slave.held(group, client)
            except (TimeoutError, RemotingTimeout):
                self._silences.silent(member, self._now())
                return
            except (FailbackError, OSError) as error:
                if getattr(error, "code", None) == ResponseCode.CONSUME_MSG_TIMEOUT:
                    self._silences.silent(member, self._now())
                logger.debug("%s", error)  # a member of Go says so until it has consumed
                return
        self._silences.answered(member)
        self._asked.add(member)
        found, fell = keeping.orders(group, client, held, self._table)
        for order in fell:
            logger.warning("%s: %s fell back to %d", order, client, order.offset)
        for order in found:
            if keeping is not self._keeping:
                return
            told = await self._named_errors(f"{order} is not told", self._slave.tell(order))
            self.told += bool(told)

    async def _named_errors(self, what: str, asked: Awaitable[T]) -> T | None:
        """Return an answer; log why there is none, once while the master is down."""
        try:
            return await asked
        except (FailbackError, OSError, TimeoutError) as error:
            if what not in self._named:
                self._named.add(what)
                logger.warning("%s: %s", what, error)
            return None


class RemoteSlave:
    """A slave that is asked over the network."""

    def __init__(self, admin: AdminClient, address: str, broker_name: str) -> None:
        self._admin = admin
        self._address = address
        self.broker_name = broker_name

    async def table(self) -> Table:
        return await self._admin.all_offsets(self._address)

    async def members(self, group: str) -> Sequence[str]:
        found = await connection_of(self._admin, self._address, group)
        if found.message_model == "BROADCASTING":
            return ()
        return [each.client_id for each in found.connection_set]

    async def held(self, group: str, client: str) -> Mapping[MessageQueue, ProcessQueueInfo]:
        return await self._admin.held_queues(self._address, group, client)

    async def tell(self, order: Order) -> bool:
        place = order.group, order.topic, order.queue_id
        known = await self._admin.query_offset(self._address, *place)
        if known is not None and known >= order.offset:
            return False  # the member told it itself meanwhile
        await self._admin.update_offset(self._address, *place, order.offset)
        return True


async def keep(
    address: str, name_servers: Sequence[str] = (), access: ClusterAccess | None = None
) -> None:
    """Keep the offsets of the slave at ``address`` until cancelled.

    Args:
        address: Of the slave.
        name_servers: Empty: those of the slave's broker.conf.
        access: How a guarded cluster is asked.

    Raises:
        ConfigError: The broker there is no slave, or no name server is known.
    """
    # A member without an answer must not cost the answers of others.
    settings = RemotingSettings(access=access, close_on_sync_timeout=False)
    most_ms = ANSWER_SECONDS * 1000
    async with AdminClient(settings=settings, timeout_ms=most_ms) as admin:
        config = await _config_of(admin, address)
        name, cluster = config.get("brokerName", ""), config.get("brokerClusterName", "")
        if config.get("brokerId") == "0":
            raise ConfigError("--slave", f"{address} is the master of {name}: name a slave")
        servers = name_servers or addresses_of("namesrvAddr", config.get("namesrvAddr", ""))
        if not servers:
            raise ConfigError("--namesrv", f"is missing, and {address} has no namesrvAddr")
        logger.info("keeping the offsets of slave %s of %s", address, name)
        async with AdminClient(servers, settings=settings, timeout_ms=most_ms) as listing:
            watch = MasterWatch(listing, cluster, name)
            await Keeper(RemoteSlave(admin, address, name), watch.is_away).run()


async def keep_until_stopped(
    address: str, name_servers: Sequence[str] = (), access: ClusterAccess | None = None
) -> None:
    """:func:`keep` until SIGTERM or SIGINT."""
    keeping = asyncio.ensure_future(keep(address, name_servers, access))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, keeping.cancel)
    with suppress(asyncio.CancelledError):
        await keeping


async def _config_of(admin: AdminClient, address: str) -> Mapping[str, str]:
    """Ask until the slave answers: it may start later than its keeper."""
    is_said = False
    while True:
        try:
            return await admin.broker_config(address)
        except (FailbackError, OSError) as error:
            if not is_said:
                logger.warning("waiting for the slave: %s", error)
            is_said = True
        await asyncio.sleep(INTERVAL_SECONDS)
