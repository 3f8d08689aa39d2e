"""Access control of a broker: the rules of 4.9.8, those of guarded brokers, and runs of sends."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from typing import Final

from failback.broker.native import kernels
from failback.client.remoting.access import rights
from failback.client.remoting.access.accounts import Account
from failback.client.remoting.access.guard import MOST_REMEMBERED, RequestGuard, signature_of
from failback.client.remoting.access.rules_file import RulesFiles
from failback.protocol.codes import RequestCode

_SignedSends = Callable[[bytes, int], list[tuple[int, bytes, bytes, bytes, bytes]]]
_signed_sends: Final[_SignedSends | None] = kernels.signed_sends if kernels is not None else None
"""Returns of each: where its frame ends, access key, signature, topic, and what is signed."""

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


class AccessGuard(RequestGuard):
    """Allows or refuses the requests to a broker.

    Args:
        topic_at: Says which topic a record has. With it more requests than at 4.9.8 are those of
            administrators, and more of the others need a right.
    """

    def __init__(
        self, files: RulesFiles, mode: Callable[[], str], topic_at: rights.TopicAt | None
    ) -> None:
        self._accounts: dict[bytes, Account] = {}
        self._sends: dict[tuple[bytes, bytes], bool] = {}
        """Access key and topic → whether the account may send there."""
        codes = _GUARDED_ADMIN_CODES if topic_at else rights.ADMIN_CODES
        super().__init__(files, mode, codes, lambda request: rights.needs_of(request, topic_at))

    def _take_rules(self) -> None:
        super()._take_rules()
        self._sends.clear()
        known = self.files.rules.accounts
        self._accounts = {key.encode(): account for key, account in known.items()}

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
            if not hmac.compare_digest(signature_of(account.secret_key, content), signature):
                break
            allowed = self._sends.get((key, topic))
            if allowed is None:
                needs = ((topic.decode(), rights.PUB),)
                allowed = not self.verdict(account, RequestCode.SEND_MESSAGE_V2, needs)
                if len(self._sends) >= MOST_REMEMBERED:
                    self._sends.clear()
                self._sends[key, topic] = allowed
            if not allowed:
                break
            position, used = end, account
        if used is not None:
            self.last_used[used.access_key] = time.time()
        return position
