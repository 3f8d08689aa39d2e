"""Access control (50 to 53): what a broker answers that has none.

4.9.8 without ``aclEnable`` fails each of them with a code of its own, and never answers 52; this
broker says why.

Source: AdminBrokerProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from typing import Final

from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand

REMARK: Final = "this broker does not authenticate requests: it has no access control to change"
_CODES: Final = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    RequestCode.DELETE_ACL_CONFIG: ResponseCode.DELETE_ACL_CONFIG_FAILED,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: ResponseCode.SYSTEM_ERROR,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (
        ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
    ),
}


class AccessProcessor:
    """Refuses."""

    @handles(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
    @handles(RequestCode.DELETE_ACL_CONFIG)
    @handles(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    @handles(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
    def refuse(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        return request.response(_CODES[RequestCode(request.code)], REMARK)
