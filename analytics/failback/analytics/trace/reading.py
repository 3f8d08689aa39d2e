"""Reads topics from the brokers, every queue from its lowest to its highest offset, once.

Nothing is committed and no member of a group is needed: pulls carry their own subscription and the
name of the tools' group, which every broker knows. The master is asked first; where it doesn't
answer, its slaves. What was read lies on disk in :class:`Pages` before more is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import structs

from failback.analytics.trace import records
from failback.analytics.trace.pages import DAMAGED, Pages, Place
from failback.analytics.trace.records import TRACE_TOPIC
from failback.client.admin.admin import AdminClient
from failback.client.consumelog.lab_id import LAB_ID_PROPERTY, parse_lab_id
from failback.client.remoting.connection import RemotingClient
from failback.protocol import calls
from failback.protocol.codes import COMPRESSED, ResponseCode
from failback.protocol.errors import BrokerError, FailbackError, ProtocolError, RemotingError
from failback.protocol.message import RETRY_TOPIC, UNIQ_KEY, MessageExt, inflate_body
from failback.protocol.names import without_instance
from failback.protocol.route import split_offset_key

REGION_TRACE_PREFIX: Final = "rmq_sys_TRACE_DATA_"
"""Of trace topics of clients with the access channel CLOUD; the region follows."""
PULLED_AT_ONCE: Final = 32
PAGE_ROWS: Final = 20_000
QUEUES_AT_ONCE: Final = 8

Take = Callable[[Place, int, MessageExt], list[dict[str, Any]]]
"""Rows of a message that a broker with some id gave."""
Progress = Callable[[str, int], None]
"""Receives the topic and how many more of its messages were read."""


@dataclass(frozen=True, slots=True)
class Span:
    """Broker times in ms that trace messages must have been stored in; ``None``: no limit."""

    since_ms: int | None = None
    until_ms: int | None = None

    def begins_after(self, store_ms: int) -> bool:
        return self.since_ms is not None and store_ms < self.since_ms

    def ends_before(self, store_ms: int) -> bool:
        return self.until_ms is not None and store_ms > self.until_ms


class _Stuck(FailbackError):
    """A queue doesn't give what it says it has."""


class TopicReader:
    """Reads whole topics into pages."""

    def __init__(
        self,
        remoting: RemotingClient,
        admin: AdminClient,
        pages: Pages,
        *,
        timeout_ms: float = 5000,
        progress: Progress = lambda topic, count: None,
    ) -> None:
        self._remoting = remoting
        self._admin = admin
        self._pages = pages
        self._timeout_ms = timeout_ms
        self._progress = progress
        self._slots = asyncio.Semaphore(QUEUES_AT_ONCE)

    async def read(
        self,
        table: str,
        topic: str,
        take: Take,
        span: Span = Span(),
        begins: Mapping[Place, int] = {},
    ) -> list[str]:
        """Read all queues of ``topic``; return what could not be read, in words.

        ``begins`` has offsets below which a queue is not read; one that is lower than the last
        time is read from there up to what is on disk.
        """
        try:
            route = await self._admin.route(topic)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return [f"the name server knows no topic {topic}"]
            raise
        brokers = {
            data.broker_name: sorted(data.broker_addrs.items()) for data in route.broker_datas
        }
        found = await asyncio.gather(
            *(
                self._read_broker(table, topic, name, members, take, span, begins)
                for name, members in sorted(brokers.items())
            )
        )
        return [problem for problems in found for problem in problems]

    async def _read_broker(
        self,
        table: str,
        topic: str,
        name: str,
        members: Sequence[tuple[int, str]],
        take: Take,
        span: Span,
        begins: Mapping[Place, int],
    ) -> list[str]:
        """Read from the first member that gives everything; a slave only after its master."""
        problems = []
        for bid, addr in members:
            try:
                stats = await self._admin.topic_stats(addr, topic)
                limits = {
                    (place := Place(name, topic, queue.queue_id)): (
                        max(found.min_offset, begins.get(place, 0)),
                        found.max_offset,
                    )
                    for queue, found in stats.offset_table.items()
                }
                jobs = [
                    self._read_queue(
                        table, place, (bid, addr), found, take, span, is_begin=place in begins
                    )
                    for place, found in limits.items()
                ]
                # All of them end before another member is asked: two must not write one queue.
                for outcome in await asyncio.gather(*jobs, return_exceptions=True):
                    if outcome is not None:
                        raise outcome
            except (BrokerError, RemotingError, ProtocolError, _Stuck) as error:
                problems.append(f"{topic} of {name}/{bid}: {error}")
            else:
                return []
        return problems or [f"{topic} of {name}: no member is registered"]

    async def _read_queue(
        self,
        table: str,
        place: Place,
        member: tuple[int, str],
        limits: tuple[int, int],
        take: Take,
        span: Span,
        *,
        is_begin: bool,
    ) -> None:
        """Read what is not on disk; ``is_begin``: the lower limit is where it is to begin."""
        _, addr = member
        lowest, highest = limits
        async with self._slots:
            read_to = await asyncio.to_thread(self._pages.read_to, table, place)
            read_from = await asyncio.to_thread(self._pages.read_from, table, place)
            offset = max(lowest, read_to or 0)
            if read_to is None and span.since_ms is not None and lowest < highest:
                found = await self._admin.search_offset(addr, place.topic, place.qid, span.since_ms)
                offset = min(max(found, lowest), highest)
            if is_begin and read_from is not None and lowest < read_from:
                await self._read_stretch(table, place, member, (lowest, read_from), take, span)
            await self._read_stretch(table, place, member, (offset, highest), take, span)

    async def _read_stretch(
        self,
        table: str,
        place: Place,
        member: tuple[int, str],
        stretch: tuple[int, int],
        take: Take,
        span: Span,
    ) -> None:
        """Read offsets [first, end) of a queue."""
        bid, addr = member
        offset, end = stretch
        first, rows = offset, list[dict[str, Any]]()
        while offset < end:
            messages, following = await self._pull(addr, place, offset)
            ended = False
            for message in messages:
                if message.queue_offset >= end or span.ends_before(message.store_timestamp):
                    following, ended = message.queue_offset, True
                    break
                if not span.begins_after(message.store_timestamp):
                    rows += take(place, bid, message)
            self._progress(place.topic, len(messages))
            offset = min(following, end)
            if len(rows) >= PAGE_ROWS or offset >= end or ended:
                if offset > first:
                    await asyncio.to_thread(self._pages.write, table, place, first, offset, rows)
                first, rows = offset, []
            if ended:
                return

    async def _pull(self, addr: str, place: Place, offset: int) -> tuple[list[MessageExt], int]:
        """Messages at ``offset`` and behind, and the offset to go on at."""
        call = calls.pull_by_tools(place.topic, place.qid, offset, PULLED_AT_ONCE, decompress=False)
        pulled = await self._remoting.call(addr, call, self._timeout_ms)
        if pulled.messages:
            return pulled.messages, pulled.messages[-1].queue_offset + 1
        if pulled.next_offset <= offset:
            raise _Stuck(f"{place} gives nothing at offset {offset} (code {pulled.code})")
        return [], pulled.next_offset


async def trace_topics_of(admin: AdminClient, named: Sequence[str]) -> list[str]:
    """Trace topics to read: where the usual one is named, those of clients with CLOUD as well.

    Such a client writes to a topic of its region. The usual one is left out if only those exist.
    Source: AsyncTraceDispatcher, apache/rocketmq 4.9.8.
    """
    if TRACE_TOPIC not in named:
        return list(named)
    existing = await admin.topic_list()
    regions = sorted(topic for topic in existing if topic.startswith(REGION_TRACE_PREFIX))
    usual = [topic for topic in named if topic in existing or not regions or topic != TRACE_TOPIC]
    return usual + [topic for topic in regions if topic not in named]


async def topics_of_groups(admin: AdminClient, groups: Iterable[str]) -> dict[str, set[str]]:
    """Topics that each group has offsets of, on any broker that answers.

    ``groups`` are named as clients do: topics of all instances that have such a group are found.
    """
    wanted: dict[str, set[str]] = {group: set() for group in groups}
    info = await admin.cluster_info()
    for data in info.broker_addr_table.values():
        for _, addr in sorted(data.broker_addrs.items()):
            try:
                table = await admin.all_offsets(addr)
            except (BrokerError, RemotingError, ProtocolError):
                continue
            for entry in table:
                topic, group = split_offset_key(entry)
                named = without_instance(group)
                if named in wanted and not topic.startswith("%"):
                    wanted[named].add(topic)
            break
    return wanted


async def names_of_addresses(admin: AdminClient) -> dict[str, str]:
    """Broker names by the address of each registered member."""
    members = (await admin.cluster_info()).members()
    return {member.addr: member.broker_name for member in members}


def record_rows(place: Place, bid: int, message: MessageExt) -> list[dict[str, Any]]:
    """Rows of ``pages.RECORDS`` of one trace message."""
    del bid
    carrier: dict[str, Any] = {
        "broker": place.broker,
        "topic": place.topic,
        "qid": place.qid,
        "qoff": message.queue_offset,
        "host": message.born_host[0],
        "born_ms": message.born_timestamp,
        "store_ms": message.store_timestamp,
        "copy": 0,
        "unread_fields": 0,
    }
    try:
        body = message.body
        if message.sys_flag & COMPRESSED:
            body = inflate_body(body, message.sys_flag)
    except ProtocolError as error:
        problem = f"is in a body that can't be read: {error}"
        return [{**carrier, "kind": DAMAGED, "number": 0, "problem": problem}]
    decoded = records.decode_body(body)
    rows = [carrier | structs.asdict(record) for record in decoded.records]
    rows += [
        {**carrier, "kind": DAMAGED, "number": each.number, "problem": each.problem}
        for each in decoded.damaged
    ]
    if not rows:
        rows = [{**carrier, "kind": DAMAGED, "number": 0, "problem": "is in an empty body"}]
    return rows


def copy_rows(place: Place, bid: int, message: MessageExt) -> list[dict[str, Any]]:
    """The row of ``pages.COPIES`` of one message."""
    lane, lseq = parse_lab_id(message.properties.get(LAB_ID_PROPERTY)) or (None, None)
    return [
        {
            "broker": place.broker,
            "bid": bid,
            "ptopic": place.topic,
            "ltopic": message.properties.get(RETRY_TOPIC) or place.topic,
            "qid": place.qid,
            "qoff": message.queue_offset,
            "phy": message.physical_offset,
            "omid": bytes.fromhex(message.offset_msg_id),
            "message_id": message.msg_id,
            "ukey": message.properties.get(UNIQ_KEY),
            "keys": message.keys,
            "lane": lane,
            "lseq": lseq,
            "rt": message.reconsume_times,
            "born_ms": message.born_timestamp,
            "store_ms": message.store_timestamp,
            "crc": message.body_crc,
        }
    ]
