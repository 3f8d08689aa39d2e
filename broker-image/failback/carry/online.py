"""Gives a master that runs already what its slaves know better, for groups without members.

A slave's table is overwritten 40 s after its master's start (5.x: 93 s), so it is asked at once,
before the master is, and again when the master answers: members commit to it until then. A group
that has members is left alone: their own commits follow, and what they hold in memory would win.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from failback.carry.asking import ANSWER_SECONDS, ask_slaves
from failback.carry.merge import Row, Table, merge, summary
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingSettings
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.errors import BrokerError, FailbackError
from failback.protocol.headers import GetConsumerListByGroupRequestHeader
from failback.protocol.route import split_offset_key

_PAUSE_SECONDS = 0.25
_AT_ONCE = 16


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
    by_group: dict[str, list[Row]] = {}
    for row in ahead.raised:
        by_group.setdefault(split_offset_key(row.key)[1], []).append(row)
    turn = asyncio.Semaphore(_AT_ONCE)
    for group, rows in by_group.items():
        if await _has_members(admin, master, group, found):
            found.with_members.add(group)
            continue
        await asyncio.gather(*(_raise(admin, master, row, found, turn) for row in rows))
    found.raised.sort()


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


async def _has_members(admin: AdminClient, master: str, group: str, found: TopUp) -> bool:
    """Whether a group has members there, or may have: a guarded master withholds its list."""
    header = GetConsumerListByGroupRequestHeader(group)
    try:
        await admin.ask(master, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    except BrokerError as error:
        return error.code != ResponseCode.SYSTEM_ERROR
    except (FailbackError, OSError) as error:
        found.warnings.append(f"group {group}: {error}")
    return True


async def _raise(
    admin: AdminClient, master: str, row: Row, found: TopUp, turn: asyncio.Semaphore
) -> None:
    """Move one offset as far as the master has messages, and read it back."""
    topic, group = split_offset_key(row.key)
    place = group, topic, row.queue
    async with turn:
        try:
            end = await admin.max_offset(master, *place[1:])
            row = row._replace(wanted=min(row.theirs, end))
            if not end or row.own >= row.wanted < row.theirs:
                return
            if not found.is_dry:
                await admin.update_offset(master, *place, row.wanted)
                if await admin.query_offset(master, *place) != row.wanted:
                    found.warnings.append(
                        f"{row.key} queue {row.queue}: {master} took {row.wanted} and has another "
                        "offset: a reset is pending there, or a member has started"
                    )
                    return
        except (FailbackError, OSError) as error:
            found.warnings.append(f"{row.key} queue {row.queue}: {error}")
            return
    found.raised.append(row)
