"""Requests of the protocol that this broker answers with a reason instead of a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from failback.broker.connection import BrokerConnection
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from failback.broker.server import RemotingServer


class UnsupportedProcessor:
    """Says what is missing, with the code that makes the client do the next best thing."""

    def register(self, server: RemotingServer) -> None:
        server.handle(RequestCode.CONSUMER_SEND_MSG_BACK, self.send_back)

    def send_back(self, _connection: BrokerConnection, request: RemotingCommand) -> RemotingCommand:
        """Refuse 36: the client then tries the message again itself."""
        remark = "this broker does not deliver messages again later: retry at the consumer"
        return request.response(ResponseCode.SYSTEM_ERROR, remark)
