"""Which address a call goes to, and which queues a topic has: the tables of one instance (pure).

``brokerAddrTable`` maps a broker name to ``{broker id: address}``. Three rules read it, and the
differences between them decide what a failover costs: *publish* knows id 0 only, *subscribe* falls
back to another id, *admin first entry* is what offset calls did up to 4.9.2.

Source: MQClientInstance, RemoteBrokerOffsetStore, BrokerData, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

from failback.client.model import FoundBroker
from failback.protocol.body import MessageQueue
from failback.protocol.codes import PERM_READ, PERM_WRITE
from failback.protocol.route import QueueData, TopicRouteData

MASTER_ID = 0


def hash_map_order(broker_ids: Iterable[int]) -> list[int]:
    """Order ids as Java's ``HashMap<Long, ...>`` iterates them: by bucket, then by insertion.

    With up to 12 entries there are 16 buckets, so ids below 16 ascend and 17 comes after 1.
    """
    ids = list(broker_ids)
    buckets = 16
    while len(ids) > buckets * 3 // 4:
        buckets *= 2
    return sorted(ids, key=lambda broker_id: broker_id & (buckets - 1))


class BrokerAddressTable:
    """``brokerAddrTable`` and the rules that read it."""

    def __init__(self) -> None:
        self._table: dict[str, dict[int, str]] = {}

    def replace(self, broker_name: str, addresses: Mapping[int, str]) -> None:
        """Take over a broker's addresses from a route: ids that vanished are gone at once."""
        self._table[broker_name] = dict(addresses)

    def addresses(self, broker_name: str) -> Mapping[int, str]:
        return self._table.get(broker_name, {})

    def __iter__(self) -> Iterator[tuple[str, int, str]]:
        """Yield ``(broker name, broker id, address)`` of everything known."""
        for name, addresses in list(self._table.items()):
            for broker_id in hash_map_order(addresses):
                yield name, broker_id, addresses[broker_id]

    def find_publish(self, broker_name: str) -> FoundBroker | None:
        """findBrokerAddressInPublish: the master only."""
        addr = self._table.get(broker_name, {}).get(MASTER_ID)
        return FoundBroker(addr, MASTER_ID) if addr else None

    def find_subscribe(
        self, broker_name: str, broker_id: int, *, only_this: bool
    ) -> FoundBroker | None:
        """findBrokerAddressInSubscribe: that id; from a slave's id also the next; else any."""
        addresses = self._table.get(broker_name)
        if not addresses:
            return None
        if broker_id in addresses:
            return FoundBroker(addresses[broker_id], broker_id)
        if broker_id != MASTER_ID and broker_id + 1 in addresses:
            return FoundBroker(addresses[broker_id + 1], broker_id + 1)
        return None if only_this else self._first_entry(addresses)

    def find_admin(self, broker_name: str) -> FoundBroker | None:
        """findBrokerAddressInAdmin (up to 4.9.2): the first entry, so the master if listed."""
        addresses = self._table.get(broker_name)
        return self._first_entry(addresses) if addresses else None

    def drop_offline(self, routes: Iterable[TopicRouteData]) -> None:
        """cleanOfflineBroker: forget every address that is in no cached route any more."""
        listed = {
            addr
            for route in routes
            for broker in route.broker_datas
            for addr in broker.broker_addrs.values()
        }
        for name, addresses in list(self._table.items()):
            kept = {i: addr for i, addr in addresses.items() if addr in listed}
            if kept:
                self._table[name] = kept
            else:
                del self._table[name]

    @staticmethod
    def _first_entry(addresses: Mapping[int, str]) -> FoundBroker:
        first = hash_map_order(addresses)[0]
        return FoundBroker(addresses[first], first)


def publish_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues a producer may use: of a broker without a master there are none.

    By the order configuration ``name:queues;...`` if the topic has one, else by broker name.
    """
    if route.order_topic_conf:
        return [
            MessageQueue(topic, name, queue_id)
            for part in route.order_topic_conf.split(";")
            if part
            for name, count in (part.split(":"),)
            for queue_id in range(int(count))
        ]
    masters = {b.broker_name for b in route.broker_datas if MASTER_ID in b.broker_addrs}
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in _by_name(route.queue_datas)
        if data.perm & PERM_WRITE and data.broker_name in masters
        for queue_id in range(data.write_queue_nums)
    ]


def write_queue_counts(route: TopicRouteData) -> dict[str, int]:
    """``writeQueueNums`` by broker name, for the choice by send latency."""
    return {data.broker_name: data.write_queue_nums for data in route.queue_datas}


def subscribe_queues(topic: str, route: TopicRouteData) -> frozenset[MessageQueue]:
    """The queues a group consumes, whether or not their broker has a master."""
    return frozenset(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if data.perm & PERM_READ
        for queue_id in range(data.read_queue_nums)
    )


def is_route_changed(old: TopicRouteData | None, new: TopicRouteData) -> bool:
    """Compare two routes, the order of their lists aside (topicRouteDataIsChange)."""
    return old is None or _normal(old) != _normal(new)


def pick_broker_of_topic(route: TopicRouteData, rng: random.Random) -> FoundBroker | None:
    """findBrokerAddrByTopic: a random broker of the route; its master, else a random slave."""
    if not route.broker_datas:
        return None
    addresses = rng.choice(route.broker_datas).broker_addrs
    if not addresses:
        return None
    if MASTER_ID in addresses:
        return FoundBroker(addresses[MASTER_ID], MASTER_ID)
    broker_id = rng.choice(list(addresses))
    return FoundBroker(addresses[broker_id], broker_id)


def _by_name(datas: Iterable[QueueData]) -> list[QueueData]:
    return sorted(datas, key=lambda data: data.broker_name)


def _normal(route: TopicRouteData) -> tuple[object, ...]:
    return (
        route.order_topic_conf,
        [
            (d.broker_name, d.read_queue_nums, d.write_queue_nums, d.perm, d.topic_sys_flag)
            for d in _by_name(route.queue_datas)
        ],
        sorted((b.broker_name, sorted(b.broker_addrs.items())) for b in route.broker_datas),
        sorted((addr, tuple(names)) for addr, names in (route.filter_server_table or {}).items()),
    )
