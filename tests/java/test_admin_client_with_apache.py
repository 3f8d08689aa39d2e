"""Our name server, admin client and codecs beside an unmodified Apache broker and mqadmin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from failback.cli.__main__ import main
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.body import MessageQueue
from failback.protocol.clients import ConsumerData, HeartbeatData, SubscriptionData
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError
from failback.protocol.headers import (
    GetBrokerConsumeStatsRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    from_ext,
)
from failback.protocol.message import (
    BatchElement,
    decode_records,
    encode_batch,
    encode_record,
    pack_host,
)
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from failback.protocol.stats import ConsumeStatsList
from tests.support.brokers.namesrv_process import NamesrvProcess
from tests.support.common.polling import SCALE, wait_until
from tests.support.java.apache import Broker, mqadmin


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamesrvProcess]:
    with NamesrvProcess(tmp_path_factory.mktemp("namesrv")) as process:
        yield process


@pytest.fixture(scope="module")
def broker(namesrv: NamesrvProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    apache = Broker("apache", tmp_path_factory.mktemp("broker"), namesrv.addr)
    apache.start()
    yield apache
    apache.kill()


@pytest.fixture
async def admin(namesrv: NamesrvProcess) -> AsyncIterator[AdminClient]:
    async with AdminClient([namesrv.addr]) as client:
        yield client


def send_header(topic: str, *, batch: bool = False) -> SendMessageRequestHeader:
    return SendMessageRequestHeader(
        producer_group="PG",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=7,
        properties="KEYS\x01k1\x02TAGS\x01TagA\x02WAIT\x01true",
        reconsume_times=0,
        batch=batch,
    )


async def test_apache_registers_with_our_name_server(admin: AdminClient, broker: Broker) -> None:
    info = await admin.cluster_info()
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: broker.address}
    assert info.cluster_addr_table == {"bench": ["broker-a"]}
    assert {"TBW102", "SELF_TEST_TOPIC", "broker-a", "bench"} <= set(await admin.topic_list())


async def dispatched(admin: AdminClient, addr: str, topic: str, queue_id: int, count: int) -> None:
    """Wait until an Apache broker has made the queue entries of what it acknowledged."""
    for _ in range(200):
        if await admin.max_offset(addr, topic, queue_id) == count:
            return
        await asyncio.sleep(0.05 * SCALE)
    raise AssertionError(f"{topic} queue {queue_id} never reached {count}")


@pytest.mark.sample
async def test_apache_stores_what_we_send_and_we_read_it_back(
    admin: AdminClient, broker: Broker
) -> None:
    await admin.create_topic(broker.address, TopicConfig("Sent", 4, 4))
    async with RemotingClient() as client:
        for offset, serialize_type in enumerate((0, 1)):
            request = RemotingCommand.request(310, send_header("Sent").to_v2(), b"hello")
            request.serialize_type = serialize_type
            answer = await client.invoke(broker.address, request)
            assert (answer.code, answer.serialize_type) == (0, serialize_type)
            sent = from_ext(SendMessageResponseHeader, answer.ext_fields)
            assert (sent.queue_id, sent.queue_offset) == (1, offset)
        batch = encode_batch([BatchElement(0, b"b1", b"TAGS\x01A"), BatchElement(0, b"b2", b"")])
        header = send_header("Sent", batch=True).to_v2()
        answer = await client.invoke(broker.address, RemotingCommand.request(320, header, batch))
        ids = from_ext(SendMessageResponseHeader, answer.ext_fields).msg_id.split(",")
        pull = PullMessageRequestHeader("G", "Sent", 1, 0, 32, 4, 0, 0, 0, "*")
        await dispatched(admin, broker.address, "Sent", 1, 4)
        answer = await client.invoke(broker.address, RemotingCommand.request(11, pull))
    assert from_ext(PullMessageResponseHeader, answer.ext_fields).next_begin_offset == 4
    messages = decode_records(answer.body)
    assert [message.body for message in messages] == [b"hello", b"hello", b"b1", b"b2"]
    assert [message.offset_msg_id for message in messages[2:]] == ids
    first = messages[0]
    assert (first.flag, first.tags, first.keys) == (7, "TagA", "k1")
    again = encode_record(
        topic=first.topic,
        queue_id=first.queue_id,
        body=first.body,
        properties=first.properties,
        queue_offset=first.queue_offset,
        physical_offset=first.physical_offset,
        born_timestamp=first.born_timestamp,
        born_host=pack_host(*first.born_host),
        store_timestamp=first.store_timestamp,
        store_host=pack_host(*first.store_host),
        flag=first.flag,
    )
    assert again == answer.body[: first.store_size]
    assert await admin.view_message(broker.address, first.physical_offset) == first


async def test_the_admin_calls_understand_apache(admin: AdminClient, broker: Broker) -> None:
    addr = broker.address
    await admin.create_topic(addr, TopicConfig("Seen", 2, 2))
    await admin.create_group(addr, SubscriptionGroupConfig("GS", retry_max_times=3))
    queue = MessageQueue("Seen", "broker-a", 1)
    async with RemotingClient() as client:
        header = send_header("Seen").to_v2()
        await client.invoke(addr, RemotingCommand.request(310, header, b"hello"))

    assert (await admin.all_topic_config(addr)).topic_config_table["Seen"].read_queue_nums == 2
    assert (await admin.all_groups(addr)).subscription_group_table["GS"].retry_max_times == 3
    await admin.update_offset(addr, "GS", "Seen", 1, 1)
    assert await admin.query_offset(addr, "GS", "Seen", 1) == 1
    assert (await admin.all_offsets(addr))["Seen@GS"] == {1: 1}
    assert isinstance(await admin.delay_offsets(addr), dict)
    assert (await admin.topic_stats(addr, "Seen")).offset_table[queue].max_offset == 1
    stats = (await admin.consume_stats(addr, "GS", "Seen")).offset_table[queue]
    assert (stats.broker_offset, stats.consumer_offset) == (1, 1)
    answer = await admin.ask(
        addr, RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequestHeader()
    )
    groups = ConsumeStatsList.from_json(answer.body).consume_stats_list
    assert any(group.get("GS") for group in groups)
    assert await admin.max_offset(addr, "Seen", 1) == 1
    assert await admin.min_offset(addr, "Seen", 1) == 0
    assert await admin.search_offset(addr, "Seen", 1, 0) == 0
    assert await admin.earliest_store_time(addr, "Seen", 1) > 1_700_000_000_000
    assert await admin.earliest_store_time(addr, "Seen", 0) == -1
    (entry,) = (await admin.consume_queue(addr, "Seen", 1, 0, 8)).queue_data
    assert entry.tags_code == 2598919
    assert (await admin.consume_queue(addr, "Seen", 1, 99, 8)).queue_data == []
    assert await admin.groups_of_topic(addr, "Seen") == ["GS"]
    assert (await admin.consumer_progress("GS", "Seen"))[0].addr == addr


async def test_a_reset_reaches_members_of_apache_although_a_queue_is_idle(
    admin: AdminClient,
    broker: Broker,
    namesrv: NamesrvProcess,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Apache refuses that (code 1) as long as a queue has no offset; so the command stores one."""
    addr = broker.address
    await admin.create_topic(addr, TopicConfig("Idle", 2, 2))
    heard = []
    subscription = SubscriptionData("Idle")
    data = ConsumerData("GI", subscription_data_set=[subscription])
    request = RemotingCommand.request(34, body=HeartbeatData("c1", [], [data]).to_json())
    request.version = 413
    line = "admin resetOffset -g GI -t Idle --time now --namesrv"
    async with RemotingClient(on_request=lambda _, it: heard.append(it.code)) as client:
        await client.invoke(addr, RemotingCommand.request(310, send_header("Idle").to_v2(), b"x"))
        assert (await client.invoke(addr, request)).code == 0
        await admin.update_offset(addr, "GI", "Idle", 1, 0)
        with pytest.raises(BrokerError, match="not exist"):
            await admin.reset_offset(addr, "GI", "Idle", -1)
        assert await asyncio.to_thread(main, [*line.split(), namesrv.addr]) == 0
        shown = capsys.readouterr()
        assert shown.out.count("told its members") == 2, shown
        for _ in range(100):
            if RequestCode.RESET_CONSUMER_CLIENT_OFFSET in heard:
                break
            await asyncio.sleep(0.1)
        assert RequestCode.RESET_CONSUMER_CLIENT_OFFSET in heard


async def test_configuration_goes_to_apache_and_back(admin: AdminClient, broker: Broker) -> None:
    strange = "a\\b = é:#!"
    await admin.update_broker_config(
        broker.address, {"slaveReadEnable": "false", "messageDelayLevel": strange}
    )
    config = await admin.broker_config(broker.address)
    assert (config["slaveReadEnable"], config["messageDelayLevel"]) == ("false", strange)
    await admin.update_broker_config(broker.address, {"messageDelayLevel": "1s 5s"})


async def test_members_of_a_group(admin: AdminClient, broker: Broker) -> None:
    with pytest.raises(BrokerError, match="206"):
        await admin.consumer_connection(broker.address, "GM")
    subscription = SubscriptionData("TBW102", sub_version=5)
    beat = HeartbeatData("c1", [], [ConsumerData("GM", subscription_data_set=[subscription])])
    async with RemotingClient() as client:
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=beat.to_json())
        assert (await client.invoke(broker.address, request)).code == 0
        connection = await admin.consumer_connection(broker.address, "GM")
        assert [member.client_id for member in connection.connection_set] == ["c1"]
        assert connection.connection_set[0].language == "PYTHON"
        assert connection.subscription_table["TBW102"].sub_version == 5
        assert await admin.consumer_ids(broker.address, "GM") == ["c1"]


@pytest.mark.soak
def test_mqadmin_understands_our_name_server(
    namesrv: NamesrvProcess, broker: Broker, tmp_path: Path
) -> None:
    def run(*arguments: str) -> str:
        return mqadmin(tmp_path, arguments[0], "-n", namesrv.addr, *arguments[1:]).out

    def cluster_list() -> str:
        try:
            return run("clusterList")
        except AssertionError as error:  # an Apache broker has no rates before its first sample
            if "NoSuchElementException" not in str(error):
                raise
            return ""

    wait_until(lambda: f"127.0.0.1:{broker.port}" in cluster_list(), "the broker in clusterList")
    assert f'"brokerAddrs":{{0:"{broker.address}"' in run("topicRoute", "-t", "TBW102")
    assert "OK" in run("wipeWritePerm", "-b", "broker-a")
    assert "OK" in run("addWritePerm", "-b", "broker-a")
    run("updateOrderConf", "-t", "T", "-v", "broker-a:4", "-m", "put")
    assert "orderConf=[broker-a:4]" in run("updateOrderConf", "-t", "T", "-m", "get")
    assert "success" in run("updateNamesrvConfig", "-k", "ours", "-v", "x")
    assert "ours" in run("getNamesrvConfig")
