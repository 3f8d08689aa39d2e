"""Commands and the exporter tell the truth of real brokers, members and processes that stand still.

Two masters have the topic, each two queues of which one was never written.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from failback.cli.__main__ import main
from failback.cli.shared import asking
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol import calls
from failback.protocol.clients import ConsumerData, HeartbeatData, SubscriptionData
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import SendMessageRequestHeader
from failback.protocol.route import TopicConfig
from tests.support.common.polling import SCALE, wait_until
from tests.support.java.apache import Broker, NameServer
from tests.support.processes.exporter_process import Exporter

pytestmark = pytest.mark.foreign
TOPIC = "orders"
SENT = 10
Model = Literal["CLUSTERING", "BROADCASTING"]


class Cluster:
    """Two masters, their name server and an exporter."""

    def __init__(self, folder: Path) -> None:
        self.namesrv = NameServer("failback", folder / "namesrv")
        self.a, self.b = (
            Broker("failback", folder / name, self.namesrv.address, name=name)
            for name in ("broker-a", "broker-b")
        )
        self.namesrv.start()
        for each in (self.a, self.b):
            each.start()
        asyncio.run(self._fill())
        self.exporter = Exporter(folder, self.namesrv.address)

    async def _fill(self) -> None:
        async with AdminClient([self.namesrv.address]) as admin:
            for each in (self.a, self.b):
                await admin.create_topic(each.address, TopicConfig(TOPIC, 2, 2))
                for _ in range(SENT):
                    await send(admin, each.address)
            for _ in range(600):
                found = await admin.cluster_info()
                if len(found.broker_addr_table) == 2:
                    return
                await asyncio.sleep(0.1)

    def dispose(self) -> None:
        for each in (self.exporter, self.b, self.a, self.namesrv):
            each.process.dispose()


async def send(admin: AdminClient, address: str, queue: int = 0, topic: str = TOPIC) -> None:
    header = SendMessageRequestHeader("PG", topic, "TBW102", 4, queue, 0, 1, 0, "", 0)
    await admin.ask(address, RequestCode.SEND_MESSAGE, header, b"x")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("truth"))
    yield made
    made.dispose()


Told = tuple[int, str, str]


def tell(cluster: Cluster, line: str, capsys: pytest.CaptureFixture[str]) -> Told:
    code = main([*line.split(), "--namesrv", cluster.namesrv.address])
    return (code, *capsys.readouterr())


@asynccontextmanager
async def online(
    cluster: Cluster, group: str, model: Model = "CLUSTERING"
) -> AsyncIterator[list[RemotingCommand]]:
    """A member that hears what brokers tell it, and obeys nothing."""
    heard: list[RemotingCommand] = []

    def hear(_: str, request: RemotingCommand) -> None:
        heard.append(request)

    data = ConsumerData(group, "CONSUME_PASSIVELY", model, subscription_data_set=[
        SubscriptionData(TOPIC)
    ])  # fmt: skip
    call = calls.heartbeat(HeartbeatData(f"127.0.0.1@{group}", [], [data]))
    request = call.request()
    request.version = 413
    async with RemotingClient(on_request=hear) as client:
        for each in (cluster.a, cluster.b):
            answer = await client.invoke(each.address, request, 5000 * SCALE)
            assert answer.code == 0, answer.remark
        yield heard


def test_a_word_that_is_no_text_is_a_mistake(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in (
        "admin consumerProgress -g \udcff",
        "admin topicRoute -t \udcff",
        f"admin resetOffset -g \udcff -t {TOPIC} --time now",
        "admin getBrokerConfig -b \udcff",
        "admin updateBrokerConfig -b broker-a regionId=\udcff",
        "admin updateSubGroup -b broker-a -g \udcff",
        f"admin queryMsgByKey -t {TOPIC} -k \udcff",
        f"explain-offset \udcff {TOPIC} 0 --live --broker broker-a",
    ):
        code, out, err = tell(cluster, line, capsys)
        assert (code, out) == (2, ""), line
        assert "\\udcff" in err, "the word is named, and can be seen"


def test_a_value_in_other_letters_is_taken(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ("slaveReadEnable=TRUE", "fileReservedTime=072"):
        line = f"admin updateBrokerConfig -b broker-a {words}"
        code, out, err = tell(cluster, line, capsys)
        assert (code, err) == (0, ""), out
    code, out, err = tell(cluster, "admin updateBrokerConfig -b broker-a regionId=a", capsys)
    assert (code, err) == (0, "")


# --- resets ---------------------------------------------------------------------------------------


async def test_a_reset_reaches_a_member_although_queues_are_idle(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AdminClient() as admin, online(cluster, "idle") as heard:
        for each in (cluster.a, cluster.b):
            await admin.update_offset(each.address, "idle", TOPIC, 0, SENT)
        line = f"admin resetOffset -g idle -t {TOPIC} --time now"
        code, out, err = await asyncio.to_thread(tell, cluster, line, capsys)
        assert (code, err) == (0, "")
        assert out.count("told its members") == 4
        wanted = [RequestCode.RESET_CONSUMER_CLIENT_OFFSET] * 2
        for _ in range(100):
            told = [each.code for each in heard if each.code in wanted]
            if len(told) == 2:
                break
            await asyncio.sleep(0.1)
        assert told == wanted


async def test_an_offset_is_stored_and_explained(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def explained() -> Told:
        return tell(cluster, f"explain-offset g1 {TOPIC} 0 --live --broker broker-a", capsys)

    async with AdminClient() as admin:
        await admin.update_offset(cluster.a.address, "g1", TOPIC, 0, 5000)
        code, out, _ = await asyncio.to_thread(explained)
        assert code == 0
        assert "5000 lies 4990 beyond the end 10." in out
        assert "Safe offset: 10." in out
        (command,) = (line for line in out.splitlines() if "To set it: " in line)
        words = command.partition("To set it: failback ")[2]
        assert (await asyncio.to_thread(tell, cluster, words, capsys))[0] == 0
        _, out, _ = await asyncio.to_thread(explained)
        # The file may still hold 5000, as long as nothing else was written.
        now = [line for line in out.splitlines() if " master table " in line or " answer " in line]
        assert len(now) == 2
        assert "beyond" not in "".join(now)
        for text in ("1714564800", "4102444800000", "-5"):
            line = f"admin resetOffset -g g1 -t {TOPIC} --time {text}"
            code, _, err = await asyncio.to_thread(tell, cluster, line, capsys)
            assert code == 2, err
        assert await admin.query_offset(cluster.a.address, "g1", TOPIC, 0) == 10


# --- brokers that are missing ---------------------------------------------------------------------


def test_a_process_that_stands_still_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(asking, "ANSWER_MS", 2000.0 * SCALE)
    pid = cluster.b.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        for line in (
            f"admin resetOffset -g g2 -t {TOPIC} --time now",
            "admin consumerProgress -g g2",
            "admin clusterList",
        ):
            began = time.monotonic()
            code, out, err = tell(cluster, line, capsys)
            assert code == 3, err
            assert "broker-a" in out
            assert f"broker-b ({cluster.b.address}): took the question" in err
            assert time.monotonic() - began < 20 * SCALE
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_topic_that_one_broker_lost_is_said(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AdminClient([cluster.namesrv.address]) as admin:
        for each in (cluster.a, cluster.b):
            await admin.create_topic(each.address, TopicConfig("half", 1, 1))
        for _ in range(600):
            if len((await admin.route("half")).broker_datas) == 2:
                break
            await asyncio.sleep(0.1)
        await admin.delete_topic(cluster.b.address, "half")
        line = "admin resetOffset -g g3 -t half --time now"
        code, out, err = await asyncio.to_thread(tell, cluster, line, capsys)
    assert code == 1
    assert "broker-a" in out
    assert f"broker-b ({cluster.b.address}): has no topic half" in err


# --- figures --------------------------------------------------------------------------------------


def about(cluster: Cluster, group: str) -> dict[str, float]:
    """The exporter's samples of a group, those with the same name added up."""
    found: dict[str, float] = {}
    for line in cluster.exporter.lines():
        if f'group="{group}"' in line:
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found


LAG, LATENCY = "rocketmq_message_accumulation", "rocketmq_group_get_latency_by_storetime"


async def test_a_group_that_broadcasts_has_no_lag(cluster: Cluster) -> None:
    async with AdminClient() as admin:
        await admin.update_offset(cluster.a.address, "casts", TOPIC, 0, 5)
        await asyncio.to_thread(
            wait_until, lambda: about(cluster, "casts").get(LAG) == 5, "its lag", 60
        )
        async with online(cluster, "casts", "BROADCASTING"):
            await asyncio.to_thread(
                wait_until, lambda: LAG not in about(cluster, "casts"), "no lag", 60
            )
            assert LATENCY not in about(cluster, "casts")
        await asyncio.sleep(1)
        assert LAG not in about(cluster, "casts"), "also when its members have left"


async def test_of_a_deleted_group_nothing_is_left(cluster: Cluster) -> None:
    async with AdminClient() as admin:
        async with online(cluster, "leaves"):
            await admin.update_offset(cluster.a.address, "leaves", TOPIC, 0, 5)
            await asyncio.to_thread(
                wait_until, lambda: about(cluster, "leaves").get(LAG) == 5, "its lag", 60
            )
        for each in (cluster.a, cluster.b):
            await admin.delete_group(each.address, "leaves")
        await asyncio.to_thread(wait_until, lambda: not about(cluster, "leaves"), "nothing", 60)


async def test_a_quiet_time_makes_no_group_late(cluster: Cluster) -> None:
    """The message that was consumed last is old; the one that waits is not."""
    async with AdminClient() as admin:
        await admin.create_topic(cluster.a.address, TopicConfig("quiet", 1, 1))
        await send(admin, cluster.a.address, topic="quiet")
        await admin.update_offset(cluster.a.address, "calm", "quiet", 0, 1)
        await asyncio.to_thread(
            wait_until, lambda: about(cluster, "calm").get(LATENCY) == 0, "not late", 60
        )
        await asyncio.sleep(6)
        await send(admin, cluster.a.address, topic="quiet")
        began = time.monotonic()
        await asyncio.to_thread(
            wait_until, lambda: about(cluster, "calm").get(LATENCY, 0) > 0, "late", 60
        )
        latency_ms = about(cluster, "calm")[LATENCY]
        assert latency_ms <= (time.monotonic() - began) * 1000 + 200
