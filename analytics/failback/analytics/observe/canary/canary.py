"""Runs a canary on each pair while a cluster is observed, and removes it at the end.

It writes only to topics and groups that it made itself. What keeps it from working on a pair is
told in a sentence, and observing goes on without it there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from failback.analytics.observe.canary.bird import Bird
from failback.analytics.observe.canary.ledger import About, Ledger, Names, with_canary
from failback.analytics.observe.canary.removal import (
    is_there,
    make_groups,
    make_topic,
    remove,
)
from failback.analytics.observe.events import Finder
from failback.analytics.observe.folder import Folder, Wanted
from failback.analytics.observe.looks import ANSWERED, Look, Place
from failback.client.admin.admin import AdminClient
from failback.client.consumelog.errors import ConsumeLogError
from failback.client.consumelog.hook import LogHook
from failback.client.consumelog.lab_id import lane_of
from failback.client.consumelog.upload.beside import ShipperBeside
from failback.client.consumelog.writer import ConsumeLog
from failback.client.remoting.connection import RemotingClient
from failback.client.remoting.settings import ClientSettings
from failback.common.reasons import where_and_why, why
from failback.protocol.errors import BrokerError, FailbackError

Note = Callable[[str], None]
"""Tells the user a sentence."""
Saw = Callable[[Look, Finder], None]

_LEAVE_SECONDS: Final = 10.0
"""A member that leaves has been served by the slave for so long: two commits of its own."""
_ROUTE_SECONDS: Final = 15.0
_FIRST_PROCESS: Final = 500_000
"""Clients that a trace names have smaller numbers in the run."""
_SUSPEND_MS: Final = 1_000
_HELD_SECONDS: Final = 7.0
"""A broker looks every 5 s for how long it has held a pull. When it ends one, it makes the group
anew that was removed meanwhile."""
_ASKED_MS: Final = 5_000.0
_SHIPPED_SECONDS: Final = 60.0
_SEGMENT_BYTES: Final = 1 << 20
_SEGMENT_SECONDS: Final = 30.0
_ERRORS: Final = (FailbackError, ConsumeLogError, OSError)


class NoMaster(FailbackError):
    """A pair has no master that could remove something."""


class Canary:
    """The canary of one observer, on all pairs that the first look shows."""

    def __init__(self, folder: Folder, wanted: Wanted, client: RemotingClient, note: Note) -> None:
        """Take note of a canary that an observer before left in the run folder.

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
        self._birds: dict[str, Bird] = {}
        self._flights: dict[str, _Flight] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._beating: asyncio.Task[None] | None = None
        self._addresses: dict[str, dict[int, str]] = {}

    def begin(self, look: Look) -> None:
        """Start on every pair that has a master.

        Raises:
            OSError: The ledger can't be written.
        """
        self._beating = asyncio.create_task(self._beat(), name="beat of the canary")
        self._meet(look)
        masters = {place.pair: address for place, address in look.listed().items()
                   if place.broker_id == 0}  # fmt: skip
        for pair in sorted({place.pair for place in look.listed()}):
            if pair not in masters:
                self._note(f"no canary on {_broker(pair)}: it has no master now")
                continue
            is_new = pair not in self.ledger.left
            names = self.ledger.name(pair)
            self._do(pair, self._start(pair, masters[pair], names, is_new=is_new))

    def saw(self, look: Look, finder: Finder) -> None:
        """Hand groups over while their master is away, by what a look shows."""
        self._meet(look)
        for pair, bird in list(self._birds.items()):
            if bird.failure is not None:
                self._note(f"the canary on {_broker(pair)} stopped: {bird.failure}")
                del self._birds[pair]
                self._do(pair, bird.stop())
                continue
            if not self._tasks[pair].done():
                continue
            outage = finder.outages.get(pair)
            is_away = outage is not None and outage.back is None
            flight = self._flights.setdefault(pair, _Flight(bird.names.moves_key))
            if is_away and not bird.has_moved_out and flight.is_over(pair, look):
                self._do(pair, bird.move_out())
            elif not is_away:
                flight.before(pair, look)
                if bird.has_moved_out and _serves(pair, look):
                    self._do(pair, bird.move_in())

    async def end(self) -> None:
        """End all clients, put their log into the lake, and remove what was made."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        ended = await asyncio.gather(
            *(bird.stop() for bird in self._birds.values()), return_exceptions=True
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
        """Let one thing happen to the clients of a pair, unless the last one still does."""

        async def told() -> None:
            try:
                await what
            except _ERRORS as error:
                self._note(f"the canary on {_broker(pair)}: {_reason(error)}")

        self._tasks[pair] = asyncio.create_task(told(), name=f"canary on {pair}")

    async def _start(self, pair: str, master: str, names: Names, *, is_new: bool) -> None:
        servers = self._wanted.name_servers
        if is_new and await is_there(self._admin, servers, names):
            self._note(f"no canary on {_broker(pair)}: topic {names.topic} exists already")
            return
        self.ledger.make(pair)  # before this it is somebody else's, and is not removed
        try:
            await make_topic(self._admin, master, names)
        except BrokerError as error:
            if is_new:
                self.ledger.removed(pair)
            self._note(f"no canary on {_broker(pair)}: {master} makes no topic: {error}")
            return
        await make_groups(self._admin, master, names)
        deadline = time.monotonic() + _ROUTE_SECONDS
        while not await is_there(self._admin, servers, names):
            if time.monotonic() > deadline:
                self._note(f"no canary on {_broker(pair)}: its topic got no route")
                return
            await asyncio.sleep(0.2)
        number = self.ledger.numbers[pair]
        settings = ClientSettings(
            namesrv_addrs=servers,
            access=self._wanted.access,
            instance_name=f"{names.topic}-{self.ledger.starts}",
            default_topic=names.topic,  # no other broker may be asked to make it
            consume_threads=1,
            pull_batch_size=2,
            pull_threshold_for_queue=1,
            pull_flow_control_delay_ms=250,
            slave_behind_backoff_ms=250,
            broker_suspend_max_ms=_SUSPEND_MS,
        )
        lane = lane_of(self.ledger.starts & 0xFFFF, number & 0xFFFF)
        self._birds[pair] = bird = Bird(names, settings, self._hook, lane, is_new=is_new)
        await bird.start()

    async def _remove(self, pair: str) -> None:
        names = self.ledger.at(pair)
        try:
            master, *slaves = self._addresses_of(pair)
            await remove(self._admin, master, slaves, self._wanted.name_servers, names)
            self.ledger.removed(pair)
        except _ERRORS as error:
            self._note(
                f"topic {names.topic} and groups {', '.join(names.groups)} may be left on"
                f" {_broker(pair)}: {_reason(error)}; go on with --canary to remove them"
            )

    def _meet(self, look: Look) -> None:
        """Know where brokers are; one that is away is where it was."""
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
        """Say each second that the log goes on, and how its clock is to run zero."""
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


class _Flight:
    """Follows a group on slaves: for how long they have taken its commits."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._stood = 0
        self._since: float | None = None

    def before(self, pair: str, look: Look) -> None:
        """The master is there."""
        self._stood, self._since = self._stands(pair, look), None

    def is_over(self, pair: str, look: Look) -> bool:
        """Tell whether the slave has served for long enough since the master went."""
        if self._since is None and self._stands(pair, look) > self._stood:
            self._since = look.ended
        return self._since is not None and look.ended - self._since >= _LEAVE_SECONDS

    def _stands(self, pair: str, look: Look) -> int:
        """How far the group is on the slave that is furthest."""
        found = [
            sum((each.offsets or {}).get(self._key, {}).values())
            for each in look.brokers
            if each.pair == pair and each.broker_id != 0
        ]
        return max(found, default=0)


def _serves(pair: str, look: Look) -> bool:
    """Whether who asks now asks the master: it answers, and every route has it."""
    master = look.at(Place(pair, 0))
    answers = master is not None and master.state == ANSWERED and master.offsets is not None
    listings = [each for each in look.listings.values() if each is not None]
    return answers and all(0 in each.get(pair, {}) for each in listings)


def _broker(pair: str) -> str:
    return pair.rpartition("/")[2]


def _reason(error: Exception) -> str:
    return where_and_why(error) if isinstance(error, OSError) else why(error)


@asynccontextmanager
async def flying(
    folder: Folder, wanted: Wanted, client: RemotingClient, about: About, note: Note
) -> AsyncIterator[Saw]:
    """Run a canary while the block runs, from the first look on.

    Args:
        about: Gets its groups and topics where only some are looked at.
        note: Gets what keeps it from working.

    Yields:
        What has to be told each look.
    """
    canary: Canary | None = None
    is_first = True

    def saw(look: Look, finder: Finder) -> None:
        nonlocal canary, is_first
        if is_first:
            canary = _begun(folder, wanted, client, look, about, note)
        elif canary is not None:
            canary.saw(look, finder)
        is_first = False

    try:
        yield saw
    finally:
        if canary is not None:
            await canary.end()


def _begun(
    folder: Folder, wanted: Wanted, client: RemotingClient, look: Look, about: About, note: Note
) -> Canary | None:
    try:
        canary = Canary(folder, wanted, client, note)
        canary.begin(look)
        for some, more in zip(about, with_canary(about, canary.ledger), strict=True):
            some.update(more)
        return canary
    except _ERRORS as error:
        note(f"no canary: {_reason(error)}")
        return None
