"""The route tables: who comes, who goes, and what consumers and producers are told."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from failback.namesrv.routes import RegisterResult, Registration, RouteInfoManager
from failback.protocol.route import (
    BrokerData,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
)

MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"


def registration(
    broker_id: int = 0,
    addr: str | None = None,
    *,
    topics: dict[str, TopicConfig] | None = None,
    version: DataVersion = DataVersion(1000, 1),  # noqa: B008 - frozen
    name: str = "broker-a",
    cluster: str = "C",
    channel: object = None,
    filter_servers: tuple[str, ...] = (),
) -> Registration:
    addr = addr or (SLAVE if broker_id else MASTER)
    table = {"T": TopicConfig("T", 8, 8)} if topics is None else topics
    wrapper = TopicConfigSerializeWrapper(table, version)
    ha_addr = addr.replace("10911", "10912")
    return Registration(
        cluster, name, broker_id, addr, ha_addr, wrapper, filter_servers, channel or addr
    )


def pair() -> RouteInfoManager:
    """A master and its slave, registered at time 0."""
    routes = RouteInfoManager()
    routes.register_broker(registration(0), 0)
    routes.register_broker(registration(1), 0)
    return routes


def queues(routes: RouteInfoManager, topic: str = "T") -> list[QueueData]:
    route = routes.route(topic)
    return route.queue_datas if route else []


def addrs(routes: RouteInfoManager, topic: str = "T") -> dict[int, str]:
    route = routes.route(topic)
    return route.broker_datas[0].broker_addrs if route else {}


def test_a_master_s_registration_makes_a_route() -> None:
    routes = RouteInfoManager()
    assert routes.register_broker(registration(0), 0) == RegisterResult()
    route = routes.route("T")
    assert route is not None
    assert route.queue_datas == [QueueData("broker-a", 8, 8, 6)]
    assert route.broker_datas == [BrokerData("C", "broker-a", {0: MASTER})]
    assert (route.filter_server_table, route.order_topic_conf) == ({}, None)


def test_an_unknown_topic_has_no_route() -> None:
    assert pair().route("nope") is None


def test_a_slave_is_told_its_master_once_that_is_live() -> None:
    routes = RouteInfoManager()
    assert routes.register_broker(registration(1), 0) == RegisterResult()
    routes.register_broker(registration(0), 0)
    result = routes.register_broker(registration(1), 0)
    assert result == RegisterResult(MASTER, "10.0.0.1:10912")


def test_a_slave_s_topics_do_not_count() -> None:
    routes = RouteInfoManager()
    routes.register_broker(registration(1), 0)
    assert routes.route("T") is None
    assert routes.all_topics() == []


def test_topics_are_taken_again_only_with_a_new_data_version() -> None:
    routes = RouteInfoManager()
    routes.register_broker(registration(), 0)
    routes.register_broker(registration(topics={"T": TopicConfig("T", 2, 2)}), 0)
    assert queues(routes)[0].read_queue_nums == 8
    newer = DataVersion(1000, 2)
    routes.register_broker(registration(topics={"T": TopicConfig("T", 2, 2)}, version=newer), 0)
    assert queues(routes)[0].read_queue_nums == 2


def test_a_registration_never_removes_a_topic() -> None:
    routes = RouteInfoManager()
    routes.register_broker(registration(), 0)
    other = {"U": TopicConfig("U")}
    routes.register_broker(registration(topics=other, version=DataVersion(2, 2)), 0)
    assert routes.all_topics() == ["T", "U"]


def test_topics_are_taken_from_an_id_that_had_no_address_whatever_the_version() -> None:
    routes = pair()
    routes.unregister_broker("C", "broker-a", 0, MASTER)
    routes.delete_topic("T")
    routes.register_broker(registration(0, version=DataVersion(0, 0)), 0)
    assert queues(routes) != []


def test_a_slave_that_becomes_master_brings_its_topics_with_the_version_it_had() -> None:
    routes = RouteInfoManager()
    routes.register_broker(registration(1), 0)
    routes.register_broker(registration(0, SLAVE), 0)
    assert queues(routes) == [QueueData("broker-a", 8, 8, 6)]


def test_a_slave_that_becomes_master_gives_up_its_old_id() -> None:
    routes = pair()
    routes.channel_lost(MASTER)
    routes.register_broker(registration(0, SLAVE), 0)
    assert addrs(routes) == {0: SLAVE}


def test_with_the_master_gone_the_queues_stay_and_only_id_0_is_missing() -> None:
    routes = pair()
    assert routes.channel_lost(MASTER) == [MASTER]
    assert queues(routes) == [QueueData("broker-a", 8, 8, 6)]
    assert addrs(routes) == {1: SLAVE}
    assert routes.cluster_info().cluster_addr_table == {"C": ["broker-a"]}


@pytest.mark.parametrize("first", [MASTER, SLAVE])
def test_with_the_last_address_everything_of_the_broker_goes(first: str) -> None:
    routes = pair()
    routes.register_broker(registration(name="broker-b", addr="10.0.0.3:10911"), 0)
    routes.channel_lost(first)
    routes.channel_lost(SLAVE if first == MASTER else MASTER)
    route = routes.route("T")
    assert route is not None
    assert [broker.broker_name for broker in route.broker_datas] == ["broker-b"]
    assert [queue.broker_name for queue in route.queue_datas] == ["broker-b"]
    routes.channel_lost("10.0.0.3:10911")
    assert routes.all_topics() == []
    assert routes.cluster_info().cluster_addr_table == {}


def test_a_broker_that_came_back_on_a_new_channel_survives_the_end_of_the_old_one() -> None:
    routes = RouteInfoManager()
    routes.register_broker(registration(channel="old"), 0)
    routes.register_broker(registration(channel="new"), 0)
    assert routes.channel_lost("old") == []
    assert addrs(routes) == {0: MASTER}
    assert routes.channel_lost("new") == [MASTER]


def test_all_brokers_of_a_channel_go_with_it() -> None:
    routes = RouteInfoManager()
    routes.register_broker(registration(channel="one"), 0)
    routes.register_broker(registration(name="broker-b", addr="h:1", channel="one"), 0)
    assert sorted(routes.channel_lost("one")) == [MASTER, "h:1"]


def test_silence_above_120_s_expires_a_broker() -> None:
    routes = pair()
    routes.register_broker(registration(1), 60_000)
    assert routes.expire(120_000) == []
    assert routes.expire(120_001) == [(MASTER, MASTER)]
    assert addrs(routes) == {1: SLAVE}
    assert routes.expire(180_001) == [(SLAVE, SLAVE)]
    assert routes.route("T") is None


def test_an_unchanged_data_version_is_a_sign_of_life() -> None:
    routes = pair()
    version = DataVersion(1000, 1)
    assert routes.query_data_version(MASTER, version, 100_000) == (False, version)
    assert routes.expire(121_000) == [(SLAVE, SLAVE)]
    newer = DataVersion(1000, 2)
    assert routes.query_data_version(MASTER, newer, 200_000) == (True, version)
    assert routes.expire(221_000) == [(MASTER, MASTER)]
    assert routes.query_data_version(MASTER, version, 0) == (True, None)


def test_unregistering_removes_one_id() -> None:
    routes = pair()
    routes.unregister_broker("C", "broker-a", 1, SLAVE)
    assert addrs(routes) == {0: MASTER}
    routes.unregister_broker("C", "broker-a", 0, MASTER)
    assert routes.cluster_info().broker_addr_table == {}
    routes.unregister_broker("C", "broker-a", 0, MASTER)  # twice is nothing


def test_a_goodbye_takes_only_what_is_at_its_address() -> None:
    routes, moved = pair(), "10.0.0.9:10911"
    routes.register_broker(registration(0, moved), 0)
    routes.unregister_broker("C", "broker-a", 0, MASTER)
    assert addrs(routes) == {0: moved, 1: SLAVE}
    assert MASTER not in routes.live_brokers()
    routes.register_broker(registration(0, "10.0.1.1:10911", name="broker-b"), 0)
    for number, address in ((0, "10.0.1.1:10911"), (0, SLAVE), (1, moved), (7, moved)):
        routes.unregister_broker("C", "broker-a", number, address)
    assert addrs(routes) == {0: moved, 1: SLAVE}
    assert routes.live_brokers().keys() == {moved, SLAVE, "10.0.1.1:10911"}


def test_wiping_write_permission_lasts_until_the_version_changes() -> None:
    routes = RouteInfoManager()
    topics = {"T": TopicConfig("T"), "TBW102": TopicConfig("TBW102", perm=7)}
    routes.register_broker(registration(topics=topics), 0)
    assert routes.wipe_write_perm("broker-a") == 2
    assert (queues(routes)[0].perm, queues(routes, "TBW102")[0].perm) == (4, 5)
    routes.register_broker(registration(topics=topics), 0)
    assert queues(routes)[0].perm == 4
    routes.register_broker(registration(topics=topics, version=DataVersion(9, 9)), 0)
    assert (queues(routes)[0].perm, queues(routes, "TBW102")[0].perm) == (6, 7)


def test_adding_write_permission_sets_exactly_6() -> None:
    routes = RouteInfoManager()
    routes.register_broker(registration(topics={"T": TopicConfig("T", perm=7)}), 0)
    assert routes.add_write_perm("broker-a") == 1
    assert queues(routes)[0].perm == 6
    assert routes.wipe_write_perm("nobody") == 0


def test_a_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    routes = pair()
    routes.register_broker(registration(name="broker-b", addr="h:1", cluster="D"), 0)
    routes.delete_topic("T", "C")
    assert [queue.broker_name for queue in queues(routes)] == ["broker-b"]
    routes.delete_topic("T", "nowhere")
    assert queues(routes) != []
    routes.delete_topic("T")
    assert routes.all_topics() == []


def test_topic_lists() -> None:
    routes = RouteInfoManager()
    topics = {
        "T": TopicConfig("T"),
        "unit": TopicConfig("unit", topic_sys_flag=1),
        "both": TopicConfig("both", topic_sys_flag=3),
        "sub": TopicConfig("sub", topic_sys_flag=2),
    }
    routes.register_broker(registration(topics=topics), 0)
    assert routes.all_topics() == ["T", "both", "sub", "unit"]
    assert routes.topics_of_cluster("C") == ["T", "both", "sub", "unit"]
    assert routes.topics_of_cluster("D") == []
    assert routes.system_topics() == (["C", "broker-a"], MASTER)
    assert routes.topics_by_sys_flag(lambda flag: flag == 3) == ["both"]
    assert RouteInfoManager().system_topics() == ([], None)


def test_filter_servers_are_kept_until_a_registration_without_any() -> None:
    routes = RouteInfoManager()
    routes.register_broker(registration(filter_servers=("f:1",)), 0)
    route = routes.route("T")
    assert route is not None
    assert route.filter_server_table == {MASTER: ["f:1"]}
    routes.register_broker(registration(), 0)
    route = routes.route("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_answers_are_copies() -> None:
    routes = pair()
    route = routes.route("T")
    assert route is not None
    route.broker_datas[0].broker_addrs.clear()
    route.queue_datas[0].perm = 0
    routes.cluster_info().broker_addr_table["broker-a"].broker_addrs.clear()
    assert addrs(routes) == {0: MASTER, 1: SLAVE}
    assert queues(routes)[0].perm == 6


brokers = st.tuples(st.sampled_from("ab"), st.integers(0, 2))


class Tables(RuleBasedStateMachine):
    """Whatever happens in whatever order, the five tables agree with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.routes = RouteInfoManager()
        self.now_ms = 0

    @rule(broker=brokers, version=st.integers(0, 3), topic=st.sampled_from("xyz"))
    def register(self, broker: tuple[str, int], version: int, topic: str) -> None:
        name, broker_id = broker
        topics = {topic: TopicConfig(topic)}
        self.routes.register_broker(
            registration(
                broker_id,
                f"{name}:{broker_id}",
                name=name,
                topics=topics,
                version=DataVersion(0, version),
            ),
            self.now_ms,
        )

    @rule(broker=brokers)
    def change_role(self, broker: tuple[str, int]) -> None:
        name, broker_id = broker
        self.routes.register_broker(registration(0, f"{name}:{broker_id}", name=name), self.now_ms)

    @rule(broker=brokers)
    def unregister(self, broker: tuple[str, int]) -> None:
        name, broker_id = broker
        self.routes.unregister_broker("C", name, broker_id, f"{name}:{broker_id}")

    @rule(broker=brokers)
    def lose(self, broker: tuple[str, int]) -> None:
        name, broker_id = broker
        self.routes.channel_lost(f"{name}:{broker_id}")

    @rule(elapsed_ms=st.integers(0, 90_000))
    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.routes.expire(self.now_ms)

    @rule(topic=st.sampled_from("xyz"))
    def delete(self, topic: str) -> None:
        self.routes.delete_topic(topic)

    @invariant()
    def tables_agree(self) -> None:
        info = self.routes.cluster_info()
        listed = {name for names in info.cluster_addr_table.values() for name in names}
        assert listed == info.broker_addr_table.keys()
        for broker in info.broker_addr_table.values():
            assert broker.broker_addrs
            assert len(set(broker.broker_addrs.values())) == len(broker.broker_addrs)
        for topic in self.routes.all_topics():
            route = self.routes.route(topic)
            assert route is not None
            assert {queue.broker_name for queue in route.queue_datas} == {
                broker.broker_name for broker in route.broker_datas
            }


TestTables = Tables.TestCase
