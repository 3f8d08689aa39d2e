"""Which offsets of its members a slave is told: never less than it has, none of a reset."""

from __future__ import annotations

from collections.abc import Mapping

from failback.carry.keeping import Keeping, Order
from failback.protocol.body import MessageQueue
from failback.protocol.stats import ProcessQueueInfo

TABLE = {"orders@billing": {0: 50, 1: 70}}


def held(
    offsets: Mapping[int, int], *, broker: str = "broker-a", droped: bool = False
) -> dict[MessageQueue, ProcessQueueInfo]:
    return {
        MessageQueue("orders", broker, queue_id): ProcessQueueInfo(
            commit_offset=offset, droped=droped
        )
        for queue_id, offset in offsets.items()
    }


def told(keeping: Keeping, client: str, offsets: Mapping[int, int], **how: object) -> list[int]:
    found, _ = keeping.orders("billing", client, held(offsets, **how), TABLE)  # type: ignore[arg-type]
    return [order.offset for order in found]


def test_only_what_is_larger_than_the_slave_has_is_told() -> None:
    found, fell = Keeping("broker-a").orders(
        "billing", "go", held({0: 60, 1: 70, 2: 5, 3: -1}), TABLE
    )
    assert found == [Order("billing", "orders", 0, 60), Order("billing", "orders", 2, 5)]
    assert fell == []


def test_nothing_is_told_of_other_brokers_and_of_queues_that_a_member_dropped() -> None:
    keeping = Keeping("broker-a")
    assert told(keeping, "go", {0: 60}, broker="broker-b") == []
    assert told(keeping, "go", {0: 60}, droped=True) == []
    assert told(keeping, "go", {0: 60}) == [60]


def test_of_two_members_that_claim_a_queue_the_larger_offset_stays() -> None:
    keeping, table = Keeping("broker-a"), {"orders@billing": {0: 50}}
    for client, offset in (("one", 60), ("two", 80), ("one", 61)):
        for order in keeping.orders("billing", client, held({0: offset}), table)[0]:
            table["orders@billing"][order.queue_id] = order.offset
    assert table == {"orders@billing": {0: 80}}


def test_after_a_reset_nothing_is_told_until_the_holder_is_beyond_the_slave() -> None:
    keeping = Keeping("broker-a")
    assert told(keeping, "go", {0: 60}) == [60]
    _, fell = keeping.orders("billing", "go", held({0: 10}), TABLE)
    assert fell == [Order("billing", "orders", 0, 10)]
    assert told(keeping, "stale", {0: 60}) == []
    assert told(keeping, "go", {0: 49}) == []
    assert told(keeping, "go", {0: 51}) == [51]
    assert told(keeping, "stale", {0: 60}) == [60]


def test_a_queue_that_fell_is_free_when_its_holder_drops_it_or_leaves() -> None:
    for leave in (
        lambda keeping: told(keeping, "go", {1: 1}),
        lambda keeping: keeping.present("billing", ["next"]),
    ):
        keeping = Keeping("broker-a")
        told(keeping, "go", {0: 60})
        told(keeping, "go", {0: 10})
        assert told(keeping, "next", {0: 60}) == []
        leave(keeping)
        assert told(keeping, "next", {0: 60}) == [60]


def test_groups_of_one_client_do_not_mix() -> None:
    keeping = Keeping("broker-a")
    told(keeping, "go", {0: 60})
    keeping.orders("audit", "go", {}, TABLE)
    keeping.present("audit", ["other"])
    _, fell = keeping.orders("billing", "go", held({0: 10}), TABLE)
    assert [order.offset for order in fell] == [10]
