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

from failback.client.remoting.access import rights
from failback.client.remoting.access.accounts import Account
from failback.client.remoting.access.rules_file import RulesFiles
from failback.client.remoting.access.white_addresses import plain_host
from failback.client.remoting.guarded.signing import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError

logger = logging.getLogger(__name__)

MOST_REMEMBERED: Final = 4_096
_REMARK: Final = "org.apache.rocketmq.acl.common.AclException: {}, failback.broker"
_TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"


class Peer(Protocol):
    """The connection of a request."""

    host: str


class RequestGuard:
    """Allows or refuses requests by the rules of a folder.

    Args:
        mode: Asked with each request: ``off``, ``warn``, which counts, or ``enforce``.
        admin_codes: Requests of administrators.
        needs_of: Says which rights a request needs.
        routine_codes: Those of ``admin_codes`` that brokers send all the time: they are not logged.
    """

    def __init__(
        self,
        files: RulesFiles,
        mode: Callable[[], str],
        admin_codes: frozenset[int],
        needs_of: Callable[[RemotingCommand], rights.Needs] = lambda _request: (),
        routine_codes: frozenset[int] = frozenset(),
    ) -> None:
        self.files = files
        self._mode = mode
        self.admin_codes = admin_codes
        self._needs_of = needs_of
        self._logged_codes = admin_codes - routine_codes
        self.refused: Counter[tuple[str, int, str]] = Counter()
        """By access key (empty: not one of ours), request code, and whether it was refused
        (``enforce``) or only counted (``warn``)."""
        self.last_used: dict[str, float] = {}
        """When each access key was last used with its signature, seconds since the epoch."""
        self._verdicts: dict[tuple[str, int, rights.Needs], str] = {}
        files.on_change = self._take_rules
        self._take_rules()

    def _take_rules(self) -> None:
        self._verdicts.clear()
        known = self.files.rules.accounts
        self.last_used = {key: at for key, at in self.last_used.items() if key in known}

    def is_on(self) -> bool:
        return self._mode() != "off"

    def refusal(self, peer: Peer, request: RemotingCommand) -> str:
        """Return the remark that refuses a request; empty where it is allowed, or only counted."""
        problem, key = self._check(peer, request)
        if not problem:
            if request.code in self._logged_codes:
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
            needs = self._needs_of(request)
        except ProtocolError as error:
            return str(error), key
        return self.verdict(account, request.code, needs), key

    def verdict(self, account: Account, code: int, needs: rights.Needs) -> str:
        """Return which right an account lacks, in the words of 4.9.8; empty for none."""
        wanted = account.access_key, code, needs
        found = self._verdicts.get(wanted)
        if found is None:
            if (_TRACE_TOPIC, rights.PUB) in needs:
                found = ""
            else:
                found = account.lacks(code, needs, self.admin_codes)
            if len(self._verdicts) >= MOST_REMEMBERED:
                self._verdicts.clear()
            self._verdicts[wanted] = found
        return found


def signature_of(secret: bytes, content: bytes) -> bytes:
    """Return what a peer with this secret signs ``content`` with."""
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
    return hmac.compare_digest(signature_of(secret, content), signature)
