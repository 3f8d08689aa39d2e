"""Of several name servers one that is of no use costs nothing, and a name is all its addresses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import pytest

from failback.carry.asking import slaves_of
from failback.carry.keeper import MasterWatch
from failback.client.admin import name_servers
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, RemotingConnectError
from failback.protocol.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from failback.protocol.stats import TopicList
from tests.support.common.polling import until
from tests.support.net.ports import free_port
from tests.support.net.remoting_peer import RemotingPeer

Brokers = dict[str, tuple[str, dict[int, str]]]
PAIR: Brokers = {"broker-a": ("c1", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})}


def knowing(brokers: Brokers) -> Callable[[RemotingCommand], RemotingCommand]:
    """Answer 105, 106 and 206 as a name server with these brokers; all have the topic T."""
    table = {name: BrokerData(cluster, name, them) for name, (cluster, them) in brokers.items()}
    clusters: dict[str, list[str]] = {}
    for name, (cluster, _) in brokers.items():
        clusters.setdefault(cluster, []).append(name)
    bodies = {
        105: TopicRouteData([QueueData(name, 4, 4, 6) for name in table], list(table.values())),
        106: ClusterInfo(table, clusters),
        206: TopicList(["T"] if brokers else []),
    }

    def answer(request: RemotingCommand) -> RemotingCommand:
        if request.code == 105 and not brokers:
            return request.response(17, "No topic route info")
        return request.response(0, body=bodies[request.code].to_json())

    return answer


def silent(request: RemotingCommand) -> None:
    return None


USELESS: dict[str, tuple[Any, str]] = {
    "empty": (knowing({}), "does not know|has no route"),
    "slow": (silent, "no answer within"),
    "of another cluster": (knowing({"other": ("c2", {0: "10.0.1.1:10911"})}), "does not know"),
    "a part": (knowing({"broker-a": ("c1", {1: "10.0.0.2:10911"})}), "lists other members"),
    "unreadable": (lambda request: request.response(0, body=b"<html>"), "cannot be read"),
}


@pytest.mark.parametrize("question", ["route", "cluster_info", "topic_list"])
@pytest.mark.parametrize("kind", USELESS)
@pytest.mark.parametrize("first", [True, False])
async def test_a_useless_name_server_costs_nothing(
    kind: str, question: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_servers, "LATE_SECONDS", 0.05)
    answer, said = USELESS[kind]
    notes: list[str] = []
    async with RemotingPeer(answer) as useless, RemotingPeer(knowing(PAIR)) as good:
        servers = [useless.addr, good.addr] if first else [good.addr, useless.addr]
        async with AdminClient(servers, say=notes.append) as admin:
            for _ in range(3):
                if question == "route":
                    brokers = {it.broker_name: it for it in (await admin.route("T")).broker_datas}
                elif question == "cluster_info":
                    brokers = (await admin.cluster_info()).broker_addr_table
                else:
                    assert await admin.topic_list() == ["T"]
                    continue
                assert brokers["broker-a"].broker_addrs == PAIR["broker-a"][1]
    if question == "topic_list" and kind in ("of another cluster", "a part"):
        assert not notes
        return
    told = [note for note in notes if f"name server {useless.addr} " in note]
    assert len(told) == 1
    assert any(part in told[0] for part in said.split("|"))


async def test_a_silent_name_server_is_waited_for_once() -> None:
    async with RemotingPeer(silent) as slow, RemotingPeer(knowing(PAIR)) as good:
        async with AdminClient([slow.addr, good.addr], say=lambda _: None) as admin:
            for _ in range(20):
                await admin.route("T")
        assert len(slow.received) == 1


async def test_pairs_of_one_name_in_two_clusters_are_not_mixed() -> None:
    other: Brokers = {"broker-a": ("c2", {0: "10.9.9.9:10911", 2: "10.9.9.8:10911"})}
    notes: list[str] = []
    async with (
        RemotingPeer(knowing(PAIR)) as one,
        RemotingPeer(knowing(other)) as two,
        AdminClient([one.addr, two.addr], say=notes.append) as admin,
    ):
        info = await admin.cluster_info()
    assert info.broker_addr_table["broker-a"].broker_addrs == PAIR["broker-a"][1]
    assert {each.cluster for each in info.members()} == {"c1"}
    assert two.addr in "".join(notes)


async def test_no_route_is_raised_only_where_no_name_server_has_one() -> None:
    dead = f"127.0.0.1:{free_port()}"
    async with RemotingPeer(knowing({})) as empty:
        async with AdminClient([dead, empty.addr]) as admin:
            with pytest.raises(BrokerError, match="17"):
                await admin.route("T")
        async with AdminClient([dead]) as admin:
            with pytest.raises(RemotingConnectError, match=dead):
                await admin.route("T")


class Resolver:
    """Stands for a resolver: what a name is, changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "ns.test") -> None:
        self.hosts: list[str] = []
        loop = asyncio.get_running_loop()
        real = loop.getaddrinfo

        async def getaddrinfo(host: Any, port: Any, **rest: Any) -> Any:
            if host != name:
                return await real(host, port, **rest)
            if not self.hosts:
                raise socket.gaierror(socket.EAI_NONAME, "no such name")
            kinds = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in self.hosts]
            return [
                (kind, socket.SOCK_STREAM, 6, "", (each, port))
                for kind, each in zip(kinds, self.hosts, strict=True)
            ]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)


async def test_a_name_stands_for_its_addresses_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch)
    async with RemotingClient() as client:
        for hosts, expected in (
            ([], ("ns.test:9876",)),
            (["::1", "127.0.0.1"], ("ns.test:9876",)),
            (["127.0.0.3", "127.0.0.2", "127.0.0.2"], ("127.0.0.2:9876", "127.0.0.3:9876")),
            ([], ("127.0.0.2:9876", "127.0.0.3:9876")),
            (["fd00::1", "fd00::2", "10.0.0.1"], ("[fd00::1]:9876", "[fd00::2]:9876")),
        ):
            resolver.hosts = hosts
            assert await client.addresses_of("ns.test:9876") == expected
        for address in ("127.0.0.1:9876", "[::1]:9876", "no-port", ":"):
            assert await client.addresses_of(address) == (address,)


async def test_a_connection_follows_a_name_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, "localhost")  # uvloop connects by a resolver of its own
    resolver.hosts = ["127.0.0.1"]
    closed: list[tuple[str, str]] = []
    async with (
        RemotingPeer(knowing(PAIR)) as peer,
        RemotingClient(on_close=lambda addr, why: closed.append((addr, why))) as client,
    ):
        name = f"localhost:{peer.addr.rpartition(':')[2]}"
        admin = AdminClient([name], client=client)
        await admin.cluster_info()
        await admin.cluster_info()
        assert not closed
        resolver.hosts = ["127.0.0.9"]
        with contextlib.suppress(RemotingConnectError):
            await admin.cluster_info()
        await until(lambda: bool(closed), "the connection to the old address is closed", 5)
        assert closed == [(name, "its name has other addresses now")]


async def test_a_tool_asks_all_addresses_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch)
    resolver.hosts = ["127.0.0.1", "127.0.0.9"]  # nothing listens at the second
    notes: list[str] = []
    async with RemotingPeer(knowing(PAIR)) as peer:
        port = peer.addr.rpartition(":")[2]
        async with AdminClient([f"ns.test:{port}"], say=notes.append) as admin:
            assert (await admin.cluster_info()).broker_addr_table.keys() == {"broker-a"}
    assert any(f"127.0.0.9:{port}" in note for note in notes)


async def test_a_carry_and_a_keeper_ask_all_addresses_of_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = Resolver(monkeypatch)
    resolver.hosts = ["127.0.0.1", "127.0.0.9"]  # nothing listens at the second
    async with RemotingPeer(knowing(PAIR)) as peer:
        port = peer.addr.rpartition(":")[2]
        async with AdminClient([f"ns.test:{port}"]) as admin:
            slaves, problems = await slaves_of(admin, "c1", "broker-a")
            assert slaves == ["10.0.0.2:10911"]
            assert [each for each in problems if f"127.0.0.9:{port}" in each] == problems != []
            watch = MasterWatch(admin, "c1", "broker-a")
            assert not await watch.is_away()
            assert watch.address == "10.0.0.1:10911"
