"""Runs a canary on each pair while a cluster is observed, and removes it at the end.

It writes only to topics and groups that it made itself. Where it cannot work on a pair, the user
gets a sentence that says why, and the observer goes on without it there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from failback.analytics.observe.canary.clients import (
    PairClients,
    SlaveService,
    client_settings,
    master_serves,
)
from failback.analytics.observe.canary.ledger import About, Ledger, Names, with_canary
from failback.analytics.observe.events import Finder
from failback.analytics.observe.folder import Folder, Wanted
from failback.analytics.observe.looks import Look
from failback.client.admin.admin import AdminClient
from failback.client.consumelog.hook import LogHook
from failback.client.consumelog.hot_format import ConsumeLogError
from failback.client.consumelog.lab_id import lane_of
from failback.client.consumelog.upload.beside import ShipperBeside
from failback.client.consumelog.writer import ConsumeLog
from failback.client.remoting.connection import RemotingClient
from failback.common.text import where_and_why, why
from failback.protocol.errors import BrokerError, FailbackError
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig

Note = Callable[[str], None]
"""Tells the user a sentence."""
OnLook = Callable[[Look, Finder], None]

QUEUES: Final = 4
_ROUTE_SECONDS: Final = 15.0
_FIRST_PROCESS: Final = 500_000
"""Clients in a trace have smaller process numbers in the run."""
_HELD_SECONDS: Final = 7.0
"""A broker ends held pulls every 5 s. An end makes the group again that was removed meanwhile."""
_ASKED_MS: Final = 5_000.0
_SHIPPED_SECONDS: Final = 60.0
_SEGMENT_BYTES: Final = 1 << 20
_SEGMENT_SECONDS: Final = 30.0
_ERRORS: Final = (FailbackError, ConsumeLogError, OSError)


class NoMaster(FailbackError):
    """A pair has no master at which something could be removed."""


class Canary:
    """The canary of one observer, on all pairs in the first look."""

    def __init__(self, folder: Folder, wanted: Wanted, client: RemotingClient, note: Note) -> None:
        """Open the ledger of the run folder, which may name what an earlier observer left.

        Raises:
            ConfigError: Its ledger can't be read.
            ConsumeLogError, OSError: The folder can't be written.
        """
        self.ledger = Ledger.begin(folder.path, str(folder.run["run"]))
        self._wanted = wanted
        self._note = note
        self._admin = AdminClient(wanted.name_servers, client=client, timeout_ms=_ASKED_MS)
        hot = folder.path / "hot"
        self._log = ConsumeLog(
            hot,
            run=str(folder.run["run"]),
            proc_no=_FIRST_PROCESS + self.ledger.starts,
            role="canary",
            segment_bytes=_SEGMENT_BYTES,
            segment_seconds=_SEGMENT_SECONDS,
        )
        self._hook = LogHook(self._log)
        self._shipper = ShipperBeside(hot, str(folder.path / "lake"))
        self._offset_ns = -round(folder.zero * 1e9)
        self._clients: dict[str, PairClients] = {}
        self._slave_services: dict[str, SlaveService] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._beating: asyncio.Task[None] | None = None
        self._addresses: dict[str, dict[int, str]] = {}

    def begin(self, look: Look) -> None:
        """Start on every pair that has a master.

        Raises:
            OSError: The ledger can't be written.
        """
        self._beating = asyncio.create_task(self._beat(), name="beat of the canary")
        self._note_addresses(look)
        masters = {place.pair: address for place, address in look.listed().items()
                   if place.broker_id == 0}  # fmt: skip
        for pair in sorted({place.pair for place in look.listed()}):
            if pair not in masters:
                self._note(f"no canary on {_broker(pair)}: it has no master now")
                continue
            is_new = pair not in self.ledger.left
            names = self.ledger.name(pair)
            self._do(pair, self._start(pair, masters[pair], names, is_new=is_new))

    def look(self, look: Look, finder: Finder) -> None:
        """Take a look; let the members of ``moves`` leave while their master is down, and return.

        A member leaves when the slave has served it for a while, and a new one comes when the
        master serves again. So its group changes its member in each outage.
        """
        self._note_addresses(look)
        for pair, clients in list(self._clients.items()):
            if clients.failure is not None:
                self._note(f"the canary on {_broker(pair)} stopped: {clients.failure}")
                del self._clients[pair]
                self._do(pair, clients.stop())
                continue
            if not self._tasks[pair].done():  # a member is still leaving or coming
                continue
            outage = finder.outages.get(pair)
            is_away = outage is not None and outage.back is None
            slave_service = self._slave_services.setdefault(
                pair, SlaveService(clients.names.moves_key)
            )
            if is_away and not clients.has_moved_out and slave_service.is_long(pair, look):
                self._note(f"canary on {_broker(pair)}: the member of {clients.names.moves} leaves")
                self._do(pair, clients.move_out())
            elif not is_away:
                slave_service.master_is_there(pair, look)
                if clients.has_moved_out and master_serves(pair, look):
                    self._note(f"canary on {_broker(pair)}: {clients.names.moves} has a new member")
                    self._do(pair, clients.move_in())

    async def end(self) -> None:
        """End all clients, put their log into the lake, and remove what was made."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        ended = await asyncio.gather(
            *(each.stop() for each in self._clients.values()), return_exceptions=True
        )
        for error in ended:
            if isinstance(error, Exception):
                self._note(f"a client of the canary did not end in order: {why(error)}")
        ended_at = time.monotonic()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        self._log.close()
        loop = asyncio.get_running_loop()
        if not await loop.run_in_executor(None, self._shipper.end, _SHIPPED_SECONDS):
            self._note(
                f"not all of the canary's log is in the lake: the rest is in {self._log.folder}"
            )
        if not self._wanted.keep_canary and self.ledger.left:
            self._note("removing the canary, once brokers have let go of its pulls")
            await asyncio.sleep(max(0.0, ended_at + _HELD_SECONDS - time.monotonic()))
            await asyncio.gather(*map(self._remove, sorted(self.ledger.left)))

    def _do(self, pair: str, what: Coroutine[None, None, None]) -> None:
        """Start a task of a pair; an error of it becomes a note."""

        async def told() -> None:
            try:
                await what
            except _ERRORS as error:
                self._note(f"the canary on {_broker(pair)}: {where_and_why(error)}")

        self._tasks[pair] = asyncio.create_task(told(), name=f"canary on {pair}")

    async def _start(self, pair: str, master: str, names: Names, *, is_new: bool) -> None:
        servers = self._wanted.name_servers
        if is_new and await is_there(self._admin, servers, names):
            self._note(f"no canary on {_broker(pair)}: topic {names.topic} exists already")
            return
        self.ledger.make(pair)  # before this the topic is not the canary's, and is not removed
        try:
            await self._admin.create_topic(master, TopicConfig(names.topic, QUEUES, QUEUES))
        except BrokerError as error:
            if is_new:
                self.ledger.removed(pair)
            self._note(f"no canary on {_broker(pair)}: {master} makes no topic: {error}")
            return
        for group in names.groups:
            await self._admin.create_group(master, SubscriptionGroupConfig(group))
        deadline = time.monotonic() + _ROUTE_SECONDS
        while not await is_there(self._admin, servers, names):
            if time.monotonic() > deadline:
                self._note(f"no canary on {_broker(pair)}: its topic got no route")
                return
            await asyncio.sleep(0.2)
        number = self.ledger.numbers[pair]
        settings = client_settings(self._wanted, names, f"{names.topic}-{self.ledger.starts}")
        lane = lane_of(self.ledger.starts & 0xFFFF, number & 0xFFFF)
        self._clients[pair] = clients = PairClients(
            names, settings, self._hook, lane, is_new=is_new
        )
        await clients.start()
        until = "" if self._wanted.keep_canary else "; all of it is removed at the end"
        self._note(
            f"canary on {_broker(pair)}: made topic {names.topic} with {QUEUES} queues and groups"
            f" {' and '.join(names.groups)}, and sends messages to it{until}"
        )

    async def _remove(self, pair: str) -> None:
        names = self.ledger.at(pair)
        try:
            master, *slaves = self._addresses_of(pair)
            await remove(self._admin, master, slaves, self._wanted.name_servers, names)
            self.ledger.removed(pair)
        except _ERRORS as error:
            self._note(
                f"topic {names.topic} and groups {', '.join(names.groups)} may be left on"
                f" {_broker(pair)}: {where_and_why(error)}; go on with --canary to remove them"
            )

    def _note_addresses(self, look: Look) -> None:
        """Note the addresses of brokers; a broker that is down keeps its own."""
        for each in look.brokers:
            self._addresses.setdefault(each.pair, {})[each.broker_id] = each.addr

    def _addresses_of(self, pair: str) -> list[str]:
        """Return the address of a pair's master, and those of its slaves.

        Raises:
            NoMaster: No look has shown one.
        """
        known = self._addresses.get(pair, {})
        if 0 not in known:
            raise NoMaster("no master of it is known")
        return [address for _, address in sorted(known.items())]

    async def _beat(self) -> None:
        """Write each second that the log goes on, and how far its clock is from run zero."""
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        while True:
            self._log.write("life", state="RUNNING")
            self._log.write(
                "clock",
                boot_id=boot_id,
                source="CLOCK_MONOTONIC",
                offset_ns=self._offset_ns,
                error_ns=0,
            )
            await asyncio.sleep(1)


def _broker(pair: str) -> str:
    return pair.rpartition("/")[2]


async def is_there(admin: AdminClient, name_servers: Iterable[str], names: Names) -> bool:
    """Return whether some name server lists the topic.

    Raises:
        BrokerError, RemotingError, ProtocolError: A name server gave no answer.
    """
    for address in name_servers:
        if names.topic in await admin.topics_at(address):
            return True
    return False


async def remove(
    admin: AdminClient,
    master: str,
    slaves: Iterable[str],
    name_servers: Iterable[str],
    names: Names,
) -> None:
    """Remove the topic and the groups, and their retry topics.

    A slave copies topics and groups of its master, but keeps their offsets. A slave of 4.9.7
    refuses to remove them; older slaves do it.

    Args:
        name_servers: All, because a name server does not tell the others that a topic is gone.

    Raises:
        BrokerError, RemotingError, ProtocolError: Some of it may be left.
    """
    await _remove_at(admin, master, names)
    for address in slaves:
        with contextlib.suppress(FailbackError):
            await _remove_at(admin, address, names)
    for address in name_servers:
        listed = await admin.topics_at(address)
        for topic in names.topics:
            if topic in listed:
                await admin.delete_topic_in_namesrv(address, topic)


async def _remove_at(admin: AdminClient, broker: str, names: Names) -> None:
    for group in names.groups:
        await admin.delete_group(broker, group, remove_offset=True)
    for topic in names.topics:
        await admin.delete_topic(broker, topic)


@asynccontextmanager
async def running(
    folder: Folder, wanted: Wanted, client: RemotingClient, about: About, note: Note
) -> AsyncIterator[OnLook]:
    """Run a canary while the block runs, from the first look on.

    Args:
        about: The groups and topics of the observation. The canary's are added to a set that is
            not empty.
        note: Takes a sentence about each thing that keeps the canary from working.

    Yields:
        A function that takes each look.
    """
    canary: Canary | None = None
    is_first = True

    def on_look(look: Look, finder: Finder) -> None:
        nonlocal canary, is_first
        if is_first:
            canary = _started(folder, wanted, client, look, about, note)
        elif canary is not None:
            canary.look(look, finder)
        is_first = False

    try:
        yield on_look
    finally:
        if canary is not None:
            await canary.end()


def _started(
    folder: Folder, wanted: Wanted, client: RemotingClient, look: Look, about: About, note: Note
) -> Canary | None:
    try:
        canary = Canary(folder, wanted, client, note)
        canary.begin(look)
        for some, more in zip(about, with_canary(about, canary.ledger), strict=True):
            some.update(more)
        return canary
    except _ERRORS as error:
        note(f"no canary: {where_and_why(error)}")
        return None
