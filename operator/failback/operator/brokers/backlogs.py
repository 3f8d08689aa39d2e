"""What consumers have yet to read of a master: asked only while a pair or a topic shrinks."""

from __future__ import annotations

from collections.abc import Iterable

from failback.client.admin.admin import AdminClient
from failback.operator.brokers.questions import Questions
from failback.operator.planning.observed.observed import NOBODY, PairLag
from failback.operator.planning.state.other_pairs import is_broker_made
from failback.protocol.codes import RequestCode
from failback.protocol.route import split_offset_key


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
            RequestCode.GET_ALL_CONSUMER_OFFSET, self._admin.all_offsets(address)
        )
        runtime = await self._ask(
            RequestCode.GET_BROKER_RUNTIME_INFO, self._admin.runtime_info(address)
        )
        if offsets is None or runtime is None or topics is None:
            return None
        lags: dict[str, int] = {}
        read = {split_offset_key(key)[0] for key in offsets}
        groups = {split_offset_key(key)[1] for key in offsets}
        for topic in sorted(set(topics) - read):
            if not is_broker_made(topic):
                held = await self._held(address, topic)
                if held is None:
                    return None
                lags[f"{NOBODY}@{topic}"] = held
        for group in sorted(groups):
            stats = await self._consume_stats(address, group)
            if stats is None:
                return None
            for (topic, _), lag in stats.items():
                name = f"{group}@{topic}"
                lags[name] = lags.get(name, 0) + max(0, lag)
        for key, text in runtime.items():
            if key.startswith("scheduleMessageOffset_"):
                done, _, end = text.partition(",")
                if done.isdigit() and end.isdigit() and int(done) < int(end):
                    lags[f"delayed@{key.removeprefix('scheduleMessageOffset_')}"] = int(end) - int(
                        done
                    )
        left = sorted((item for item in lags.items() if item[1]), key=lambda item: -item[1])
        return PairLag(dict(left), frozenset(groups))

    async def of_topic(self, address: str, topic: str) -> dict[int, int] | None:
        """Return read queue → messages that the slowest group of a topic has yet to consume."""
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        groups = await self._ask(code, self._admin.groups_of_topic(address, topic))
        if groups is None:
            return None
        found: dict[int, int] = {}
        for group in groups:
            stats = await self._consume_stats(address, group, topic)
            if stats is None:
                return None
            for (name, queue), lag in stats.items():
                if name == topic:
                    found[queue] = max(found.get(queue, 0), lag)
        return found

    async def _held(self, address: str, topic: str) -> int | None:
        """Return how many messages of a topic a master still has."""
        code = RequestCode.GET_TOPIC_STATS_INFO
        stats = await self._ask(code, self._admin.topic_stats(address, topic))
        if stats is None:
            return None
        return sum(each.max_offset - each.min_offset for each in stats.offset_table.values())

    async def _consume_stats(
        self, address: str, group: str, topic: str | None = None
    ) -> dict[tuple[str, int], int] | None:
        code = RequestCode.GET_CONSUME_STATS
        stats = await self._ask(code, self._admin.consume_stats(address, group, topic))
        if stats is None:
            return None
        return {
            (queue.topic, queue.queue_id): item.broker_offset - item.consumer_offset
            for queue, item in stats.offset_table.items()
        }
