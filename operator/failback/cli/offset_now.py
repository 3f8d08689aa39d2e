"""Where one consumer offset stands now, asked of the brokers: the live half of explain-offset."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from failback.client.admin.offset_places import (
    ANSWER,
    CLIENT,
    MASTER_FILE,
    MASTER_TABLE,
    SLAVE_TABLE,
)
from failback.protocol.errors import BrokerError, ConfigError, FailbackError, ProtocolError

if TYPE_CHECKING:
    from failback.client.admin.admin import AdminClient

Step = dict[str, Any]

_PAST: Final = ("commits", "earlier values")
"""What nobody can be asked for afterwards."""


class Place(NamedTuple):
    """One queue as one group sees it."""

    group: str
    topic: str
    queue: int

    @property
    def key(self) -> str:
        """As offset tables have it."""
        return f"{self.topic}@{self.group}"


class Standing(NamedTuple):
    """What was found out about a queue of one broker."""

    broker: str
    steps: list[Step]
    safe_offset: int | None
    """The highest that a table holds."""
    unseen: list[str]


async def stand_of(admin: AdminClient, place: Place, broker: str) -> Standing:
    """Ask every member of the pair that has the queue.

    Raises:
        ConfigError: ``broker`` does not say which of several has it.
    """
    name, members = await _pair_of(admin, place, broker)
    looks = await asyncio.gather(*(_look(admin, bid, addr, place) for bid, addr in members.items()))
    steps = [look.step for look in looks]
    answering = [look.step["broker_id"] for look in looks if look.answered]
    seen = {look.step["place"] for look in looks if look.answered}
    if 0 in answering:
        steps += await _file(admin, members[0], place)
    if answering:
        bid = answering[0]
        steps += await _clients(admin, members[bid], place, name)
        steps.append(await _answer(admin, bid, members[bid], place))
    seen |= {step["place"] for step in steps[len(looks) :]}
    held = [look.step["offset"] for look in looks if look.step["offset"] is not None]
    safe = max(held, default=None)
    for step in steps:
        if step["offset"] is not None and step["place"] != CLIENT:
            step["fell"] = max(0, (safe or 0) - step["offset"])
    wanted = (CLIENT, MASTER_TABLE, MASTER_FILE, SLAVE_TABLE)
    unseen = [*(each for each in wanted if each not in seen), *_PAST]
    return Standing(name, steps, safe, unseen)


async def _pair_of(admin: AdminClient, place: Place, broker: str) -> tuple[str, dict[int, str]]:
    """Return the broker's name and its members, master first."""
    route = await admin.route(place.topic)
    having = {d.broker_name for d in route.queue_datas if place.queue < d.read_queue_nums}
    names = sorted(having & {broker} if broker else having)
    if len(names) != 1:
        some = ", ".join(sorted(having)) or "no broker"
        raise ConfigError(
            "--broker", f"name one that has queue {place.queue} of {place.topic}: {some}"
        )
    (data,) = (each for each in route.broker_datas if each.broker_name == names[0])
    return names[0], dict(sorted(data.broker_addrs.items()))


class _Look(NamedTuple):
    """What one member said of its table, or that it said nothing."""

    step: Step
    answered: bool


async def _look(admin: AdminClient, bid: int, addr: str, place: Place) -> _Look:
    """Ask one member for its table; one that does not show it, for this offset alone."""
    where = MASTER_TABLE if bid == 0 else SLAVE_TABLE
    try:
        started = int((await admin.runtime_info(addr)).get("bootTimestamp") or 0) or None
    except (FailbackError, ValueError):
        started = None
    how = ""
    try:
        try:
            offset = (await admin.all_offsets(addr)).get(place.key, {}).get(place.queue)
        except BrokerError as error:
            how = f"; it does not show its table: {error}"
            offset = await admin.query_offset(addr, place.group, place.topic, place.queue)
    except FailbackError as error:
        return _Look(_step(where, None, bid, started, f"{addr} did not answer: {error}"), False)
    said = "has no entry" if offset is None else f"holds {offset}"
    return _Look(_step(where, offset, bid, started, f"{addr} {said}{how}"), True)


async def _file(admin: AdminClient, addr: str, place: Place) -> list[Step]:
    """What a kill of the master would leave, where its file is on this machine."""
    if not await asyncio.to_thread(_is_here, addr.rpartition(":")[0]):
        return []
    try:
        store = (await admin.broker_config(addr)).get("storePathRootDir")
    except FailbackError:
        return []
    found = await asyncio.to_thread(_offsets_in, Path(store)) if store else None
    if found is None:
        return []
    path, table = found
    offset = table.get(place.key, {}).get(place.queue)
    said = "has no entry" if offset is None else f"holds {offset}"
    return [_step(MASTER_FILE, offset, 0, None, f"{path} {said}: what a kill would leave")]


def _is_here(host: str) -> bool:
    """Whether an address is one of this machine, whose files can be looked into."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _offsets_in(store: Path) -> tuple[Path, Mapping[str, Mapping[int, int]]] | None:
    """consumerOffset.json of a store, or its backup as a broker would load it."""
    from failback.protocol.route import parse_offset_table

    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        path = store / "config" / name
        try:
            return path, parse_offset_table(path.read_bytes())
        except (OSError, ProtocolError):
            continue
    return None


async def _clients(admin: AdminClient, addr: str, place: Place, broker: str) -> list[Step]:
    from failback.client.admin.survey import client_memory

    found = (await client_memory(admin, addr, place.group)).get((broker, place.topic, place.queue))
    if found is None or found[0] < 0:
        return []
    offset, client = found
    return [_step(CLIENT, offset, None, None, f"{client} has {offset} in memory")]


async def _answer(admin: AdminClient, bid: int, addr: str, place: Place) -> Step:
    """What the member tells a new owner of the queue, which would ask it first."""
    try:
        offset = await admin.query_offset(addr, place.group, place.topic, place.queue)
    except FailbackError as error:
        return _step(ANSWER, None, bid, None, f"{addr} did not answer: {error}")
    said = "nothing, and it begins by its own rule" if offset is None else str(offset)
    return _step(ANSWER, offset, bid, None, f"a new owner of the queue is told {said} by {addr}")


def furthest(steps: Sequence[Step]) -> int | None:
    """The number of the step that lies furthest below the safe offset."""
    fallen = [number for number, step in enumerate(steps) if step["fell"]]
    return max(fallen, key=lambda number: (steps[number]["fell"], -number), default=None)


def _step(
    place: str, offset: int | None, bid: int | None, incarnation: int | None, what: str
) -> Step:
    return {
        "t": None,
        "place": place,
        "offset": offset,
        "fell": 0,
        "broker_id": bid,
        "incarnation": incarnation,
        "what": what,
        "row": None,
    }
