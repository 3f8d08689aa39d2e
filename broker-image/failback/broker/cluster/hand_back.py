"""Which brokers are members of this pair, and what a returning master takes from its slaves.

A name server lists every broker that registered under a broker's name. ``failbackMembers`` names
the addresses of the pair. A slave's offsets, or a master's topics, are taken only from a member.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Protocol

from failback.broker.cluster.outer_api import BrokerOuterApi
from failback.broker.metadata.offsets.consumer_offset_manager import (
    ConsumerOffsetManager,
    OffsetTable,
)
from failback.carry.asking import HeldLog, is_other_log
from failback.carry.merge import merge
from failback.protocol.errors import FailbackError
from failback.protocol.route import ConsumerOffsetTable, split_offset_key

logger = logging.getLogger(__name__)


class Members:
    """The pair as broker.conf names it. ``named`` is read at each question."""

    def __init__(self, named: Callable[[], tuple[str, ...]]) -> None:
        self._named = named
        self.refused = 0
        """Registered brokers that are no members, and impossible answers, since the start."""

    @property
    def is_named(self) -> bool:
        """Whether broker.conf names the members."""
        return bool(self._named())

    async def known(self, addresses: Iterable[str]) -> list[str]:
        """Return those of ``addresses`` that are members; count and log the others."""
        named = self._named()
        resolved: set[str] | None = None
        found = []
        for address in sorted(addresses):
            if address not in named and resolved is None:
                resolved = await _resolved(named)
            if address in named or address in (resolved or ()):
                found.append(address)
            else:
                self.refuse(address, "it is not in failbackMembers of broker.conf")
        return found

    def refuse(self, address: str, why: str) -> None:
        """Count and log that an answer of a registered broker is not used."""
        self.refused += 1
        logger.warning("broker %s is not believed: %s", address, why)


async def _resolved(named: Iterable[str]) -> set[str]:
    """Return ``ip:port`` of every named member whose host has an address now."""
    loop = asyncio.get_running_loop()
    found = set()
    for member in named:
        host, _, port = member.rpartition(":")
        try:
            answers = await loop.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError:
            continue  # the host has no address, so no broker has registered from it
        for family, *_, place in answers:
            ip = str(place[0])
            found.add(f"[{ip}]:{port}" if family == socket.AF_INET6 else f"{ip}:{port}")
    return found


_Offsets = Mapping[str, Mapping[int, int]]


class OwnStore(HeldLog, Protocol):
    """What a hand-back asks of this broker's store."""

    def max_queue_offset(self, topic: str, queue_id: int, /) -> int:
        """Return the end of a queue; 0 without one."""


@dataclass(slots=True)
class HandBack:
    """Asks the slaves of this broker's name for their consumer offsets."""

    outer: BrokerOuterApi
    offsets: ConsumerOffsetManager
    _: KW_ONLY
    broker_name: str
    own_address: str
    members: Members

    async def take_returned_offsets(self, store: OwnStore) -> int:
        """Ask every registered slave of the pair for its consumer offsets; take the larger ones.

        Only the slave knows what was consumed from it while the master was down.
        Without a slave, or with one that does not answer, nothing changes. An offset beyond the
        end of the queue here means messages that this master has lost: the end is taken instead,
        if the slave has them. A registered slave that is no member is not asked, and one whose
        log is another is not believed. What this master lowered in its last persist stays.

        Returns how many offsets were raised.
        """

        def last_held(topic: str, queue_id: int, wanted: int) -> int:
            end = store.max_queue_offset(topic, queue_id)
            return min(wanted, end) if end > 0 else -1

        mine, believed = self.offsets.table, []
        decide = partial(merge, mine, self.offsets.previous(), last_held=last_held)
        for slave, table in await self._tables_of(await self.members.known(await self._slaves())):
            told = slave, await self._believed(slave, table, store.max_queue_offset)
            rows = decide([told]).raised
            if await is_other_log(store, rows, partial(self.outer.record_at, slave)):
                self.members.refuse(slave, "its log is another than this master's")
            else:
                believed.append(told)
        merged = decide(believed)
        for row in merged.lowered:
            logger.warning("%s queue %d: stays at %d, which this master lowered itself", *row[:3])
        for row in merged.raised:
            mine.setdefault(row.key, {})[row.queue] = row.wanted
            logger.warning("took from a slave: %s", row)
        if merged.raised:
            await self.offsets.persist_aside()
        return len(merged.raised)

    async def count_lost_offsets(self) -> int:
        """Count, and change nothing: offsets that slaves know and this broker lost when it died.

        They are compared with what was loaded, so call it as soon as it can be.
        """
        slaves, mine = await self._slaves(), self.offsets.table
        if self.members.is_named:
            slaves = await self.members.known(slaves)
        loaded = {key: dict(queues) for key, queues in mine.items()} if slaves else {}
        known: OffsetTable = {}
        for _, table in await self._tables_of(slaves):
            for key, queues in table.items():
                kept = known.setdefault(key, {})
                for queue_id, offset in queues.items():
                    kept[queue_id] = max(offset, kept.get(queue_id, offset))
        return self.offsets.regressions.restarted(loaded, known)

    async def _believed(
        self, slave: str, table: _Offsets, max_offset: Callable[[str, int], int]
    ) -> OffsetTable:
        """Leave out offsets beyond the end of the slave's own queue: no client consumed so far."""
        kept: OffsetTable = {}
        for key, queues in table.items():
            topic, _ = split_offset_key(key)
            for queue_id, offset in queues.items():
                if offset > max_offset(topic, queue_id):
                    end = await self._end_of(slave, topic, queue_id)
                    if offset > end:
                        what = f"{key} queue {queue_id} at {offset}, its queue ends at {end}"
                        self.members.refuse(slave, what)
                        continue
                kept.setdefault(key, {})[queue_id] = offset
        return kept

    async def _end_of(self, slave: str, topic: str, queue_id: int) -> int:
        try:
            return await self.outer.max_offset(slave, topic, queue_id)
        except (FailbackError, OSError) as error:
            logger.warning("slave %s does not tell the end of a queue: %s", slave, error)
            return -1

    async def _slaves(self) -> list[str]:
        return sorted(await self.outer.slaves_of(self.broker_name) - {self.own_address})

    async def _tables_of(self, slaves: list[str]) -> list[tuple[str, _Offsets]]:
        """Return the offsets of each slave, less those deleted here without its knowledge."""
        answers = await asyncio.gather(*map(self._table_of, slaves))
        known_to = self.offsets.deletions.known_to
        tables = [known_to(table.offset_table, table.deletions) for table in answers]
        return list(zip(slaves, tables, strict=True))

    async def _table_of(self, slave: str) -> ConsumerOffsetTable:
        try:
            return await self.outer.get_all_consumer_offset(slave)
        except (FailbackError, OSError) as error:
            logger.warning("slave %s does not tell its consumer offsets: %s", slave, error)
            return ConsumerOffsetTable()
