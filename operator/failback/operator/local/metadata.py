"""Topic and SubscriptionGroup resources: written to masters and read back; slaves copy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.operator.kinds.subscription_group import SubscriptionGroup
from failback.operator.kinds.topic import Topic
from failback.operator.planning.metadata.group import group_config
from failback.operator.planning.metadata.topic import topic_config
from failback.protocol.errors import BrokerError, ConfigError, FailbackError
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig

_TRIES: Final = 20
_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class PairAddresses:
    """Addresses of the members of one pair."""

    name: str
    master: str
    slaves: tuple[str, ...]


def refuse_unsupported_metadata(items: Sequence[object]) -> None:
    """Raise :class:`ConfigError` for what can't be created here."""
    for item in items:
        if isinstance(item, Topic) and item.spec.order:
            problem = "true is not supported by the local runtime"
            raise ConfigError(f"local: {item.label}: spec.order", problem)
        if isinstance(item, (Topic, SubscriptionGroup)) and item.spec.attributes:
            problem = "is for engine apache 5.x only"
            raise ConfigError(f"local: {item.label}: spec.attributes", problem)


async def create_metadata(
    topics: Sequence[Topic],
    groups: Sequence[SubscriptionGroup],
    pairs: Callable[[str], Sequence[PairAddresses]],
    access: Callable[[str], ClusterAccess | None],
) -> None:
    """Create what the resources ask for, on the master of every pair they name.

    Args:
        pairs: Cluster resource name → its pairs.
        access: Cluster resource name → how its brokers are asked.

    Raises:
        FailbackError: A master did not take it within the tries.
    """
    clusters = [each.spec.cluster_ref.name for each in topics]
    clusters += [each.spec.cluster_ref.name for each in groups]
    for name in dict.fromkeys(clusters):
        async with AdminClient(settings=RemotingSettings(access=access(name))) as admin:
            for pair in pairs(name):
                for topic in topics:
                    wanted = topic.spec.pairs if topic.spec.cluster_ref.name == name else ()
                    if "*" in wanted or pair.name in wanted:
                        await _retried(partial(_put_topic, admin, pair.master, topic))
                for group in groups:
                    if group.spec.cluster_ref.name == name:
                        await _retried(partial(_put_group, admin, pair.master, group))


async def _retried(put: Callable[[], Awaitable[None]]) -> None:
    """Call ``put`` until it succeeds: a broker may take a moment after its port opened."""
    for attempt in range(_TRIES):
        try:
            await put()
            return
        except FailbackError:
            if attempt == _TRIES - 1:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)


async def _put_topic(admin: AdminClient, address: str, topic: Topic) -> None:
    wanted = msgspec.convert(topic_config(topic), TopicConfig)
    await admin.create_topic(address, wanted)
    found = (await admin.all_topic_config(address)).topic_config_table.get(topic.topic_name)
    if found is None or found.read_queue_nums != wanted.read_queue_nums:
        raise BrokerError(0, f"topic {topic.topic_name} is not there after its creation", address)


async def _put_group(admin: AdminClient, address: str, group: SubscriptionGroup) -> None:
    wanted = msgspec.convert(group_config(group), SubscriptionGroupConfig)
    await admin.create_group(address, wanted)
    found = (await admin.all_groups(address)).subscription_group_table.get(group.group_name)
    if found is None:
        raise BrokerError(0, f"group {group.group_name} is not there after its creation", address)
