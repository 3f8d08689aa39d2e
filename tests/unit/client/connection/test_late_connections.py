"""A connection that is there only after the time for it: nothing waits for its end."""

from __future__ import annotations

import asyncio
import socket

import pytest

from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingError
from tests.support.common.polling import SCALE

uvloop = pytest.importorskip("uvloop")


def test_a_client_ends_whose_connections_came_too_late() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_connect_with_hardly_any_time()) > 0


async def _connect_with_hardly_any_time() -> int:
    """Connect with 0.05 to 1 ms for it, end each client, and count those that were too late."""
    late = 0
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for round_ in range(200):
            milliseconds = (1 + round_ % 20) / 20
            client = RemotingClient(settings=RemotingSettings(connect_timeout_ms=milliseconds))
            try:
                await client.oneway(address, RemotingCommand(code=105), 1000)
            except RemotingError:
                late += 1
            async with asyncio.timeout(30 * SCALE):
                await client.close()
    return late
