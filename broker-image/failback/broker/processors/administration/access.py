"""Accounts, as mqadmin shows and changes them (50 to 53). 54, which shows all secrets, is refused.

Source: AdminBrokerProcessor, apache/rocketmq 4.9.8, which removed 54 as CVE-2024-23321.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from failback.broker.config.identity import BrokerIdentity
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.common.text import why
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.broker.remoting.access import AccessGuard

logger = logging.getLogger(__name__)

REMARK: Final = "this broker does not authenticate requests: it has no access control to change"
_FAILED: Final = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    RequestCode.DELETE_ACL_CONFIG: ResponseCode.DELETE_ACL_CONFIG_FAILED,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: ResponseCode.SYSTEM_ERROR,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (
        ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
    ),
}
_Edit = Callable[[dict[str, Any]], dict[str, Any]]


class AccessProcessor:
    """Without ``aclEnable`` each is refused with a reason; 4.9.8 never answers 52 then."""

    def __init__(self, access: AccessGuard | None, identity: BrokerIdentity) -> None:
        self.access = access
        self.identity = identity

    @handles(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
    def update(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        if self.access is None:
            return _failed(request, REMARK)
        from failback.client.remoting.access import accounts

        fields = request.ext_fields or {}
        files = self.access.files
        path = files.rules.file_of.get(fields.get("accessKey", ""), files.path)
        edit = partial(accounts.with_account, changes=fields)
        return self._change(connection, request, path, edit)

    @handles(RequestCode.DELETE_ACL_CONFIG)
    def delete(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        if self.access is None:
            return _failed(request, REMARK)
        from failback.client.remoting.access import accounts

        key = (request.ext_fields or {}).get("accessKey", "")
        path = self.access.files.rules.file_of.get(key)
        if path is None:
            remark = f"The accesskey[{key}] corresponding to accessConfig has been deleted failed."
            return _failed(request, remark)
        edit = partial(accounts.without_account, key=key)
        return self._change(connection, request, path, edit)

    @handles(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
    def update_white_addresses(
        self, connection: BrokerConnection, request: RemotingCommand
    ) -> Answer:
        if self.access is None:
            return _failed(request, REMARK)
        from failback.client.remoting.access import accounts

        fields = request.ext_fields or {}
        written = fields.get("globalWhiteAddrs", "")
        files = self.access.files
        path = Path(fields.get("aclFileFullPath") or files.path)
        if path not in files.rules.versions:
            remark = f"The globalWhiteAddresses[{written}] has been updated failed."
            return _failed(request, f"{remark} {path} is no file of this broker's accounts.")
        edit = partial(accounts.with_white_addresses, written=written)
        return self._change(connection, request, path, edit)

    @handles(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    def versions(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        if self.access is None:
            return _failed(request, REMARK)
        files = self.access.files
        found = {str(path): each for path, each in files.rules.versions.items()}
        ext = {
            "allAclFileVersion": msgspec.json.encode(found).decode(),
            "brokerAddr": self.identity.address,
            "brokerName": self.identity.broker_name,
            "clusterName": self.identity.cluster_name,
        }
        if (own := files.rules.versions.get(files.path)) is not None:
            ext["version"] = msgspec.json.encode(own).decode()
        return request.response(ResponseCode.SUCCESS, ext=ext)

    def _change(
        self, connection: BrokerConnection, request: RemotingCommand, path: Path, edit: _Edit
    ) -> Answer:
        assert self.access is not None
        try:
            self.access.files.change(path, edit)
        except OSError as error:
            return _failed(request, why(error))
        except (ConfigError, ValueError) as error:
            return _failed(request, str(error))
        logger.warning("access: %s is changed for %s", path, connection.address)
        return request.response(ResponseCode.SUCCESS)


def _failed(request: RemotingCommand, remark: str) -> Answer:
    return request.response(_FAILED[RequestCode(request.code)], remark)
