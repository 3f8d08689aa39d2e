"""The offsets of a group on each queue: what ``consumerProgress`` asks and prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from failback.cli.administer.each_broker import Asked, Row, Told, lost_topic, members_of, of_each
from failback.cli.administer.resetting import named
from failback.cli.shared.asking import NotThere
from failback.client.admin.queue_offsets import Span
from failback.client.admin.survey import connection_of
from failback.common.text import did_you_mean
from failback.protocol.body import MessageQueue
from failback.protocol.errors import BrokerError
from failback.protocol.names import is_reserved_group
from failback.protocol.route import split_offset_key

if TYPE_CHECKING:
    from failback.client.admin.admin import AdminClient
    from failback.protocol.clients import Connection
    from failback.protocol.stats import OffsetWrapper, TopicOffset

HEADERS: Final = (
    "TOPIC", "BROKER", "QUEUE", "BROKER OFFSET", "CONSUMER OFFSET", "LAG", "ANSWERED BY",
    "FIRST OFFSET", "NOTE",
)  # fmt: skip
GROUP_HEADERS: Final = ("GROUP", "MEMBERS", "TOPICS", "QUEUES", "LAG", "BROKERS", "CLUSTER")
BROADCASTING: Final = "BROADCASTING"
BROADCASTS: Final = "the group broadcasts: its members keep their own offsets"


class Held(NamedTuple):
    """What one broker has, of all groups."""

    settings: frozenset[str]
    offsets: Mapping[str, Mapping[int, int]] | None
    """``None``: it does not tell them all."""

    @property
    def with_offsets(self) -> set[str]:
        return {split_offset_key(key)[1] for key in self.offsets or ()}


@dataclass(slots=True)
class GroupSeen:
    """What all brokers together know of a group."""

    group: str
    told: Told = field(default_factory=Told)
    members: dict[str, Connection] = field(default_factory=dict)
    settings: set[str] = field(default_factory=set)
    """Groups that any broker has settings of."""
    with_offsets: set[str] = field(default_factory=set)
    """Groups that any broker has offsets of."""

    @property
    def remark(self) -> str:
        """What is odd about a group that has offsets; empty for a usual one."""
        if self.members or self.group in self.settings or self.told.problems:
            return ""
        return f'group "{self.group}" is known only by its offsets: no broker has settings of it'

    def missing(self, topic: str | None) -> NotThere:
        """Return the error of a group without offsets."""
        of_topic = f" of topic {topic}" if topic else ""
        where = "the brokers that answered" if self.told.problems else "any broker"
        what = f'group "{self.group}" has no offsets{of_topic} on {where}'
        if self.members:
            return NotThere(f"{what}; members are online: {named(list(self.members.values()))}")
        if self.group in self.settings:
            return NotThere(f"{what}; brokers have settings of it, and no member is online")
        if self.group in self.with_offsets:
            return NotThere(f"{what}; it has offsets of other topics")
        return NotThere(f"{what}{did_you_mean(self.group, self.settings | self.with_offsets)}")


async def progress_of(admin: AdminClient, group: str, topic: str | None) -> GroupSeen:
    """Ask the master of each pair, or the slave with the least id while it has none."""
    brokers = members_of((await admin.cluster_info()).broker_addr_table.values())
    return await _progress_at(admin, brokers, GroupSeen(group), topic, {})


async def _progress_at(
    admin: AdminClient,
    brokers: Sequence[Asked],
    seen: GroupSeen,
    topic: str | None,
    held: Mapping[Asked, Held],
) -> GroupSeen:
    async def look(asked: Asked, told: Told) -> None:
        await _of_broker(admin, asked, seen, topic, told, held)

    seen.told = await of_each(brokers, look)
    await _say_who_lost_topics(admin, seen.told)
    if seen.told.rows and seen.remark:
        seen.told.remarks.append(seen.remark)
    return seen


async def progress_of_all(admin: AdminClient) -> Told:
    """Ask for every group that has settings or offsets anywhere, without the brokers' own.

    A group of two clusters has a row for each. Members and lag are ``None`` where a broker gave no
    answer, or a queue has no known lag. A broker is asked for its tables once.
    """
    pairs = (await admin.cluster_info()).broker_addr_table
    held: dict[Asked, Held] = {}

    async def look(asked: Asked, _: Told) -> None:
        held[asked] = await _held_by(admin, asked.address)

    whole = await of_each(members_of(pairs.values()), look)
    for cluster in sorted({pair.cluster for pair in pairs.values()}):
        brokers = members_of(each for each in pairs.values() if each.cluster == cluster)
        known = (held[each] for each in brokers if each in held)
        groups = {group for each in known for group in each.settings | each.with_offsets}
        for group in sorted(each for each in groups if not is_reserved_group(each)):
            seen = await _progress_at(admin, brokers, GroupSeen(group), None, held)
            told, lags = seen.told, [row["lag"] for row in seen.told.rows]
            whole.rows.append(
                {
                    "group": group,
                    "members": None if told.problems else len(seen.members),
                    "topics": len({row["topic"] for row in told.rows}),
                    "queues": len(lags),
                    "lag": None if told.problems or None in lags or not lags else sum(lags),
                    "brokers": ", ".join(sorted({row["broker"] for row in told.rows})),
                    "cluster": cluster,
                }
            )
            whole.problems += [line for line in told.problems if line not in whole.problems]
            whole.codes += told.codes
    return whole


async def _held_by(admin: AdminClient, address: str) -> Held:
    settings = frozenset((await admin.all_groups(address)).subscription_group_table)
    try:
        return Held(settings, await admin.all_offsets(address))
    except BrokerError:
        return Held(settings, None)


async def _say_who_lost_topics(admin: AdminClient, told: Told) -> None:
    """Add a line about each broker of a topic's route that has no such topic any more."""
    shown = {(row["topic"], row["broker"]) for row in told.rows}
    for topic in sorted({topic for topic, _ in shown}):
        try:
            brokers = (await admin.route(topic)).broker_datas
        except BrokerError:  # a topic of one broker's own, or deleted everywhere but in offsets
            continue
        others = [
            each
            for each in members_of(brokers)
            if (topic, each.broker) not in shown
            and not any(line.startswith(f"{each.name}: ") for line in told.problems)
        ]

        async def look(asked: Asked, _: Told, topic: str = topic) -> None:
            try:
                await admin.topic_stats(asked.address, topic)
            except BrokerError as error:
                raise lost_topic(topic) from error

        missing = await of_each(others, look)
        told.problems += [line for line in missing.problems if line not in told.problems]
        told.codes += missing.codes


async def _of_broker(
    admin: AdminClient,
    asked: Asked,
    seen: GroupSeen,
    topic: str | None,
    told: Told,
    held: Mapping[Asked, Held],
) -> None:
    group, addr = seen.group, asked.address
    connection = await connection_of(admin, addr, group)
    stats = (await admin.consume_stats(addr, group, topic)).offset_table
    seen.members.update({each.client_id: each for each in connection.connection_set})
    has = held.get(asked) or await _held_by(admin, addr)
    seen.settings |= has.settings
    seen.with_offsets |= has.with_offsets
    table = has.offsets
    is_broadcasting = connection.message_model == BROADCASTING
    ranges: dict[tuple[str, int], TopicOffset] = {}
    for name in sorted({queue.topic for queue in stats}):
        try:
            found = (await admin.topic_stats(addr, name)).offset_table
        except BrokerError:  # deleted meanwhile
            continue
        ranges |= {(name, each.queue_id): span for each, span in found.items()}
    for queue, offsets in sorted(stats.items()):
        stored = None if table is None else table.get(f"{queue.topic}@{group}", {})
        if table is not None and not stored and not is_broadcasting:
            continue  # it never stored an offset of this topic here
        told.rows.append(
            _row(
                asked,
                queue,
                offsets,
                ranges.get((queue.topic, queue.queue_id)),
                stored,
                is_broadcasting,
            )
        )


def _row(
    asked: Asked,
    queue: MessageQueue,
    offsets: OffsetWrapper,
    span: TopicOffset | None,
    stored: Mapping[int, int] | None,
    is_broadcasting: bool,
) -> Row:
    end, offset = offsets.broker_offset, offsets.consumer_offset
    first = None if span is None else span.min_offset
    has = Span(first or 0, end)
    lag: int | None = has.lag(offset)
    note = has.outside(offset)
    if is_broadcasting:
        lag, note = None, BROADCASTS
    elif stored is not None and queue.queue_id not in stored:
        note = "no offset is stored"
    elif has.expired(offset):
        note = f"{note}: they have expired"
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "brokerOffset": end,
        "consumerOffset": offset,
        "lag": lag,
        "answeredBy": asked.said_by,
        "firstOffset": first,
        "note": note,
    }
