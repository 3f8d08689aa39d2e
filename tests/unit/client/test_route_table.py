"""Address rules and queue lists: every row of the table, for every shape of the address map."""

from __future__ import annotations

import random

import pytest

from failback.client.instance.route_table import (
    BrokerAddressTable,
    hash_map_order,
    is_route_changed,
    pick_broker_of_topic,
    publish_queues,
    subscribe_queues,
)
from failback.client.model import FoundBroker
from failback.protocol.body import MessageQueue
from failback.protocol.route import BrokerData, QueueData, TopicRouteData


def table(*ids: int) -> BrokerAddressTable:
    addresses = BrokerAddressTable()
    addresses.replace("b", {broker_id: f"h{broker_id}:1" for broker_id in ids})
    return addresses


def found(broker_id: int | None) -> FoundBroker | None:
    return None if broker_id is None else FoundBroker(f"h{broker_id}:1", broker_id)


def route(
    *brokers: tuple[str, dict[int, str]], perm: int = 6, order: str | None = None
) -> TopicRouteData:
    return TopicRouteData(
        [QueueData(name, 2, 3, perm) for name, _ in brokers],
        [BrokerData("c", name, addresses) for name, addresses in brokers],
        order_topic_conf=order,
    )


@pytest.mark.parametrize(
    ("ids", "publish", "pull_0", "pull_1", "only_0", "admin"),
    [
        ((0, 1), 0, 0, 1, 0, 0),
        ((1,), None, 1, 1, None, 1),
        ((0,), 0, 0, 0, 0, 0),
        ((), None, None, None, None, None),
        ((2, 1), None, 1, 1, None, 1),
        ((2,), None, 2, 2, None, 2),
    ],
)
def test_address_rules(
    ids: tuple[int, ...],
    publish: int | None,
    pull_0: int | None,
    pull_1: int | None,
    only_0: int | None,
    admin: int | None,
) -> None:
    addresses = table(*ids)
    assert addresses.find_publish("b") == found(publish)
    assert addresses.find_subscribe("b", 0, only_this=False) == found(pull_0)
    assert addresses.find_subscribe("b", 1, only_this=False) == found(pull_1)
    assert addresses.find_subscribe("b", 0, only_this=True) == found(only_0)
    assert addresses.find_admin("b") == found(admin)


def test_a_missing_slave_is_replaced_by_the_next_id_even_with_only_this() -> None:
    assert table(0, 3).find_subscribe("b", 2, only_this=True) == found(3)
    assert table(0, 3).find_subscribe("b", 1, only_this=True) is None
    assert table(0, 3).find_subscribe("b", 1, only_this=False) == found(0)


def test_ids_are_met_in_the_order_of_a_java_hash_map() -> None:
    assert hash_map_order([2, 17, 1, 0]) == [0, 17, 1, 2]
    assert hash_map_order([2, 1, 17, 0]) == [0, 1, 17, 2]
    assert hash_map_order([16, 0]) == [16, 0]
    assert hash_map_order([*range(12), 16]) == [*range(12), 16]  # 13 entries: 32 buckets


def test_unknown_brokers_have_no_address() -> None:
    addresses = table(0)
    assert addresses.find_publish("x") is None
    assert addresses.find_subscribe("x", 0, only_this=False) is None
    assert addresses.find_admin("x") is None


def test_a_new_route_replaces_a_brokers_whole_map() -> None:
    addresses = table(0, 1)
    addresses.replace("b", {1: "h1:1"})
    assert list(addresses) == [("b", 1, "h1:1")]


def test_addresses_in_no_route_are_dropped() -> None:
    addresses = table(0, 1)
    addresses.replace("gone", {0: "h9:1"})
    addresses.drop_offline([route(("b", {1: "h1:1"}))])
    assert list(addresses) == [("b", 1, "h1:1")]


def test_without_a_master_there_is_nothing_to_publish_to_but_all_to_subscribe() -> None:
    only_slave = route(("b", {1: "h1:1"}), ("a", {0: "h0:1"}))
    assert publish_queues("T", only_slave) == [MessageQueue("T", "a", q) for q in range(3)]
    assert subscribe_queues("T", only_slave) == {
        MessageQueue("T", name, q) for name in "ab" for q in range(2)
    }


def test_permissions_limit_both_lists() -> None:
    read_only = route(("a", {0: "h:1"}), perm=4)
    write_only = route(("a", {0: "h:1"}), perm=2)
    assert publish_queues("T", read_only) == []
    assert subscribe_queues("T", write_only) == frozenset()


def test_publish_order_is_by_broker_name_or_by_the_order_configuration() -> None:
    both = route(("b", {0: "h1:1"}), ("a", {0: "h0:1"}))
    assert [q.broker_name for q in publish_queues("T", both)] == ["a"] * 3 + ["b"] * 3
    ordered = route(("b", {0: "h1:1"}), ("a", {0: "h0:1"}), order="b:1;a:2")
    assert publish_queues("T", ordered) == [
        MessageQueue("T", "b", 0),
        MessageQueue("T", "a", 0),
        MessageQueue("T", "a", 1),
    ]


def test_a_route_changes_with_names_addresses_counts_and_perm_but_not_with_list_order() -> None:
    one = route(("a", {0: "h0:1"}), ("b", {0: "h1:1", 1: "h2:1"}))
    turned = route(("b", {1: "h2:1", 0: "h1:1"}), ("a", {0: "h0:1"}))
    assert not is_route_changed(one, turned)
    assert is_route_changed(None, one)
    assert is_route_changed(one, route(("a", {0: "h0:1"}), ("b", {1: "h2:1"})))
    assert is_route_changed(one, route(("a", {0: "h0:2"}), ("b", {0: "h1:1", 1: "h2:1"})))
    assert is_route_changed(one, route(("a", {0: "h0:1"}), ("b", {0: "h1:1", 1: "h2:1"}), perm=4))


def test_the_member_list_is_asked_of_a_random_brokers_master_or_a_slave() -> None:
    rng = random.Random(1)
    both = route(("a", {0: "ha:1", 1: "sa:1"}), ("b", {1: "s1:1", 2: "s2:1"}))
    asked = {pick_broker_of_topic(both, rng) for _ in range(200)}
    assert asked == {FoundBroker("ha:1", 0), FoundBroker("s1:1", 1), FoundBroker("s2:1", 2)}
    assert pick_broker_of_topic(TopicRouteData(), rng) is None
