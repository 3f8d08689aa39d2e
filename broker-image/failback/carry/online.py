"""Gives a master that runs already what its slaves know better, for groups without members.

A slave's table is overwritten 40 s after its master's start (5.x: 93 s), so it is asked at once,
before the master is. A group that has members is left alone: their own commits follow, and what
they hold in memory would win.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from failback.carry.asking import ANSWER_SECONDS, ask_slaves
from failback.carry.merge import Row, Table, merge
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
        groups = {split_offset_key(row.key)[1] for row in self.raised}
        return (
            f"{'would raise' if self.is_dry else 'raised'} {len(self.raised)} offsets of "
            f"{len(groups)} groups by {sum(row.messages for row in self.raised)} messages; left "
            f"{len(self.with_members)} groups to their members"
        )


async def ask_and_top_up(
    settings: RemotingSettings,
    master: str,
    slaves: Sequence[str],
    tables: Sequence[tuple[str, Table]],
    *,
    wait_seconds: float,
    dry_run: bool,
) -> TopUp:
    """Ask slaves at once, then :func:`top_up` the master with that and ``tables``."""
    async with AdminClient(settings=settings, timeout_ms=ANSWER_SECONDS * 1000) as admin:
        answers = await ask_slaves(admin, slaves)
        told = [(each.slave, each.table) for each in answers if not each.problem]
        silent = [f"slave {each.slave}: {each.problem}" for each in answers if each.problem]
        sources = [*tables, *told]
        if not sources:
            return TopUp(warnings=silent, is_known=False)
        try:
            done = await top_up(admin, master, sources, wait_seconds=wait_seconds, dry_run=dry_run)
        except (FailbackError, OSError) as error:
            return TopUp(warnings=[*silent, f"master {master}: {error}"], is_known=False)
        done.warnings[:0] = silent
        return done


async def top_up(
    admin: AdminClient,
    master: str,
    theirs: Sequence[tuple[str, Table]],
    *,
    wait_seconds: float,
    dry_run: bool = False,
) -> TopUp:
    """Wait for the master's port, then raise what is smaller there.

    Args:
        admin: Asks.
        master: Its address.
        theirs: Each source with its table, read before the master started or soon after.
        wait_seconds: How long the master may take until it answers.
        dry_run: Tell the master nothing.

    Raises:
        FailbackError: The master does not answer within the time, or refuses its table.
    """
    own = await _table_of(admin, master, wait_seconds)
    ahead = merge(own, None, theirs, lambda _topic, _queue, wanted: wanted)
    found = TopUp(warnings=[f"{each}: passed over" for each in ahead.odd], is_dry=dry_run)
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
    return found


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
    """Raise one offset as far as the master has messages, and read it back."""
    topic, group = split_offset_key(row.key)
    place = group, topic, row.queue
    async with turn:
        try:
            row = row._replace(wanted=min(row.theirs, await admin.max_offset(master, *place[1:])))
            if row.wanted <= row.own:
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
