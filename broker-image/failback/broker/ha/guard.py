"""What a slave asks its master before it replicates, under the guarded rules.

Replication itself compares nothing, but any broker of 4.9 tells where its log begins and ends and
gives out single records by their physical offset. That is enough to find out whether this log is
the beginning of the master's, whichever engine the master is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from failback.broker.ha.client import MasterUnknown
from failback.broker.ha.join import Refusal
from failback.broker.ha.prefix import Prefix, Verdict, compare_with
from failback.broker.store.log.tail import LogTail
from failback.broker.store.message_store import MessageStore
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

COMPARED_RECORDS: Final = 8
"""Two logs that differ anywhere differ in their last records: these hold their own times."""

_ASK_MS: Final = 2_000


class Judge(Protocol):
    """What :class:`failback.broker.ha.client.HaClient` asks before it connects."""

    async def __call__(self, ha_address: str, /) -> Refusal | None: ...


def judge_of(
    store: MessageStore,
    commit_log: Path,
    master_address: Callable[[], str | None],
    access: ClusterAccess | None = None,
) -> Judge:
    """Return the judge of the slave that keeps ``store``; its log files are in ``commit_log``.

    ``master_address`` is where the name server says that the master serves; ``access`` is that of
    the broker's own requests.
    """

    first_differences: dict[tuple[str, int], int] = {}  # by master and own end: found only once

    async def judge(ha_address: str) -> Refusal | None:
        stuck_at, end = store.dispatch_until_stuck(), store.max_physical_offset
        if stuck_at is not None:
            return Refusal(stuck_at, "Corrupt", "this log has no record there")
        if end == 0:
            return None
        tail = LogTail(end, tuple(store.last_records(COMPARED_RECORDS)))
        master = _asked(ha_address, master_address())
        try:
            settings = RemotingSettings(access=access)
            async with AdminClient(timeout_ms=_ASK_MS, settings=settings) as admin:
                known = first_differences.get((master, end))
                verdict = await compare_with(admin, master, tail, commit_log, differs_at=known)
        except (FailbackError, OSError) as error:
            raise MasterUnknown(f"master {master}: {error}") from error
        if verdict.differs_at is not None:
            first_differences[master, end] = verdict.differs_at
        logger.debug("compared with master %s: %s", master, verdict)
        return _refusal(verdict, end)

    return judge


def _asked(ha_address: str, master_address: str | None) -> str:
    """Return where the master of ``ha_address`` serves: in 4.9 one port below.

    What the name server says counts if it fits: the two may be addresses of different networks.
    """
    host, _, port = ha_address.rpartition(":")
    if not port.isdecimal():
        raise MasterUnknown(f"{ha_address!r} is no address")
    if master_address is not None and master_address.rpartition(":")[2] == str(int(port) - 1):
        return master_address
    return f"{host}:{int(port) - 1}"


def _refusal(verdict: Verdict, end: int) -> Refusal | None:
    if verdict.prefix.may_start:
        return None
    if verdict.prefix is Prefix.TOO_FAR_BEHIND:
        # Records that begin before the master's first file: it has them no more, but what it sends
        # may still continue this log, and the join shows whether it does.
        if (verdict.master_start or 0) <= end:
            return None
        return Refusal(end, verdict.prefix.value, verdict.detail)
    offset = verdict.differs_at
    if offset is None:
        offset = min(end, verdict.master_end or 0)
    return Refusal(offset, verdict.prefix.value, verdict.detail)
