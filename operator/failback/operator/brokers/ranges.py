"""What a master holds, where its queues begin and end, which groups have members: for a restore."""

from __future__ import annotations

from collections.abc import Sequence

from failback.carry.restoring import QueueRange
from failback.client.admin.admin import AdminClient
from failback.client.admin.survey import connection_of
from failback.operator.brokers.questions import Questions
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.errors import BrokerError


class Ranges:
    """Asks masters what must be known before an offset is set."""

    def __init__(self, questions: Questions, admin: AdminClient) -> None:
        self._ask = questions.ask
        self._admin = admin

    async def offsets(self, address: str) -> dict[str, dict[int, int]] | None:
        """Return ``topic@group`` → queue → offset as it is now; ``None`` while unknown."""
        code = RequestCode.GET_ALL_CONSUMER_OFFSET
        return await self._ask(code, self._admin.all_offsets(address))

    async def of_topics(
        self, address: str, topics: Sequence[str]
    ) -> dict[tuple[str, int], QueueRange] | None:
        """Return topic and queue → range; a topic that the master lacks is missing.

        ``None`` while the master does not answer.
        """
        found: dict[tuple[str, int], QueueRange] = {}
        for topic in topics:
            one = await self._ask(RequestCode.GET_TOPIC_STATS_INFO, self._of_topic(address, topic))
            if one is None:
                return None
            found |= one
        return found

    async def _of_topic(self, address: str, topic: str) -> dict[tuple[str, int], QueueRange]:
        try:
            stats = await self._admin.topic_stats(address, topic)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return {}
            raise
        return {
            (topic, queue.queue_id): QueueRange(each.min_offset, each.max_offset)
            for queue, each in stats.offset_table.items()
        }

    async def online(self, address: str, groups: Sequence[str]) -> frozenset[str] | None:
        """Return those groups that have members at a master; ``None`` while it does not answer."""
        found = set()
        for group in groups:
            one = await self._ask(
                RequestCode.GET_CONSUMER_CONNECTION_LIST, self._has_members(address, group)
            )
            if one is None:
                return None
            if one:
                found.add(group)
        return frozenset(found)

    async def _has_members(self, address: str, group: str) -> bool:
        return bool((await connection_of(self._admin, address, group)).connection_set)
