"""Access control of a broker: the rules of 4.9.8, those of guarded brokers, and runs of sends."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Final

from failback.broker.native import kernels
from failback.client.remoting.access import rights
from failback.client.remoting.access.guard import MOST_REMEMBERED, RequestGuard
from failback.client.remoting.access.rules_file import RulesFiles
from failback.protocol.codes import RequestCode

_VerifiedSends = Callable[[bytes, int, dict[bytes, bytes]], list[tuple[int, bytes, bytes]]]
_verified_sends: Final[_VerifiedSends | None] = getattr(kernels, "verified_sends", None)
"""Returns of the sends with right signatures where those with one access key and topic end."""

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
        self._states: dict[bytes, bytes] = {}
        """Access key → its HMAC before the first byte, for the kernel."""
        self._sends: dict[tuple[bytes, bytes], bool] = {}
        """Access key and topic → whether the account may send there."""
        codes = _GUARDED_ADMIN_CODES if topic_at else rights.ADMIN_CODES
        super().__init__(files, mode, codes, lambda request: rights.needs_of(request, topic_at))

    def _take_rules(self) -> None:
        super()._take_rules()
        self._sends.clear()
        known = self.files.rules.accounts
        if kernels is not None:
            self._states = {key.encode(): states_of(each.secret_key) for key, each in known.items()}

    def allowed_sends(self, data: bytes, position: int) -> int:
        """Return where the plain V2 sends end, from ``position`` on, that an account allows.

        What is not signed, not allowed or not plain is left to :meth:`refusal`.
        """
        used = None
        assert _verified_sends is not None  # as no run takes sends without kernels
        for end, key, topic in _verified_sends(data, position, self._states):
            allowed = self._sends.get((key, topic))
            if allowed is None:
                account, needs = (
                    self.files.rules.accounts[key.decode()],
                    (topic.decode(), rights.PUB),
                )
                allowed = not self.verdict(account, RequestCode.SEND_MESSAGE_V2, (needs,))
                if len(self._sends) >= MOST_REMEMBERED:
                    self._sends.clear()
                self._sends[key, topic] = allowed
            if not allowed:
                break
            position, used = end, key
        if used is not None:
            self.last_used[used.decode()] = time.time()
        return position


def states_of(secret: bytes) -> bytes:
    """Return the states of an HMAC-SHA1 that has taken its key."""
    assert kernels is not None
    block = secret if len(secret) <= 64 else hashlib.sha1(secret).digest()
    states: bytes = kernels.hmac_states(block.ljust(64, b"\0"))
    return states
