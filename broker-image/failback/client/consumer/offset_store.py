"""Where a group's offsets are kept between lives of a queue: at the broker, or in a local file.

A running consumer goes on from *memory*; the store is asked only when a queue is taken. So every
rollback needs an assignment, and what the store answers at that moment is the rollback.

Source: RemoteBrokerOffsetStore, LocalFileOffsetStore, MixAll.string2File, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from failback.client.consumer.context import ConsumerContext
from failback.client.errors import ClientError
from failback.client.model import FoundBroker
from failback.client.remoting.api import CALL_ERRORS
from failback.protocol import fastjson
from failback.protocol.body import MessageQueue
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import BrokerError, ProtocolError
from failback.protocol.stats import ResetOffsetBody

logger = logging.getLogger(__name__)

NO_ENTRY: Final = -1
"""The store answered that it has no offset."""
UNKNOWN: Final = -2
"""The store could not be asked; the queue is tried again at the next rebalance."""


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """An answer of the store: an offset, :data:`NO_ENTRY` or :data:`UNKNOWN`, and whose it is."""

    value: int
    addr: str | None = None
    broker_id: int | None = None
    code: int | None = None


class OffsetStore(Protocol):
    """Memory table plus the place behind it. ``kind`` names the occasion of a commit."""

    def load(self) -> None:
        """Read what is kept locally, if anything is."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Set the offset in memory; with ``increase_only`` never to a lower one."""

    def memory(self, queue: MessageQueue) -> int:
        """The offset in memory, or -1."""

    def table(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets in memory of one topic."""

    async def read_store(self, queue: MessageQueue) -> StoredOffset:
        """Ask the place behind; an offset also replaces the one in memory."""

    async def persist_all(self, held: Collection[MessageQueue], kind: str) -> None:
        """Commit every held queue in memory, changed or not; forget the others."""

    async def persist(self, queue: MessageQueue, kind: str) -> None:
        """Commit one queue, if it is in memory."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue's offset in memory."""


class _MemoryTable:
    """The memory half of both stores."""

    def __init__(self) -> None:
        self._memory: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        if increase_only and offset <= self._memory.get(queue, -1):
            return
        self._memory[queue] = offset

    def memory(self, queue: MessageQueue) -> int:
        return self._memory.get(queue, NO_ENTRY)

    def table(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._memory.items() if queue.topic == topic}

    def remove(self, queue: MessageQueue) -> None:
        self._memory.pop(queue, None)


class RemoteBrokerOffsetStore(_MemoryTable):
    """CLUSTERING: at the broker, by one-way requests without a confirmation."""

    def __init__(self, context: ConsumerContext) -> None:
        super().__init__()
        self._context = context
        self._last_sent: dict[MessageQueue, int] = {}

    def load(self) -> None:
        """Nothing is kept locally."""

    async def read_store(self, queue: MessageQueue) -> StoredOffset:
        """Ask a broker.

        A broker that answers an error code counts as having no entry, even if it was only busy:
        the reference's H1. No answer at all is "unknown".
        """
        context = self._context
        found: FoundBroker | None = None
        try:
            found = await context.instance.find_offset_broker(queue)
            if found is None:
                return StoredOffset(UNKNOWN)
            offset = await context.instance.api.query_offset(found.addr, context.group, queue)
        except BrokerError as error:
            assert found is not None
            absent = context.settings.ref_bugs or error.code == ResponseCode.QUERY_NOT_FOUND
            logger.info("offset of %s at %s: %s", queue, found.addr, error)
            return StoredOffset(NO_ENTRY if absent else UNKNOWN, *found, error.code)
        except (ClientError, *CALL_ERRORS) as error:
            logger.warning("offset of %s is unknown: %s", queue, error)
            return StoredOffset(UNKNOWN, *(found or (None, None)))
        self.update(queue, offset, increase_only=False)
        return StoredOffset(offset, *found, ResponseCode.SUCCESS)

    async def persist_all(self, held: Collection[MessageQueue], kind: str) -> None:
        if not held:
            return
        for queue, offset in list(self._memory.items()):
            if queue in held:
                await self._commit(queue, offset, kind)
            else:
                self._memory.pop(queue, None)

    async def persist(self, queue: MessageQueue, kind: str) -> None:
        offset = self._memory.get(queue)
        if offset is not None:
            await self._commit(queue, offset, kind)

    async def _commit(self, queue: MessageQueue, offset: int, kind: str) -> None:
        """Send one offset; a failure is logged and otherwise without consequence."""
        context = self._context
        t = context.clock.mono_ns()
        found: FoundBroker | None = None
        result = "SENT" if not context.settings.ack_commits else "OK"
        try:
            found = await context.instance.find_offset_broker(queue)
            if found is None:
                result = "NO_BROKER"
            else:
                t = context.clock.mono_ns()
                await context.instance.api.update_offset(
                    found.addr,
                    context.group,
                    queue,
                    offset,
                    oneway=not context.settings.ack_commits,
                )
        except (ClientError, *CALL_ERRORS) as error:
            result = type(error).__name__
            logger.warning("commit of %s at %d failed: %s", queue, offset, error)
        sent = result in ("SENT", "OK")
        context.hook.commit(
            context.group,
            context.client_id,
            queue,
            offset,
            previous=self._last_sent.get(queue),
            kind=kind,
            addr=found.addr if found else None,
            broker_id=found.broker_id if found else None,
            t=t,
            sent=sent,
            result=result,
        )
        if sent:
            self._last_sent[queue] = offset


class LocalFileOffsetStore(_MemoryTable):
    """BROADCASTING: ``<dir>/<client id>/<group>/offsets.json``, with ``.bak`` beside it.

    The client id of a broadcasting consumer is stable, so a restart finds its file. Other queues'
    entries in the file survive every write.
    """

    def __init__(self, context: ConsumerContext) -> None:
        super().__init__()
        self._context = context
        folder = context.settings.local_offset_store_dir / context.client_id / context.group
        self.path = folder / "offsets.json"

    def load(self) -> None:
        """Read the file into memory.

        Raises:
            ProtocolError: The file can't be used, and its ``.bak`` isn't an offset file either.
        """
        self._memory.update(read_offset_file(self.path))

    async def read_store(self, queue: MessageQueue) -> StoredOffset:
        try:
            table = read_offset_file(self.path)
        except ProtocolError as error:
            logger.warning("offset file %s: %s", self.path, error)
            return StoredOffset(NO_ENTRY)
        offset = table.get(queue)
        if offset is None:
            return StoredOffset(NO_ENTRY)
        self.update(queue, offset, increase_only=False)
        return StoredOffset(offset)

    async def persist_all(self, held: Collection[MessageQueue], kind: str) -> None:
        if held:
            self._merge({q: o for q, o in self._memory.items() if q in held}, kind)

    async def persist(self, queue: MessageQueue, kind: str) -> None:
        offset = self._memory.get(queue)
        if offset is not None:
            self._merge({queue: offset}, kind)

    def _merge(self, offsets: dict[MessageQueue, int], kind: str) -> None:
        context = self._context
        t = context.clock.mono_ns()
        result = "OK"
        before: dict[MessageQueue, int] = {}
        try:
            before = read_offset_file(self.path)
            write_offset_file(self.path, {**before, **offsets})
        except (OSError, ProtocolError) as error:
            result = type(error).__name__
            logger.warning("offset file %s was not written: %s", self.path, error)
        for queue, offset in offsets.items():
            context.hook.commit(
                context.group,
                context.client_id,
                queue,
                offset,
                previous=before.get(queue),
                kind="LOCAL_FILE",
                addr=None,
                broker_id=None,
                t=t,
                sent=result == "OK",
                result=result if result != "OK" else kind,
            )


def read_offset_file(path: Path) -> dict[MessageQueue, int]:
    """Read an offset file, or its ``.bak`` if it is missing, empty or damaged; ``{}`` if neither.

    Raises:
        ProtocolError: The ``.bak`` was needed and can't be parsed.
    """
    try:
        text = path.read_bytes()
    except OSError:
        text = b""
    if text.strip():
        try:
            return _parse(text)
        except ProtocolError as error:
            logger.warning("offset file %s: %s; trying its .bak", path, error)
    try:
        text = _beside(path, ".bak").read_bytes()
    except OSError:
        return {}
    return _parse(text) if text.strip() else {}


def write_offset_file(path: Path, table: dict[MessageQueue, int]) -> None:
    """Write ``.tmp``, keep the present text as ``.bak``, take the present file away, rename.

    Raises:
        OSError: A step failed; main file or ``.bak`` still has the older text.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path, ".tmp")
    temporary.write_bytes(fastjson.dumps({"offsetTable": table}, pretty=True))
    if path.exists():
        _beside(path, ".bak").write_bytes(path.read_bytes())
        path.unlink()
    temporary.rename(path)


def _parse(text: bytes) -> dict[MessageQueue, int]:
    return ResetOffsetBody.from_json(text).offset_table


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
