"""Signatures of requests, as Apache's client makes them. Pure.

A signature is the Base64 of HMAC-SHA1 over the values of all ``extFields``, in the order of their
keys, and the body. Source: AclClientRPCHook, AclUtils and PlainAccessValidator, apache/rocketmq
4.9.7.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final

from failback.protocol.command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
_SIGNATURE: Final = "Signature"
_SECURITY_TOKEN: Final = "SecurityToken"
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_V4_9_3: Final = 399


@dataclass(frozen=True, slots=True)
class AccessKey:
    """Who signs. The secrets are not shown where a key is printed."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)


def sign(request: RemotingCommand, key: AccessKey) -> None:
    """Put access key and signature into a request; one that was signed before is signed anew."""
    fields = dict(request.ext_fields or ())
    fields.pop(_SIGNATURE, None)
    fields.pop(_SECURITY_TOKEN, None)
    fields[ACCESS_KEY] = key.access_key
    if key.security_token:
        fields[_SECURITY_TOKEN] = key.security_token
    if _UNIQUE_KEY_QUERY in fields:
        # Brokers of 4.9 leave this field out; those of 5.x only for clients up to this version.
        request.version = min(request.version, _V4_9_3)
    content = "".join(fields[name] for name in sorted(fields) if name != _UNIQUE_KEY_QUERY)
    digest = hmac.digest(key.secret_key.encode(), content.encode() + request.body, "sha1")
    fields[_SIGNATURE] = b64encode(digest).decode()
    request.ext_fields = fields


def access_key_of(request: RemotingCommand) -> str:
    """Return the access key that a request was signed with; empty for none."""
    return (request.ext_fields or {}).get(ACCESS_KEY, "")
