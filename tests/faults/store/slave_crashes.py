"""A slave's store that is cut off while it copies, its queues behind its log.

:class:`SlaveLife` copies a master's log of every kind of record in pieces of any size, flushes,
expires and is read meanwhile, with shares so small that dispatch is nearly always behind. It notes
in the journal what it held. :func:`check_slave` opens what a crash left as a master: its log is
the beginning of the one that was copied, its queues agree with it, and the next message of each
queue gets the offset that the old master would have given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from failback.broker.store import message_store
from failback.broker.store.message_store import MessageStore
from failback.broker.store.upkeep import flush
from failback.protocol.codes import SCHEDULE_TOPIC
from tests.support.store.crash_scenario import (
    CLUSTER,
    HALF,
    OLD_TYPES,
    RETRY,
    ROOT,
    SETTINGS,
    V6_HOST,
    LateThread,
    Stored,
)
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import (
    Clock,
    assert_queues_agree_with_log,
    kill,
    log_messages,
    open_store,
    put,
)

SHARE_BYTES: Final = 300
FAR_BYTES: Final = 400
MASTER: Final[dict[str, Any]] = {
    key: SETTINGS[key] for key in ("mapped_file_bytes", "consume_queue_file_bytes")
}
SLAVE: Final[dict[str, Any]] = SETTINGS | {"broker_role": "SLAVE", "flush_disk_type": "ASYNC_FLUSH"}
FILE_BYTES: Final[int] = SETTINGS["mapped_file_bytes"]


class Held(NamedTuple):
    """What the slave had at a point of the journal, physical offsets."""

    end: int
    """A kill loses no whole record before it."""
    flushed: int
    """A power loss loses no whole record before it."""
    expired: int
    """Log files before it may be gone."""


def kinds(random: Random) -> list[tuple[str, int, list[str], dict[str, Any]]]:
    """Return topic, queue id, properties and further fields of each kind of record."""
    return [
        ("Orders", random.randrange(3), ["TAGS\x01A"], {}),
        ("Orders", random.randrange(3), ["TAGS\x01A"], {}),
        ("Orders", 0, ["KEYS\x01k1 k2"], {"born_host": V6_HOST}),
        (SCHEDULE_TOPIC, 2, ["DELAY\x013", "REAL_TOPIC\x01Orders"], {}),
        (RETRY, 0, [], {"reconsume_times": 2}),
        (HALF, 0, ["TRAN_MSG\x01true"], {}),
        ("Orders", 1, [], {"sys_flag": random.choice(OLD_TYPES)}),
    ]


def master_of(random: Random, clock: Clock) -> MessageStore:
    """Return a master with a log of a few files; the clock moves while it is written."""
    store = open_store(Path("/m"), CrashingFiles(), clock, **MASTER)
    for number in range(random.randint(20, 120)):
        if random.random() < 0.2:
            clock.now += random.choice([1, 700, 4000])
        body = number.to_bytes(4, "big") + random.randbytes(random.choice([0, 9, 60, 500]))
        topic, queue_id, pairs, fields = random.choice(kinds(random))
        properties = "\x02".join([*pairs, CLUSTER]).encode()
        put(store, body, topic=topic, queue_id=queue_id, properties=properties, **fields)
    store.commit_pending()
    return store


class SlaveLife:
    """One slave from its start to the crash that the caller makes of its journal."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.clock = Clock()
        self.master = master_of(random, self.clock)
        self.end = self.master.max_physical_offset
        self.start = random.choice([0, 0, self.end - self.end % FILE_BYTES])
        """Where its log begins: a new slave gets the master's last file."""
        self.files = CrashingFiles()
        self.slave = open_store(ROOT, self.files, self.clock, **SLAVE)
        self.expired = self.start
        self.begin = len(self.files.journal)
        self._note()

    def _note(self) -> None:
        held = Held(self.slave.max_physical_offset, self.slave.flushed_offset, self.expired)
        self.files.note(held)

    async def run(self, steps: int) -> None:
        """Do ``steps`` random things while the store runs; half of the lives end with a stop."""
        shutdown = asyncio.Event()
        running = asyncio.create_task(self.slave.run(shutdown))
        await asyncio.sleep(0)
        rare: list[Callable[[], object]] = [
            self.slave.flush,
            self.slave.flush_queues,
            self.slave.flush_queues,
            self.slave.queues,
            lambda: self.slave.max_queue_offset("Orders", 1),
        ]
        for _ in range(steps):
            self.random.choice([*[self._copy] * 10, *rare])()
            if self.random.random() < 0.04:
                await self._expire()
            for _ in range(self.random.randrange(4)):
                await asyncio.sleep(0)
            self._note()
        is_orderly, last = self.random.random() < 0.5, len(self.files.journal)
        shutdown.set()
        await running
        if is_orderly:
            self.slave.close()
            self._note()
        else:
            del self.files.journal[last:]
            kill(self.slave)

    def _copy(self) -> None:
        at = self.slave.max_physical_offset or self.start
        if at < self.end:
            piece = self.master.read_raw(at, self.random.choice([7, 90, 400, 900, FILE_BYTES]))
            self.slave.append_raw(at, bytes(piece))

    async def _expire(self) -> None:
        end = self.slave.max_physical_offset
        self.expired = max(self.expired, end - end % FILE_BYTES)
        self._note()
        await self.slave.expire()


async def live_as_slave(random: Random, steps: int) -> SlaveLife:
    """Run one life to its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_store, "_SHARE_BYTES", SHARE_BYTES)
        patch.setattr(message_store, "_FAR_BYTES", FAR_BYTES)
        life = SlaveLife(random)
        thread = LateThread(asyncio.get_running_loop(), life.files, random)
        patch.setattr(flush, "SyncThread", lambda loop, name: thread)
        await life.run(steps)
    return life


def check_slave(life: SlaveLife, files: CrashingFiles, point: int, *, killed: bool) -> None:
    """Open what a crash at ``point`` left as a master, and compare with the one it copied.

    ``killed``: only the process died. Otherwise the machine did.
    """
    held: Held = life.files.last_note(point)
    store = open_store(ROOT, files, Clock(life.clock.now), **MASTER)
    low, end = max(store.min_physical_offset, 0), store.max_physical_offset
    assert low <= held.expired, (low, held)
    copied = log_messages(life.master)
    expected = [message for message in copied if low <= message.physical_offset < end]
    assert log_messages(store) == expected
    promised = held.end if killed else held.flushed
    ends = [message.physical_offset + message.store_size for message in copied]
    whole = max((each for each in ends if life.start < each <= promised), default=0)
    assert end >= whole, (end, whole)
    if low == held.expired:  # a file that a power loss brought back has no entries
        assert_queues_agree_with_log(store)
    offsets: dict[tuple[str, int], int] = {}
    for record in map(Stored.of, copied):
        if record.entered and life.start <= record.physical_offset < end:
            offsets[record.topic, record.queue_id] = record.queue_offset + 1
    for (topic, queue_id), offset in offsets.items():
        appended = put(store, topic=topic, queue_id=queue_id, properties=CLUSTER.encode())
        assert appended.queue_offset == offset, (topic, queue_id, appended.queue_offset, offset)
    store.commit_pending()
    assert store.dispatch_behind_bytes() == 0
    kill(store)
