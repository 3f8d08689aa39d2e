"""Administration and inspection through a whole broker."""

from __future__ import annotations

import re
from pathlib import Path

import javaproperties
import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.config.mounted_file import MountedFile
from failback.protocol.body import MessageQueue
from failback.protocol.clients import (
    ConsumerConnection,
    ConsumerData,
    HeartbeatData,
    ProducerConnection,
    ProducerData,
    SubscriptionData,
)
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError
from failback.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from failback.protocol.route import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from failback.protocol.stats import (
    ConsumeStats,
    GroupList,
    KVTable,
    OffsetWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab


def create(topic: str, queues: int = 4, perm: int = 6) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(topic, "TBW102", queues, queues, perm, "SINGLE_TAG")


async def topics(client: LabClient) -> dict[str, TopicConfig]:
    answer = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert answer.ext_fields == {}
    return TopicConfigSerializeWrapper.from_json(answer.body).topic_config_table


async def create_topic(client: LabClient, header: CreateTopicRequestHeader) -> RemotingCommand:
    """17 waits for the name servers (none here), so its answer comes a turn later."""
    request = client.make(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    client.feed(request.encode())
    for _ in range(5):
        await client.turn()
    return client.answer_to(request)


async def test_a_topic_is_created_changed_and_deleted(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        before = lab.controller.topics.data_version
        assert (await create_topic(client, create("Orders", 4))).code == 0
        assert (await topics(client))["Orders"] == TopicConfig("Orders", 4, 4, 6)
        assert (await create_topic(client, create("Orders", 2, perm=4))).code == 0
        assert (await topics(client))["Orders"] == TopicConfig("Orders", 2, 2, 4)
        assert lab.controller.topics.data_version.counter == before.counter + 2
        await client.send(topic="Orders")
        header = DeleteTopicRequestHeader("Orders")
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header)).code == 0
        assert "Orders" not in await topics(client)
        assert lab.controller.store.max_queue_offset("Orders", 0) == 0
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header)).code == 0


@pytest.mark.parametrize(
    "name", ["TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "rmq_sys_x", "a b", " "]
)
async def test_system_topics_and_bad_names_are_refused(tmp_path: Path, name: str) -> None:
    async with broker_lab(tmp_path) as lab:
        answer = await create_topic(lab.connect(), create(name))
    assert answer.code == 1
    assert answer.remark


async def test_a_slave_refuses_changes(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, brokerRole="SLAVE", brokerId=1) as lab:
        client = lab.connect()
        assert (await create_topic(client, create("Orders"))).code == 1
        body = SubscriptionGroupConfig("CG").to_json()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await client.ask(code, None, body)).code == 1


async def test_groups_are_changed_and_deleted_with_or_without_offsets(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client, offsets = lab.connect(), lab.controller.offsets
        group = SubscriptionGroupConfig("CG", broker_id=3, retry_queue_nums=2)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await client.ask(code, None, group.to_json())).code == 0
        answer = await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = SubscriptionGroupWrapper.from_json(answer.body).subscription_group_table
        assert table["CG"] == group
        offsets.commit("CG", "TopicTest", 0, 5)
        delete = RequestCode.DELETE_SUBSCRIPTIONGROUP
        assert (await client.ask(delete, DeleteSubscriptionGroupRequestHeader("CG"))).code == 0
        assert offsets.query("CG", "TopicTest", 0) == 5
        header = DeleteSubscriptionGroupRequestHeader("CG", clean_offset=True)
        assert (await client.ask(delete, header)).code == 0
        assert offsets.query("CG", "TopicTest", 0) == -1


# --- configuration ----------------------------------------------------------------------------


async def settings(client: LabClient) -> tuple[dict[str, str], DataVersion]:
    answer = await client.ask(RequestCode.GET_BROKER_CONFIG)
    assert answer.code == 0
    lines = answer.body.decode().splitlines()
    version = DataVersion.from_json((answer.ext_fields or {})["version"])
    return dict(line.split("=", 1) for line in lines), version


async def change(client: LabClient, text: str) -> RemotingCommand:
    request = client.make(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())
    client.feed(request.encode())
    for _ in range(5):
        await client.turn()
    return client.answer_to(request)


STRANGER, OWN = ("203.0.113.9", 40000), ("127.0.0.1", 40000)


@pytest.mark.parametrize("rules", ["compat", "guarded"])
async def test_no_stranger_sets_what_guards_and_bounds_rest_on(tmp_path: Path, rules: str) -> None:
    """Each key there is, so that a new one is among them."""
    addresses = {"namesrvAddr", "haMasterAddress", "brokerIP1", "brokerIP2"}
    async with broker_lab(tmp_path, failbackRules=rules, failbackAdminFrom="10.1.0.0/16") as lab:
        client = lab.connect(STRANGER)
        before, _ = await settings(client)
        ours = {key for key in before if key.startswith("failback")} | {"useTLS"}
        assert len(ours) > 25
        for key in before:
            value = {"false": "true", "true": "false"}.get(before[key], "7")
            answer = await change(client, f"{key}={value}\nslaveReadEnable=true\n")
            refused = answer.code == ResponseCode.NO_PERMISSION
            wanted = key in ours or (rules == "guarded" and key in addresses)
            wanted |= key in ("configBlackList", "brokerConfigPath")
            assert refused == wanted, (key, answer.remark)
            if refused:
                assert key in (answer.remark or "")
        after, _ = await settings(client)
        assert {key: after[key] for key in ours} == {key: before[key] for key in ours}
        for peer in (OWN, ("10.1.2.3", 1), ("::ffff:10.1.2.3", 1)):
            assert (await change(lab.connect(peer), "failbackMaxTopics=7\n")).code == 0
        assert lab.controller.config.failback_max_topics == 7


async def test_a_mounted_file_sets_what_requests_may_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mounted = tmp_path / "desired.conf"
    async with broker_lab(tmp_path, fileReservedTime=48) as lab:
        config = lab.controller.config
        look = MountedFile(mounted, config, lab.controller.parts.admin.change).look
        look()
        look()
        assert caplog.text.count("nothing of it was taken") == 1, "once, not each second"

        def mount(text: str) -> None:
            other = tmp_path / "other.conf"
            other.write_text(text)
            other.rename(mounted)
            look()

        mount("failbackMaxTopics=9\nfileReservedTime=24\nfailbackHttpPort=1\nbrokerId=5\n")
        assert (config.failback_max_topics, config.file_reserved_time) == (9, 48)
        assert (await change(lab.connect(OWN), "failbackMaxTopics=8\n")).code == 0
        look()
        assert config.failback_max_topics == 9, "the file wins"
        mount("failbackMaxTopics=none\nfailbackMaxGroups=11\n")
        assert (config.failback_max_topics, config.failback_max_groups) == (9, 50_000)
        assert "failbackMaxTopics" in caplog.text
        mount("failbackMembers=${POD_IP}:1\nfailbackMaxGroups=11\n")
        assert (config.members, config.failback_max_groups) == ((), 11)


@pytest.mark.parametrize("key", ["failbackAdminFrom", "failbackHaFrom"])
@pytest.mark.parametrize("value", ["10.0.0.0/33", "nobody", "10.0.0.1;;x"])
def test_a_wrong_list_of_networks_is_named(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}.*networks"):
        BrokerConfig.from_properties({key: value}, environment={})


async def test_a_setting_is_changed_live_shown_and_written(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=broker-a\nmine=1\n")
    async with broker_lab(tmp_path, mine=1) as lab:
        client = lab.connect()
        lab.controller.config.file = file
        before, version = await settings(client)
        assert before["slaveReadEnable"] == "false"
        assert (await change(client, "slaveReadEnable=true\nunknown=2\n")).code == 0
        after, later = await settings(client)
        assert later.counter == version.counter + 1
        assert {key for key in after if after[key] != before[key]} == {"slaveReadEnable"}
        assert lab.controller.config.slave_read_enable
    written = BrokerConfig.load(file, {})
    assert written.slave_read_enable
    assert written.unknown == {"mine": "1"}
    assert len(javaproperties.loads(file.read_text())) > 80
    backup = file.with_name(file.name + ".bak")
    assert backup.read_text() == "brokerName=broker-a\nmine=1\n"


async def test_the_store_hears_of_its_live_settings(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        text = "accessMessageInMemoryMaxRatio=0\nmaxTransferCountOnMessageInDisk=2\n"
        assert (await change(client, text)).code == 0
        for _ in range(10):
            await client.send()
        answer = await client.pull()
        assert answer.code == 0
        assert lab.controller.store.config.max_transfer_count_on_disk == 2
        assert len(answer.body) == 2 * len(lab.controller.store.record_at(0) or b"")


@pytest.mark.parametrize("key", ["brokerConfigPath", "configBlackList"])
async def test_the_black_list_holds(tmp_path: Path, key: str) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        assert (await change(client, f"{key}=x\nslaveReadEnable=true\n")).code == 16
        assert not lab.controller.config.slave_read_enable


@pytest.mark.parametrize("text", ["listenPort=x", "brokerPermission=9", "a=\\u12"])
async def test_a_bad_change_is_refused_whole(tmp_path: Path, text: str) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        answer = await change(client, f"slaveReadEnable=true\n{text}\n")
        assert answer.code == 1
        assert answer.remark
        assert not lab.controller.config.slave_read_enable


# --- inspection -------------------------------------------------------------------------------

RUNTIME_KEYS = [
    "brokerVersionDesc",
    "brokerVersion",
    "brokerActive",
    "bootTimestamp",
    "runtime",
    "putTps",
    "getTotalTps",
    "getFoundTps",
    "getMissTps",
    "getTransferedTps",
    "getTransferredTps",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "putMessageTimesTotal",
    "putMessageFailedTimes",
    "putMessageSizeTotal",
    "putMessageAverageSize",
    "putMessageEntireTimeMax",
    "getMessageEntireTimeMax",
    "putMessageDistributeTime",
    "putLatency99",
    "putLatency999",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "commitLogDirCapacity",
    "earliestMessageTimeStamp",
    "startAcceptSendRequestTimeStamp",
    "dispatchMaxBuffer",
    "dispatchBehindBytes",
    "pageCacheLockTimeMills",
    "remainTransientStoreBufferNumbs",
    "remainHowManyDataToFlush",
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
]


async def runtime(client: LabClient) -> dict[str, str]:
    answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert answer.code == 0
    return KVTable.from_json(answer.body).table


async def test_the_runtime_info_has_every_key_even_when_the_store_is_empty(
    tmp_path: Path,
) -> None:
    async with broker_lab(tmp_path) as lab:
        info = await runtime(lab.connect())
    assert set(RUNTIME_KEYS) <= set(info)
    for key in ("putTps", "getTotalTps", "getTransferredTps"):
        assert [float(rate) for rate in info[key].split(" ")] == [0.0, 0.0, 0.0]
    assert re.fullmatch(r"Total : [\d.]+ \w+, Free : [\d.]+ \w+\.", info["commitLogDirCapacity"])


async def test_the_runtime_info_counts(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for _ in range(5):
            await client.send()
        await client.send(queue_id=99)
        await client.pull()
        info = await runtime(client)
        end = lab.controller.store.max_physical_offset
    assert info["putMessageTimesTotal"] == info["msgPutTotalTodayNow"] == "5"
    assert info["putMessageFailedTimes"] == "1"
    assert info["putMessageSizeTotal"] == info["commitLogMaxOffset"] == str(end)
    assert float(info["putMessageAverageSize"]) == end / 5
    assert info["msgGetTotalTodayNow"] == "5"


async def beat(lab: BrokerLab) -> LabClient:
    client = lab.connect(("10.0.0.1", 5555))
    consumer = ConsumerData(
        "CG", subscription_data_set=[SubscriptionData("TopicTest", "*", sub_version=1)]
    )
    body = HeartbeatData("c1", [ProducerData("PG")], [consumer]).to_json()
    await client.ask(RequestCode.HEART_BEAT, None, body)
    return client


async def test_connections_are_listed(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = await beat(lab)
        consumers = await client.ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader("CG")
        )
        producers = await client.ask(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader("PG")
        )
        nobody = await client.ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader("X")
        )
        nothing = await client.ask(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader("X")
        )
    (consumer,) = ConsumerConnection.from_json(consumers.body).connection_set
    (producer,) = ProducerConnection.from_json(producers.body).connection_set
    assert consumer == producer
    assert (consumer.client_id, consumer.client_addr) == ("c1", "10.0.0.1:5555")
    assert (consumer.language, consumer.version) == ("PYTHON", 409)
    assert list(ConsumerConnection.from_json(consumers.body).subscription_table) == ["TopicTest"]
    assert (nobody.code, nothing.code) == (206, 1)


async def test_progress_and_ranges_are_told_per_queue(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = await beat(lab)
        for _ in range(3):
            await client.send()
        lab.controller.offsets.commit("CG", "TopicTest", 0, 2)
        lab.controller.offsets.commit("CG", "%RETRY%CG", 0, 0)
        stats = await client.ask(
            RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader("TopicTest")
        )
        progress = await client.ask(
            RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader("CG")
        )
        missing = await client.ask(
            RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader("Unknown")
        )
        unknown = await client.ask(
            RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader("CG", "Unknown")
        )
        times = [lab.controller.store.store_time_of("TopicTest", 0, each) for each in (1, 2)]
    queues = [MessageQueue("TopicTest", "broker-a", queue_id) for queue_id in range(4)]
    assert TopicStatsTable.from_json(stats.body).offset_table == {
        queues[0]: TopicOffset(0, 3, times[1]),
        **{queue: TopicOffset(0, 0, 0) for queue in queues[1:]},
    }
    assert ConsumeStats.from_json(progress.body).offset_table == {
        queues[0]: OffsetWrapper(3, 2, times[0]),
        **{queue: OffsetWrapper(0, 0, 0) for queue in queues[1:]},
    }, "the group is online and does not subscribe to its retry topic"
    assert missing.code == 17
    assert (unknown.code, ConsumeStats.from_json(unknown.body).offset_table) == (0, {})


async def test_groups_of_a_topic_are_those_online_and_those_with_offsets(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = await beat(lab)
        lab.controller.offsets.commit("Old", "TopicTest", 0, 2)
        answer = await client.ask(
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            QueryTopicConsumeByWhoRequestHeader("TopicTest"),
        )
    assert GroupList.from_json(answer.body).group_list == ["CG", "Old"]


async def test_system_topics_are_listed(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        answer = await lab.connect().ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert {"TBW102", "BenchmarkTest", "OFFSET_MOVED_EVENT", "DefaultCluster", "broker-a"} <= set(
        TopicList.from_json(answer.body).topic_list
    )


async def test_what_this_broker_lacks_is_said(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        unknown = await client.ask(4711)
        binary = await client.ask(4711, serialize_type=1)
    assert (unknown.code, unknown.remark) == (3, " request type 4711 not supported")
    assert (binary.code, binary.serialize_type) == (3, 1)
