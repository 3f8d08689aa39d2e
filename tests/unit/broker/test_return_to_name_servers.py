"""A name server that comes back learns the routes at once, and nothing else waits for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from failback.broker.cluster.outer_api import BrokerOuterApi
from failback.broker.cluster.registration import Registration
from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.topics import TopicConfigManager
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.server import NameServer
from tests.support.common.polling import until
from tests.support.net.ports import free_port

pytestmark = pytest.mark.foreign

SCALE = 0.05


class Servers:
    """Name servers in this process, at ports that stay theirs."""

    def __init__(self, folder: Path, count: int, hosts: tuple[str, ...] = ("127.0.0.1",)) -> None:
        self.folder = folder
        self.ports = [free_port() for _ in range(count)] if len(hosts) == 1 else [free_port()] * 2
        self.hosts = hosts * count
        self.running: dict[int, tuple[NameServer, asyncio.Event, asyncio.Task[None]]] = {}

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.ports]

    async def start(self, number: int) -> None:
        properties = {
            "listenPort": str(self.ports[number]),
            "bindAddress": self.hosts[number],
            "kvConfigPath": str(self.folder / "kvConfig.json"),
        }
        server, stop, ready = (
            NameServer(NamesrvConfig(properties)),
            asyncio.Event(),
            asyncio.Event(),
        )
        task = asyncio.create_task(server.run(stop, ready.set))
        await ready.wait()
        self.running[number] = server, stop, task

    async def stop(self, number: int) -> None:
        _, stop, task = self.running.pop(number)
        stop.set()
        await task

    def knows(self, number: int) -> bool:
        return self.running[number][0].routes.route("TBW102") is not None

    async def wait_for_routes(self, number: int) -> None:
        await until(lambda: self.knows(number), "the routes of who came back", 10)


class Broker:
    """The part of a broker that registers. Its periodic registration is called by hand."""

    def __init__(self, folder: Path, addresses: list[str]) -> None:
        settings = {
            "brokerName": "a",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": ";".join(addresses),
            "failbackTimeScale": str(SCALE),
        }
        self.config = BrokerConfig.from_properties(settings)
        self.client = RemotingClient(
            settings=RemotingSettings(time_scale=SCALE),
            on_close=lambda address, _: self.registration.name_server_lost(address),
        )
        self.registration = Registration(
            config=self.config,
            identity=BrokerIdentity.of(self.config),
            topics=TopicConfigManager(folder / "topics.json", self.config),
            outer=BrokerOuterApi(self.client, addresses, timeout_ms=1_000),
            on_result=lambda _: None,
        )


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    servers = Servers(tmp_path, 2)
    yield servers
    for number in list(servers.running):
        await servers.stop(number)


@pytest.fixture
async def broker(tmp_path: Path, servers: Servers) -> AsyncIterator[Broker]:
    broker = Broker(tmp_path, servers.addresses)
    yield broker
    await broker.registration.unregister()
    await broker.client.close()


async def test_a_roll_of_name_servers_never_leaves_all_without_routes(
    servers: Servers, broker: Broker
) -> None:
    await servers.start(0)
    await servers.start(1)
    await broker.registration.register_all()
    for number in (0, 1, 0):
        await servers.stop(number)
        assert servers.knows(1 - number)
        await servers.start(number)
        await servers.wait_for_routes(number)


async def test_a_name_server_that_was_not_there_at_the_start_learns_the_routes(
    servers: Servers, broker: Broker
) -> None:
    await servers.start(0)
    await broker.registration.register_all()
    assert broker.registration.registered_at == 1
    await servers.start(1)
    await servers.wait_for_routes(1)


async def test_who_leaves_does_not_come_back(servers: Servers, broker: Broker) -> None:
    await servers.start(0)
    await broker.registration.register_all()
    await broker.registration.unregister()
    assert not servers.knows(0)
    await servers.stop(0)
    await servers.start(0)
    await asyncio.sleep(0.2)
    assert not servers.knows(0)


async def test_a_name_server_that_was_taken_off_the_list_is_left_alone(
    servers: Servers, broker: Broker
) -> None:
    await servers.start(0)
    await servers.start(1)
    await broker.registration.register_all()
    await servers.stop(1)
    broker.registration.outer.name_servers = tuple(servers.addresses[:1])
    await servers.start(1)
    await asyncio.sleep(0.2)
    assert not servers.knows(1)


async def test_a_name_of_two_addresses_is_both_name_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers(tmp_path, 2, ("127.0.0.1", "127.0.0.2"))
    hosts = list(servers.hosts[:1])
    loop = asyncio.get_running_loop()
    real = loop.getaddrinfo

    async def getaddrinfo(host: Any, port: Any, **rest: Any) -> Any:
        if host != "ns.test":
            return await real(host, port, **rest)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    for number in (0, 1):
        await servers.start(number)
    broker = Broker(tmp_path, [f"ns.test:{servers.ports[0]}"])
    await broker.registration.register_all()
    assert (servers.knows(0), servers.knows(1)) == (True, False)
    hosts.append("127.0.0.2")
    await broker.registration.register_all()
    assert servers.knows(1)
    await servers.stop(1)
    await servers.start(1)
    await servers.wait_for_routes(1)
    await broker.registration.unregister()
    assert not servers.knows(0)
    assert not servers.knows(1)
    await broker.client.close()
    for number in (0, 1):
        await servers.stop(number)
