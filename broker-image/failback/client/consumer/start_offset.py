"""Where a newly taken queue begins: what the store says, and three rules for when it says nothing.

| store answers | LAST_OFFSET | FIRST_OFFSET | TIMESTAMP |
|---|---|---|---|
| an offset | it | it | it |
| no entry | retry topic: 0; else the queue's end | 0 | retry topic: the end; else by time |
| unknown | not now | not now | not now |

End and time are asked of the master only, so with the master down LAST and TIMESTAMP wait where
FIRST begins at 0 from the slave.

Source: RebalancePushImpl.computePullFromWhereWithException, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from dataclasses import replace

from failback.client.consumelog.hook import StartOffset
from failback.client.consumer.context import ConsumerContext
from failback.client.consumer.offset_store import NO_ENTRY, OffsetStore, StoredOffset
from failback.client.errors import BrokerUnknown
from failback.client.model import RETRY_PREFIX, ConsumeFrom, FoundBroker
from failback.protocol.route import MessageQueue


async def compute_start_offset(
    context: ConsumerContext, store: OffsetStore, queue: MessageQueue
) -> StartOffset:
    """Find the first offset to pull; negative means: leave the queue alone this round.

    Raises:
        ClientError, RemotingError, BrokerError: The master could not be asked for end or time.
    """
    stored = await store.read_store(queue)
    if stored.value >= 0:
        return _start(stored.value, "STORE", "STORED", stored)
    if stored.value != NO_ENTRY:
        return _start(-1, "STORE", "UNKNOWN", stored)
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    match context.consume_from:
        case ConsumeFrom.FIRST_OFFSET:
            return _start(0, "MIN", "FIRST_ZERO", stored)
        case ConsumeFrom.LAST_OFFSET if is_retry:
            return _start(0, "MIN", "LAST_RETRY_ZERO", stored)
        case ConsumeFrom.LAST_OFFSET:
            return await _ask_end(context, queue, "LAST_MAX", stored)
        case ConsumeFrom.TIMESTAMP if is_retry:
            return await _ask_end(context, queue, "TIMESTAMP_RETRY_MAX", stored)
        case ConsumeFrom.TIMESTAMP:
            master = await _master(context, queue)
            offset = await context.instance.api.search_offset(
                master.addr, queue, context.consume_timestamp_ms
            )
            start = _start(offset, "TIMESTAMP", "TIMESTAMP_SEARCH", stored)
            return replace(start, addr=master.addr, broker_id=master.broker_id)


async def _ask_end(
    context: ConsumerContext, queue: MessageQueue, branch: str, stored: StoredOffset
) -> StartOffset:
    master = await _master(context, queue)
    offset = await context.instance.api.max_offset(master.addr, queue)
    start = _start(offset, "MAX", branch, stored)
    return replace(start, addr=master.addr, broker_id=master.broker_id)


async def _master(context: ConsumerContext, queue: MessageQueue) -> FoundBroker:
    found = await context.instance.find_admin_broker(queue)
    if found is None:
        raise BrokerUnknown(queue.broker_name)
    return found


def _start(offset: int, source: str, branch: str, stored: StoredOffset) -> StartOffset:
    return StartOffset(offset, source, branch, stored.addr, stored.broker_id, stored.code)
