"""What a guarded broker means when it refuses: who asked, and which right is missing. Pure.

Texts of refusals: PlainPermissionManager, apache/rocketmq 4.9.7, which says
``No default permission for topic:orders``; 5.x says ``has no permission to access Topic:orders``.
"""

from __future__ import annotations

import re
from typing import Final

from failback.client.remoting.guarded.signing import access_key_of
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError
from failback.protocol.message import RETRY_PREFIX

REFUSALS: Final = frozenset({int(ResponseCode.SYSTEM_ERROR), int(ResponseCode.NO_PERMISSION)})
"""Codes of answers that may be refusals: 4.9 takes that of any failure, 5.x its own."""
_OF_ACL: Final = re.compile(
    r"AclException|No accessKey|No acl config|[Cc]heck signature|no permission to access|"
    r"User:\S+ not found"
)
_RESOURCE: Final = re.compile(r"\b(topic|group):([^\s,]+)", re.IGNORECASE)
_SENDS: Final = frozenset(
    {
        int(RequestCode.SEND_MESSAGE),
        int(RequestCode.SEND_MESSAGE_V2),
        int(RequestCode.SEND_BATCH_MESSAGE),
    }
)


def refusal(answer: RemotingCommand, request: RemotingCommand) -> str:
    """Return what to do about an answer that refuses for want of a right; empty for others."""
    remark = answer.remark or ""
    if answer.code not in REFUSALS or not _OF_ACL.search(remark):
        return ""
    return _in_words(remark, request)


def is_refusal(error: BrokerError) -> bool:
    """Tell whether a peer refused for want of a right, in the words of :func:`refusal`."""
    return error.code in REFUSALS and "access key" in error.remark


def _in_words(remark: str, request: RemotingCommand) -> str:
    key = access_key_of(request)
    if not key:
        return "it asks for an access key: give its file by --access-key-file"
    if "No acl config" in remark or "not found" in remark:
        return f"it does not know the access key {key}: give a key of this cluster"
    if "signature" in remark:
        return f"the secret key given with the access key {key} is not the one it knows"
    if "admin permission" in remark:
        return f"the access key {key} is no admin's: ask for admin: true in its account"
    found = _RESOURCE.search(remark)
    if found is None:
        return f"the access key {key} has no right to this (request code {request.code})"
    what, name = found[1].lower(), found[2]
    if name.startswith(RETRY_PREFIX):  # a retry topic belongs to its group
        what, name = "group", name.removeprefix(RETRY_PREFIX)
    right = "PUB" if what == "topic" and request.code in _SENDS else "SUB"
    ask = f"ask for {what}Perms: [{name}={right}] in its account"
    return f"the access key {key} lacks the right {right} on the {what} {name}: {ask}"
