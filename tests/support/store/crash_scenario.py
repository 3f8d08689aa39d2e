"""A store under every kind of record on a file system that is cut off: what must be there then.

:class:`Life` runs one seeded scenario on :class:`CrashingFiles`: appends of all kinds, commits,
group commits of SYNC_FLUSH, flushes of the queues, expiry, JSON files. It notes in the journal what
the store had promised at each point. :func:`check` opens what a crash left and compares.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from failback.broker.metadata.json_config import (
    load_json_config,
    persist_json_config,
    persist_json_config_atomically,
)
from failback.broker.store.log.record import has_queue_entry
from failback.broker.store.message_store import MessageStore
from failback.broker.store.upkeep import flush
from failback.protocol.codes import (
    SCHEDULE_TOPIC,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from failback.protocol.message import BatchElement, MessageExt, pack_host
from tests.support.store.crashing_files import CrashingConfigFiles, CrashingFiles
from tests.support.store.store_kit import (
    Clock,
    assert_queues_agree_with_log,
    kill,
    log_messages,
    open_store,
    put,
)

ROOT: Final = Path("/store")
HALF, OP, RETRY = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%RETRY%billing"
CLUSTER: Final = "CLUSTER\x01c"
"""The broker puts its cluster last, so the properties of a whole record never end in a zero."""
CONFIG: Final = {"compat": persist_json_config, "guarded": persist_json_config_atomically}
SETTINGS: Final[dict[str, Any]] = {
    "mapped_file_bytes": 2048,
    "consume_queue_file_bytes": 160,
    "flush_disk_type": "SYNC_FLUSH",
    "flush_interval_ms": 3_600_000,
    "consume_queue_flush_interval_ms": 3_600_000,
    "sync_flush_timeout_ms": 3_600_000,
    "delete_when": ";".join(map(str, range(24))),
    "file_reserved_ms": 0,
    "delete_log_files_interval_ms": 0,
}


class Promise(NamedTuple):
    """What the store had said at a point of the journal."""

    committed: int
    """How many of the life's records were committed: a kill loses none of them."""
    acknowledged: int
    """How many had been acknowledged under SYNC_FLUSH: a power loss loses none of them."""
    expired: int
    """Log files before this physical offset may be gone."""
    configs: tuple[tuple[str, int, int], ...]
    """By the rules of each JSON file: the version on the disk, and the one that was written last.

    They differ after a kill in the middle of a persist: the next life reads the newer one, which a
    power loss may take away again.
    """


class LateThread:
    """Stands in for a thread that syncs: a sync begins at once and ends some turns later.

    It covers only what was written before it began, as a real one promises no more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, files: CrashingFiles, random: Random):
        self._loop = loop
        self._files = files
        self._random = random
        self._jobs: deque[tuple[Callable[[], None], Callable[[Exception | None], None], int]]
        self._jobs = deque()

    def submit(self, call: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self._jobs.append((call, done, len(self._files.journal)))
        self._turn(self._random.randrange(6))

    def _turn(self, left: int) -> None:
        if left:
            self._loop.call_soon(self._turn, left - 1)
        elif self._jobs:
            self._run()

    def _run(self) -> None:
        call, done, began = self._jobs.popleft()
        with self._files.covering(began):
            call()
        self._loop.call_soon(done, None)

    def stop(self) -> None:
        while self._jobs:
            self._run()


@dataclass(slots=True)
class Stored:
    """One record of a life, as it was appended."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    entered: bool = True
    """Whether its queue has an entry of it."""

    @staticmethod
    def of(message: MessageExt) -> Stored:
        return Stored(
            message.physical_offset,
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.body,
            has_queue_entry(message.sys_flag),
        )


class Life:
    """From one start of the store to the crash that the caller makes of its journal."""

    def __init__(self, files: CrashingFiles, clock: Clock, random: Random) -> None:
        self.files = files
        self.random = random
        self.clock = clock
        self.store = open_store(ROOT, files, clock, **SETTINGS)
        self.records = [Stored.of(message) for message in log_messages(self.store)]
        self.committed = self.acknowledged = len(self.records)
        self.expired = max(self.store.min_physical_offset, 0)
        self.config_files = CrashingConfigFiles(files)
        self.configs = {rules: self.load_config(rules) for rules in CONFIG}
        before = files.last_note(len(files.journal))
        promised = {rules: version for rules, version, _ in before.configs} if before else {}
        self.on_disk = {
            rules: min(version, promised.get(rules, version))
            for rules, version in self.configs.items()
        }
        self._number = len(self.records)
        self.begin = len(files.journal)
        """The step of the first promise: the start is over."""
        self.note()

    def note(self) -> None:
        """Put into the journal what is promised now."""
        configs = tuple((rules, self.on_disk[rules], self.configs[rules]) for rules in CONFIG)
        self.files.note(Promise(self.committed, self.acknowledged, self.expired, configs))

    async def run(self, steps: int) -> None:
        """Do ``steps`` random things while the store runs."""
        shutdown = asyncio.Event()
        task = asyncio.create_task(self.store.run(shutdown))
        await asyncio.sleep(0)
        kinds = [self._put] * 12 + [self._batch] * 2 + [self._commit] * 8
        rare: list[Callable[[], None]] = [
            self._tick,
            self.store.flush_queues,
            self._persist_compat,
            self._persist_guarded,
        ]
        try:
            for _ in range(steps):
                self.random.choice(kinds + rare)()
                if self.random.random() < 0.03:
                    await self._expire()
                for _ in range(self.random.randrange(4)):
                    await asyncio.sleep(0)
                self.note()
        finally:
            shutdown.set()
            await task
        self.note()
        if self.random.random() < 0.3:
            self._commit()
            self.store.close()
            self.acknowledged = self.committed
        else:
            kill(self.store)
        self.note()

    # --- what it does -----------------------------------------------------------------------

    def _properties(self, *pairs: str) -> bytes:
        return "\x02".join([*pairs, CLUSTER]).encode()

    def _put(self) -> None:
        random = self.random
        self._number += 1
        body = self._number.to_bytes(4, "big") + random.randbytes(random.choice([0, 9, 60, 500]))
        kinds: list[tuple[str, int, list[str], dict[str, Any]]] = [
            ("Orders", random.randrange(3), ["TAGS\x01A"], {}),
            ("Orders", 0, ["KEYS\x01k1 k2", "UNIQ_KEY\x01u"], {"born_host": V6_HOST}),
            (SCHEDULE_TOPIC, 2, ["DELAY\x013", "REAL_TOPIC\x01Orders", "REAL_QID\x010"], {}),
            (RETRY, 0, ["RETRY_TOPIC\x01Orders"], {"reconsume_times": 2}),
            (HALF, 0, ["TRAN_MSG\x01true", "REAL_TOPIC\x01Orders"], {}),
            (OP, 0, ["TAGS\x01d"], {}),
            (
                "Orders",
                1,
                [],
                {"sys_flag": TRANSACTION_COMMIT, "prepared_transaction_offset": 7},
            ),
            ("Orders", 1, [], {"sys_flag": random.choice(OLD_TYPES)}),
        ]
        topic, queue_id, pairs, fields = random.choice(kinds)
        properties = self._properties(*pairs)
        appended = put(
            self.store, body, topic=topic, queue_id=queue_id, properties=properties, **fields
        )
        place = appended.physical_offset, topic, queue_id, appended.queue_offset
        entered = has_queue_entry(fields.get("sys_flag", 0))
        self.records.append(Stored(*place, body, entered))

    def _batch(self) -> None:
        elements = []
        for _ in range(self.random.randint(1, 5)):
            self._number += 1
            body = self._number.to_bytes(4, "big") + b"b" * self.random.randrange(200)
            elements.append(BatchElement(0, body, b"TAGS\x01B"))
        appended = self.store.append_batch(
            topic=b"Batches",
            queue_id=0,
            sys_flag=0,
            born_timestamp=self.clock.now,
            born_host=V6_HOST[:8],
            reconsume_times=0,
            elements=elements,
            batch_properties=CLUSTER.encode(),
        )
        for number, element in enumerate(elements):
            place = appended.physical_offsets[number], "Batches", 0, appended.queue_offset + number
            self.records.append(Stored(*place, element.body))

    def _commit(self) -> None:
        """Commit what is pending; it is acknowledged when the group commit says so."""
        self.store.commit_pending()
        count = self.committed = len(self.records)
        self.note()

        def done(flushed: bool) -> None:
            assert flushed
            self.acknowledged = max(self.acknowledged, count)
            self.note()

        self.store.request_flush(self.store.max_physical_offset, done)

    def _tick(self) -> None:
        self.clock.now += self.random.choice([1, 700, 4000])

    async def _expire(self) -> None:
        tail = self.store.max_physical_offset
        self.expired = tail - tail % SETTINGS["mapped_file_bytes"]
        self.note()
        await self.store.expire()

    def _persist_compat(self) -> None:
        self.persist("compat")

    def _persist_guarded(self) -> None:
        self.persist("guarded")

    def persist(self, rules: str) -> None:
        """Write the next version of a JSON file."""
        version = self.configs[rules] + 1
        CONFIG[rules](_config_path(rules), str(version), self.config_files)
        self.configs[rules] = self.on_disk[rules] = version

    def load_config(self, rules: str) -> int:
        """Return the version that the JSON file holds, 0 without one."""
        return load_json_config(_config_path(rules), int, self.config_files) or 0


V6_HOST: Final = pack_host("2001:db8::1", 50000)
OLD_TYPES: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def _config_path(rules: str) -> Path:
    return ROOT / "config" / f"{rules}.json"


async def live(files: CrashingFiles, clock: Clock, random: Random, steps: int) -> Life:
    """Run one life to its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "SyncThread", lambda loop, name: LateThread(loop, files, random))
        life = Life(files, clock, random)
        await life.run(steps)
    return life


def check(life: Life, files: CrashingFiles, point: int, *, killed: bool) -> MessageStore:
    """Open what a crash at ``point`` left; return the store, with a record more and running.

    ``killed``: only the process died. Otherwise the machine did.
    """
    promise = life.files.last_note(point)
    store = open_store(ROOT, files, Clock(life.clock.now), **SETTINGS)
    low = max(store.min_physical_offset, 0)
    assert low <= promise.expired, (low, promise)
    held = [record for record in life.records if record.physical_offset >= low]
    gone = len(life.records) - len(held)
    found = [Stored.of(message) for message in log_messages(store)]
    promised = promise.committed if killed else promise.acknowledged
    assert len(found) >= promised - gone, f"{len(found)} of {promised} records, {gone} expired"
    assert found == held[: len(found)]
    assert_queues_agree_with_log(store)
    for record in life.records[:promised]:  # expired ones too: their offsets are not given again
        if record.entered:
            assert store.max_queue_offset(record.topic, record.queue_id) > record.queue_offset
    check_configs(promise, files, killed=killed)
    expected = store.max_queue_offset("After", 0)
    appended = put(store, b"after", topic="After", properties=CLUSTER.encode())
    store.commit_pending()
    assert store.flush() == appended.end_offset
    assert appended.queue_offset == expected
    assert [m.body for m in log_messages(store)[-1:]] == [b"after"]
    return store


def check_configs(promise: Promise, files: CrashingFiles, *, killed: bool) -> None:
    """The guarded rules keep the last or the next version whatever happens, 4.9.8's after a kill.

    4.9.8's way goes back one version where the kill fell between deleting and renaming.
    """
    config_files = CrashingConfigFiles(files)
    for rules, on_disk, newest in promise.configs:
        if rules == "compat" and not killed:
            continue
        found = load_json_config(_config_path(rules), int, config_files) or 0
        oldest = newest - 1 if rules == "compat" else newest if killed else on_disk
        assert oldest <= found <= newest + 1, (rules, found, on_disk, newest)
