"""What ``resetOffset`` does on each broker, and what it says when that has no effect.

A group without members gets its offsets stored on the master. Members keep theirs in memory and
write them over what is stored, so they have to be told, which the broker does. It refuses that for
a group that lacks an offset of any queue: such a queue gets its new offset stored before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from failback.cli.administer.each_broker import (
    Asked,
    Row,
    Told,
    all_members_of,
    lost_topic,
    masters_of,
    of_each,
)
from failback.cli.shared.asking import END_OF_QUEUES, NotThere, route_of
from failback.client.admin.queue_offsets import Span
from failback.client.admin.survey import connection_of
from failback.common.text import did_you_mean
from failback.common.times import shown
from failback.protocol.body import MessageQueue
from failback.protocol.clients import ConsumerConnection
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import BrokerError, ConfigError, FailbackError, RemotingError

if TYPE_CHECKING:
    from failback.client.admin.admin import AdminClient
    from failback.protocol.clients import Connection
    from failback.protocol.route import BrokerData, TopicConfig

LONG_BEFORE_MS: Final = 7 * 24 * 3600 * 1000
"""A time that is so long before the first message is refused without --yes."""
_RESET_BY_BROKER: Final = 28
"""The version from which on clients take an offset from a broker."""
_OBEY: Final = frozenset({"JAVA", "CPP", "PYTHON"})
"""Languages whose clients are known to go where the broker sends them; ours say PYTHON."""
_NAMED: Final = 3
_YES: Final = "--yes takes it all the same"
_STORED: Final = "stored, no member is online"
_UNREAD: Final = "stored, no member reads this topic"
_TOLD: Final = "told its members"
_OVERWRITTEN: Final = "stored, its member writes over it"


class Goal(NamedTuple):
    """The time that the offsets of a group are set to."""

    group: str
    topic: str
    timestamp_ms: int
    """-1: the end of each queue."""
    yes: bool
    """Whether a time that can hardly be meant is taken."""

    @property
    def key(self) -> str:
        return f"{self.topic}@{self.group}"


class NotReset(FailbackError):
    """Members keep their offsets, so nothing was changed."""


async def reset_to_time(admin: AdminClient, goal: Goal) -> Told:
    """Set the offsets of a group to a time on every master of a topic.

    Raises:
        ConfigError: The time lies long before everything that is stored.
        NotThere: No name server knows the topic.
    """
    brokers = (await route_of(admin, goal.topic)).broker_datas
    masters = masters_of(brokers)
    online = await _online_anywhere(admin, brokers, goal)
    if not goal.yes:
        await _check_age(admin, goal, [each for each in masters if each.address in online.answered])
    told = await of_each(masters, lambda asked, told: _reset(admin, asked, goal, online, told))
    if told.rows and not online.members and not online.silent:
        told.remarks += await _unknown_before(admin, goal.group, masters)
    return told


class _Online(NamedTuple):
    """The members connected to any broker: they come back to a master that was restarted."""

    members: list[Connection]
    answered: set[str]
    silent: dict[str, FailbackError]
    """Addresses that did not answer; they are not asked twice."""


async def _online_anywhere(
    admin: AdminClient, brokers: Iterable[BrokerData], goal: Goal
) -> _Online:
    found: dict[str, Connection] = {}
    online = _Online([], set(), {})

    async def look(asked: Asked, _: Told) -> None:
        try:
            connection = await connection_of(admin, asked.address, goal.group)
        except RemotingError as error:
            online.silent[asked.address] = error
            return
        online.answered.add(asked.address)
        for each in readers(connection, goal.topic):
            found.setdefault(each.client_id, each)

    await of_each(all_members_of(brokers), look)
    online.members.extend(found[client_id] for client_id in sorted(found))
    return online


async def _reset(admin: AdminClient, asked: Asked, goal: Goal, online: _Online, told: Told) -> None:
    addr = asked.address
    if addr in online.silent:
        raise online.silent[addr]
    config = await _config_of(admin, addr, goal.topic)
    connection = await connection_of(admin, addr, goal.group)
    members = readers(connection, goal.topic)
    if not members:
        stored = _UNREAD if connection.connection_set else _STORED
        how = _OVERWRITTEN if online.members else stored
        await _store_all(admin, asked, goal, range(config.read_queue_nums), how, told)
        if online.members:
            what = f"members are online at other brokers: {named(online.members)}"
            told.miss(asked.name, f"{what}; they come back here and write over what is stored")
        return
    old = [each for each in members if each.version < _RESET_BY_BROKER]
    if old:
        problem = f"are online whose version takes no offset from a broker: {named(old)}"
        raise NotReset(f"members {problem}; nothing was changed: stop them, then reset")
    await _tell(admin, asked, goal, config, members, told)


async def _config_of(admin: AdminClient, addr: str, topic: str) -> TopicConfig:
    config = (await admin.all_topic_config(addr)).topic_config_table.get(topic)
    if config is None:
        raise lost_topic(topic)
    return config


def readers(connection: ConsumerConnection, topic: str) -> Sequence[Connection]:
    """Return the members that read a topic; all, where the broker names no subscription."""
    topics = connection.subscription_table
    return () if topics and topic not in topics else connection.connection_set


async def _target(admin: AdminClient, addr: str, goal: Goal, queue: int) -> int:
    if goal.timestamp_ms == END_OF_QUEUES:
        return await admin.max_offset(addr, goal.topic, queue)
    return max(0, await admin.search_offset(addr, goal.topic, queue, goal.timestamp_ms))


async def _store_all(
    admin: AdminClient, asked: Asked, goal: Goal, queues: Iterable[int], how: str, told: Told
) -> None:
    for queue in queues:
        offset = await _target(admin, asked.address, goal, queue)
        await admin.update_offset(asked.address, goal.group, goal.topic, queue, offset)
        told.rows.append(_row(asked.broker, queue, offset, how))


def _row(broker: str, queue: int, offset: int, how: str) -> Row:
    return {"broker": broker, "queue": queue, "offset": offset, "how": how}


async def _tell(
    admin: AdminClient,
    asked: Asked,
    goal: Goal,
    config: TopicConfig,
    members: Sequence[Connection],
    told: Told,
) -> None:
    """Have the broker notify the members, which it does for the queues that are written to."""
    addr, written = asked.address, range(config.write_queue_nums)
    held = (await admin.all_offsets(addr)).get(goal.key, {})
    for queue in written:
        if held.get(queue, -1) < 0:
            offset = await _target(admin, addr, goal, queue)
            await admin.update_offset(addr, goal.group, goal.topic, queue, offset)
    try:
        found = await admin.reset_offset(addr, goal.group, goal.topic, goal.timestamp_ms)
    except BrokerError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:  # they left meanwhile
            await _store_all(admin, asked, goal, range(config.read_queue_nums), _STORED, told)
            return
        why = error.remark.strip().partition("\n")[0] or f"code {error.code}"
        problem = f"members are online ({named(members)}) and the broker does not tell them: {why}"
        raise NotReset(
            f"{problem}; they write over what is stored: stop them, then reset"
        ) from error
    told.rows += [
        _row(asked.broker, queue.queue_id, offset, _TOLD)
        for queue, offset in sorted(_in_order(found).items())
    ]
    rest = range(config.write_queue_nums, config.read_queue_nums)
    if rest:
        await _store_all(admin, asked, goal, rest, _OVERWRITTEN, told)
        span = f"{rest[0]}" if len(rest) == 1 else f"{rest[0]} to {rest[-1]}"
        what = f"queue {span} is not written to, and the broker tells members nothing of it"
        told.miss(asked.name, f"{what}; they are online and write over what is stored")
    other = [each for each in members if each.language not in _OBEY]
    if other:
        what = f"members were told whose clients may not obey: {named(other)}"
        told.miss(asked.name, f"{what}; such a one is online and writes over what is stored")


def _in_order(found: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
    return {queue: offset for queue, offset in found.items() if queue.queue_id >= 0}


def named(members: Sequence[Connection]) -> str:
    """Return the members as text: the first few by name, the rest as a number."""
    words = [f"{each.client_id} {each.language}" for each in members[:_NAMED]]
    more = len(members) - len(words)
    return ", ".join([*words, *([f"{more} more"] if more > 0 else [])])


async def _check_age(admin: AdminClient, goal: Goal, masters: Sequence[Asked]) -> None:
    """Refuse a time that lies long before the first message of all queues."""
    if not 0 <= goal.timestamp_ms < time.time() * 1000 - LONG_BEFORE_MS:
        return
    told = await of_each(masters, lambda asked, told: _first_stored(admin, asked, goal, told))
    first = min((row["stored"] for row in told.rows), default=None)
    if first is None or first - goal.timestamp_ms < LONG_BEFORE_MS:
        return
    problem = f"{shown(goal.timestamp_ms)} is long before the first message that is stored"
    all_ = f"{shown(first)}; the group would get all of them again"
    raise ConfigError("--time", f"{problem}, of {all_}; {_YES}")


async def _first_stored(admin: AdminClient, asked: Asked, goal: Goal, told: Told) -> None:
    config = await _config_of(admin, asked.address, goal.topic)
    for queue in range(config.read_queue_nums):
        stored = await admin.earliest_store_time(asked.address, goal.topic, queue)
        if stored > 0:
            told.rows.append({"stored": stored})


# --- one queue ------------------------------------------------------------------------------------


class OneQueue(NamedTuple):
    """One offset that is to be stored."""

    group: str
    topic: str
    broker: str
    """Its name; empty: the only one that has the queue."""
    queue: int
    offset: int
    yes: bool
    """Whether an offset outside of the queue is stored."""


async def store_one(admin: AdminClient, wanted: OneQueue) -> Told:
    """Store one offset on the master that has the queue.

    Raises:
        ConfigError: Several masters or none have the queue, or it does not hold the offset.
        NotThere: The master lost the topic.
    """
    asked = await _master_with(admin, wanted)
    if not wanted.yes:
        await _check_range(admin, asked, wanted)
    addr = asked.address
    members = readers(await connection_of(admin, addr, wanted.group), wanted.topic)
    await admin.update_offset(addr, wanted.group, wanted.topic, wanted.queue, wanted.offset)
    told = Told()
    how = _OVERWRITTEN if members else "stored"
    told.rows.append(_row(asked.broker, wanted.queue, wanted.offset, how))
    if members:
        what = f"members are online: {named(members)}; the one that has the queue"
        told.miss(asked.name, f"{what} writes its own offset over what is stored")
    return told


async def _master_with(admin: AdminClient, wanted: OneQueue) -> Asked:
    route = await route_of(admin, wanted.topic)
    counts = {data.broker_name: data.read_queue_nums for data in route.queue_datas}
    masters = {
        each.broker: each
        for each in masters_of(route.broker_datas)
        if each.address and wanted.queue < counts.get(each.broker, 0)
    }
    chosen = sorted(name for name in masters if wanted.broker in ("", name))
    if len(chosen) != 1:
        what = f"masters with queue {wanted.queue} of {wanted.topic}"
        some = ", ".join(sorted(masters))
        if not some:
            most = max(counts.values(), default=0)
            problem = f"there is no queue {wanted.queue} of {wanted.topic} on a master"
            raise ConfigError("--queue", f"{problem}; it has 0 to {most - 1}")
        none = f'"{wanted.broker}" is none of the ' if wanted.broker else ""
        raise ConfigError("--broker", f"{none}{what}: {some}; name one")
    return masters[chosen[0]]


async def _check_range(admin: AdminClient, asked: Asked, wanted: OneQueue) -> None:
    """Refuse an offset that the queue neither has nor gets next."""
    try:
        stats = await admin.topic_stats(asked.address, wanted.topic)
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        raise NotThere(f"{asked.name}: {lost_topic(wanted.topic)}") from error
    found = {queue.queue_id: at for queue, at in stats.offset_table.items()}.get(wanted.queue)
    if found is None:
        problem = f"{asked.name} has no queue {wanted.queue} of {wanted.topic}"
        raise ConfigError("--queue", f"{problem}, though the name server lists it there")
    why = Span(found.min_offset, found.max_offset).outside(wanted.offset)
    if why:
        where = f"of queue {wanted.queue} of {wanted.topic} on {asked.broker}"
        raise ConfigError("--offset", f"{why} {where}; {_YES}")


async def _unknown_before(admin: AdminClient, group: str, masters: Sequence[Asked]) -> list[str]:
    """Return a line about a group that no broker has settings of, with the nearest name."""
    names: set[str] = set()

    async def look(asked: Asked, _: Told) -> None:
        names.update((await admin.all_groups(asked.address)).subscription_group_table)

    told = await of_each(masters, look)
    if told.problems or group in names:
        return []
    return [f'note: no broker has settings of group "{group}"{did_you_mean(group, names)}']
