"""What a master holds, where its queues begin and end, which groups have members: for a restore."""

from __future__ import annotations

from collections.abc import Sequence

from failback.carry.online import has_members, ranges_of
from failback.carry.restoring import QueueRange
from failback.client.admin.admin import AdminClient
from failback.operator.brokers.questions import Questions
from failback.protocol.codes import RequestCode


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
            one = await self._ask(
                RequestCode.GET_TOPIC_STATS_INFO, ranges_of(self._admin, address, topic)
            )
            if one is None:
                return None
            found |= one
        return found

    async def online(self, address: str, groups: Sequence[str]) -> frozenset[str] | None:
        """Return those groups that have members at a master; ``None`` while it does not answer."""
        found = set()
        for group in groups:
            code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
            one = await self._ask(code, has_members(self._admin, address, group))
            if one is None:
                return None
            if one:
                found.add(group)
        return frozenset(found)
