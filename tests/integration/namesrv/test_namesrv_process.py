"""The name server as a process: brokers come, die by SIGKILL or fall silent; it stops in order."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.namesrv.__main__ import main
from failback.protocol import headers
from failback.protocol.codes import ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, RemotingError, RemotingSendError
from failback.protocol.frames import FrameReader
from failback.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from tests.support.brokers.namesrv_process import NamesrvProcess, python_env
from tests.support.common.polling import SCALE, until

MIB = 1 << 20
BODY = RegisterBrokerBody(
    TopicConfigSerializeWrapper(
        {"T": TopicConfig("T", 8, 8), "U": TopicConfig("U")}, DataVersion(1000, 1)
    )
)

# A broker that registers once and then holds its connection until it is killed.
BROKER = """
import asyncio, sys
from failback.client.remoting.connection import RemotingClient
from failback.protocol.command import RemotingCommand
from failback.protocol import headers

async def main(namesrv, broker_id, body):
    header = headers.RegisterBrokerRequestHeader(
        "broker-a", f"10.0.0.{broker_id + 1}:10911", "C", "10.0.0.1:10912", broker_id)
    client = RemotingClient()
    answer = await client.invoke(namesrv, RemotingCommand.request(103, header, body))
    print(answer.code, (answer.ext_fields or {}).get("masterAddr"), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])))
"""


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[NamesrvProcess]:
    with NamesrvProcess(tmp_path) as process:
        yield process


@pytest.fixture
async def admin(namesrv: NamesrvProcess) -> AsyncIterator[AdminClient]:
    async with AdminClient([namesrv.addr]) as client:
        yield client


@pytest.fixture
def brokers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start_broker(
    brokers: list[subprocess.Popen[bytes]], namesrv: NamesrvProcess, broker_id: int
) -> tuple[subprocess.Popen[bytes], str]:
    """Start a broker process; return it and what its registration was answered."""
    process = subprocess.Popen(
        [sys.executable, "-c", BROKER, namesrv.addr, str(broker_id), BODY.to_json().hex()],
        stdout=subprocess.PIPE,
        env=python_env(),
    )
    brokers.append(process)
    assert process.stdout is not None
    return process, process.stdout.readline().decode().strip()


async def route_of(admin: AdminClient, topic: str) -> TopicRouteData | None:
    try:
        return await admin.route(topic)
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return None


async def addresses_become(admin: AdminClient, expected: dict[int, str]) -> None:
    """Poll the route of T until it shows exactly these addresses, none for no route."""
    deadline = time.monotonic() + 5 * SCALE
    while True:
        route = await route_of(admin, "T")
        addrs = route.broker_datas[0].broker_addrs if route else {}
        if addrs == expected:
            return
        assert time.monotonic() < deadline, f"still {addrs}, not {expected}"
        await asyncio.sleep(0.01)


def register(broker_id: int = 0, *, name: str = "broker-a") -> RemotingCommand:
    addr = f"10.0.0.{broker_id + 1}:10911"
    header = headers.RegisterBrokerRequestHeader(name, addr, "C", "10.0.0.1:10912", broker_id)
    return RemotingCommand.request(103, header, BODY.to_json())


async def test_killed_brokers_leave_the_routes_at_once(
    namesrv: NamesrvProcess, admin: AdminClient, brokers: list[subprocess.Popen[bytes]]
) -> None:
    master, answer = start_broker(brokers, namesrv, 0)
    assert answer == "0 None"
    _, answer = start_broker(brokers, namesrv, 1)
    assert answer == "0 10.0.0.1:10911"
    route = await admin.route("T")
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}

    master.kill()
    await addresses_become(admin, {1: "10.0.0.2:10911"})
    assert (await admin.route("T")).queue_datas[0].perm == 6  # consumers keep their queues

    _, answer = start_broker(brokers, namesrv, 0)  # and the master is back with one request
    assert answer == "0 None"
    assert len((await admin.route("T")).broker_datas[0].broker_addrs) == 2

    for process in brokers:
        process.kill()
    await addresses_become(admin, {})
    assert await admin.topic_list() == []


async def test_a_broker_that_only_talks_expires_and_its_connection_is_closed(
    tmp_path: Path,
) -> None:
    closed: list[str] = []

    def on_close(_: str, reason: str) -> None:
        closed.append(reason)

    # 120 s of silence become 1.2 s, a scan every 0.1 s.
    with NamesrvProcess(tmp_path, failbackTimeScale="0.01") as namesrv:
        async with RemotingClient(on_close=on_close) as client:
            await client.invoke(namesrv.addr, register())
            question = RemotingCommand.request(105, headers.GetRouteInfoRequestHeader("T"))
            assert (await client.invoke(namesrv.addr, question)).code == 0
            async with asyncio.timeout(20 * SCALE):
                while not closed:  # talks all the time, so it is not idleness that ends this
                    try:
                        await client.invoke(namesrv.addr, question)
                    except RemotingSendError:
                        break
                    await asyncio.sleep(0.02)
            assert (await client.invoke(namesrv.addr, question)).code == 17
            assert "broker expired addr=10.0.0.1:10911" in namesrv.log
            await client.invoke(namesrv.addr, register())  # and it may be re-consumed
            assert (await client.invoke(namesrv.addr, question)).code == 0


async def test_registering_again_keeps_a_broker_beyond_the_expiry(tmp_path: Path) -> None:
    with NamesrvProcess(tmp_path, failbackTimeScale="0.01") as namesrv:
        async with RemotingClient() as client:
            question = RemotingCommand.request(105, headers.GetRouteInfoRequestHeader("T"))
            loop = asyncio.get_running_loop()
            end = loop.time() + 2.5  # twice the expiry
            while loop.time() < end:
                await client.invoke(namesrv.addr, register())
                assert (await client.invoke(namesrv.addr, question)).code == 0
                await asyncio.sleep(0.05)


async def test_many_requests_in_one_write_and_binary_headers_are_answered(
    namesrv: NamesrvProcess,
) -> None:
    async with RemotingClient() as client:
        await client.invoke(namesrv.addr, register())
        requests = [
            RemotingCommand.request(105, headers.GetRouteInfoRequestHeader("T")) for _ in range(50)
        ]
        for request in requests[::2]:
            request.serialize_type = 1
        answers = await asyncio.gather(*(client.invoke(namesrv.addr, r) for r in requests))
        assert [answer.serialize_type for answer in answers] == [1, 0] * 25
        assert {answer.code for answer in answers} == {0}
        unknown = await client.invoke(namesrv.addr, RemotingCommand.request(9999))
        assert unknown.code == 3


async def test_garbage_closes_that_connection_only(namesrv: NamesrvProcess) -> None:
    async with RemotingClient() as client:
        await client.invoke(namesrv.addr, register())
        host, port = namesrv.addr.split(":")
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x08\x00\x00\x00\x04nope"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(garbage)
            assert await asyncio.wait_for(reader.read(), 5 * SCALE) == b""
            writer.close()
            await writer.wait_closed()
        question = RemotingCommand.request(105, headers.GetRouteInfoRequestHeader("T"))
        assert (await client.invoke(namesrv.addr, question)).code == 0


async def test_sigterm_stops_in_order_and_key_values_are_there_again(
    namesrv: NamesrvProcess,
) -> None:
    put = RemotingCommand.request(100, headers.PutKVConfigRequestHeader("ns", "k", "v"))
    async with RemotingClient() as client:
        await client.invoke(namesrv.addr, put)
        assert namesrv.terminate() == 0
        await until(lambda: not client.is_connected(namesrv.addr), "the connection is closed")
        with pytest.raises(RemotingError):
            await client.invoke(namesrv.addr, put)
    assert "stopped" in namesrv.log
    namesrv.start()
    async with AdminClient([namesrv.addr]) as admin:
        assert await admin.kv_list(namesrv.addr, "ns") == {"k": "v"}


@pytest.mark.sample
async def test_a_killed_name_server_has_its_key_values_and_learns_its_routes_anew(
    namesrv: NamesrvProcess,
) -> None:
    put = RemotingCommand.request(100, headers.PutKVConfigRequestHeader("ns", "k", "v"))
    async with RemotingClient() as client:
        await client.invoke(namesrv.addr, put)
        await client.invoke(namesrv.addr, register())
        namesrv.kill()
        namesrv.start()
        async with AdminClient([namesrv.addr]) as admin:
            assert await admin.kv_list(namesrv.addr, "ns") == {"k": "v"}
            assert await route_of(admin, "T") is None
            await client.invoke(namesrv.addr, register())
            assert await route_of(admin, "T") is not None


async def test_key_values_are_stored_read_and_forgotten_one_by_one(
    namesrv: NamesrvProcess,
) -> None:
    async with AdminClient([namesrv.addr]) as admin:
        assert await admin.kv(namesrv.addr, "ORDER_TOPIC_CONFIG", "paid") is None
        await admin.put_kv(namesrv.addr, "ORDER_TOPIC_CONFIG", "paid", "orders-0:8;orders-1:4")
        await admin.put_kv(namesrv.addr, "ORDER_TOPIC_CONFIG", "other", "orders-0:1")
        assert await admin.kv(namesrv.addr, "ORDER_TOPIC_CONFIG", "paid") == "orders-0:8;orders-1:4"
        await admin.delete_kv(namesrv.addr, "ORDER_TOPIC_CONFIG", "paid")
        await admin.delete_kv(namesrv.addr, "ORDER_TOPIC_CONFIG", "paid")
        assert await admin.kv_list(namesrv.addr, "ORDER_TOPIC_CONFIG") == {"other": "orders-0:1"}


def test_a_taken_port_names_the_address_and_its_holder(
    namesrv: NamesrvProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-c", str(namesrv.conf)]) == 2
    message = capsys.readouterr().err
    assert f"listenPort: cannot listen on {namesrv.addr}: the port is taken" in message
    assert f"it is held by pid {namesrv.pid} (" in message
    assert "failback.namesrv -c" in message


def test_health_and_memory(namesrv: NamesrvProcess) -> None:
    assert namesrv.http_status("/livez") == 200
    assert namesrv.http_status("/readyz") == 200
    assert namesrv.http_status("/other") == 404
    status = Path(f"/proc/{namesrv.pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) * 1024 < 50 * MIB


def test_answers_keep_their_order_around_what_waits_for_the_disk(namesrv: NamesrvProcess) -> None:
    """Everything in one write: puts, questions behind them, and many that take turns."""
    requests = []
    for number in range(30):
        put = headers.PutKVConfigRequestHeader("ns", f"k{number}", f"v{number}")
        get = headers.GetKVConfigRequestHeader("ns", f"k{number}")
        is_oneway = number % 3 == 0
        requests.append(RemotingCommand.request(100, put, oneway=is_oneway))
        requests.append(RemotingCommand.request(101, get))
        requests += [RemotingCommand.request(206) for _ in range(20)]
    for number, request in enumerate(requests):
        request.opaque = number
    host, port = namesrv.addr.split(":")
    reader, found = FrameReader(), list[RemotingCommand]()
    wanted = [request.opaque for request in requests if not request.is_oneway]
    with socket.create_connection((host, int(port)), timeout=30 * SCALE) as peer:
        peer.sendall(b"".join(request.encode() for request in requests))
        while len(found) < len(wanted):
            reader.receive_data(peer.recv(1 << 16))
            while (frame := reader.next_frame()) is not None:
                found.append(RemotingCommand.from_frame(frame))
    assert [answer.opaque for answer in found] == wanted
    values = [(answer.ext_fields or {}).get("value") for answer in found]
    assert [value for value in values if value] == [f"v{number}" for number in range(30)]
    assert {answer.code for answer in found} == {0}
