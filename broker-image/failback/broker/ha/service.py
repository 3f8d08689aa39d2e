"""HA replication of one broker: HAService of 4.9.8.

Every broker listens on the HA port, and a slave dials its master's. The broker's controller runs
:meth:`HaService.run`, asks :meth:`HaService.is_slave_ok` before a SYNC_MASTER put waits, and
learns of acknowledgements through :attr:`HaService.on_ack`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from failback.broker.ha.client import HaClient
from failback.broker.ha.config import HaConfig
from failback.broker.ha.connection import HaConnection
from failback.broker.ha.replicated_store import HaStore
from failback.client.remoting.guarded.tls_properties import ENFORCING

logger = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 64


class HaService:
    """Both ends of replication.

    ``push2slave_max_offset`` is one number for all slaves: the greatest offset any of them ever
    reported to this process. It starts at 0 and never decreases. A report beyond this log's end is
    counted and acknowledges nothing: 4.9.8 believes the first one of each connection, so that a
    peer makes SYNC_MASTER's wait vacuous (apache/rocketmq#1155, #3015).
    """

    def __init__(self, store: HaStore, config: HaConfig) -> None:
        self.store = store
        self.config = config
        self.push2slave_max_offset = 0
        self.refused_reports = 0
        """How many connections were closed because of what their slave reported."""
        self.on_ack: Callable[[int], None] | None = None
        """Called with push2slave_max_offset each time it grew."""
        self.listening = asyncio.Event()
        """Set once the HA port is bound."""
        self.bound_port: int | None = None
        self._connections: set[HaConnection] = set()
        self._unconnected = asyncio.Event()
        self._unconnected.set()
        self._client = HaClient(store, config)
        self._transfer_timer: asyncio.TimerHandle | None = None
        store.add_append_listener(self._appended)

    @property
    def connection_count(self) -> int:
        """Open connections on the HA port, whether their peer has reported or not."""
        return len(self._connections)

    @property
    def connections(self) -> frozenset[HaConnection]:
        """The open connections, for status displays."""
        return frozenset(self._connections)

    @property
    def client(self) -> HaClient:
        """This broker's own connection to its master (slave)."""
        return self._client

    def is_slave_ok(self, end_offset: int) -> bool:
        """Whether a SYNC_MASTER put ending at ``end_offset`` may wait; else SLAVE_NOT_AVAILABLE.

        Where only TLS is taken, a peer counts from its first report on: it has shown what it must.
        """
        tls, connections = self.config.tls, self._connections
        if tls is not None and tls.mode == ENFORCING:
            connections = {each for each in connections if each.transfer_offset is not None}
        behind = end_offset - self.push2slave_max_offset
        return bool(connections) and behind < self.config.fallbehind_max

    def update_master_address(self, address: str | None) -> None:
        """Tell a slave where its master's HA port is (from the registration reply)."""
        self._client.update_master_address(address)

    async def run(self, shutdown: asyncio.Event) -> None:
        """Replicate until ``shutdown`` is set, then drop every connection.

        Raises:
            OSError: The HA port could not be bound.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            self._accepted, self.config.listen_host, self.config.listen_port
        )
        self.bound_port = server.sockets[0].getsockname()[1]
        self.listening.set()
        try:
            if self.config.role == "SLAVE":
                await self._client.run(shutdown)
            else:
                await shutdown.wait()
        finally:
            server.close()
            if self._transfer_timer is not None:
                self._transfer_timer.cancel()
            for connection in tuple(self._connections):
                connection.close("the broker stops")
            await self._unconnected.wait()

    def _accepted(self) -> asyncio.Protocol:
        tls, connection = self.config.tls, HaConnection(self)
        return connection if tls is None else tls.protect(connection)

    def connection_opened(self, connection: HaConnection) -> None:
        """Called by a connection: a peer has connected to the HA port."""
        self._connections.add(connection)
        self._unconnected.clear()
        if len(self._connections) > MOST_CONNECTIONS:
            self._least().close(f"more than {MOST_CONNECTIONS} are open, which no pair needs")
        logger.info("HA: connection from %s, %d open", connection.peer, len(self._connections))

    def _least(self) -> HaConnection:
        """Return the connection that gives way where there are too many.

        It is one of the address that has most. The oldest one that has not reported goes first,
        then the youngest.
        """
        counts = Counter(each.host for each in self._connections)

        def rank(each: HaConnection) -> tuple[int, bool, float]:
            is_silent = each.transfer_offset is None
            return counts[each.host], is_silent, -each.opened_at if is_silent else each.opened_at

        return max(self._connections, key=rank)

    def connection_closed(self, connection: HaConnection, error: Exception | None) -> None:
        """Called by a connection: its peer is gone."""
        self._connections.discard(connection)
        if not self._connections:
            self._unconnected.set()
        logger.info(
            "HA: connection from %s ended (%s), %d open",
            connection.peer,
            error or "closed",
            len(self._connections),
        )

    def acknowledged(self, offset: int) -> None:
        """Called by a connection: its slave holds every byte below ``offset``."""
        if offset > self.push2slave_max_offset:
            self.push2slave_max_offset = offset
            if self.on_ack is not None:
                self.on_ack(offset)

    def _appended(self) -> None:
        if not self._connections:
            return
        delay_ms = self.config.async_transfer_delay_ms
        if self.config.role != "ASYNC_MASTER" or delay_ms <= 0:
            self._transfer()
        elif self._transfer_timer is None:
            loop = asyncio.get_running_loop()
            self._transfer_timer = loop.call_later(delay_ms / 1000, self._transfer)

    def _transfer(self) -> None:
        self._transfer_timer = None
        for connection in tuple(self._connections):
            connection.pump()
