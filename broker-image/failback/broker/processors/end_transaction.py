"""END_TRANSACTION (37): a producer says how its transaction ended.

Source: EndTransactionProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from failback.broker.connection import BrokerConnection
from failback.broker.identity import BrokerIdentity
from failback.broker.store.results import MessageIllegal, ServiceNotAvailable
from failback.broker.transactions.half_messages import HalfMessages, WrongTransaction
from failback.protocol.codes import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
    RequestCode,
    ResponseCode,
)
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import StoreError
from failback.protocol.headers import EndTransactionRequestHeader, from_ext

if TYPE_CHECKING:
    from failback.broker.server import RemotingServer

logger = logging.getLogger(__name__)


class EndTransactionProcessor:
    """Commits or rolls back what a half message prepared."""

    def __init__(self, *, identity: BrokerIdentity, halves: HalfMessages) -> None:
        self._identity = identity
        self._halves = halves

    def register(self, server: RemotingServer) -> None:
        server.handle(RequestCode.END_TRANSACTION, self.end)

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


def _code_of(error: StoreError) -> int:
    if isinstance(error, MessageIllegal):
        return ResponseCode.MESSAGE_ILLEGAL
    if isinstance(error, ServiceNotAvailable):
        return ResponseCode.SERVICE_NOT_AVAILABLE
    return ResponseCode.SYSTEM_ERROR
