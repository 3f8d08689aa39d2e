"""Asks slaves for their consumer offsets, and whether their log is this master's.

Questions: 106 of every name server, 43 of every slave, 33 for the proof of the log. None of them
changes anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from failback.carry.master_store import MasterConf
from failback.carry.merge import Row, Table
from failback.client.admin.admin import AdminClient
from failback.protocol.errors import BrokerError, FailbackError
from failback.protocol.route import split_offset_key

logger = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 3.0
_NAME_SERVER_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.25
_MOST_COMPARED: Final = 500
"""Offsets among which the proof looks for the last message of the log."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a slave said of its offsets."""

    slave: str
    table: Table = field(default_factory=dict)
    problem: str = ""
    """Why there is no table; empty if there is one."""


class HeldLog(Protocol):
    """The log of the master, as its own disk has it."""

    def physical_offset_of(self, topic: str, queue_id: int, offset: int, /) -> int:
        """Return where the message ``offset`` of a queue is in the log; -1 if it is not there."""

    def record_at(self, physical_offset: int, /) -> bytes | None:
        """Return the record there; ``None`` without one."""


async def slaves_of(admin: AdminClient, cluster: str, name: str) -> tuple[list[str], list[str]]:
    """Return the slaves that any name server lists of a broker name, and what went wrong."""
    problems: list[str] = []

    async def listed(name_server: str) -> set[str]:
        try:
            async with asyncio.timeout(_NAME_SERVER_SECONDS):
                members = (await admin.cluster_info_at(name_server)).members()
        except (FailbackError, OSError, TimeoutError) as error:
            problems.append(f"name server {name_server}: {str(error) or 'no answer'}")
            return set()
        pair = (each for each in members if (each.cluster, each.broker_name) == (cluster, name))
        return {each.addr for each in pair if each.broker_id != 0}

    answers = await asyncio.gather(*map(listed, await admin.name_servers()))
    return sorted(set().union(*answers)), problems


async def is_listed(admin: AdminClient, conf: MasterConf) -> bool | None:
    """Tell whether any name server lists the broker of a broker.conf; ``None``: none answered."""

    async def listed(name_server: str) -> bool | None:
        try:
            async with asyncio.timeout(_NAME_SERVER_SECONDS):
                members = (await admin.cluster_info_at(name_server)).members()
        except (FailbackError, OSError, TimeoutError):
            return None
        mine = (conf.cluster, conf.name, *conf.listed)
        return any(
            (each.cluster, each.broker_name, str(each.broker_id), conf.listed[1] and each.addr)
            == mine
            for each in members
        )

    answers = await asyncio.gather(*map(listed, conf.name_servers))
    return None if all(each is None for each in answers) else any(answers)


async def ask_slaves(
    admin: AdminClient, slaves: Sequence[str], seconds: float = ANSWER_SECONDS
) -> list[Answer]:
    """Ask all side by side for their tables."""

    async def asked(slave: str) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                return Answer(slave, await admin.all_offsets(slave))
        except TimeoutError:
            return Answer(slave, problem=f"no answer from {slave} within {seconds:.0f} s")
        except (FailbackError, OSError) as error:
            return Answer(slave, problem=str(error))

    return await asyncio.gather(*map(asked, slaves))


async def ask_until_one_answers(
    ask: Callable[[], Awaitable[list[Answer]]], wait_seconds: float
) -> list[Answer]:
    """Ask, and for ``wait_seconds`` again until there is a table; return the last answers."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_seconds
    while True:
        answers = await ask()
        if any(not each.problem for each in answers) or loop.time() >= until:
            return answers
        await asyncio.sleep(min(_PAUSE_SECONDS, max(0.0, until - loop.time())))


async def is_other_log(
    log: HeldLog, rows: Sequence[Row], view: Callable[[int], Awaitable[bytes]]
) -> bool | None:
    """Compare one record of this master with the slave's, byte for byte.

    It is the last in the log of those before the offsets that the slave raises; where the slave's
    log does not reach so far, the first. A replica is equal, also where it ends earlier.

    Args:
        rows: What the slave raises.
        view: Returns the slave's record at a physical offset, as 33 does.

    Returns:
        ``None`` if nothing could be compared.
    """
    some = rows[:: len(rows) // _MOST_COMPARED + 1]
    places = sorted(
        {
            log.physical_offset_of(split_offset_key(row.key)[0], row.queue, row.wanted - 1)
            for row in some
            if row.wanted > 0
        }
        - {-1}
    )
    for place in dict.fromkeys(places[-1:] + places[:1]):
        mine = log.record_at(place)
        if not mine:
            continue
        try:
            return await view(place) != mine
        except BrokerError:
            continue  # the slave has no record there
        except (FailbackError, OSError) as error:
            logger.debug("record at %d: %s", place, error)
            return None
    return None
