"""The actions of a plan that brokers and name servers carry out.

A success code is no evidence: :class:`BrokerCalls` reads back what it set. :class:`NameServerCalls`
does not send again what a name server has already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from failback.carry.online import store
from failback.carry.restoring import Order
from failback.operator.brokers.peers import Peers
from failback.operator.controller.outcome import NotReadBack, Outcome
from failback.operator.engines.catalogue import same_value
from failback.operator.metrics import Metrics
from failback.operator.planning.plan.encoding import names
from failback.operator.planning.plan.types import (
    CommitOffsets,
    DeleteGroup,
    DeleteTopic,
    PutGroup,
    PutKv,
    PutTopic,
    RestoreOffsets,
    SetConfig,
)
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.errors import BrokerError
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig, split_offset_key

_FOR_GOOD: Final = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION, 13})


class BrokerCalls:
    """Changes of brokers: configuration, topics, groups, offsets."""

    def __init__(self, peers: Peers, metrics: Metrics) -> None:
        self._peers = peers
        self._metrics = metrics

    async def set_config(self, action: SetConfig) -> None:
        """Set keys of a running broker (25), then ask for them (26)."""
        admin, address = self._peers.admin, action.address
        values = dict(action.values)
        await self._peers.tell(
            RequestCode.UPDATE_BROKER_CONFIG, address, admin.update_broker_config(address, values)
        )
        answer = await self._peers.tell(
            RequestCode.GET_BROKER_CONFIG, address, admin.broker_config(address)
        )
        wrong = [
            key
            for key, value in sorted(values.items())
            if not same_value(key, answer.get(key, ""), value)
        ]
        self._metrics.config_update("rejected" if wrong else "applied")
        if wrong:
            pair, ordinal = action.member
            text = f"member {ordinal} of pair {pair} does not take {names(wrong)}"
            raise NotReadBack(text)

    async def put_topic(self, action: PutTopic, outcome: Outcome) -> None:
        """Create or change a topic (17), then look for it in the broker's table (21)."""
        admin, address = self._peers.admin, action.address
        topic = msgspec.convert(dict(action.config), TopicConfig)
        try:
            await self._peers.tell(
                RequestCode.UPDATE_AND_CREATE_TOPIC, address, admin.create_topic(address, topic)
            )
        except BrokerError as error:
            _note_refusal(outcome, address, error)
            raise
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        table = await self._peers.tell(code, address, admin.all_topic_config(address))
        stored = table.topic_config_table.get(topic.topic_name)
        if stored is None or (stored.read_queue_nums, stored.write_queue_nums, stored.perm) != (
            topic.read_queue_nums,
            topic.write_queue_nums,
            topic.perm,
        ):
            raise NotReadBack(f"{address} does not show topic {topic.topic_name} as sent")

    async def put_group(self, action: PutGroup, outcome: Outcome) -> None:
        """Create or change a group (200), then look for it in the broker's table (201)."""
        admin, address = self._peers.admin, action.address
        group = msgspec.convert(dict(action.config), SubscriptionGroupConfig)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        try:
            await self._peers.tell(code, address, admin.create_group(address, group))
        except BrokerError as error:
            _note_refusal(outcome, address, error)
            raise
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        table = await self._peers.tell(code, address, admin.all_groups(address))
        if table.subscription_group_table.get(group.group_name) != group:
            raise NotReadBack(f"{address} does not show group {group.group_name} as sent")

    async def delete_topic(self, action: DeleteTopic) -> None:
        """Delete a topic at its brokers."""
        for address in action.brokers:
            code = RequestCode.DELETE_TOPIC_IN_BROKER
            await self._peers.tell(
                code, address, self._peers.admin.delete_topic(address, action.topic)
            )

    async def delete_group(self, action: DeleteGroup) -> None:
        """Delete a group, and its offsets where that is wanted."""
        address = action.address
        order = self._peers.admin.delete_group(
            address, action.group, remove_offset=action.remove_offsets
        )
        await self._peers.tell(RequestCode.DELETE_SUBSCRIPTIONGROUP, address, order)

    async def commit_offsets(self, action: CommitOffsets) -> None:
        """Store offsets that are above what the broker has now, then read them back."""
        admin, address = self._peers.admin, action.address
        code = RequestCode.GET_ALL_CONSUMER_OFFSET
        have = await self._peers.tell(code, address, admin.all_offsets(address))
        for key, queue, offset in action.offsets:
            if have.get(key, {}).get(queue, -1) >= offset:
                continue
            topic, group = split_offset_key(key)
            order = admin.update_offset(address, group, topic, queue, offset)
            await self._peers.tell(RequestCode.UPDATE_CONSUMER_OFFSET, address, order)
        have = await self._peers.tell(code, address, admin.all_offsets(address))
        lost = [
            key
            for key, queue, offset in action.offsets
            if have.get(key, {}).get(queue, -1) < offset
        ]
        if lost:
            raise NotReadBack(f"{address} does not show the offsets of {names(sorted(set(lost)))}")

    async def restore_offsets(self, action: RestoreOffsets) -> None:
        """Store offsets where the broker still has the old ones, then read them back."""
        wanted = [Order(*each) for each in action.offsets]
        done = await store(self._peers.admin, action.address, wanted, self._peers.tell)
        lost = [each.problem for each in done if each.problem and each.now == each.order.old]
        if lost:
            raise NotReadBack(names(lost))


def _note_refusal(outcome: Outcome, address: str, error: BrokerError) -> None:
    if error.code in _FOR_GOOD:
        outcome.refused[address] = str(error.remark)


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
