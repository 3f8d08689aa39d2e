"""Gives a master that runs already what its slaves know better, or what was saved.

A slave's table is overwritten 40 s after its master's start (5.x: 93 s), so it is asked at once,
before the master is, and again when the master answers: members commit to it until then. A group
that has members is left alone: their own commits follow, and what they hold in memory would win.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from failback.carry.asking import ANSWER_SECONDS, ask_slaves
from failback.carry.merge import Row, Table, merge, summary
from failback.carry.restoring import OnMaster, Order, restore_of
from failback.client.admin.admin import AdminClient
from failback.client.admin.queue_offsets import Span
from failback.client.remoting.connection import RemotingSettings
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.errors import BrokerError, FailbackError, RemotingConnectError
from failback.protocol.headers import GetConsumerListByGroupRequestHeader
from failback.protocol.route import split_offset_key

_PAUSE_SECONDS = 0.25
_AT_ONCE = 16
Tell = Callable[[int, str, Awaitable[Any]], Awaitable[Any]]
"""Sends a request: its code, the broker's address, and what awaits the answer."""


@dataclass(slots=True)
class TopUp:
    """What became of the offsets in which slaves are ahead of a running master."""

    raised: list[Row] = field(default_factory=list)
    with_members: set[str] = field(default_factory=set)
    """Groups that were left to their members."""
    warnings: list[str] = field(default_factory=list)
    is_dry: bool = False
    is_known: bool = True
    """Whether a slave and the master told their offsets."""

    @property
    def line(self) -> str:
        """One sentence for a log."""
        if not self.is_known:
            return "nothing was carried"
        moved = summary(self.raised, is_dry=self.is_dry)
        return f"{moved}; left {len(self.with_members)} groups to their members"


async def ask_and_top_up(
    settings: RemotingSettings,
    master: str,
    slaves: Sequence[str],
    tables: Sequence[tuple[str, Table]],
    *,
    wait_seconds: float,
    dry_run: bool,
    accept_lower: Collection[str] = (),
) -> TopUp:
    """Ask slaves, wait for the master's port, ask again, and raise what is smaller at the master.

    Args:
        settings: How all are asked.
        master: Its address.
        slaves: Their addresses.
        tables: Further sources.
        wait_seconds: How long the master may take until it answers.
        dry_run: Tell the master nothing.
        accept_lower: Groups that get what the sources say, also where that is less.
    """
    async with AdminClient(settings=settings, timeout_ms=ANSWER_SECONDS * 1000) as admin:
        answers = await ask_slaves(admin, slaves)
        found = TopUp(is_dry=dry_run)
        found.warnings = [f"slave {each.slave}: {each.problem}" for each in answers if each.problem]
        found.is_known = bool(tables) or len(found.warnings) < len(answers)
        if found.is_known:
            try:
                own = await _table_of(admin, master, wait_seconds)
                answers += await ask_slaves(admin, slaves)
                told = [(each.slave, each.table) for each in answers if not each.problem]
                await _top_up(admin, master, own, [*tables, *told], accept_lower, found)
            except (FailbackError, OSError) as error:
                found.warnings.append(f"master {master}: {error}")
                found.is_known = False
    return found


async def _top_up(
    admin: AdminClient,
    master: str,
    own: Table,
    theirs: Sequence[tuple[str, Table]],
    accept_lower: Collection[str],
    found: TopUp,
) -> None:
    ahead = merge(own, None, theirs, lambda _t, _q, wanted: wanted, accept_lower=accept_lower)
    found.warnings += [f"{each}: passed over" for each in dict.fromkeys(ahead.odd)]
    known = {(row.key, row.queue): row for row in ahead.raised}
    better: dict[str, dict[int, int]] = {}
    for row in ahead.raised:
        better.setdefault(row.key, {})[row.queue] = row.theirs
    seen = await look_at(admin, master, better)
    found.warnings += seen.problems
    done = restore_of({master: seen.kept}, {master: seen.master}, cut=True)
    assert done is not None, "the master has said all"
    found.with_members = {row.group for row in done.rows} & done.online
    rows = [
        row
        for row in done.rows
        if row.group not in done.online
        and row.span.end
        and (row.is_raise or (row.group in accept_lower and row.new == row.kept))
    ]
    failed = set()
    if not found.is_dry:
        wanted = [Order(*row.place, row.old, row.new) for row in rows]
        for stored in await store(admin, master, wanted):
            if stored.problem:
                failed.add(stored.order[:2])
                found.warnings.append(stored.problem)
    found.raised = sorted(
        known[each.place]._replace(wanted=each.new) for each in rows if each.place not in failed
    )


async def _table_of(admin: AdminClient, master: str, wait_seconds: float) -> Table:
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_seconds
    while True:
        try:
            return await admin.all_offsets(master)
        except (FailbackError, OSError) as error:
            if isinstance(error, BrokerError) or loop.time() >= until:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)


# --- what a restore asks and tells ----------------------------------------------------------------


class Seen(NamedTuple):
    """What a master and its slaves say of the groups and topics of a restore."""

    master: OnMaster
    kept: Table
    """Of the topics whose queues the master told."""
    unknown: frozenset[str]
    """Groups that may have members: a broker did not say. They count as online."""
    problems: list[str]


async def look_at(
    admin: AdminClient,
    address: str,
    kept: Table,
    beside: Sequence[str] = (),
    tell: Tell | None = None,
) -> Seen:
    """Ask a master what giving it ``kept`` needs to know; ask for members at slaves, too.

    Args:
        tell: Sends each request (default: as it is).

    Raises:
        FailbackError: The master does not tell its offsets.
    """
    problems: list[str] = []
    ranges: dict[tuple[str, int], Span] = {}
    silent, online, unknown = set[str](), set[str](), set[str]()
    turn = asyncio.Semaphore(_AT_ONCE)

    async def queues(topic: str) -> None:
        code = RequestCode.GET_TOPIC_STATS_INFO
        try:
            async with turn:
                stats = await _sent(tell, code, address, admin.topic_stats(address, topic))
        except (FailbackError, OSError) as error:
            if getattr(error, "code", None) != ResponseCode.TOPIC_NOT_EXIST:
                silent.add(topic)
                problems.append(f"topic {topic} is left alone: {error}")
            return
        for queue, each in stats.offset_table.items():
            ranges[topic, queue.queue_id] = Span(each.min_offset, each.max_offset)

    async def members(broker: str, group: str) -> None:
        """A guarded master withholds its list, and other brokers have none without members."""
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        header = GetConsumerListByGroupRequestHeader(group)
        try:
            async with turn:
                await _sent(tell, code, broker, admin.ask(broker, code, header))
            online.add(group)
        except (FailbackError, OSError) as error:
            is_none = isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_ERROR
            is_gone = broker != address and isinstance(error, RemotingConnectError)
            if not is_none and not is_gone:
                unknown.add(group)
                problems.append(f"members of {group} are not known: {error}")

    code = RequestCode.GET_ALL_CONSUMER_OFFSET
    offsets = await _sent(tell, code, address, admin.all_offsets(address))
    topics, groups = ({split_offset_key(key)[at] for key in kept} for at in (0, 1))
    await asyncio.gather(
        *map(queues, topics),
        *(members(each, group) for group in groups for each in (address, *beside)),
    )
    left = {key: table for key, table in kept.items() if split_offset_key(key)[0] not in silent}
    found = OnMaster(address, offsets, 0.0, ranges, frozenset(online | unknown))
    return Seen(found, left, frozenset(unknown - online), sorted(problems))


async def _sent(tell: Tell | None, code: int, address: str, request: Awaitable[Any]) -> Any:
    return await (request if tell is None else tell(code, address, request))


class Stored(NamedTuple):
    """What became of one order."""

    order: Order
    now: int | None
    """What the master has after it; ``None`` for none."""
    problem: str = ""
    """Why that is another offset."""


async def store(
    admin: AdminClient, address: str, wanted: Sequence[Order], tell: Tell | None = None
) -> list[Stored]:
    """Store offsets where the master still has the old ones, and read them back.

    Args:
        tell: Sends each request (default: as it is).

    Raises:
        FailbackError: The master does not tell its offsets.
    """
    turn = asyncio.Semaphore(_AT_ONCE)
    refused: dict[Order, str] = {}

    async def put(order: Order) -> None:
        topic, group = split_offset_key(order.key)
        async with turn:
            update = admin.update_offset(address, group, topic, order.queue, order.new)
            try:
                await _sent(tell, RequestCode.UPDATE_CONSUMER_OFFSET, address, update)
            except (FailbackError, OSError) as error:
                refused[order] = str(error)

    async def table() -> Table:
        code = RequestCode.GET_ALL_CONSUMER_OFFSET
        found: Table = await _sent(tell, code, address, admin.all_offsets(address))
        return found

    have = await table()
    todo = [each for each in wanted if have.get(each.key, {}).get(each.queue) == each.old]
    await asyncio.gather(*map(put, todo))
    have = await table()
    found = []
    for each in wanted:
        now = have.get(each.key, {}).get(each.queue)
        why = refused.get(each, "")
        if not why and each not in todo:
            why = f"it had another offset than {each.old} already"
        elif not why:
            why = "a reset is pending there, or a member has started"
        where = f"{each.key} queue {each.queue}: {address} has {now} and not {each.new}: {why}"
        found.append(Stored(each, now, "" if now == each.new else where))
    return found
