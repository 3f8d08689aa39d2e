"""Looks at a cluster until it is stopped: asks, writes the look, hands it to listeners.

The first look decides whether the cluster can be observed as wanted, before anything is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Set
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from failback.analytics.observe.asking import Asker
from failback.analytics.observe.canary.ledger import About, Ledger, with_canary
from failback.analytics.observe.carry_offer import CarryOffer
from failback.analytics.observe.events import Event, Finder
from failback.analytics.observe.folder import LOOKS, Folder, Wanted, looks_in
from failback.analytics.observe.looks import ANSWERED, SILENT, Look, Place
from failback.analytics.observe.observation import Observation
from failback.analytics.observe.thinning import busy_spans
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.common.text import did_you_mean, where_and_why, why
from failback.protocol.errors import ConfigError, FailbackError
from failback.protocol.names import without_instance
from failback.protocol.route import split_offset_key

Listener = Callable[[Look, list[Event], Observation], None]


async def observe(
    path: Path,
    wanted: Wanted,
    listener: Listener,
    stop: asyncio.Event,
    *,
    seconds: float | None = None,
    note: Callable[[str], None] = lambda line: None,
) -> Observation:
    """Observe into a run folder until ``stop`` is set, or for ``seconds``.

    ``listener`` takes each look with its new events. ``note`` takes a sentence about each thing
    that keeps a look from the disk, a trace from being read or a canary from working.

    Raises:
        NobodyAnswers: No name server answered the first look.
        ConfigError: The folder holds something else, or no broker knows a group or topic.
        OSError: The folder can't be written.
    """
    folder = Folder.open(path, wanted)
    try:
        about = with_canary((wanted.groups, wanted.topics), Ledger.read(path))
        observation = Observation.of(
            looks_in(path, lambda problem: note(f"{path / LOOKS}: {problem}")), *about
        )
        observation.zero = int(folder.run["zero"]["wall_ns"]) / 1e9
        deadline = None if seconds is None else time.monotonic() + seconds
        async with RemotingClient(
            settings=RemotingSettings(access=wanted.access),
            on_close=lambda address, _: asker.connection_ended(address),
        ) as client:
            asker = Asker(
                wanted.name_servers,
                client,
                zero=folder.zero,
                every=wanted.every,
                groups=about[0],
                topics=about[1],
                asks_clients=wanted.asks_clients,
            )
            async with (
                _trace(client, wanted, folder, observation, note),
                _canary(folder, wanted, client, about, note) as canary_listener,
            ):

                def listen(look: Look, events: list[Event], observation: Observation) -> None:
                    listener(look, events, observation)
                    canary_listener(look, observation.finder)

                keeper = _Keeper(folder, wanted, note)
                try:
                    await _look_until(
                        stop, deadline, keeper, wanted, observation, asker, listen, client
                    )
                finally:
                    await asker.close()
                    await keeper.close()
        # An observer that runs for days holds no library that only rows need.
        from failback.analytics.observe.lake import bring_up

        await asyncio.to_thread(bring_up, path)
        return observation
    except (NobodyAnswers, ConfigError):
        folder.discard_if_unused()
        raise
    finally:
        folder.close()


@asynccontextmanager
async def _trace(
    client: RemotingClient,
    wanted: Wanted,
    folder: Folder,
    observation: Observation,
    note: Callable[[str], None],
) -> AsyncIterator[None]:
    """Read the clients' trace while the block runs, if wanted."""
    if not wanted.trace:
        yield
        return
    from failback.analytics.observe.following import following

    wall_ns = int(folder.run["zero"]["wall_ns"])
    async with following(client, wanted, folder.path, wall_ns, folder.zero, observation, note):
        yield


@asynccontextmanager
async def _canary(
    folder: Folder,
    wanted: Wanted,
    client: RemotingClient,
    about: About,
    note: Callable[[str], None],
) -> AsyncIterator[Callable[[Look, Finder], None]]:
    """Run a canary while the block runs if wanted, else name what an earlier one left."""
    if not wanted.canary:
        if (ledger := Ledger.read(folder.path)) is not None:
            ledger.say_what_is_left(note)
        yield lambda _, __: None
        return
    from failback.analytics.observe.canary.canary import running

    async with running(folder, wanted, client, about, note) as on_look:
        yield on_look


async def _until_first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for one of them, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Keeper:
    """Writes looks. A look that the disk refuses is a gap; the observation goes on."""

    def __init__(self, folder: Folder, wanted: Wanted, note: Callable[[str], None]) -> None:
        self._folder = folder
        self._carry = CarryOffer(folder.path, wanted.cluster_options)
        self._note = note
        self._refused = ""
        self._thinning: asyncio.Task[None] | None = None

    @property
    def path(self) -> Path:
        return self._folder.path

    def tell(self, sentences: Iterable[str]) -> None:
        for each in sentences:
            self._note(each)

    async def close(self) -> None:
        """Wait until the looks are thinned."""
        if self._thinning is not None:
            await asyncio.gather(self._thinning, return_exceptions=True)

    async def keep(self, look: Look, observation: Observation) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._folder.add, look)
        except OSError as error:
            if not self._refused:
                self._note(
                    f"{where_and_why(error)}: samples go on and are not kept until it can"
                    " be written again; make room, or end this and name another folder in --out"
                )
            self._refused = why(error)
            return
        if self._refused:
            self._note(f"{self._folder.path}: samples are kept again; those between are a gap")
            self._refused = ""
        await self._thin(look, observation)

    async def offer(self, look: Look, observation: Observation) -> None:
        """Keep what slaves of an absent master know, and say how it is carried over."""
        if observation.kept.away or observation.kept.back:
            self.tell(await asyncio.to_thread(lambda: list(self._carry.look(look, observation))))

    async def _thin(self, look: Look, observation: Observation) -> None:
        """Thin old looks while new ones are written. A disk without room for it keeps them all."""
        if self._thinning is None:
            if self._folder.is_large:
                busy = busy_spans(observation, look.every)
                work = asyncio.to_thread(self._folder.thin, busy, look.ended)
                self._thinning = asyncio.create_task(work)
        elif self._thinning.done():
            done, self._thinning = self._thinning, None
            with contextlib.suppress(OSError):
                done.result()
                await asyncio.to_thread(self._folder.take_thinned)


async def _look_until(
    stop: asyncio.Event,
    deadline: float | None,
    keeper: _Keeper,
    wanted: Wanted,
    observation: Observation,
    asker: Asker,
    listener: Listener,
    client: RemotingClient,
) -> None:
    complaints, is_first = Complaints(), True
    while not stop.is_set() and (deadline is None or time.monotonic() < deadline):
        due = time.monotonic() + asker.every
        look = await asker.look(closely=observation.is_watchful)
        if is_first:
            keeper.tell(await check_first(look, wanted, observation, keeper.path, client))
            is_first = False
        keeper.tell([*complaints.of(look), *asker.take_notes()])
        known = len(observation.finder.events)
        observation.look(look)
        await keeper.keep(look, observation)
        listener(look, observation.finder.events[known:], observation)
        await keeper.offer(look, observation)
        await _until_first(stop.wait(), asker.wait(due - time.monotonic()))


class NobodyAnswers(FailbackError):
    """No name server answered the first question."""

    exit_code = 3


async def check_first(
    look: Look, wanted: Wanted, known: Observation, path: Path, client: RemotingClient
) -> list[str]:
    """Refuse a cluster that cannot be observed as wanted; return notes on the rest, as sentences.

    Raises:
        NobodyAnswers: No name server answered.
        ConfigError: The folder is about another cluster, or no broker knows a group or topic.
    """
    where = ", ".join(look.listings)
    if all(each is None for each in look.listings.values()):
        advice = client.problem or "name one that does in --namesrv"
        raise NobodyAnswers(f"no name server answers at {where}: {advice}")
    listed = {place.pair for place in look.listed()}
    before = set(known.first_offsets())
    if before and listed and not before & listed:
        problem = f"{path} is about {_all(before)}, and {where} lists {_all(listed)}"
        raise ConfigError("--out", f"{problem}: name a new folder")
    if not listed:
        return [f"{where} lists no broker: those that register are observed from then on"]
    return await _unknown(look, wanted, known, client)


async def _unknown(
    look: Look, wanted: Wanted, observation: Observation, client: RemotingClient
) -> list[str]:
    """Return notes on groups and topics that no broker knows.

    Such a name is refused only where all brokers answered.
    """
    keys = {key for broker in look.brokers for key in broker.offsets or ()}
    keys |= {key for tables in observation.first_offsets().values() for key in tables}
    named = [split_offset_key(key) for key in keys]
    topics, groups = {topic for topic, _ in named}, {group for _, group in named}
    is_whole = all(each.state == ANSWERED for each in look.brokers)
    admin = AdminClient(wanted.name_servers, client=client, timeout_ms=5000)
    try:
        if not topics.issuperset(wanted.topics):
            topics |= set(await admin.topic_list())
        if not groups.issuperset(wanted.groups):
            for broker in look.brokers:
                if broker.state == ANSWERED:
                    table = await admin.all_groups(broker.addr)
                    groups |= set(table.subscription_group_table)
    except FailbackError:  # without the right to ask, no name is refused
        is_whole = False
    said = []
    for option, asked, found in (
        ("--group", wanted.groups, groups),
        ("--topic", wanted.topics, topics),
    ):
        as_clients_do = set(map(without_instance, found))
        for name in sorted(set(asked) - found - as_clients_do):
            problem = f'no broker knows "{name}"{did_you_mean(name, found)}'
            if is_whole and not wanted.canary:  # a canary is observed in any case
                raise ConfigError(option, problem)
            said.append(f"{option}: {problem}: it is observed when one does")
    return said


class Complaints:
    """Reports name servers and brokers that stop answering, once each time."""

    def __init__(self) -> None:
        self._silent: set[str] = set()
        self._before: set[Place] = set()
        """Brokers that were silent at the last look."""
        self._said: set[Place] = set()

    def of(self, look: Look) -> Iterator[str]:
        """Yield a sentence for each that is silent since this look."""
        silent = {address for address, each in look.listings.items() if each is None}
        if silent - self._silent:
            others = "those that others list are observed"
            if len(silent) == len(look.listings):
                others = "brokers are asked where they were"
            yield f"name server {_all(silent)} does not answer: {others}"
        self._silent = silent
        now = {broker.place for broker in look.brokers if broker.state == SILENT}
        for broker in look.brokers:
            # A process that dies is silent for one look too, before it refuses connections.
            if broker.place in now & self._before - self._said:
                self._said.add(broker.place)
                yield (
                    f"{broker.place.text} is not seen: {broker.problem}; until it is, that is a"
                    " gap, and the others are observed"
                )
        self._said &= now
        self._before = now


def _all(names: Set[str]) -> str:
    return ", ".join(sorted(names))
