"""What a name server keeps, writes and does for what it is sent."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from failback.client.remoting.connection import RemotingClient
from failback.common.replacing import rewrite_file
from failback.namesrv import kv_config, server
from failback.namesrv import routes as route_tables
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.kv_config import KVConfigManager
from failback.namesrv.processor import Processor
from failback.namesrv.routes import Registration, RouteInfoManager
from failback.namesrv.server import NameServer
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import RegisterBrokerRequestHeader
from failback.protocol.names import TableFull
from failback.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tests.support.common.polling import SCALE, until

pytestmark = pytest.mark.foreign


def of(
    name: str, cluster: str = "C", *, broker_id: int = 0, addr: str = "", topics: int = 1
) -> Registration:
    table = {f"T{number}": TopicConfig(f"T{number}") for number in range(topics)}
    wrapper = TopicConfigSerializeWrapper(table, DataVersion(1, topics))
    address = addr or f"{name}:{broker_id}"
    return Registration(cluster, name, broker_id, address, "", wrapper, (), address)


def test_a_cluster_leaves_with_its_last_broker_whichever_cluster_is_named() -> None:
    routes = RouteInfoManager()
    for number in range(50):
        routes.register_broker(of(f"b{number}", f"c{number}"), 0)
        routes.register_broker(of(f"b{number}", f"d{number}"), 0)
        routes.unregister_broker("other", f"b{number}", 0, f"b{number}:0")
        assert routes.route("T0") is not None, "it is in no cluster that is called so"
        if number % 2:
            routes.unregister_broker(f"c{number}", f"b{number}", 0, f"b{number}:0")
        else:
            routes.channel_lost(f"b{number}:0")
    assert routes.cluster_info().cluster_addr_table == {}
    assert routes.live_brokers() == {}
    assert routes._all_bytes == 0
    assert not routes._bytes


def test_one_address_has_no_more_names_ids_and_clusters_than_there_may_be_brokers() -> None:
    routes = RouteInfoManager(most_brokers=10)
    refused = 0
    for number in range(40):
        for registration in (
            of(f"b{number}", addr="a:1"),
            of("b", broker_id=number, addr="a:1"),
            of("b", f"c{number}", addr="a:1"),
        ):
            try:
                routes.register_broker(registration, 0)
            except TableFull:
                refused += 1
    info = routes.cluster_info()
    ids = sum(len(broker.broker_addrs) for broker in info.broker_addr_table.values())
    assert (ids, len(info.cluster_addr_table)) <= (10, 10)
    assert refused > 40


def test_queues_of_a_broker_and_of_all_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_tables, "MOST_BROKER_BYTES", 20_000)
    monkeypatch.setattr(route_tables, "MOST_BYTES", 50_000)
    routes = RouteInfoManager()
    for number in range(10):
        routes.register_broker(of(f"b{number}", topics=1000), 0)
    pairs = [len(routes._topics[topic]) for topic in routes.all_topics()]
    assert 300 < sum(pairs) < 50_000 / 128
    assert routes.route("T0") is not None
    for number in range(10):
        routes.channel_lost(f"b{number}:0")
    assert (routes._all_bytes, routes.all_topics()) == (0, [])


def test_the_answer_of_all_brokers_is_kept_until_one_comes_or_goes() -> None:
    routes = RouteInfoManager()
    routes.register_broker(of("a"), 0)
    first = routes.cluster_answer()
    routes.register_broker(of("a"), 1)
    assert routes.cluster_answer() is first
    changes = (
        lambda: routes.register_broker(of("a", broker_id=1), 2),
        lambda: routes.register_broker(of("a", broker_id=1, addr="new:1"), 2),
        lambda: routes.register_broker(of("a", "D"), 2),
        lambda: routes.unregister_broker("C", "a", 0, "a:0"),
        lambda: routes.expire(10**9),
    )
    for change in changes:
        before = routes.cluster_answer()
        change()
        assert routes.cluster_answer() == routes.cluster_info().to_json() != before


def test_keys_and_values_have_a_bound_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_config, "MOST_BYTES", 1000)
    table = KVConfigManager(tmp_path / "kvConfig.json")
    table.put("ns", "a", "x" * 900)
    with pytest.raises(TableFull, match="bytes of keys and values"):
        table.put("ns", "b", "y" * 200)
    table.put("ns", "a", "x")
    table.put("ns", "b", "y" * 200)
    assert table.namespace("ns") == {"a": "x", "b": "y" * 200}


class Disk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.writes = 0
        self.error: OSError | None = None

        def counted(path: Path, content: bytes) -> None:
            self.open.wait()
            self.writes += 1
            if self.error is not None:
                raise self.error
            rewrite_file(path, content)

        monkeypatch.setattr(kv_config, "rewrite_file", counted)


async def test_many_puts_share_writes_and_are_seen_when_they_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    table = KVConfigManager(tmp_path / "kvConfig.json")
    puts = [table.put("ns", f"k{number}", "v" * 100) for number in range(50)]
    await asyncio.sleep(0.01)
    puts.append(table.put("ns", "late", "v"))
    assert table.get("ns", "k0") is None
    disk.open.set()
    await asyncio.gather(*(put for put in puts if put is not None))
    assert len(puts) == 51
    assert disk.writes == 2
    again = KVConfigManager(tmp_path / "kvConfig.json")
    again.load()
    assert again.namespace("ns") == table.namespace("ns")
    assert len(again.namespace("ns") or {}) == 51


async def test_a_put_that_the_disk_refuses_is_undone_and_what_rests_on_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    table = KVConfigManager(tmp_path / "kvConfig.json")
    disk.error = OSError(28, "no room")
    first = table.put("ns", "a", "1")
    await asyncio.sleep(0.01)
    second = table.put("ns", "b", "2")
    assert first is not None
    assert second is not None
    disk.open.set()
    for put in (first, second):
        with pytest.raises(OSError, match="no room"):
            await put
    assert table.namespace("ns") is None
    disk.error = None
    third = table.put("ns", "c", "3")
    assert third is not None
    await third
    assert table.namespace("ns") == {"c": "3"}


async def test_answers_that_nobody_reads_have_a_bound_for_all_peers_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_UNREAD_BYTES", 2 << 20)
    config = NamesrvConfig({"listenPort": "0", "failbackHttpPort": "0", "user.home": str(tmp_path)})
    found, shutdown, ready = NameServer(config), asyncio.Event(), asyncio.Event()
    found.routes.register_broker(of("b", topics=10_000), found._clock_ms())
    task = asyncio.create_task(found.run(shutdown, ready.set))
    await ready.wait()
    question = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).encode()
    peers = []
    for _ in range(12):
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", found.port))
        peer.sendall(question * 40)
        peers.append(peer)
        await asyncio.sleep(0.02)
        held = sum(each.unread_bytes for each in found.connections)
        assert held < (2 << 20) + 2 * len(found.connections) * 150_000
    await until(lambda: found.refusals.counts["unread"] > 5, "peers that are cut")
    async with RemotingClient() as client:
        call = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        answer = await client.invoke(f"127.0.0.1:{found.port}", call, 30_000 * SCALE)
        assert len(answer.body) > 75_000, "others are answered"
    for peer in peers:
        peer.close()
    shutdown.set()
    await task


def registered(topics: int, **settings: str) -> RemotingCommand:
    """Register a broker with so many topics in the compressed form; return the answer."""
    config = NamesrvConfig(settings)
    body = RegisterBrokerBody(of("b", topics=topics).topics, []).to_compressed()
    header = RegisterBrokerRequestHeader("b", "127.0.0.1:10911", "C", "", 0, compressed=True)
    request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body=body)
    processor = Processor(RouteInfoManager(), KVConfigManager(Path("none.json")), config, lambda: 0)
    answer = processor.process(request, "channel")
    assert isinstance(answer, RemotingCommand)
    assert processor.full_tables == (answer.code != 0)
    return answer


def test_a_compressed_registration_of_a_large_cluster_is_taken_where_its_bound_allows() -> None:
    refused = registered(30_000).remark or ""
    assert "registration of b at 127.0.0.1:10911 is not taken" in refused
    assert "failbackMaxRegistrationBytes" in refused
    assert registered(30_000, failbackMaxRegistrationBytes=str(4 << 20)).code == 0
