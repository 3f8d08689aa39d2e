"""Questions that more than one tool asks all members of a group or of a pair."""

from __future__ import annotations

from failback.client.admin.admin import AdminClient
from failback.protocol.clients import ConsumerConnection
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import BrokerError, FailbackError


async def connection_of(admin: AdminClient, addr: str, group: str) -> ConsumerConnection:
    """Return the members of a group that are connected to a broker; none is no error."""
    try:
        return await admin.consumer_connection(addr, group)
    except BrokerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return ConsumerConnection()


async def client_memory(
    admin: AdminClient, addr: str, group: str
) -> dict[tuple[str, str, int], tuple[int, str]]:
    """Where the members of a group stand: (broker, topic, queue id): (offset, client id).

    Asked through the broker at ``addr`` (307); members that do not answer are left out.
    """
    try:
        members = (await admin.consumer_connection(addr, group)).connection_set
    except FailbackError:
        return {}
    found: dict[tuple[str, str, int], tuple[int, str]] = {}
    for client_id in sorted(each.client_id for each in members)[:64]:
        try:
            info = await admin.consumer_running_info(addr, group, client_id)
        except FailbackError:
            continue
        for queue, state in info.mq_table.items():
            place = (queue.broker_name, queue.topic, queue.queue_id)
            found[place] = (state.commit_offset, client_id)
    return found
