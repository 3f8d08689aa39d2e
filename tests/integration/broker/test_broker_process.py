"""A real broker process beside a real name server: serving, persisting, dying, coming back."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingError
from failback.protocol.message import BatchElement, MessageExt, decode_records, encode_batch
from failback.protocol.route import TopicConfig, parse_offset_table
from tests.support.brokers.broker_lab import pull_header, send_header
from tests.support.brokers.replica_lab import eventually
from tests.support.common.polling import until, wait_until
from tests.support.java.apache import Broker, NameServer
from tests.support.net.ports import free_port

QUICK = {"failbackTimeScale": 0.05}
"""Offsets are first persisted after 0.5 s, then every 0.25 s."""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: list[NameServer | Broker] = []

    def name_server(self) -> NameServer:
        node = NameServer("failback", self.folder / f"ns{len(self.nodes)}")
        self.nodes.append(node)
        node.start()
        return node

    def broker(self, namesrv: str = "", start: bool = True, **fields: Any) -> Broker:
        settings = QUICK | fields.pop("settings", {})
        folder = self.folder / f"broker{len(self.nodes)}"
        node = Broker("failback", folder, namesrv, settings=settings, **fields)
        self.nodes.append(node)
        if start:
            node.start()
        return node


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    for node in reversed(cluster.nodes):
        node.process.dispose()


async def send(
    client: RemotingClient, broker: Broker, body: bytes = b"hello", **fields: Any
) -> RemotingCommand:
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, send_header(**fields), body)
    return await client.invoke(broker.address, request)


async def pull(client: RemotingClient, broker: Broker, **fields: Any) -> RemotingCommand:
    request = RemotingCommand.request(RequestCode.PULL_MESSAGE, pull_header(**fields))
    return await client.invoke(broker.address, request, 20_000)


async def everything(client: RemotingClient, broker: Broker) -> list[MessageExt]:
    """Pull queue 0 of TopicTest to its end."""
    messages: list[MessageExt] = []
    while True:
        answer = await pull(client, broker, queue_offset=len(messages))
        if answer.code != 0:
            return messages
        messages += decode_records(answer.body)


def http(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


# --- serving ------------------------------------------------------------------------------------


@pytest.mark.sample
async def test_it_registers_serves_and_is_found_by_the_route(cluster: Cluster) -> None:
    ns = cluster.name_server()
    broker = cluster.broker(ns.address)
    ready = broker.process.lines()[0]
    assert ready == (
        f"The broker[broker-a, {broker.address}] boot success. serializeType=JSON "
        f"and name server is {ns.address}"
    )
    async with RemotingClient() as client, AdminClient([ns.address]) as admin:
        info = await admin.cluster_info()
        assert info.broker_addr_table["broker-a"].broker_addrs == {0: broker.address}
        assert (await send(client, broker)).code == 0
        batch = encode_batch([BatchElement(0, b"one", b""), BatchElement(0, b"two", b"")])
        assert (await send(client, broker, batch, batch=True)).code == 0
        assert [each.body for each in await everything(client, broker)] == [
            b"hello",
            b"one",
            b"two",
        ]
        # Auto-creation registers one-way: the route appears soon, not with the answer.
        for _ in range(100):
            if "TopicTest" in await admin.topic_list():
                break
            await asyncio.sleep(0.02)
        route = await admin.route("TopicTest")
        assert route.queue_datas[0].write_queue_nums == 4


async def test_a_created_topic_is_in_the_route_before_the_answer(cluster: Cluster) -> None:
    ns = cluster.name_server()
    broker = cluster.broker(ns.address)
    async with AdminClient([ns.address]) as admin:
        for number in range(5):
            topic = TopicConfig(f"Topic{number}", 2, 2)
            await admin.create_topic(broker.address, topic)
            route = await admin.route(topic.topic_name)
            assert route.queue_datas[0].read_queue_nums == 2


async def test_it_registers_with_every_name_server_that_lives(cluster: Cluster) -> None:
    first, second = cluster.name_server(), cluster.name_server()
    dead = f"127.0.0.1:{free_port()}"
    broker = cluster.broker(f"{first.address};{dead};{second.address}")
    for ns in (first, second):
        async with AdminClient([ns.address]) as admin:
            info = await admin.cluster_info()
            assert info.broker_addr_table["broker-a"].broker_addrs == {0: broker.address}


async def test_less_permission_is_registered_at_once(cluster: Cluster) -> None:
    ns = cluster.name_server()
    broker = cluster.broker(ns.address)
    async with AdminClient([ns.address]) as admin:
        await admin.create_topic(broker.address, TopicConfig("Orders", 2, 2))
        await admin.update_broker_config(broker.address, {"brokerPermission": "4"})
        assert (await admin.route("Orders")).queue_datas[0].perm == 4


async def test_a_held_pull_is_answered_when_a_message_comes(cluster: Cluster) -> None:
    broker = cluster.broker()
    async with RemotingClient() as producer, RemotingClient() as consumer:
        await send(producer, broker)
        held = asyncio.create_task(
            pull(consumer, broker, queue_offset=1, sys_flag=6, suspend_timeout_millis=15_000)
        )
        answer = await pull(producer, broker)
        assert answer.code == 0, "others are served meanwhile"
        assert not held.done()
        await send(producer, broker, b"new")
        assert [each.body for each in decode_records((await held).body)] == [b"new"]


async def test_a_held_pull_ends_at_its_time(cluster: Cluster) -> None:
    broker = cluster.broker()
    async with RemotingClient() as client:
        await send(client, broker)
        answer = await pull(client, broker, queue_offset=1, sys_flag=6, suspend_timeout_millis=100)
        assert answer.code == 19


async def test_binary_headers_are_answered_in_binary(cluster: Cluster) -> None:
    broker = cluster.broker()
    async with RemotingClient() as client:
        for code, header in (
            (RequestCode.SEND_MESSAGE_V2, send_header()),
            (RequestCode.PULL_MESSAGE, pull_header()),
            (RequestCode.GET_BROKER_RUNTIME_INFO, None),
        ):
            request = RemotingCommand.request(code, header, b"x")
            request.serialize_type = 1
            answer = await client.invoke(broker.address, request)
            assert (answer.code, answer.serialize_type) == (0, 1)


async def test_the_fast_port_serves_all_but_pulls(cluster: Cluster) -> None:
    broker = cluster.broker()
    fast = f"127.0.0.1:{broker.port - 2}"
    async with RemotingClient() as client:
        topics = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert (await client.invoke(fast, topics)).code == 0
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, pull_header())
        assert (await client.invoke(fast, request)).code == 3


async def test_synchronous_flush_answers_when_the_disk_has_it(cluster: Cluster) -> None:
    broker = cluster.broker(settings={"flushDiskType": "SYNC_FLUSH"})
    async with RemotingClient() as client:
        answers = await asyncio.gather(
            *(send(client, broker, b"%d" % number) for number in range(50))
        )
        assert [answer.code for answer in answers] == [0] * 50
        quick = await send(client, broker, properties="WAIT\x01false")
        assert quick.code == 0
        assert len(await everything(client, broker)) == 51


async def test_a_synchronous_master_without_slave_says_so_and_stores(cluster: Cluster) -> None:
    broker = cluster.broker(role="SYNC_MASTER")
    async with RemotingClient() as client:
        answer = await send(client, broker)
        assert answer.code == 11
        assert (answer.ext_fields or {})["queueOffset"] == "0"
        assert (await send(client, broker, properties="WAIT\x01false")).code == 0
        assert len(await everything(client, broker)) == 2


async def test_a_synchronous_master_waits_for_its_slave(cluster: Cluster) -> None:
    ns = cluster.name_server()
    master = cluster.broker(ns.address, role="SYNC_MASTER")
    slave = cluster.broker(ns.address, role="SLAVE", broker_id=1)
    async with RemotingClient() as client:

        async def acknowledged() -> bool:
            return (await send(client, master)).code == 0

        deadline = asyncio.get_running_loop().time() + 20
        while not await acknowledged():
            assert asyncio.get_running_loop().time() < deadline, "no slave in time"
            await asyncio.sleep(0.05)
        answers = await asyncio.gather(*(send(client, master) for _ in range(100)))
        assert {answer.code for answer in answers} == {0}
        count = len(await everything(client, master))
        slave.process.kill()
        late = await send(client, master)
        assert late.code in (11, 12)
        assert len(await everything(client, master)) == count + 1


@pytest.mark.sample
async def test_a_slave_copies_metadata_and_serves_alone(cluster: Cluster) -> None:
    ns = cluster.name_server()
    master = cluster.broker(ns.address)
    slave = cluster.broker(ns.address, role="SLAVE", broker_id=1)
    async with RemotingClient() as client, AdminClient([ns.address]) as admin:
        for number in range(20):
            assert (await send(client, master, b"%d" % number)).code == 0
        await admin.update_offset(master.address, "CG", "TopicTest", 0, 12)
        table = slave.store / "config" / "consumerOffset.json"
        await until(lambda: table.exists() and "TopicTest@CG" in table.read_text(), "the sync")
        master.process.kill()
        assert await admin.query_offset(slave.address, "CG", "TopicTest", 0) == 12
        assert len(await everything(client, slave)) == 20
        assert (await send(client, slave)).code == 14
        info = await admin.cluster_info()
        assert info.broker_addr_table["broker-a"].broker_addrs == {1: slave.address}


# --- offsets, configuration and restarts ----------------------------------------------------------


async def test_offsets_are_written_in_intervals_and_come_back_after_a_kill(
    cluster: Cluster,
) -> None:
    broker = cluster.broker()
    table = broker.store / "config" / "consumerOffset.json"
    async with AdminClient([]) as admin:
        await admin.update_offset(broker.address, "CG", "TopicTest", 0, 7)
        await until(lambda: table.exists() and "TopicTest@CG" in table.read_text(), "a persist")
        broker.kill()
    broker.process.start()
    broker.process.wait_for("boot success")
    async with AdminClient([]) as admin:
        assert await admin.query_offset(broker.address, "CG", "TopicTest", 0) == 7


async def test_what_was_committed_after_the_last_persist_dies_with_the_process(
    cluster: Cluster,
) -> None:
    broker = cluster.broker(settings={"flushConsumerOffsetInterval": 1_000_000})
    async with AdminClient([]) as admin:
        await admin.update_offset(broker.address, "CG", "TopicTest", 0, 5)
        table = broker.store / "config" / "consumerOffset.json"
        await until(table.exists, "the first persist")
        await admin.update_offset(broker.address, "CG", "TopicTest", 0, 9)
        broker.kill()
    broker.process.start()
    broker.process.wait_for("boot success")
    async with AdminClient([]) as admin:
        assert await admin.query_offset(broker.address, "CG", "TopicTest", 0) == 5


@pytest.mark.sample
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_kill_9_loses_no_acknowledged_message(cluster: Cluster, flush: str) -> None:
    broker = cluster.broker(settings={"flushDiskType": flush})
    acknowledged: list[int] = []

    async def produce(client: RemotingClient, first: int) -> None:
        number = first
        while True:
            try:
                answer = await send(client, broker, b"%d" % number)
            except RemotingError:
                return
            if answer.code == 0:
                acknowledged.append(number)
            number += 8

    async with RemotingClient() as client:
        producers = [asyncio.create_task(produce(client, first)) for first in range(8)]
        await until(lambda: len(acknowledged) > 500, "500 acknowledged messages", 30)
        broker.process.kill()
        await asyncio.gather(*producers)
    assert (broker.store / "abort").exists()
    broker.process.start()
    broker.process.wait_for("boot success")
    assert "last_stop=unclean" in broker.process.errors()
    async with RemotingClient() as client:
        messages = await everything(client, broker)
    stored = [int(message.body) for message in messages]
    assert set(acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))
    assert [message.queue_offset for message in messages] == list(range(len(messages)))


async def test_sigterm_stops_in_order_and_exits_with_0(cluster: Cluster) -> None:
    ns = cluster.name_server()
    broker = cluster.broker(ns.address)
    async with RemotingClient() as client, AdminClient([ns.address]) as admin:
        await send(client, broker)
        await admin.update_offset(broker.address, "CG", "TopicTest", 0, 1)
        held = asyncio.create_task(
            pull(client, broker, queue_offset=1, sys_flag=6, suspend_timeout_millis=15_000)
        )
        await asyncio.sleep(0)
        assert (broker.store / "abort").exists()
        assert await asyncio.to_thread(broker.stop) == 0
        with pytest.raises(RemotingError):
            await held
        assert not (broker.store / "abort").exists()
        text = (broker.store / "config" / "consumerOffset.json").read_text()
        assert parse_offset_table(text) == {"TopicTest@CG": {0: 1}}
        assert "broker-a" not in (await admin.cluster_info()).broker_addr_table
    assert "Traceback" not in broker.process.errors()
    broker.process.start()
    broker.process.wait_for("boot success")
    assert "last_stop=clean" in broker.process.errors()


async def test_a_live_change_is_shown_written_and_kept(cluster: Cluster) -> None:
    broker = cluster.broker(settings={"mySetting": "kept"})
    async with AdminClient([]) as admin:
        before = await admin.broker_config(broker.address)
        assert before["mySetting"] == "kept"
        wanted = {"slaveReadEnable": "false", "fileReservedTime": "24"}
        await admin.update_broker_config(broker.address, wanted)
        after = await admin.broker_config(broker.address)
        assert {key: after[key] for key in after if after[key] != before.get(key)} == wanted
    assert (broker.folder / "broker.conf.bak").exists()
    broker.stop()
    broker.process.start()
    broker.process.wait_for("boot success")
    async with AdminClient([]) as admin:
        assert await admin.broker_config(broker.address) == after


# --- health ---------------------------------------------------------------------------------------


async def test_health_says_when_it_is_ready_and_why_not(cluster: Cluster) -> None:
    port = free_port()
    ns = cluster.name_server()
    broker = cluster.broker(ns.address, settings={"failbackHttpPort": port})
    assert http(port, "/livez")[0] == 200
    assert http(port, "/readyz") == (200, "ok\n")
    ns.process.kill()
    wait_until(lambda: http(port, "/readyz")[0] == 503, "to notice the name server's death")
    assert http(port, "/readyz")[1] == "not registered\n"
    assert http(port, "/livez")[0] == 200
    assert http(port, "/nowhere")[0] == 404
    status, body = http(port, "/drainz")
    assert (status, json.loads(body)) == (202, {"remaining": 0})
    assert http(port, "/drainz", "POST")[0] == 200
    assert http(port, "/readyz") == (503, "draining\n")
    async with RemotingClient() as client:
        assert (await send(client, broker)).code == 14
        assert http(port, "/drainz", "DELETE")[0] == 200
        assert (await send(client, broker)).code == 0


async def test_metrics_count_what_happened(cluster: Cluster) -> None:
    port = free_port()
    broker = cluster.broker(settings={"failbackHttpPort": port})
    async with RemotingClient() as client, AdminClient([]) as admin:
        for _ in range(3):
            await send(client, broker)
        await pull(client, broker)
        await admin.update_offset(broker.address, "CG", "TopicTest", 0, 1)
    text = http(port, "/metrics")[1]
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[re.sub(r"\{.*", "", name)] = float(value)
    assert values["rocketmq_messages_in_total"] == 3
    assert values["rocketmq_messages_out_total"] == 3
    assert values["rocketmq_consumer_lag_messages"] == 2
    assert values["rocketmq_storage_size"] > 0


# --- what bad input gets ------------------------------------------------------------------------


def start_expecting(broker: Broker, code: int) -> str:
    """Start a broker that must not come up; return what it says."""
    with pytest.raises(AssertionError, match="ended before"):
        broker.start()
    assert broker.process._process is not None
    assert broker.process._process.wait() == code
    said = broker.process.errors()
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"listenPort": "many"}, 2, ("broker.conf:", ": listenPort: ", "'many'")),
        ({"flushDiskType": "NEVER"}, 2, ("flushDiskType", "ASYNC_FLUSH, SYNC_FLUSH")),
        ({"brokerRole": "SLAVE", "brokerId": 0}, 253, ("brokerId", "above 0 for a SLAVE")),
        ({"brokerIP1": "nowhere.invalid"}, 2, ("brokerIP1", "nowhere.invalid")),
    ],
)
def test_a_bad_configuration_gets_one_clear_line(
    cluster: Cluster, settings: dict[str, object], code: int, words: tuple[str, ...]
) -> None:
    said = start_expecting(cluster.broker(start=False, settings=settings), code)
    assert len(said.splitlines()) == 1
    for word in words:
        assert word in said


@pytest.mark.parametrize("distance", [0, -2, 1])
def test_a_taken_port_names_its_holder(cluster: Cluster, distance: int) -> None:
    broker = cluster.broker(start=False)
    with socket.create_server(("127.0.0.1", broker.port + distance)):
        said = start_expecting(broker, 2)
    assert f"127.0.0.1:{broker.port + distance}" in said
    assert f"held by pid {os.getpid()} (" in said, said
    assert not (broker.store / "abort").exists(), "the store was closed in order, if opened"


def test_an_address_of_another_machine_is_named(cluster: Cluster) -> None:
    settings = {"failbackBindAddress": "192.0.2.1"}
    said = start_expecting(cluster.broker(start=False, settings=settings), 2)
    assert "failbackBindAddress: cannot listen on 192.0.2.1" in said


@pytest.mark.foreign
async def test_a_broker_that_announces_another_machine_listens_everywhere(cluster: Cluster) -> None:
    """The file of a broker in a container names the container's host; so does Apache's broker."""
    ns = cluster.name_server()
    broker = cluster.broker(ns.address, settings={"brokerIP1": "192.0.2.10"})
    async with AdminClient([ns.address]) as admin:
        info = await admin.cluster_info()
        ((_, announced),) = info.broker_addr_table[broker.name].broker_addrs.items()
        assert announced == f"192.0.2.10:{broker.port}"
        for address in ("127.0.0.1", "127.0.0.9"):
            shown = await admin.broker_config(f"{address}:{broker.port}")
            assert shown["failbackBindAddress"] == "0.0.0.0"


@pytest.mark.parametrize("name", ["topics", "subscriptionGroup", "consumerOffset", "delayOffset"])
def test_an_unreadable_table_and_backup_stop_the_start(cluster: Cluster, name: str) -> None:
    broker = cluster.broker(start=False)
    folder = broker.store / "config"
    folder.mkdir(parents=True)
    for suffix in ("", ".bak"):
        (folder / f"{name}.json{suffix}").write_text("{broken")
    said = start_expecting(broker, 253)
    assert f"{name}.json" in said
    assert not (broker.store / "abort").exists()


def test_a_second_broker_on_the_same_store_is_refused(cluster: Cluster) -> None:
    first = cluster.broker()
    second = cluster.broker(start=False, settings={"storePathRootDir": first.store})
    said = start_expecting(second, 253)
    assert str(first.store) in said
    assert first.process.alive


def test_a_log_file_of_another_size_is_refused(cluster: Cluster) -> None:
    broker = cluster.broker()
    broker.stop()
    log = broker.store / "commitlog"
    log.mkdir(exist_ok=True)
    (log / f"{0:020d}").write_bytes(b"x" * 5000)
    said = start_expecting(broker, 253)
    assert f"{0:020d}" in said


async def test_a_bad_record_before_the_tail_stops_the_start_with_its_place(
    cluster: Cluster,
) -> None:
    broker = cluster.broker()
    async with RemotingClient() as client:
        for _ in range(10):
            await send(client, broker)
    broker.process.kill()
    path = broker.store / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    record = int.from_bytes(data[:4], "big")
    with path.open("r+b") as log:
        log.seek(3 * record + 90)  # in the body, which the CRC covers
        log.write(b"\xff\xff")
    said = start_expecting(broker, 253)
    assert str(path) in said
    assert str(3 * record) in said


async def test_a_torn_tail_is_cut_off_and_said(cluster: Cluster) -> None:
    broker = cluster.broker()
    async with RemotingClient() as client:
        for _ in range(10):
            await send(client, broker)
    broker.process.kill()
    path = broker.store / "commitlog" / f"{0:020d}"
    record = int.from_bytes(path.read_bytes()[:4], "big")
    with path.open("r+b") as log:
        log.seek(9 * record + 40)
        log.write(bytes(record - 40))
    broker.process.start()
    broker.process.wait_for("boot success")
    assert str(9 * record) in broker.process.errors()
    async with RemotingClient() as client:
        assert len(await everything(client, broker)) == 9
        answer = await send(client, broker)
        assert (answer.ext_fields or {})["queueOffset"] == "9"


def test_an_idle_broker_is_small(cluster: Cluster) -> None:
    broker = cluster.broker()
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    assert int(found[1]) < 80 * 1024


async def test_a_disk_that_refuses_writes_refuses_sends_and_loses_nothing_acknowledged(
    cluster: Cluster,
) -> None:
    broker = cluster.broker()
    acknowledged, refused = [0], ""
    async with RemotingClient() as client:
        assert (await send(client, broker, b"000")).code == 0  # creates the files at full size
        queue = broker.store / "consumequeue/TopicTest/0" / f"{0:020d}"
        await until(lambda: queue.exists() and queue.stat().st_size, "the queue's entries", 30)
        limit = 64 * 1024  # as if the disk were full: writes behind this byte of a file fail
        before = resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (limit, before[1]))
        for number in range(1, 1000):
            try:
                answer = await send(client, broker, b"%03d" % number + bytes(1000))
            except RemotingError:  # those of the run that found no room
                continue
            if answer.code != 0:
                refused = answer.remark or ""
                break
            acknowledged.append(number)
        assert refused
        assert 20 < len(acknowledged) < 64
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, before)

        async def is_taken() -> bool:
            return (await send(client, broker, b"999")).code == 0

        await eventually(is_taken, bool, "a send where there is room again")
    broker.kill()
    broker.process.start()
    broker.process.wait_for("boot success")
    async with RemotingClient() as client:
        stored = [int(message.body[:3]) for message in await everything(client, broker)]
    assert {*acknowledged, 999} <= set(stored)


async def test_old_files_go_and_the_broker_goes_on(cluster: Cluster) -> None:
    settings = {
        "mappedFileSizeCommitLog": 65536,
        "deleteWhen": ";".join(map(str, range(24))),
        "fileReservedTime": 0,
    }
    broker = cluster.broker(settings=settings)
    log = broker.store / "commitlog"
    async with RemotingClient() as client, AdminClient([]) as admin:
        for _ in range(40):
            assert (await send(client, broker, bytes(8000))).code == 0
        written = sorted(path.name for path in log.iterdir())
        assert len(written) >= 5
        await until(lambda: len(list(log.iterdir())) == 1, "the last file alone", 60)
        # The log's files go first: after a power loss no queue may lack what the log has.
        ask = partial(admin.min_offset, broker.address, "TopicTest", 0)
        low = await eventually(ask, bool, "the queue to begin later")
        assert (await pull(client, broker, queue_offset=0)).code == 21  # PULL_OFFSET_MOVED
        found = await pull(client, broker, queue_offset=low)
        assert decode_records(found.body)[0].queue_offset == low
        assert (await send(client, broker, b"new")).code == 0
    broker.kill()
    broker.start()
    async with AdminClient([]) as admin:
        assert await admin.min_offset(broker.address, "TopicTest", 0) == low
        assert await admin.max_offset(broker.address, "TopicTest", 0) == 41
