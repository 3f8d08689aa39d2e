"""What consumers have yet to read of a master: asked only while a pair or a topic shrinks."""

from __future__ import annotations

from failback.client.admin.admin import AdminClient
from failback.operator.brokers.questions import Questions
from failback.operator.planning.observed.observed import PairLag
from failback.protocol.codes import RequestCode
from failback.protocol.route import split_offset_key


class Backlogs:
    """Asks masters what is not consumed yet."""

    def __init__(self, questions: Questions, admin: AdminClient) -> None:
        self._ask = questions.ask
        self._admin = admin

    async def of_pair(self, address: str) -> PairLag | None:
        """Return what is not consumed yet of a master's messages; ``None`` while unknown."""
        offsets = await self._ask(
            RequestCode.GET_ALL_CONSUMER_OFFSET, self._admin.all_offsets(address)
        )
        runtime = await self._ask(
            RequestCode.GET_BROKER_RUNTIME_INFO, self._admin.runtime_info(address)
        )
        if offsets is None or runtime is None:
            return None
        lags: dict[str, int] = {}
        for group in sorted({split_offset_key(key)[1] for key in offsets}):
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
        return PairLag(not left, tuple(f"{name}: {lag}" for name, lag in left))

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
