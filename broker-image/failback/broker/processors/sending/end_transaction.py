"""Transactions: how one ended (37), and the order to ask about one again (323).

Source: EndTransactionProcessor, AdminBrokerProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from failback.broker.config.identity import BrokerIdentity
from failback.broker.messaging.transactions.half_messages import (
    CHECK_TIMES,
    HALF_QUEUE,
    HalfMessages,
    WrongTransaction,
)
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.store.log.results import MessageIllegal, ServiceNotAvailable
from failback.protocol.codes import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
    RequestCode,
    ResponseCode,
)
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import StoreError
from failback.protocol.headers import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    from_ext,
)
from failback.protocol.message import parse_offset_msg_id

if TYPE_CHECKING:
    from failback.broker.remoting.server import RemotingServer

logger = logging.getLogger(__name__)


class EndTransactionProcessor:
    """Commits or rolls back what a half message prepared."""

    def __init__(self, *, identity: BrokerIdentity, halves: HalfMessages) -> None:
        self._identity = identity
        self._halves = halves

    def register(self, server: RemotingServer) -> None:
        server.handle(RequestCode.END_TRANSACTION, self.end)
        server.handle(RequestCode.RESUME_CHECK_HALF_MESSAGE, self.resume_check)

    def end(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Answer, but not to a transaction whose end its producer does not know yet."""
        if self._identity.is_slave:
            return request.response(ResponseCode.SLAVE_NOT_AVAILABLE)
        header = from_ext(EndTransactionRequestHeader, request.ext_fields)
        if header.commit_or_rollback == TRANSACTION_NONE:
            logger.warning("transaction of %s has no end yet", header.producer_group)
            return None
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return request.response(ResponseCode.SYSTEM_ERROR, "commitOrRollback field wrong")
        try:
            self._end(header)
        except WrongTransaction as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        except StoreError as error:
            return request.response(_code_of(error), str(error))
        return request.response(ResponseCode.SUCCESS)

    def _end(self, header: EndTransactionRequestHeader) -> None:
        half = self._halves.find(
            header.commit_log_offset, header.tran_state_table_offset, header.producer_group
        )
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            self._halves.commit(half)
        self._halves.close(half)

    def resume_check(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Store a half message anew, as if nobody had been asked about it yet."""
        header = from_ext(ResumeCheckHalfMessageRequestHeader, request.ext_fields)
        half = self._halves.message_at(parse_offset_msg_id(header.msg_id or "")[2])
        if half is None:
            remark = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        half.queue_id = HALF_QUEUE
        try:
            self._halves.put_back(half, half.properties | {CHECK_TIMES: "0"})
        except StoreError as error:
            remark = f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. {error}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return request.response(ResponseCode.SUCCESS)


def _code_of(error: StoreError) -> int:
    if isinstance(error, MessageIllegal):
        return ResponseCode.MESSAGE_ILLEGAL
    if isinstance(error, ServiceNotAvailable):
        return ResponseCode.SERVICE_NOT_AVAILABLE
    return ResponseCode.SYSTEM_ERROR
