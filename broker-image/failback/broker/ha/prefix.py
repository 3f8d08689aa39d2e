"""Is a slave's log the beginning of its master's? Where not, which record differs first?

It is asked before the slave starts, and under the guarded rules by the slave itself before it
replicates.

HA has no handshake. A slave whose log is longer than its master's, or differs from it, goes on
acknowledging. Once the master passes that point, the slave's log is corrupted in silence. So the
last records of the own log are compared, byte by byte, with what the master answers to
VIEW_MESSAGE_BY_ID (33) at the same physical offsets.

Only the last records are compared to find out whether the logs differ. If they do, the first record
that differs is searched in the whole log: all from there on is what the master does not have.

33 does not check that an offset is the start of a record (Apache takes four bytes there for a
length, DefaultMessageStore#lookMessageByOffset of 4.9.8), so every other answer within the
master's range, an error or a frame that is too large among them, means that the logs differ.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from failback.broker.store.log.tail import (
    LogTail,
    log_files,
    read_tail,
    record_bytes,
    record_offsets,
)
from failback.client.admin.admin import AdminClient
from failback.client.remoting.addresses import addresses_of
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.guarded.own_access import OwnAccess, OwnSettings
from failback.common.numbers import signed
from failback.protocol.errors import (
    BrokerError,
    ConfigError,
    FailbackError,
    ProtocolError,
    RemotingSendError,
)

logger = logging.getLogger(__name__)

ASK_AGAIN_SECONDS: Final = 0.5
_ASK_MS: Final = 2000


class Prefix(Enum):
    """What was found out. The names are those of a member's status."""

    MASTER = "Master"
    EMPTY = "Empty"
    VERIFIED = "Verified"
    UNVERIFIED = "Unverified"
    SLAVE_AHEAD = "SlaveAhead"
    DIVERGED = "Diverged"
    TOO_FAR_BEHIND = "TooFarBehind"

    @property
    def may_start(self) -> bool:
        return self not in (Prefix.SLAVE_AHEAD, Prefix.DIVERGED, Prefix.TOO_FAR_BEHIND)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one check; offsets are bytes of the commit log, ``None`` where unknown."""

    prefix: Prefix
    detail: str = ""
    own_end: int = 0
    master: str | None = None
    master_start: int | None = None
    master_end: int | None = None
    compared: int = 0
    differs_at: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that the operator reads from the container's termination message."""
        names = {
            "own_end": "ownEnd",
            "master_start": "masterStart",
            "master_end": "masterEnd",
            "differs_at": "differsAt",
        }
        found = {names.get(key, key): value for key, value in asdict(self).items()}
        found["prefix"] = self.prefix.value
        return {key: value for key, value in found.items() if value not in (None, "")}


@dataclass(frozen=True, slots=True)
class PrefixSettings:
    """The lines of a ``broker.conf`` that the check needs."""

    broker_name: str
    is_slave: bool
    own_address: str
    name_servers: tuple[str, ...]
    commit_log: Path
    access: OwnAccess
    """That of the broker itself."""

    @classmethod
    def of(cls, properties: Mapping[str, str], conf: Path | None = None) -> PrefixSettings:
        """Take them from parsed properties, which are those of a file ``conf``.

        Raises:
            ConfigError: A line is missing, an address is none, or a file of own requests is broken.
        """
        for key in ("brokerName", "brokerRole", "namesrvAddr", "storePathRootDir"):
            if not properties.get(key):
                raise ConfigError(key, "is missing")
        root = properties["storePathRootDir"]
        host, port = properties.get("brokerIP1", ""), properties.get("listenPort", "10911")
        own = OwnSettings.of(properties, conf)
        access = OwnAccess(lambda: own)
        access.load()
        return cls(
            broker_name=properties["brokerName"],
            is_slave=properties["brokerRole"] == "SLAVE",
            own_address=f"{host}:{port}",
            name_servers=addresses_of("namesrvAddr", properties["namesrvAddr"]),
            commit_log=Path(properties.get("storePathCommitLog") or f"{root}/commitlog"),
            access=access,
        )


async def verify_prefix(settings: PrefixSettings, *, seconds: float, records: int) -> Verdict:
    """Compare up to ``records`` last own records with the master's.

    A master that cannot be reached is asked again for ``seconds``; then it is Unverified.
    """
    if not settings.is_slave:
        return Verdict(Prefix.MASTER)
    tail = read_tail(settings.commit_log, records)
    if not tail.records:
        return Verdict(Prefix.EMPTY)
    deadline = asyncio.get_running_loop().time() + seconds
    remoting = RemotingSettings(access=settings.access)
    async with AdminClient(timeout_ms=_ASK_MS, settings=remoting) as admin:
        while True:
            try:
                return await _compare(admin, settings, tail)
            except FailbackError as error:
                why = str(error)
            if asyncio.get_running_loop().time() >= deadline:
                detail = f"the master was not reachable for {seconds:g} s: {why}"
                return Verdict(Prefix.UNVERIFIED, detail, own_end=tail.end)
            await asyncio.sleep(ASK_AGAIN_SECONDS)


async def _compare(admin: AdminClient, settings: PrefixSettings, tail: LogTail) -> Verdict:
    master = await _find_master(admin, settings)
    return await compare_with(admin, master, tail, settings.commit_log)


async def compare_with(
    admin: AdminClient,
    master: str,
    tail: LogTail,
    commit_log: Path,
    *,
    differs_at: int | None = None,
) -> Verdict:
    """Compare the own log in folder ``commit_log``, which ends with ``tail``, with a master's.

    If they differ, where they begin to is searched in the whole log, unless ``differs_at`` says it.

    Raises:
        FailbackError: The master did not answer.
    """
    runtime = await admin.runtime_info(master)
    start = _offset_in(runtime, "commitLogMinOffset")
    end = _offset_in(runtime, "commitLogMaxOffset")
    known = Verdict(
        Prefix.VERIFIED, own_end=tail.end, master=master, master_start=start, master_end=end
    )
    if tail.end > end:
        detail = f"slave ends at {tail.end}, master at {end}"
        ahead = replace(known, prefix=Prefix.SLAVE_AHEAD, detail=detail)
        return await _with_first_difference(admin, commit_log, ahead, differs_at)
    within = [each for each in tail.records if each[0] >= max(start, 0)]
    if not within:
        detail = f"master starts at {start}, slave ends at {tail.end}"
        return replace(known, prefix=Prefix.TOO_FAR_BEHIND, detail=detail)
    for number, (offset, record) in enumerate(within):
        theirs = await _record_at(admin, master, offset)
        if theirs != record:
            how = "has no record" if theirs is None else "has another record"
            diverged = replace(
                known,
                prefix=Prefix.DIVERGED,
                detail=f"the master {how} at {offset}",
                compared=number + 1,
                differs_at=offset,
            )
            return await _with_first_difference(admin, commit_log, diverged, differs_at)
    return replace(known, compared=len(within))


def _offset_in(runtime: Mapping[str, str], key: str) -> int:
    found = signed(runtime.get(key))
    if found is None:
        raise ProtocolError(f"runtime information has {key} {runtime.get(key, '')[:60]!r}")
    return found


async def _with_first_difference(
    admin: AdminClient, commit_log: Path, verdict: Verdict, differs_at: int | None
) -> Verdict:
    """Return a verdict of refusal that says where the logs differ first, if that is not known yet.

    Two logs that differ at one record have nothing in common behind it, because a record holds its
    own offset and time. A master that goes away meanwhile leaves the verdict as it is.
    """
    if differs_at is not None:
        return replace(verdict, differs_at=differs_at)
    try:
        first = await _first_difference(admin, commit_log, verdict)
    except FailbackError as error:
        logger.warning("where the logs begin to differ could not be found out: %s", error)
        return verdict
    return verdict if first is None else replace(verdict, differs_at=first)


async def _first_difference(admin: AdminClient, commit_log: Path, verdict: Verdict) -> int | None:
    """Return the offset of the first own record that the master lacks or has otherwise."""
    assert verdict.master is not None
    master, end = verdict.master, verdict.master_end or 0
    found: int | None = None
    for start, path in log_files(commit_log):
        within = [
            offset
            for offset in await asyncio.to_thread(record_offsets, path, start)
            if (verdict.master_start or 0) <= offset < verdict.own_end
        ]
        low, high = 0, len(within)
        while low < high:
            middle = (low + high) // 2
            offset = within[middle]
            own = record_bytes(path, start, offset)
            known = offset + len(own) <= end
            if known and await _record_at(admin, master, offset) == own:
                low = middle + 1
            else:
                high = middle
        if low < len(within):
            found = within[low]
        if low:
            break
    return found


async def _find_master(admin: AdminClient, settings: PrefixSettings) -> str:
    """Return the address of id 0 as the first name server says that knows one.

    Our own address there is a registration from before we became a slave: it will expire.
    """
    problems: Sequence[str] = []
    for name_server in settings.name_servers:
        try:
            brokers = (await admin.cluster_info_at(name_server)).broker_addr_table
        except FailbackError as error:
            problems = [*problems, str(error)]
            continue
        found = brokers.get(settings.broker_name)
        master = found.broker_addrs.get(0) if found is not None else None
        if master and master != settings.own_address:
            return master
        problems = [*problems, f"{name_server} shows no other master of {settings.broker_name}"]
    raise FailbackError("; ".join(problems) or "there is no name server")


async def _record_at(admin: AdminClient, master: str, offset: int) -> bytes | None:
    """Return the record that the master has there; ``None`` for any answer that is none.

    An answer that cannot be read costs the connection, as a dying master does. It was the answer
    only if the master goes on answering other requests and loses the connection again.
    """
    for attempt in range(2):
        try:
            return await admin.view_record(master, offset)
        except (BrokerError, ProtocolError):
            return None
        except RemotingSendError:
            if attempt:
                return None
            await admin.runtime_info(master)
    return None
