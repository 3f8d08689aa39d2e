"""Heartbeats as other clients write them, and what strange bodies cost servers: real processes."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from failback.client.remoting.connection import RemotingClient
from failback.protocol.clients import ConsumerIdList
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    GetConsumerListByGroupRequestHeader,
    RegisterBrokerRequestHeader,
)
from tests.support.common.polling import SCALE
from tests.support.common.shapes import REPEATED, SHAPES
from tests.support.java.apache import Broker, NameServer
from tests.support.processes.peak_memory import reset_peak, status_bytes

pytestmark = pytest.mark.foreign

MIB: Final = 1 << 20
LIMIT_BYTES: Final = 64 * MIB


class Servers(NamedTuple):
    broker: Broker
    name_server: NameServer


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("servers")
    name_server = NameServer("failback", folder / "ns")
    name_server.start()
    broker = Broker("failback", folder / "broker", name_server.address)
    try:
        broker.start()
        yield Servers(broker, name_server)
    finally:
        broker.process.dispose()
        name_server.process.dispose()


HEARTBEATS: Final = {
    "the C++ client: enums by number": (
        '{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":'
        '"billing","messageModel":1,"subscriptionDataSet":[{"codeSet":[0],"subString":"*",'
        '"subVersion":"1","tagsSet":["*"],"topic":"orders"}]}],"producerDataSet":[]}'
    ),
    "a .NET client: capitals": (
        '{"ClientID":"c","ConsumerDataSet":[{"GroupName":"billing","ConsumeFromWhere":'
        '"CONSUME_FROM_LAST_OFFSET","ConsumeType":"CONSUME_PASSIVELY","MessageModel":"CLUSTERING",'
        '"SubscriptionDataSet":[{"Topic":"orders","SubString":"*","SubVersion":1}]}],'
        '"ProducerDataSet":[{"GroupName":"payers"}]}'
    ),
    "null for all that may be empty": (
        '{"clientID":"c","consumerDataSet":[{"groupName":"billing","consumeType":null,'
        '"messageModel":null,"consumeFromWhere":null,"unitMode":null,"subscriptionDataSet":null}],'
        '"producerDataSet":null}'
    ),
    "fields of newer clients": (
        '{"clientID":"c","consumerDataSet":[{"groupName":"billing","subscriptionDataSet":[]}],'
        '"heartbeatFingerprint":7,"withoutSub":false,"isWithoutSub":false}'
    ),
}


@pytest.mark.parametrize("client_name", HEARTBEATS)
async def test_a_heartbeat_makes_a_member(servers: Servers, client_name: str) -> None:
    address = servers.broker.address
    async with RemotingClient() as client:
        beat = RemotingCommand.request(
            RequestCode.HEART_BEAT, body=HEARTBEATS[client_name].encode()
        )
        answer = await client.invoke(address, beat, 10_000 * SCALE)
        assert (answer.code, answer.remark) == (0, None)
        who = RemotingCommand.request(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader("billing")
        )
        members = await client.invoke(address, who, 10_000 * SCALE)
    assert ConsumerIdList.from_json(members.body).consumer_id_list == ["c"]


async def peak_above_rest(pid: int, address: str, requests: Iterator[RemotingCommand]) -> int:
    reset_peak(pid)
    rest = status_bytes("VmRSS", pid)
    async with RemotingClient() as client:
        for request in requests:
            answer = await client.invoke(address, request, 60_000 * SCALE)
            assert answer.code in (0, 1), "taken or refused"
    return status_bytes("VmHWM", pid) - rest


@pytest.mark.parametrize(("server", "most"), [("broker", 256 * MIB), ("name_server", 128 * MIB)])
async def test_requests_that_never_end_cost_no_more_than_their_bound(
    servers: Servers, server: str, most: int
) -> None:
    """40 strangers begin a request of 16 MiB each and send nearly all of it: 560 MiB."""
    node: Broker | NameServer = getattr(servers, server)
    host, port = node.address.split(":")
    reset_peak(node.process.pid)
    rest = status_bytes("VmRSS", node.process.pid)
    with contextlib.ExitStack() as strangers:
        for _ in range(40):
            stranger = strangers.enter_context(socket.create_connection((host, int(port))))
            stranger.settimeout(30 * SCALE)
            with contextlib.suppress(ConnectionError):
                stranger.sendall(struct.pack(">II", 16 * MIB - 4, 100) + bytes(14 * MIB))
        async with RemotingClient() as client:
            request = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            assert (await client.invoke(node.address, request, 30_000 * SCALE)).code in (0, 3)
        assert status_bytes("VmHWM", node.process.pid) - rest < most + LIMIT_BYTES
    assert "is not whole" in node.process.errors()


async def test_heartbeats_of_4_mib_cost_a_broker_little(servers: Servers) -> None:
    chance = random.Random(1)
    requests = (
        RemotingCommand.request(RequestCode.HEART_BEAT, body=SHAPES[name](chance, 4 * MIB))
        for name in REPEATED
    )
    broker = servers.broker
    assert await peak_above_rest(broker.process.pid, broker.address, requests) < LIMIT_BYTES


@pytest.mark.parametrize("compressed", [False, True])
async def test_registrations_of_4_mib_cost_a_name_server_little(
    servers: Servers, compressed: bool
) -> None:
    chance = random.Random(2)
    header = RegisterBrokerRequestHeader(
        broker_name="b",
        broker_addr="127.0.0.1:9",
        cluster_name="c",
        ha_server_addr="127.0.0.1:8",
        broker_id=0,
        compressed=compressed,
        body_crc32=0,
    )
    shapes = (SHAPES[name](chance, 4 * MIB) for name in REPEATED if "text" in name)
    bodies = (zlib.compress(shape) if compressed else shape for shape in shapes)
    requests = (
        RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body) for body in bodies
    )
    process = servers.name_server.process
    address = servers.name_server.address
    assert await peak_above_rest(process.pid, address, requests) < LIMIT_BYTES
