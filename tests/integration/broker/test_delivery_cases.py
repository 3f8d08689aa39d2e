"""Cases from public reports on a real broker: retries, limits, topics made again, retry queues."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import PUT_ASIDE_TOPIC, RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import ConsumerSendMsgBackRequestHeader
from failback.protocol.message import parse_offset_msg_id
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.broker_lab import send_header
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.brokers.replica_lab import eventually
from tests.support.processes.child_process import failback_environment

pytestmark = pytest.mark.foreign

TOPIC = "orders"


class Client:
    """Asks one broker."""

    def __init__(self, client: RemotingClient, admin: AdminClient, address: str) -> None:
        self.client, self.admin, self.address = client, admin, address

    async def send(self, topic: str, body: bytes, properties: str = "") -> str:
        """Send; return the offset message id."""
        header = send_header(topic=topic, properties=properties)
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
        answer = await self.client.invoke(self.address, request, 30_000)
        assert answer.code == ResponseCode.SUCCESS, answer
        return (answer.ext_fields or {})["msgId"]

    async def send_back(self, group: str, message_id: str) -> int:
        header = ConsumerSendMsgBackRequestHeader(parse_offset_msg_id(message_id)[2], group, 1)
        request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        return (await self.client.invoke(self.address, request, 30_000)).code

    async def bodies(self, topic: str) -> list[bytes]:
        """Return what all queues hold that clients are told to read."""
        config = (await self.admin.all_topic_config(self.address)).topic_config_table.get(topic)
        found = []
        for queue_id in range(config.read_queue_nums if config else 0):
            end = await self.admin.max_offset(self.address, topic, queue_id)
            for offset in range(await self.admin.min_offset(self.address, topic, queue_id), end):
                page = await self.admin.consume_queue(self.address, topic, queue_id, offset, 1)
                (entry,) = page.queue_data
                message = await self.admin.view_message(self.address, entry.physic_offset)
                found.append(message.body)
        return found

    async def until(self, topic: str, wanted: list[bytes]) -> None:
        await eventually(lambda: self.bodies(topic), lambda found: found == wanted, topic, 30)


async def test_what_was_accepted_comes_whatever_else_there_is(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, time_scale=0.05) as cluster:
        async with AdminClient() as admin, RemotingClient() as client:
            broker = Client(client, admin, cluster.broker_addr)
            await admin.create_topic(broker.address, TopicConfig(TOPIC, 1, 1))
            await long_group(broker)
            await lowered_limit(broker)
            await retry_queues(broker)
            await put_aside(broker)
            await made_anew(broker, cluster)


async def long_group(broker: Client) -> None:
    """A group whose retry topic has too long a name (apache/rocketmq#5568)."""
    found = await broker.send(TOPIC, b"failed")
    await broker.send_back("g" * 121, found)
    assert [await broker.send_back("billing", found) for _ in range(2)] == [0, 0]
    await broker.until("%RETRY%billing", [b"failed"] * 2)


async def lowered_limit(broker: Client) -> None:
    """maxMessageSize falls below a message that waits (apache/rocketmq#4226)."""
    await broker.send(TOPIC, b"x" * 200_000, "DELAY\x012")
    await broker.admin.update_broker_config(broker.address, {"maxMessageSize": "65536"})
    await broker.send(TOPIC, b"small", "DELAY\x012")
    await broker.until(TOPIC, [b"failed", b"x" * 200_000, b"small"])


async def retry_queues(broker: Client) -> None:
    """The group gets more retry queues than its retry topic has (apache/rocketmq#3953)."""
    found = await broker.send(TOPIC, b"failed")
    config = SubscriptionGroupConfig("billing", retry_queue_nums=4)
    await broker.admin.create_group(broker.address, config)
    assert {await broker.send_back("billing", found) for _ in range(24)} == {0}
    await broker.until("%RETRY%billing", [b"failed"] * 26)


async def put_aside(broker: Client) -> None:
    """A topic is deleted while a message waits for it: a command shows the message."""
    await broker.admin.create_topic(broker.address, TopicConfig("doomed", 1, 1))
    await broker.send("doomed", b"orphan", "DELAY\x012")
    await broker.admin.delete_topic(broker.address, "doomed")
    await broker.until(PUT_ASIDE_TOPIC, [b"orphan"])
    command = [
        sys.executable,
        "-m",
        "failback.cli",
        "admin",
        "putAside",
        "-b",
        broker.address,
        "--json",
    ]
    shown = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, check=True, env=failback_environment()
    )
    (row,) = json.loads(shown.stdout)
    assert (row["topic"], row["bytes"]) == ("doomed", 6)
    assert row["reason"] == "this broker has no such topic"


async def made_anew(broker: Client, cluster: ClusterProcesses) -> None:
    """A topic is deleted and made again, then the broker is killed (apache/rocketmq#1852)."""
    await broker.admin.update_offset(broker.address, "billing", TOPIC, 0, 3)
    await broker.admin.delete_topic(broker.address, TOPIC)
    await broker.admin.create_topic(broker.address, TopicConfig(TOPIC, 1, 1))
    assert await broker.admin.query_offset(broker.address, "billing", TOPIC, 0) == 0
    await broker.send(TOPIC, b"new0")
    cluster.broker.kill()
    cluster.start_broker()
    await broker.until(TOPIC, [b"new0"])
    assert await broker.admin.query_offset(broker.address, "billing", TOPIC, 0) == 0
