"""A client instance's connections: :class:`RemotingClient`, plus what the instance watches.

It numbers connections (the consume log's ``chan``), can connect without a request, and reports
every connection that is made.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from failback.client.remoting.connection import (
    RemotingClient,
    RemotingSettings,
    RequestHandler,
    _Connection,
)


class InstanceRemoting(RemotingClient):
    """One per client instance.

    Args:
        on_connect: Receives the address of every connection that is made.
    """

    def __init__(
        self,
        *,
        settings: RemotingSettings,
        on_request: RequestHandler,
        on_connect: Callable[[str], None],
    ) -> None:
        super().__init__(settings=settings, on_request=on_request)
        self._on_connect = on_connect
        self._channel_ids = itertools.count(1)
        self._channels: dict[str, int] = {}

    async def connect(self, addr: str) -> None:
        """Make sure that there is a connection.

        Raises:
            RemotingConnectError: There is none.
        """
        timeout_ms = self.settings.connect_timeout_ms * self.settings.time_scale
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        await self._connect(addr, deadline)

    def channel(self, addr: str) -> int | None:
        """Number of the newest connection to ``addr``, unique in this instance."""
        return self._channels.get(addr)

    def on_connection_made(self, connection: _Connection) -> None:
        super().on_connection_made(connection)
        self._channels[connection.addr] = next(self._channel_ids)
        self._on_connect(connection.addr)
