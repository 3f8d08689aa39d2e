"""Making and removing a canary's topic and groups on brokers and name servers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from failback.analytics.observe.canary.ledger import Names
from failback.client.admin.admin import AdminClient
from failback.protocol.errors import FailbackError
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig

QUEUES: Final = 4


async def is_there(admin: AdminClient, name_servers: Iterable[str], names: Names) -> bool:
    """Tell whether some name server knows the topic.

    Raises:
        BrokerError, RemotingError, ProtocolError: It can't be found out.
    """
    for address in name_servers:
        if names.topic in await admin.topics_at(address):
            return True
    return False


async def make_topic(admin: AdminClient, master: str, names: Names) -> None:
    """Make the topic at a master.

    Raises:
        BrokerError, RemotingError, ProtocolError: It refused, or did not answer.
    """
    await admin.create_topic(master, TopicConfig(names.topic, QUEUES, QUEUES))


async def make_groups(admin: AdminClient, master: str, names: Names) -> None:
    """Make both groups at a master.

    Raises:
        BrokerError, RemotingError, ProtocolError: It refused, or did not answer.
    """
    for group in names.groups:
        await admin.create_group(master, SubscriptionGroupConfig(group))


async def remove(
    admin: AdminClient,
    master: str,
    slaves: Iterable[str],
    name_servers: Iterable[str],
    names: Names,
) -> None:
    """Remove the topic and the groups, and what came of it.

    A slave copies topics and groups of its master, but never drops an offset. 4.9.7 lets nobody
    else remove it there; older slaves do.

    Args:
        name_servers: All: they do not pass on that a topic is gone.

    Raises:
        BrokerError, RemotingError, ProtocolError: Some of it may be left.
    """
    await _remove_at(admin, master, names)
    for address in slaves:
        with contextlib.suppress(FailbackError):
            await _remove_at(admin, address, names)
    for address in name_servers:
        listed = await admin.topics_at(address)
        for topic in names.topics:
            if topic in listed:
                await admin.delete_topic_in_namesrv(address, topic)


async def _remove_at(admin: AdminClient, broker: str, names: Names) -> None:
    for group in names.groups:
        await admin.delete_group(broker, group, remove_offset=True)
    for topic in names.topics:
        await admin.delete_topic(broker, topic)
