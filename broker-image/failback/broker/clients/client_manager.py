"""The connected clients: members of producer and consumer groups, by connection. Pure.

A connection, not a client id, is a member: a client that reconnects is a new member until its old
connection is gone. Everything here dies with the process; after a restart the first client to
send a heartbeat sees itself alone in its group.

Source: ConsumerManager, ConsumerGroupInfo, ProducerManager, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from failback.broker.filters.subscription import Subscription, of_heartbeat
from failback.protocol.clients import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

logger = logging.getLogger(__name__)

ConnectionT = TypeVar("ConnectionT", bound=Hashable)


@dataclass(slots=True)
class Member(Generic[ConnectionT]):
    """One client of a group. ``last_update_ms`` is wall-clock time of its last heartbeat."""

    connection: ConnectionT
    client_id: str
    language: str
    version: int
    last_update_ms: int


@dataclass(slots=True)
class ConsumerGroup(Generic[ConnectionT]):
    """A consumer group that has members. The last heartbeat of any member sets its model."""

    name: str
    consume_type: ConsumeType = "CONSUME_PASSIVELY"
    message_model: MessageModel = "CLUSTERING"
    consume_from_where: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
    members: dict[ConnectionT, Member[ConnectionT]] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def client_ids(self) -> list[str]:
        return [member.client_id for member in self.members.values()]

    def merge_subscriptions(self, heartbeat: Iterable[SubscriptionData]) -> bool:
        """Replace a member's subscriptions; true when a topic was added or removed.

        The table is shared by all members. Of two entries for a topic the one with the greater
        ``sub_version`` stays. Topics that this heartbeat does not name go. Members that disagree
        overwrite each other, as in the original.
        """
        changed = False
        named = set()
        for data in heartbeat:
            named.add(data.topic)
            known = self.subscriptions.get(data.topic)
            if known is None:
                changed = True
                logger.info("group %s subscribes to %s: %s", self.name, data.topic, data.sub_string)
            elif data.sub_version <= known.data.sub_version:
                continue
            self.subscriptions[data.topic] = of_heartbeat(data)
        for topic in self.subscriptions.keys() - named:
            logger.info("group %s no longer subscribes to %s", self.name, topic)
            del self.subscriptions[topic]
            changed = True
        return changed


class ConsumerManager(Generic[ConnectionT]):
    """All consumer groups with members."""

    def __init__(self, on_change: Callable[[str, list[ConnectionT]], None]) -> None:
        """``on_change(group, connections)`` is called when its members or topics changed."""
        self._on_change = on_change
        self.on_gone: Callable[[str], None] = lambda group: None
        """Called with the name of a group that has no member any more."""
        self.groups: dict[str, ConsumerGroup[ConnectionT]] = {}

    def register(
        self, consumer: ConsumerData, member: Member[ConnectionT], *, notify: bool = True
    ) -> bool:
        """Take a heartbeat for one group; true when it changed members or topics."""
        group = self.groups.get(consumer.group_name)
        if group is None:
            group = self.groups[consumer.group_name] = ConsumerGroup(consumer.group_name)
        group.consume_type = consumer.consume_type
        group.message_model = consumer.message_model
        group.consume_from_where = consumer.consume_from_where
        changed = self._put_member(group, member)
        changed = group.merge_subscriptions(consumer.subscription_data_set) or changed
        if changed and notify:
            self._on_change(group.name, list(group.members))
        return changed

    def _put_member(self, group: ConsumerGroup[ConnectionT], member: Member[ConnectionT]) -> bool:
        known = group.members.get(member.connection)
        group.members[member.connection] = member
        if known is None:
            logger.info("consumer %s joined group %s", member.client_id, group.name)
            return True
        if known.client_id != member.client_id:
            logger.warning(
                "group %s: a connection changed its client id from %s to %s",
                group.name,
                known.client_id,
                member.client_id,
            )
        return False

    def unregister(self, group_name: str, connection: ConnectionT, *, notify: bool = True) -> None:
        """Remove one member that says goodbye."""
        group = self.groups.get(group_name)
        if group is None:
            return
        member = group.members.pop(connection, None)
        if member is not None:
            logger.info("consumer %s left group %s", member.client_id, group_name)
        if not group.members:
            del self.groups[group_name]
            self.on_gone(group_name)
        elif notify:
            self._on_change(group_name, list(group.members))

    def closed(self, connection: ConnectionT) -> None:
        """Remove a closed connection from all its groups and notify the other members."""
        for name in [name for name, group in self.groups.items() if connection in group.members]:
            self.unregister(name, connection)

    def expired(self, horizon_ms: int) -> set[ConnectionT]:
        """Return the connections whose last heartbeat is older than ``horizon_ms``."""
        return {
            member.connection
            for group in self.groups.values()
            for member in group.members.values()
            if member.last_update_ms < horizon_ms
        }

    def find(self, group_name: str, client_id: str | None) -> Member[ConnectionT] | None:
        """Return the member of a group that calls itself ``client_id``: its latest connection."""
        group = self.groups.get(group_name)
        return _latest(group.members.values() if group is not None else (), client_id)

    def subscribes_elsewhere(self, group_name: str, topic: str) -> bool:
        """Whether a group's members subscribe to topics, and ``topic`` is none of them."""
        group = self.groups.get(group_name)
        return group is not None and bool(group.subscriptions) and topic not in group.subscriptions

    def groups_of_topic(self, topic: str) -> set[str]:
        """Return the groups with members that subscribe to ``topic``."""
        return {name for name, group in self.groups.items() if topic in group.subscriptions}


def _latest(
    members: Iterable[Member[ConnectionT]], client_id: str | None
) -> Member[ConnectionT] | None:
    """Return the member of this id that gave a sign of life last; of equal ones the last."""
    found: Member[ConnectionT] | None = None
    for each in members:
        if each.client_id == client_id and (
            found is None or each.last_update_ms >= found.last_update_ms
        ):
            found = each
    return found


class ProducerManager(Generic[ConnectionT]):
    """All producer groups with members."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[ConnectionT, Member[ConnectionT]]] = {}

    def register(self, group: str, member: Member[ConnectionT]) -> None:
        members = self.groups.setdefault(group, {})
        if member.connection not in members:
            logger.info("producer %s joined group %s", member.client_id, group)
        members[member.connection] = member

    def unregister(self, group: str, connection: ConnectionT) -> None:
        members = self.groups.get(group)
        if members is None:
            return
        if members.pop(connection, None) is not None:
            logger.info("a producer left group %s", group)
        if not members:
            del self.groups[group]

    def find(self, client_id: str) -> Member[ConnectionT] | None:
        """Return the member of any group that calls itself ``client_id``: its latest connection."""
        return _latest(
            (each for members in self.groups.values() for each in members.values()), client_id
        )

    def closed(self, connection: ConnectionT) -> None:
        for name in [name for name, members in self.groups.items() if connection in members]:
            self.unregister(name, connection)

    def expired(self, horizon_ms: int) -> set[ConnectionT]:
        """Return the connections whose last heartbeat is older than ``horizon_ms``."""
        return {
            member.connection
            for members in self.groups.values()
            for member in members.values()
            if member.last_update_ms < horizon_ms
        }
