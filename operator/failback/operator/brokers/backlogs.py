"""What consumers have yet to read of a master: asked only while a pair or a topic shrinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from failback.client.admin.admin import AdminClient
from failback.client.admin.queue_offsets import Span
from failback.client.admin.survey import connection_of
from failback.operator.brokers.questions import Questions
from failback.operator.planning.observed.observed import NO_GROUP, PairLag
from failback.operator.planning.state.predicates import is_broker_made
from failback.protocol.codes import RequestCode
from failback.protocol.names import is_reserved_group
from failback.protocol.route import split_offset_key
from failback.protocol.stats import TopicOffset

_BROADCASTING: Final = "BROADCASTING"
_DELAYED: Final = "scheduleMessageOffset_"
Waiting = dict[tuple[str, int], int]
"""(topic, queue) to messages that are stored and not consumed, where there are."""


class Backlogs:
    """Asks masters what is not consumed yet."""

    def __init__(self, questions: Questions, admin: AdminClient) -> None:
        self._ask = questions.ask
        self._admin = admin

    async def of_pair(self, address: str, topics: Iterable[str] | None) -> PairLag | None:
        """Return what is not consumed yet of a master's messages; ``None`` while unknown.

        Args:
            topics: Those that the master has; ``None`` while that is not known.
        """
        offsets = await self._ask(
            RequestCode.GET_ALL_CONSUMER_OFFSET, address, self._admin.all_offsets(address)
        )
        runtime = await self._ask(
            RequestCode.GET_BROKER_RUNTIME_INFO, address, self._admin.runtime_info(address)
        )
        settings = await self._settings(address)
        if offsets is None or runtime is None or settings is None or topics is None:
            return None
        lags: dict[str, int] = {}
        read = {split_offset_key(key)[0] for key in offsets}
        groups = {split_offset_key(key)[1] for key in offsets}
        for topic in sorted(set(topics) - read):
            if not is_broker_made(topic):
                spans = await self._spans(address, topic)
                if spans is None:
                    return None
                lags[f"{NO_GROUP}@{topic}"] = sum(each.end - each.first for each in spans.values())
        for group in sorted(groups):
            waiting = await self._waiting(address, group, settings)
            if waiting is None:
                return None
            for (topic, _), lag in waiting.items():
                name = f"{group}@{topic}"
                lags[name] = lags.get(name, 0) + lag
        lags |= _delayed(runtime)
        left = sorted((item for item in lags.items() if item[1]), key=lambda item: -item[1])
        return PairLag(dict(left), frozenset(groups))

    async def of_topic(self, address: str, topic: str) -> dict[int, int] | None:
        """Return read queue → messages that the slowest group of a topic has yet to consume."""
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        groups = await self._ask(code, address, self._admin.groups_of_topic(address, topic))
        settings = await self._settings(address)
        if groups is None or settings is None:
            return None
        found: dict[int, int] = {}
        for group in groups:
            waiting = await self._waiting(address, group, settings, topic)
            if waiting is None:
                return None
            for (name, queue), lag in waiting.items():
                if name == topic:
                    found[queue] = max(found.get(queue, 0), lag)
        return found

    async def _settings(self, address: str) -> frozenset[str] | None:
        """Return the groups that a master has settings of."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        found = await self._ask(code, address, self._admin.all_groups(address))
        return None if found is None else frozenset(found.subscription_group_table)

    async def _waiting(
        self, address: str, group: str, settings: frozenset[str], topic: str | None = None
    ) -> Waiting | None:
        """Return what a group has yet to consume; ``None`` while unknown.

        Nothing of one whose offsets do not stand for that: its members broadcast and keep their
        own, or it was deleted, and its offsets were left.
        """
        code = RequestCode.GET_CONSUME_STATS
        stats = await self._ask(code, address, self._admin.consume_stats(address, group, topic))
        if stats is None:
            return None
        behind = {
            (queue.topic, queue.queue_id): item.consumer_offset
            for queue, item in stats.offset_table.items()
            if item.consumer_offset < item.broker_offset
        }
        if not behind:
            return {}
        stands = await self._stands(address, group, settings)
        if stands is None:
            return None
        return await self._stored(address, behind) if stands else {}

    async def _stands(self, address: str, group: str, settings: frozenset[str]) -> bool | None:
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        found = await self._ask(code, address, connection_of(self._admin, address, group))
        if found is None:
            return None
        if found.connection_set:
            return found.message_model != _BROADCASTING
        return group in settings or is_reserved_group(group)

    async def _stored(self, address: str, behind: Mapping[tuple[str, int], int]) -> Waiting | None:
        """Return how many messages behind those offsets a master still has."""
        found: Waiting = {}
        for topic in sorted({topic for topic, _ in behind}):
            spans = await self._spans(address, topic)
            if spans is None:
                return None
            for queue, span in spans.items():
                offset = behind.get((topic, queue))
                lag = 0 if offset is None else span.lag(offset)
                if lag:
                    found[topic, queue] = lag
        return found

    async def _spans(self, address: str, topic: str) -> dict[int, Span] | None:
        code = RequestCode.GET_TOPIC_STATS_INFO
        stats = await self._ask(code, address, self._admin.topic_stats(address, topic))
        if stats is None:
            return None
        return {queue.queue_id: _span(each) for queue, each in stats.offset_table.items()}


def _span(offsets: TopicOffset) -> Span:
    return Span(offsets.min_offset, offsets.max_offset)


def _delayed(runtime: Mapping[str, str]) -> dict[str, int]:
    """Return ``delayed@level`` → messages that wait for their time."""
    found = {}
    for key, text in runtime.items():
        done, _, end = text.partition(",")
        if key.startswith(_DELAYED) and done.isdecimal() and end.isdecimal():
            found[f"delayed@{key.removeprefix(_DELAYED)}"] = max(0, int(end) - int(done))
    return found
