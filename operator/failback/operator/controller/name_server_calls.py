"""The actions of a plan that name servers carry out. What they have already is not sent again."""

from __future__ import annotations

from collections.abc import Mapping

from failback.operator.brokers.peers import Peers
from failback.operator.planning.plan.types import DeleteTopic, PutKv
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.errors import BrokerError


class NameServerCalls:
    """Changes of name servers: their KV table, topics that no broker has any more."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def delete_topic(self, action: DeleteTopic) -> None:
        """Delete a topic where a name server still lists it."""
        admin = self._peers.admin
        for address in action.name_servers:
            code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            if action.topic not in await self._peers.tell(code, address, admin.topics_at(address)):
                continue  # deleted before, or forgotten with its last broker
            code = RequestCode.DELETE_TOPIC_IN_NAMESRV
            order = admin.delete_topic_in_namesrv(address, action.topic, action.cluster or None)
            await self._peers.tell(code, address, order)

    async def put_kv(self, action: PutKv) -> None:
        """Set or delete a value at every name server that has another one."""
        admin = self._peers.admin
        for address in action.name_servers:
            if (await self._kv_at(address, action.namespace)).get(action.key, "") == action.value:
                continue
            if action.value:
                code = RequestCode.PUT_KV_CONFIG
                order = admin.put_kv(address, action.namespace, action.key, action.value)
            else:
                code = RequestCode.DELETE_KV_CONFIG
                order = admin.delete_kv(address, action.namespace, action.key)
            await self._peers.tell(code, address, order)

    async def _kv_at(self, address: str, namespace: str) -> Mapping[str, str]:
        """Return what a name server has in a namespace of its KV table; empty without one."""
        code = RequestCode.GET_KVLIST_BY_NAMESPACE
        try:
            found = await self._peers.tell(
                code, address, self._peers.admin.kv_list(address, namespace)
            )
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return {}
        return dict(found)
