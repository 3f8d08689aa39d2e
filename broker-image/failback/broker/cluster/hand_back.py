"""What a master that comes back learns from its slaves before anybody asks it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from failback.broker.cluster.outer_api import BrokerOuterApi
from failback.broker.metadata.offsets.consumer_offset_manager import (
    ConsumerOffsetManager,
    OffsetTable,
)
from failback.protocol.errors import FailbackError
from failback.protocol.route import split_offset_key

logger = logging.getLogger(__name__)

MaxOffset = Callable[[str, int], int]
"""Topic and queue id to the queue's end on this broker."""


async def take_returned_offsets(
    outer: BrokerOuterApi,
    offsets: ConsumerOffsetManager,
    *,
    broker_name: str,
    own_address: str,
    max_offset: MaxOffset,
) -> int:
    """Ask every registered slave for its consumer offsets and take the larger ones.

    What was consumed from a slave while the master was away is known to the slave alone. Without
    a slave, or with one that does not answer, nothing changes. An offset beyond the end of the
    queue here means messages that this master has lost: the end is taken instead.

    Returns how many offsets were raised.
    """
    slaves = sorted(await outer.slaves_of(broker_name) - {own_address})
    known = await _tables_of(outer, slaves)
    raised = sum(_raise(offsets.table, table, slave, max_offset) for slave, table in known)
    if raised:
        await offsets.persist_aside()
    return raised


async def count_lost_offsets(
    outer: BrokerOuterApi, offsets: ConsumerOffsetManager, *, broker_name: str, own_address: str
) -> int:
    """Count, and change nothing: offsets that slaves know and this broker lost with its process.

    They are compared with what was loaded, so call it as soon as it can be.
    """
    slaves = sorted(await outer.slaves_of(broker_name) - {own_address})
    loaded = {key: dict(queues) for key, queues in offsets.table.items()} if slaves else {}
    known: OffsetTable = {}
    for _, table in await _tables_of(outer, slaves):
        for key, queues in table.items():
            kept = known.setdefault(key, {})
            for queue_id, offset in queues.items():
                kept[queue_id] = max(offset, kept.get(queue_id, offset))
    return offsets.regressions.restarted(loaded, known)


async def _tables_of(outer: BrokerOuterApi, slaves: list[str]) -> list[tuple[str, OffsetTable]]:
    tables = await asyncio.gather(*(_table_of(outer, slave) for slave in slaves))
    return list(zip(slaves, tables, strict=True))


async def _table_of(outer: BrokerOuterApi, slave: str) -> OffsetTable:
    try:
        return await outer.get_all_consumer_offset(slave)
    except (FailbackError, OSError) as error:
        logger.warning("slave %s does not tell its consumer offsets: %s", slave, error)
        return {}


def _raise(mine: OffsetTable, theirs: OffsetTable, slave: str, max_offset: MaxOffset) -> int:
    raised = 0
    for key, queues in theirs.items():
        topic, _ = split_offset_key(key)
        for queue_id, offset in queues.items():
            present = mine.get(key, {}).get(queue_id, -1)
            wanted = min(offset, max_offset(topic, queue_id))
            if wanted > max(present, 0):
                mine.setdefault(key, {})[queue_id] = wanted
                raised += 1
                logger.warning(
                    "%s queue %d: took %d from slave %s, had %d",
                    key,
                    queue_id,
                    wanted,
                    slave,
                    present,
                )
    return raised
