"""What an instance needs of a consumer group registered on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from failback.protocol.route import ConsumerData, MessageQueue
from failback.protocol.stats import ConsumerRunningInfo


class ConsumerMember(Protocol):
    """One group on one instance."""

    def subscribed_topics(self) -> Iterable[str]:
        """Topics whose routes are polled, ``%RETRY%group`` among them."""

    def is_subscribe_info_needed(self, topic: str) -> bool:
        """Tell whether a route answer is news even if the cached route equals it."""

    def update_subscribe_info(self, topic: str, queues: frozenset[MessageQueue]) -> None:
        """Take over the queues of a topic from a new route."""

    def heartbeat_data(self) -> ConsumerData:
        """Describe the group to brokers."""

    async def persist_offsets(self) -> None:
        """Commit what is in memory for every held queue (the 5 s tick)."""

    async def rebalance(self, trigger: str) -> None:
        """Take and give up queues of every subscribed topic."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Move queues of ``topic`` to given offsets (request 220)."""

    def memory_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets in memory (request 221)."""

    def running_info(self) -> ConsumerRunningInfo:
        """What is held and where it stands (request 307)."""
