"""Group members and their subscriptions: what a heartbeat, a goodbye and a loss change."""

from __future__ import annotations

from failback.broker.clients.client_manager import ConsumerManager, Member, ProducerManager
from failback.protocol.clients import ConsumerData, MessageModel, SubscriptionData


class Lab:
    def __init__(self) -> None:
        self.notified: list[tuple[str, list[str]]] = []
        self.manager: ConsumerManager[str] = ConsumerManager(
            lambda group, connections: self.notified.append((group, connections))
        )

    def heartbeat(
        self, connection: str, *subscriptions: tuple[str, int], now: int = 0, notify: bool = True
    ) -> bool:
        data = [
            SubscriptionData(topic, "*", sub_version=version) for topic, version in subscriptions
        ]
        member = Member(connection, f"id-{connection}", "JAVA", 409, now)
        return self.manager.register(
            ConsumerData("CG", subscription_data_set=data), member, notify=notify
        )

    def versions(self) -> dict[str, int]:
        group = self.manager.groups["CG"]
        return {topic: each.data.sub_version for topic, each in group.subscriptions.items()}


def test_a_new_member_is_announced_to_all_including_itself() -> None:
    lab = Lab()
    assert lab.heartbeat("c1", ("T", 1))
    assert lab.heartbeat("c2", ("T", 1))
    assert lab.notified == [("CG", ["c1"]), ("CG", ["c1", "c2"])]


def test_a_repeated_heartbeat_changes_nothing() -> None:
    lab = Lab()
    lab.heartbeat("c1", ("T", 1))
    assert not lab.heartbeat("c1", ("T", 1))
    assert len(lab.notified) == 1


def test_a_greater_version_replaces_a_subscription_without_announcement() -> None:
    lab = Lab()
    lab.heartbeat("c1", ("T", 5))
    assert not lab.heartbeat("c1", ("T", 6))
    assert lab.versions() == {"T": 6}
    assert not lab.heartbeat("c1", ("T", 4))
    assert lab.versions() == {"T": 6}


def test_an_equal_version_changes_nothing() -> None:
    lab = Lab()
    member = Member("c1", "id", "JAVA", 409, 0)
    for expression in ("TagA", "TagB"):
        data = SubscriptionData("T", expression, sub_version=5)
        lab.manager.register(ConsumerData("CG", subscription_data_set=[data]), member)
    assert lab.manager.groups["CG"].subscriptions["T"].data.sub_string == "TagA"


def test_topics_that_a_heartbeat_does_not_name_go_for_all_members() -> None:
    lab = Lab()
    lab.heartbeat("c1", ("T", 1), ("U", 1))
    lab.heartbeat("c2", ("T", 1), ("U", 1))
    lab.notified.clear()
    assert lab.heartbeat("c2", ("U", 1))
    assert lab.versions() == {"U": 1}
    assert lab.notified == [("CG", ["c1", "c2"])]


def test_the_last_heartbeat_sets_the_groups_model() -> None:
    lab = Lab()
    member = Member("c1", "id", "JAVA", 409, 0)
    models: list[MessageModel] = ["BROADCASTING", "CLUSTERING"]
    for model in models:
        lab.manager.register(ConsumerData("CG", message_model=model), member)
        assert lab.manager.groups["CG"].message_model == model


def test_a_goodbye_is_announced_to_those_who_stay() -> None:
    lab = Lab()
    lab.heartbeat("c1", ("T", 1))
    lab.heartbeat("c2", ("T", 1))
    lab.notified.clear()
    lab.manager.unregister("CG", "c1")
    assert lab.notified == [("CG", ["c2"])]


def test_a_group_without_members_is_gone() -> None:
    lab = Lab()
    lab.heartbeat("c1", ("T", 1))
    lab.notified.clear()
    lab.manager.unregister("CG", "c1")
    assert lab.manager.groups == {}
    assert lab.notified == []


def test_a_group_may_switch_announcements_off() -> None:
    lab = Lab()
    assert lab.heartbeat("c1", ("T", 1), notify=False)
    assert lab.notified == []


def test_a_closed_connection_leaves_all_its_groups() -> None:
    lab = Lab()
    for name in ("A", "B"):
        for connection in ("c1", "c2"):
            member = Member(connection, f"id-{connection}", "JAVA", 409, 0)
            lab.manager.register(ConsumerData(name), member)
    lab.notified.clear()
    lab.manager.closed("c1")
    assert lab.notified == [("A", ["c2"]), ("B", ["c2"])]


def test_a_client_that_reconnects_is_a_member_twice_until_the_old_connection_goes() -> None:
    lab = Lab()
    for connection in ("old", "new"):
        member = Member(connection, "same-id", "JAVA", 409, 0)
        lab.manager.register(ConsumerData("CG"), member)
    assert lab.manager.groups["CG"].client_ids() == ["same-id", "same-id"]
    lab.manager.closed("old")
    assert lab.manager.groups["CG"].client_ids() == ["same-id"]


def test_a_silent_member_expires() -> None:
    lab = Lab()
    lab.heartbeat("c1", ("T", 1), now=1_000)
    lab.heartbeat("c2", ("T", 1), now=2_000)
    assert lab.manager.expired(1_500) == {"c1"}
    lab.heartbeat("c1", ("T", 1), now=3_000)
    assert lab.manager.expired(1_500) == set()


def test_groups_are_found_by_topic() -> None:
    lab = Lab()
    lab.heartbeat("c1", ("T", 1))
    assert lab.manager.groups_of_topic("T") == {"CG"}
    assert lab.manager.groups_of_topic("U") == set()


def test_producers_come_and_go() -> None:
    manager: ProducerManager[str] = ProducerManager()
    manager.register("PG", Member("c1", "p1", "JAVA", 409, 1_000))
    manager.register("PG", Member("c2", "p2", "JAVA", 409, 2_000))
    assert manager.expired(1_500) == {"c1"}
    manager.closed("c1")
    assert list(manager.groups["PG"]) == ["c2"]
    manager.unregister("PG", "c2")
    assert manager.groups == {}


def test_a_client_id_is_found_by_its_latest_connection() -> None:
    consumers = Lab().manager
    producers: ProducerManager[str] = ProducerManager()
    for connection, now in (("old", 10), ("new", 10), ("other", 5)):
        member = Member(connection, "id", "JAVA", 409, now)
        consumers.register(ConsumerData("CG"), member)
        producers.register("PG" if connection == "old" else "PG2", member)
    found = consumers.find("CG", "id"), producers.find("id")
    assert [each.connection for each in found if each is not None] == ["new", "new"]
    consumers.unregister("CG", "old")  # what the old connection's end takes is its own
    left = consumers.find("CG", "id")
    assert left is not None
    assert left.connection == "new"
    assert consumers.find("CG", "nobody") is None
