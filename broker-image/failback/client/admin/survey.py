"""Asks a broker for everything that a live view needs, and says what has no answer.

Exporter, dashboard, observer and ``explain-offset`` ask through a :class:`BrokerSurvey`; each has
its own pace and order. A question has the answer ``None`` where the broker refuses it, does not
answer in time, or answers what cannot be read. The reason goes to ``failed``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

from failback.client.admin.admin import AdminClient
from failback.client.admin.queue_offsets import Span
from failback.protocol import calls
from failback.protocol.body import MessageQueue
from failback.protocol.clients import ConsumerConnection
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import FailbackError
from failback.protocol.stats import TopicOffset

MOST_MEMBERS = 64
"""Members of a group that :func:`client_memory` asks at most."""
MOST_SILENCES: Final = 3
SILENT_SECONDS: Final = 60.0
Value = TypeVar("Value")


class Silences:
    """Which members are asked: one that was silent three times in a row, once a minute.

    Clients such as ali-ons never answer 307, and a broker waits 10 s for each. Times are seconds.
    """

    def __init__(self) -> None:
        self._silent: dict[Hashable, tuple[int, float]] = {}
        """Member to how often it was silent, and the last time."""

    def may_ask(self, member: Hashable, now: float) -> bool:
        times, last = self._silent.get(member, (0, now))
        return times < MOST_SILENCES or now - last >= SILENT_SECONDS

    def was_silent(self, member: Hashable) -> bool:
        return member in self._silent

    def silent(self, member: Hashable, now: float) -> None:
        self._silent[member] = (self._silent.get(member, (0, now))[0] + 1, now)

    def answered(self, member: Hashable) -> None:
        self._silent.pop(member, None)


class TopicQueues(NamedTuple):
    """The queues of topics, as a broker answered them."""

    tables: Mapping[str, Mapping[MessageQueue, TopicOffset]]
    """Topic to its queues; topics without an answer are missing."""

    @property
    def spans(self) -> dict[str, dict[int, Span]]:
        """Topic and queue id to the first offset and the end, of topics that have queues."""
        return {
            topic: {
                queue.queue_id: Span(at.min_offset, at.max_offset) for queue, at in them.items()
            }
            for topic, them in self.tables.items()
            if them
        }

    @property
    def ends(self) -> dict[str, dict[int, int]]:
        """Topic and queue id to the offset of the next message."""
        return {
            topic: {queue: span.end for queue, span in them.items()}
            for topic, them in self.spans.items()
        }

    @property
    def begins(self) -> dict[str, dict[int, int]]:
        """Topic and queue id to the first offset."""
        return {
            topic: {queue: span.first for queue, span in them.items()}
            for topic, them in self.spans.items()
        }


class BrokerSurvey:
    """Asks one broker."""

    def __init__(
        self,
        admin: AdminClient,
        address: str,
        *,
        turn: asyncio.Semaphore | None = None,
        failed: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """Make a survey; nothing is asked yet.

        Args:
            admin: Asks, and limits the time.
            address: Of the broker.
            turn: Limits the questions under way, of all surveys that share it. Without it there is
                one at a time.
            failed: Takes the error of each question without an answer.
        """
        self.admin = admin
        self.address = address
        self._turn = turn or asyncio.Semaphore(1)
        self._failed = failed

    async def ask(self, question: Callable[[], Awaitable[Value]]) -> Value | None:
        """Ask when there is room for a question; return ``None`` without an answer."""
        async with self._turn:
            try:
                return await question()
            except (FailbackError, OSError) as error:
                self._failed(error)
                return None

    async def runtime(self) -> dict[str, str] | None:
        return await self.ask(lambda: self.admin.runtime_info(self.address))

    async def config(self) -> dict[str, str] | None:
        return await self.ask(lambda: self.admin.broker_config(self.address))

    async def offsets(self) -> Mapping[str, Mapping[int, int]] | None:
        """Return the table of consumer offsets: ``topic@group`` to queue id to an offset."""
        return await self.ask(lambda: self.admin.all_offsets(self.address))

    async def topics(self) -> frozenset[str] | None:
        """Return the names of the broker's topics."""
        found = await self.ask(lambda: self.admin.all_topic_config(self.address))
        return None if found is None else frozenset(found.topic_config_table)

    async def groups(self) -> frozenset[str] | None:
        """Return the names of the groups that the broker has settings of."""
        found = await self.ask(lambda: self.admin.all_groups(self.address))
        return None if found is None else frozenset(found.subscription_group_table)

    async def producers(self) -> dict[str, int] | None:
        """Return how many producers each producer group has."""
        found = await self.ask(lambda: self.admin.producers(self.address))
        return None if found is None else {group: len(them) for group, them in found.data.items()}

    async def queues(self, topics: Iterable[str]) -> TopicQueues:
        """Return the queues of those topics that have an answer, in their order."""
        wanted = list(topics)
        asked = (self.ask(partial(self.admin.topic_stats, self.address, topic)) for topic in wanted)
        found = await asyncio.gather(*asked)
        return TopicQueues(
            {
                topic: stats.offset_table
                for topic, stats in zip(wanted, found, strict=True)
                if stats is not None
            }
        )

    async def connections(self, groups: Iterable[str]) -> dict[str, ConsumerConnection | None]:
        """Return the members of groups; ``None`` for a group that has none.

        A group without an answer is missing.
        """
        wanted = list(groups)
        asked = (
            self.ask(partial(connection_of, self.admin, self.address, group)) for group in wanted
        )
        found = await asyncio.gather(*asked)
        return {
            group: answer if answer.connection_set else None
            for group, answer in zip(wanted, found, strict=True)
            if answer is not None
        }


async def connection_of(admin: AdminClient, addr: str, group: str) -> ConsumerConnection:
    """Return the members of a group that are connected to a broker; none is no error."""
    none = ResponseCode.CONSUMER_NOT_ONLINE, ConsumerConnection()
    return await admin.call(addr, calls.consumer_connection(group).otherwise(*none))


async def client_memory(
    admin: AdminClient, addr: str, group: str
) -> dict[tuple[str, str, int], tuple[int, str]]:
    """Return the positions of a group's members: (broker, topic, queue id) to (offset, client id).

    Asked through the broker at ``addr`` (307); members that do not answer are left out.
    """
    survey = BrokerSurvey(admin, addr)
    members = (await survey.connections([group])).get(group)
    found: dict[tuple[str, str, int], tuple[int, str]] = {}
    clients = [] if members is None else [each.client_id for each in members.connection_set]
    for client_id in sorted(clients)[:MOST_MEMBERS]:
        held = await survey.ask(partial(admin.held_queues, addr, group, client_id))
        for queue, state in (held or {}).items():
            place = (queue.broker_name, queue.topic, queue.queue_id)
            found[place] = (state.commit_offset, client_id)
    return found
