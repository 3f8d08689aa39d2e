"""Signatures of requests, as Apache's client makes them, and the refusals of guarded brokers. Pure.

A signature is the Base64 of HMAC-SHA1 over the values of all ``extFields``, in the order of their
keys, and the body. Source: AclClientRPCHook, AclUtils and PlainAccessValidator, apache/rocketmq
4.9.7.

A refusal names the missing right. Its texts are those of PlainPermissionManager, 4.9.7, which says
``No default permission for topic:orders``; 5.x says ``has no permission to access Topic:orders``.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final

from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError
from failback.protocol.message import RETRY_PREFIX

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
_SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_V4_9_3: Final = 399
REFUSALS: Final = frozenset({int(ResponseCode.SYSTEM_ERROR), int(ResponseCode.NO_PERMISSION)})
"""Codes of answers that may be refusals: 4.9 takes that of any failure, 5.x its own."""
_OF_ACL: Final = re.compile(
    r"AclException|No accessKey|No acl config|[Cc]heck signature|no permission to access|"
    r"User:\S+ (?:is )?not found|username cannot be null"
)
_RESOURCE: Final = re.compile(r"\b(topic|group):([^\s,]+)", re.IGNORECASE)
_SENDS: Final = frozenset(
    {
        int(RequestCode.SEND_MESSAGE),
        int(RequestCode.SEND_MESSAGE_V2),
        int(RequestCode.SEND_BATCH_MESSAGE),
    }
)


@dataclass(frozen=True, slots=True)
class AccessKey:
    """The key that signs. Its secrets are not shown where it is printed."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)


def sign(request: RemotingCommand, key: AccessKey) -> None:
    """Put access key and signature into a request; one that was signed before is signed again."""
    fields = dict(request.ext_fields or ())
    fields.pop(SIGNATURE, None)
    fields.pop(_SECURITY_TOKEN, None)
    fields[ACCESS_KEY] = key.access_key
    if key.security_token:
        fields[_SECURITY_TOKEN] = key.security_token
    if UNIQUE_KEY_QUERY in fields:
        # Brokers of 4.9 leave this field out; those of 5.x only for clients up to this version.
        request.version = min(request.version, _V4_9_3)
    content = "".join(fields[name] for name in sorted(fields) if name != UNIQUE_KEY_QUERY)
    digest = hmac.digest(key.secret_key.encode(), content.encode() + request.body, "sha1")
    fields[SIGNATURE] = b64encode(digest).decode()
    request.ext_fields = fields


def access_key_of(request: RemotingCommand) -> str:
    """Return the access key that a request was signed with; empty for none."""
    return (request.ext_fields or {}).get(ACCESS_KEY, "")


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
