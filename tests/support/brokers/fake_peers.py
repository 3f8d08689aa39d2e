"""Brokers and name servers that answer from a table, for what a broker asks of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingConnectError


class FakePeers:
    """Answers like the brokers and name servers of a table; everybody else is down."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], bytes] = {}
        self.ext: dict[str, str] | None = None
        self.fields: dict[tuple[str, int], dict[str, str]] = {}
        """Answers that have no body, by their fields."""
        self.calls: list[tuple[str, int]] = []
        self.requests: list[RemotingCommand] = []

    async def invoke(
        self, addr: str, request: RemotingCommand, timeout_ms: float = 3000
    ) -> RemotingCommand:
        self.calls.append((addr, request.code))
        self.requests.append(request)
        fields = self.fields.get((addr, request.code))
        if fields is not None:
            return request.response(0, ext=fields)
        body = self.answers.get((addr, request.code))
        if body is None:
            raise RemotingConnectError(addr, "nobody there")
        if body == b"refused":
            return request.response(1, "system error")
        return request.response(0, ext=self.ext, body=body)

    async def oneway(self, addr: str, request: RemotingCommand) -> None:
        self.calls.append((addr, request.code))


@dataclass
class Ends:
    """A store of which a test says where its queues end, and that shows no record."""

    max_queue_offset: Callable[[str, int], int]

    def physical_offset_of(self, _topic: str, _queue_id: int, _offset: int, /) -> int:
        return -1

    def record_at(self, _physical_offset: int, /) -> bytes | None:
        return None
