"""Pairs whose two logs were written before they start, and what their members show."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, ProtocolError, RemotingError
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import SCALE
from tests.support.java.apache import LOG_FILE_BYTES, Broker
from tests.support.store.store_kit import open_store, put

TOPIC = "TopicTest"

_Answer = TypeVar("_Answer")


def write_store(root: Path, *runs: tuple[range, bytes]) -> int:
    """Append a message for each number of each run, marked with its text; return the log's end.

    Two stores that were given the same runs are equal, byte for byte.
    """
    store = open_store(root, mapped_file_bytes=LOG_FILE_BYTES, consume_queue_file_bytes=6_000_000)
    for numbers, mark in runs:
        for number in numbers:
            put(store, b"%06d" % number + mark, topic=TOPIC, tag="A")
            store.commit_pending()
    end = store.max_physical_offset
    store.close()
    return end


def log_bytes(broker: Broker, start: int, end: int) -> bytes:
    """Return the commit log from physical offset ``start``, its first byte, to ``end``."""
    files = sorted((broker.store / "commitlog").iterdir())
    assert int(files[0].name) == start
    return b"".join(path.read_bytes() for path in files)[: end - start]


async def eventually(
    ask: Callable[[], Awaitable[_Answer]],
    wanted: Callable[[_Answer], object],
    what: str,
    seconds: float = 90,
) -> _Answer:
    """Ask until the answer is wanted; a broker that can't answer yet is asked again."""
    deadline = time.monotonic() + seconds * SCALE
    answer: object = None
    while True:
        try:
            answer = found = await ask()
            if wanted(found):
                return found
        except (BrokerError, RemotingError, ProtocolError, OSError) as error:
            answer = error
        assert time.monotonic() < deadline, f"{what}: {answer}"
        await asyncio.sleep(0.05)


async def runtime(broker: Broker) -> dict[str, str]:
    async with AdminClient() as admin:
        return await admin.runtime_info(broker.address)


async def end_of(broker: Broker) -> int:
    """Return where the broker's log ends."""
    return int((await runtime(broker))["commitLogMaxOffset"])


async def until_equal(slave: Broker, master: Broker, seconds: float = 90) -> int:
    """Wait until both logs end, dispatched, at one offset, and return it."""

    async def state() -> tuple[int, int, int]:
        one, other = await runtime(slave), await runtime(master)
        held, end = int(one["commitLogMaxOffset"]), int(other["commitLogMaxOffset"])
        return held, end, int(one["dispatchBehindBytes"])

    def equal(found: tuple[int, int, int]) -> bool:
        return found[0] == found[1] and not found[2]

    what = "the slave's end, the master's and what is not dispatched"
    return (await eventually(state, equal, what, seconds))[0]


async def send(broker: Broker, bodies: list[bytes]) -> list[int]:
    """Send to queue 0 of the topic as a producer would; return the codes."""
    codes = []
    async with RemotingClient() as client:
        for body in bodies:
            request = RemotingCommand.request(
                RequestCode.SEND_MESSAGE_V2, send_header(topic=TOPIC), body
            )
            codes.append((await client.invoke(broker.address, request, 30_000)).code)
    return codes


def http(broker: Broker, path: str) -> tuple[int, str]:
    """Return status and body of one of the broker's health paths; it has a port in its settings."""
    url = f"http://{broker.ip}:{broker.settings['failbackHttpPort']}{path}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metric(broker: Broker, name: str) -> float | None:
    """Return the value of one of the broker's metrics, ``None`` if it has no such."""
    for line in http(broker, "/metrics")[1].splitlines():
        if line.startswith(f"{name}{{"):
            return float(line.rpartition(" ")[2])
    return None
