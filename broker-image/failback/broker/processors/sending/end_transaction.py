"""Transactions: how one ended (37), and the order to ask about one again (323).

Source: EndTransactionProcessor, AdminBrokerProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from failback.broker.config.identity import BrokerIdentity
from failback.broker.messaging.transactions.half_messages import (
    CHECK_TIMES,
    HALF_QUEUE,
    HalfMessages,
    WrongTransaction,
)
from failback.broker.processors.registry import handles
from failback.broker.remoting.server import Answer
from failback.broker.store.log.results import PutRefused
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
)
from failback.protocol.message import parse_offset_msg_id

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class EndTransactionProcessor:
    """Commits or rolls back what a half message prepared."""

    identity: BrokerIdentity
    halves: HalfMessages

    @handles(RequestCode.END_TRANSACTION, EndTransactionRequestHeader)
    def end(self, header: EndTransactionRequestHeader, request: RemotingCommand) -> Answer:
        """Answer, but not to a transaction whose end its producer does not know yet."""
        if self.identity.is_slave:
            return request.response(ResponseCode.SLAVE_NOT_AVAILABLE)
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
            code = error.code if isinstance(error, PutRefused) else ResponseCode.SYSTEM_ERROR
            return request.response(code, str(error))
        return request.response(ResponseCode.SUCCESS)

    def _end(self, header: EndTransactionRequestHeader) -> None:
        half = self.halves.find(
            header.commit_log_offset, header.tran_state_table_offset, header.producer_group
        )
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            self.halves.commit(half)
        self.halves.close(half)

    @handles(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader)
    def resume_check(
        self, header: ResumeCheckHalfMessageRequestHeader, request: RemotingCommand
    ) -> Answer:
        """Store a half message again, with its count of checks at 0."""
        half = self.halves.message_at(parse_offset_msg_id(header.msg_id or "")[2])
        if half is None:
            remark = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        half.queue_id = HALF_QUEUE
        try:
            self.halves.put_back(half, half.properties | {CHECK_TIMES: "0"})
        except StoreError as error:
            remark = f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. {error}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return request.response(ResponseCode.SUCCESS)
