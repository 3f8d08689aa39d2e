"""Requests from the broker to a client that is connected, and their answers.

Clients and broker number their requests independently: an answer is found by its connection and
its opaque. A client need never answer, so every call has an end.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter

from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.limits import CLIENT_CALLS, PeerLimits
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)


class ClientGone(FailbackError):
    """The connection closed before the client had answered."""


class ClientCalls:
    """The calls under way. ``answered`` and ``closed`` are called by the server."""

    def __init__(self, limits: PeerLimits) -> None:
        self._limits = limits
        self._opaque = itertools.count()
        self._calls: dict[tuple[BrokerConnection, int], asyncio.Future[RemotingCommand]] = {}
        self._asked: Counter[BrokerConnection] = Counter()

    def __len__(self) -> int:
        return len(self._calls)

    async def call(
        self, connection: BrokerConnection, request: RemotingCommand, seconds: float
    ) -> RemotingCommand:
        """Send ``request`` and return the client's answer, of any code.

        Raises:
            Busy: The client is asked as much as it may be.
            TimeoutError: There was none within ``seconds``.
            ClientGone: The connection is closed, or was closed meanwhile.
        """
        if connection.closed:
            raise ClientGone(f"{connection.address} is not connected any more")
        asked, most = self._asked[connection], self._limits.config.failback_max_calls_per_client
        if asked >= most:
            what = f"{asked} questions to this client are open, at most {most}"
            raise self._limits.refuse(CLIENT_CALLS, connection, what)
        request.opaque = next(self._opaque) & 0x7FFFFFFF
        key = connection, request.opaque
        answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._calls[key] = answer
        self._asked[connection] += 1
        try:
            connection.push(request.encode())
            async with asyncio.timeout(seconds):
                return await answer
        finally:
            del self._calls[key]
            self._asked[connection] -= 1
            if not self._asked[connection]:
                del self._asked[connection]

    def answered(self, connection: BrokerConnection, response: RemotingCommand) -> None:
        """Take a response; one that no call waits for is dropped."""
        call = self._calls.get((connection, response.opaque))
        if call is None:
            logger.debug("unexpected response %d from %s", response.opaque, connection.address)
        elif not call.done():
            call.set_result(response)

    def closed(self, connection: BrokerConnection) -> None:
        """End the calls on a connection that closed."""
        for (called, _), answer in self._calls.items():
            if called is connection and not answer.done():
                answer.set_exception(ClientGone(f"{connection.address} closed its connection"))
