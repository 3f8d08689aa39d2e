"""The check of each request: whether its key, its signature and its account's rights allow it.

Source of the order and of the words: PlainPermissionManager.validate, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import hmac
import logging
import time
from binascii import b2a_base64
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from failback.broker.native import kernels
from failback.broker.remoting.access import rights
from failback.broker.remoting.access.accounts import Account
from failback.broker.remoting.access.rules_file import RulesFiles
from failback.broker.remoting.access.white_addresses import plain_host
from failback.client.remoting.guarded.signing import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError

logger = logging.getLogger(__name__)

_SignedSends = Callable[[bytes, int], list[tuple[int, bytes, bytes, bytes, bytes]]]
_signed_sends: Final[_SignedSends | None] = kernels.signed_sends if kernels is not None else None
"""Returns of each: where its frame ends, access key, signature, topic, and what is signed."""

_REMARK: Final = "org.apache.rocketmq.acl.common.AclException: {}, failback.broker"
_TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_MOST_REMEMBERED: Final = 4_096
_GUARDED_ADMIN_CODES: Final = rights.ADMIN_CODES | {
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
}


class Peer(Protocol):
    """The connection of a request."""

    host: str


class AccessGuard:
    """Allows or refuses requests by the rules of a folder.

    Args:
        mode: Asked with each request: ``off``, ``warn``, which counts, or ``enforce``.
        topic_at: Says which topic a record has. With it more requests than at 4.9.8 are those of
            administrators, and more of the others need a right.
    """

    def __init__(
        self, files: RulesFiles, mode: Callable[[], str], topic_at: rights.TopicAt | None
    ) -> None:
        self.files = files
        self._mode = mode
        self._topic_at = topic_at
        self.admin_codes = _GUARDED_ADMIN_CODES if topic_at else rights.ADMIN_CODES
        self.refused: Counter[tuple[str, int, str]] = Counter()
        """By access key (empty: not one of ours), request code, and whether it was refused
        (``enforce``) or only counted (``warn``)."""
        self.last_used: dict[str, float] = {}
        """When each access key was last used with its signature, seconds since the epoch."""
        self._accounts: dict[bytes, Account] = {}
        self._sends: dict[tuple[bytes, bytes], bool] = {}
        """Access key and topic → whether the account may send there."""
        self._verdicts: dict[tuple[str, int, rights.Needs], str] = {}
        files.on_change = self._take_rules
        self._take_rules()

    def _take_rules(self) -> None:
        self._verdicts.clear()
        self._sends.clear()
        known = self.files.rules.accounts
        self._accounts = {key.encode(): account for key, account in known.items()}
        self.last_used = {key: at for key, at in self.last_used.items() if key in known}

    def is_on(self) -> bool:
        return self._mode() != "off"

    def allowed_sends(self, data: bytes, position: int) -> int:
        """Return where the plain V2 sends end, from ``position`` on, that an account allows.

        What is not signed, not allowed or not plain is left to :meth:`refusal`.
        """
        used = None
        assert _signed_sends is not None  # as no run takes sends without kernels
        for end, key, signature, topic, content in _signed_sends(data, position):
            account = self._accounts.get(key)
            if account is None:
                break
            if not hmac.compare_digest(_signature(account.secret_key, content), signature):
                break
            allowed = self._sends.get((key, topic))
            if allowed is None:
                needs = ((topic.decode(), rights.PUB),)
                allowed = not self._verdict(account, RequestCode.SEND_MESSAGE_V2, needs)
                if len(self._sends) >= _MOST_REMEMBERED:
                    self._sends.clear()
                self._sends[key, topic] = allowed
            if not allowed:
                break
            position, used = end, account
        if used is not None:
            self.last_used[used.access_key] = time.time()
        return position

    def refusal(self, peer: Peer, request: RemotingCommand) -> str:
        """Return the remark that refuses a request; empty where it is allowed, or only counted."""
        problem, key = self._check(peer, request)
        if not problem:
            if request.code in self.admin_codes:
                logger.info("access: order %d of %s, %s", request.code, key or "no key", peer.host)
            return ""
        mode = self._mode()
        self.refused[key if key in self.files.rules.accounts else "", request.code, mode] += 1
        return _REMARK.format(problem) if mode == "enforce" else ""

    def _check(self, peer: Peer, request: RemotingCommand) -> tuple[str, str]:
        """Return what refuses a request, in the words of 4.9.8, and its access key."""
        rules = self.files.rules
        fields = request.ext_fields or {}
        key = fields.get(ACCESS_KEY)
        host = plain_host(peer.host)
        if rules.white_addresses and any(white(host) for white in rules.white_addresses):
            return "", key or ""
        if key is None:
            return "No accessKey is configured", ""
        account = rules.accounts.get(key)
        if account is None:
            return f"No acl config for {key}", key
        if account.is_white(host):
            return "", key
        if not _is_signed(fields, request.body, account):
            return f"Check signature failed for accessKey={key}", key
        self.last_used[key] = time.time()
        try:
            needs = rights.needs_of(request, self._topic_at)
        except ProtocolError as error:
            return str(error), key
        return self._verdict(account, request.code, needs), key

    def _verdict(self, account: Account, code: int, needs: rights.Needs) -> str:
        wanted = account.access_key, code, needs
        found = self._verdicts.get(wanted)
        if found is None:
            if (_TRACE_TOPIC, rights.PUB) in needs:
                found = ""
            else:
                found = account.lacks(code, needs, self.admin_codes)
            if len(self._verdicts) >= _MOST_REMEMBERED:
                self._verdicts.clear()
            self._verdicts[wanted] = found
        return found


def _signature(secret: bytes, content: bytes) -> bytes:
    return b2a_base64(hmac.digest(secret, content, "sha1"), newline=False)


def _is_signed(fields: dict[str, str], body: bytes, account: Account) -> bool:
    """Tell whether a request has the signature of an account.

    Clients of 4.9.8 sign a field that its brokers leave out: both are taken.
    """
    signature = fields.get(SIGNATURE, "").encode()
    names = sorted(fields.keys() - {SIGNATURE})
    if _matches(names, fields, body, account.secret_key, signature):
        return True
    if UNIQUE_KEY_QUERY not in fields:
        return False
    names.remove(UNIQUE_KEY_QUERY)
    return _matches(names, fields, body, account.secret_key, signature)


def _matches(
    names: list[str], fields: dict[str, str], body: bytes, secret: bytes, signature: bytes
) -> bool:
    content = "".join([fields[name] for name in names]).encode() + body
    return hmac.compare_digest(_signature(secret, content), signature)
