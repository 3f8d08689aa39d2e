"""The virtual loop, its network and the fake cluster are what the client's tests take them for."""

from __future__ import annotations

import asyncio

import pytest

from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.protocol.clients import ConsumerData, ConsumerIdList, HeartbeatData, SubscriptionData
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingConnectError, RemotingSendError, RemotingTimeout
from failback.protocol.message import decode_records
from failback.protocol.route import TopicRouteData
from tests.support.clients.fake_cluster import FakeCluster
from tests.support.common.virtual_time import (
    NothingLeftToHappen,
    network,
    now,
    run_virtual,
    until,
    virtual_time,
)


@virtual_time
async def test_hours_pass_at_once() -> None:
    await asyncio.sleep(24 * 3600)
    assert now() == 24 * 3600


def test_waiting_for_nothing_fails_instead_of_hanging() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(NothingLeftToHappen):
        run_virtual(main())


def test_errors_in_forgotten_tasks_fail_the_test() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_virtual(main())


@virtual_time
async def test_until_gives_up_after_its_time() -> None:
    with pytest.raises(AssertionError):
        await until(lambda: False, within=5)
    assert now() == pytest.approx(5, abs=0.02)


@virtual_time
async def test_streams_work_over_the_memory_network() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data.upper())
        writer.close()

    server = await asyncio.start_server(echo, "10.0.0.1", 80)
    reader, writer = await asyncio.open_connection("10.0.0.1", 80)
    writer.write(b"one ")
    writer.write(b"two")
    assert await reader.readexactly(7) == b"ONE TWO"
    writer.close()
    assert await reader.read() == b""
    server.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("10.0.0.1", 80)


@virtual_time
async def test_a_black_hole_swallows_connects_and_packets() -> None:
    cluster = FakeCluster()
    (broker,) = cluster.add_pair("a")
    client = RemotingClient(settings=RemotingSettings())
    request = RemotingCommand.request(
        RequestCode.GET_MAX_OFFSET, ext={"topic": "t", "queueId": "0"}
    )
    assert (await client.invoke(broker.addr, request)).ext_fields == {"offset": "0"}
    network().swallow(broker.address)
    with pytest.raises(RemotingTimeout):
        await client.invoke(broker.addr, request, 1000)
    begin = now()
    with pytest.raises(RemotingConnectError):
        await client.invoke(broker.addr, request, 5000)
    assert now() - begin == pytest.approx(3)
    network().swallow(broker.address, swallow=False)
    await asyncio.sleep(2)
    assert (await client.invoke(broker.addr, request)).code == 0
    await client.close()


@pytest.mark.parametrize(("reset", "error"), [(True, RemotingSendError), (False, RemotingTimeout)])
@virtual_time
async def test_a_killed_broker_closes_with_fin_or_rst(reset: bool, error: type[Exception]) -> None:
    cluster = FakeCluster()
    (broker,) = cluster.add_pair("a")
    broker.ignore(RequestCode.GET_MAX_OFFSET)
    client = RemotingClient(settings=RemotingSettings(fail_inflight_on_eof=False))
    asyncio.get_running_loop().call_later(1, lambda: broker.kill(reset=reset))
    with pytest.raises(error):
        await client.invoke(broker.addr, RemotingCommand.request(RequestCode.GET_MAX_OFFSET), 3000)
    await client.close()


async def beat(client: RemotingClient, addr: str, client_id: str) -> None:
    group = ConsumerData("g", subscription_data_set=[SubscriptionData("t", sub_version=1)])
    body = HeartbeatData(client_id, [], [group]).to_json()
    assert (await client.invoke(addr, RemotingCommand.request(34, body=body))).code == 0


@virtual_time
async def test_the_fake_broker_knows_members_by_connection_and_tells_them() -> None:
    cluster = FakeCluster()
    (broker,) = cluster.add_pair("a")
    told: list[str] = []
    clients = [
        RemotingClient(on_request=lambda addr, r, name=name: told.append(name))  # type: ignore[misc]
        for name in ("one", "two")
    ]
    await beat(clients[0], broker.addr, "one")
    await beat(clients[1], broker.addr, "two")
    await asyncio.sleep(0.1)
    assert sorted(told) == ["one", "one", "two"]
    request = RemotingCommand.request(38, ext={"consumerGroup": "g"})
    body = (await clients[0].invoke(broker.addr, request)).body
    assert sorted(ConsumerIdList.from_json(body).consumer_id_list) == ["one", "two"]
    await clients[1].close()
    await asyncio.sleep(0.1)
    assert broker.members("g") == {"one"}
    broker.kill()
    broker.boot()
    assert broker.members("g") == set()
    await clients[0].close()


@virtual_time
async def test_the_fake_broker_serves_holds_and_commits_pulls() -> None:
    cluster = FakeCluster()
    (broker,) = cluster.add_pair("a")
    cluster.fill(broker, "t", 0, 3)
    client = RemotingClient()

    def pull(offset: int, sys_flag: int = 2, commit: int = 0) -> RemotingCommand:
        ext = {
            "consumerGroup": "g",
            "topic": "t",
            "queueId": "0",
            "queueOffset": str(offset),
            "maxMsgNums": "2",
            "sysFlag": str(sys_flag),
            "commitOffset": str(commit),
            "suspendTimeoutMillis": "15000",
            "subVersion": "1",
        }
        return RemotingCommand.request(RequestCode.PULL_MESSAGE, ext=ext)

    assert (await client.invoke(broker.addr, pull(0))).code == 24
    await beat(client, broker.addr, "one")
    found = await client.invoke(broker.addr, pull(0, 3, 7))
    assert [m.queue_offset for m in decode_records(found.body)] == [0, 1]
    assert broker.offset("g", "t", 0) == 7
    assert (await client.invoke(broker.addr, pull(9))).code == 21
    begin = now()
    assert (await client.invoke(broker.addr, pull(3), 30_000)).code == 19
    assert now() - begin == pytest.approx(15, abs=0.01)
    asyncio.get_running_loop().call_later(4, lambda: cluster.fill(broker, "t", 0, 1))
    begin = now()
    assert (await client.invoke(broker.addr, pull(3), 30_000)).code == 0
    assert now() - begin == pytest.approx(4, abs=0.01)
    await client.close()


@virtual_time
async def test_the_fake_name_server_knows_who_is_registered() -> None:
    cluster = FakeCluster()
    master, slave = cluster.add_pair("a", slaves=1)
    cluster.add_topic("t", ["a"], 4)
    client = RemotingClient()
    request = RemotingCommand.request(105, ext={"topic": "t"})
    answer = await client.invoke(cluster.name_server.addr, request)
    route = TopicRouteData.from_json(answer.body)
    assert route.broker_datas[0].broker_addrs == {0: master.addr, 1: slave.addr}
    master.kill()
    answer = await client.invoke(cluster.name_server.addr, request)
    assert TopicRouteData.from_json(answer.body).broker_datas[0].broker_addrs == {1: slave.addr}
    slave.kill()
    assert (await client.invoke(cluster.name_server.addr, request)).code == 17
    await client.close()
