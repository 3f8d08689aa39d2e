"""What a request makes a server write, compute and keep is in proportion to its bytes: every code.

:data:`LIMITS` is the one table of it. The kernel counts all three, of real processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from failback.broker.processors.compose import handled_codes
from failback.client.remoting.connection import RemotingClient
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.kv_config import KVConfigManager
from failback.namesrv.processor import Processor
from failback.namesrv.routes import RouteInfoManager
from failback.protocol.clients import ConsumerData, HeartbeatData
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingError
from failback.protocol.headers import PutKVConfigRequestHeader, RegisterBrokerRequestHeader
from failback.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tests.support.common.polling import SCALE
from tests.support.java.apache import Broker, NameServer

pytestmark = pytest.mark.foreign


class Limit(NamedTuple):
    """Of what a load may cost, per byte that it sends."""

    written_bytes: float
    cpu_us: float
    kept_bytes: float
    """Of memory, once all is answered."""


LIMITS: Final = {
    "any code": Limit(20, 40, 20),
    "new groups of heartbeats": Limit(50, 60, 60),
    # One at a time: each costs a write of the whole table and of its .bak, 1 MiB each at most.
    "keys and values": Limit(110, 60, 10),
    "registrations": Limit(1, 60, 20),
}
SLACK: Final = Limit(1 << 20, 1_000_000, 16 << 20)
"""What a server does besides, while it is measured."""

Requests = Iterator[RemotingCommand]


def heartbeats() -> Requests:
    for number in range(50):
        groups = [ConsumerData(f"b{number:02d}{each:04d}") for each in range(1000)]
        body = HeartbeatData("c", [], groups).to_json()
        yield RemotingCommand.request(RequestCode.HEART_BEAT, body=body)


def keys() -> Requests:
    for number in range(100):
        header = PutKVConfigRequestHeader("ns", f"k{number}", "v" * 4000)
        yield RemotingCommand.request(RequestCode.PUT_KV_CONFIG, header)


def registrations() -> Requests:
    """Brokers of 50 clusters, with 200 topics each."""
    for number in range(50):
        topics = {f"t{number}-{each}": TopicConfig(f"t{number}-{each}") for each in range(200)}
        table = TopicConfigSerializeWrapper(topics, DataVersion(1, 1))
        body = RegisterBrokerBody(table).to_json()
        header = RegisterBrokerRequestHeader(
            f"b{number}", f"10.0.0.{number}:10911", f"c{number}", "", 0
        )
        yield RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)


LOADS: Final[dict[str, tuple[str, Callable[[], Requests]]]] = {
    "new groups of heartbeats": ("broker", heartbeats),
    "keys and values": ("name server", keys),
    "registrations": ("name server", registrations),
}


class Cost(NamedTuple):
    written_bytes: int
    cpu_us: float
    memory_bytes: int

    @classmethod
    def of(cls, pid: int) -> Cost:
        io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        status = Path(f"/proc/{pid}/status").read_text()
        memory = int(status.partition("RssAnon:")[2].split()[0]) * 1024
        return cls(int(io["wchar"]), ticks * 1e6 / os.sysconf("SC_CLK_TCK"), memory)


@pytest.fixture(params=["broker", "name server"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def start(kind: str, folder: Path) -> Broker | NameServer:
    server = Broker("failback", folder, "") if kind == "broker" else NameServer("failback", folder)
    server.start()
    return server


async def check(
    server: Broker | NameServer, limit: Limit, requests: Requests, wait_ms: float = 20_000 * SCALE
) -> None:
    """Send one after another, and compare."""
    pid, sent, answered = server.process.pid, 0, 0
    before = Cost.of(pid)
    # A member is told of each change of its groups; a client that serves nothing closes then.
    async with RemotingClient(on_request=lambda _, _request: None) as client:
        for request in requests:
            sent += len(request.encode())
            try:
                answer = await client.invoke(server.address, request, wait_ms)
            except RemotingError:  # some codes are answered by a closed connection, or never
                continue
            answered += len(answer.body)
    after = Cost.of(pid)
    written = after.written_bytes - before.written_bytes - answered
    assert written <= limit.written_bytes * sent + SLACK.written_bytes, f"{sent} bytes sent"
    spent = after.cpu_us - before.cpu_us
    assert spent <= limit.cpu_us * sent + SLACK.cpu_us, f"{sent} bytes sent"
    kept = after.memory_bytes - before.memory_bytes
    assert kept <= limit.kept_bytes * sent + SLACK.kept_bytes, f"{sent} bytes sent"


@pytest.mark.parametrize("load", LOADS)
async def test_names_cost_what_their_limit_says(tmp_path: Path, load: str) -> None:
    kind, requests = LOADS[load]
    server = start(kind, tmp_path)
    try:
        await check(server, LIMITS[load], requests())
    finally:
        server.process.dispose()


async def test_every_code_costs_what_the_limit_says(tmp_path: Path, kind: str) -> None:
    server = start(kind, tmp_path)
    codes = {handled.code.value for _, handled in handled_codes()}
    if kind == "name server":
        config = NamesrvConfig({}, tmp_path / "namesrv.conf")
        table = KVConfigManager(tmp_path / "none.json")
        codes = set(Processor(RouteInfoManager(), table, config, lambda: 0)._handlers)
    try:
        for code in sorted(codes):
            body = b'{"table":{"' + b"x" * 100 + b'":1}}'
            requests = (RemotingCommand.request(code, body=body) for _ in range(5))
            await check(server, LIMITS["any code"], requests, 200 * SCALE)
    finally:
        server.process.dispose()
