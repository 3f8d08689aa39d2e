"""The index: finding records by their keys. IndexService of 4.9.8.

Nothing of it happens while a message is stored. The service follows dispatch through the log and
enters the keys of what it finds, a slice at a time. It does so soon after messages came, before a
key is looked up, and at a clean stop, so that a Java broker finds the files complete. After a start
it goes on where the files end. What they lack, be it because there were none or because a crash
took them, is entered in the background, and no request waits for it; in 4.9.8 records from
before the last files of the log stay unknown then unless messageIndexSafe is set.

After a kill a file is kept if the page cache lived and its last batch is whole. Otherwise it goes,
as in 4.9.8, unless it was full and the checkpoint says that it is on the disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

from failback.broker.disk_errors import is_fatal
from failback.broker.store.config import StoreConfig
from failback.broker.store.index.index_file import IndexFile
from failback.broker.store.index.index_keys import (
    PACKED,
    KeyScan,
    NewEntry,
    PackedKeys,
    RecordParts,
    first_offset,
    key_hash,
    pack_keys,
    packed_run,
    split_packed,
)
from failback.broker.store.log.checkpoint import StoreCheckpoint
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.log.files import TEMPORARY_PREFIX, FileHandle, Files
from failback.broker.store.log.mapped_file import OpenFiles
from failback.broker.store.log.syncing import ToSync, sync_files

logger = logging.getLogger(__name__)

SLICE_RECORDS: Final = 256 if pack_keys is None else 1024
"""Records entered in one go: about half a millisecond."""
_GATHER_SECONDS: Final = 0.02
"""How long after a message came its keys are entered, together with those of later ones."""
_REST_SECONDS: Final = 0.001
"""The least pause between two slices."""
_STOP_SECONDS: Final = 5.0
"""What a clean stop may spend on records that are not in the index yet."""
_MOST_OPEN: Final = 3
_PARTS_BYTES: Final = 300
"""What the parts of a record take."""
_MOST_STORED_BYTES: Final = 16_384 * _PARTS_BYTES
"""How much waits in memory. Reading records from the log costs more and maps its pages."""


StoredRun = tuple[int, int, list[RecordParts] | PackedKeys]
"""What was dispatched in one go: start, end, and the records in between that have keys; or those
keys."""


class Found(NamedTuple):
    """Where records with a key are, and how far the index had come."""

    physical_offsets: list[int]
    last_update_timestamp: int
    last_update_offset: int


class IndexService:
    """All index files of a store, ``index/<time of creation>``. Event loop's thread only.

    Attributes:
        position: Everything before this physical offset is in the index.
    """

    def __init__(
        self,
        files: Files,
        config: StoreConfig,
        log: CommitLog,
        checkpoint: StoreCheckpoint,
        *,
        dispatched: Callable[[], int],
        clock_ms: Callable[[], int],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """``dispatched`` tells up to where the log's records are known to be whole.

        ``on_failure`` is called when the disk refused entries, or a sync. Entries that it may take
        later wait: :meth:`retry` tries again.
        """
        self._files = files
        self._config = config
        self._directory = config.index_directory
        self._log = log
        self._checkpoint = checkpoint
        self._dispatched = dispatched
        self._clock_ms = clock_ms
        self._on_failure = on_failure
        self._open = OpenFiles(files, _MOST_OPEN)
        self._row: list[IndexFile] = []
        self._scan = KeyScan()
        self._enabled = config.message_index_enable
        self._stored: deque[StoredRun] = deque()
        """What was stored behind :attr:`position`, not to be read again; all or nothing of it."""
        self._stored_bytes = 0
        self._entered: tuple[int, frozenset[int]] = (-1, frozenset())
        """A record that may be in the index already, and the hashes of its keys that are."""
        self._refused: tuple[list[NewEntry] | PackedKeys, int] | None = None
        """Entries that the disk had no room for, and where the log's part ends that they are of."""
        self._prepared: FileHandle | None = None
        """What the last entries were written through."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._syncs: set[asyncio.Task[None]] = set()
        self.position = 0

    # --- life cycle -------------------------------------------------------------------------

    def load(self, *, clean: bool, cache_survived: bool) -> None:
        """Take the files on disk, delete what can't be trusted. The log's end is known.

        Raises:
            OSError: The disk can't be used.
        """
        names = self._files.names(self._directory)
        for name in names:
            if name.startswith(TEMPORARY_PREFIX):
                self._files.delete(self._directory / name)
        numbered = [name for name in names if name.isascii() and name.isdecimal()]
        for at, name in enumerate(numbered):
            file = self._new_file(name)
            if not self._is_good(file, clean, cache_survived):
                for gone in numbered[at:]:  # those behind it would leave a gap
                    self._files.delete(self._directory / gone)
                logger.info("index: %s and later removed, to be entered again", file.path)
                break
            file.unsynced = not clean
            self._row.append(file)
        self._resume()

    def _new_file(self, name: str) -> IndexFile:
        config = self._config
        return IndexFile(self._directory / name, config.max_hash_slot_num, config.max_index_num)

    def _is_good(self, file: IndexFile, clean: bool, cache_survived: bool) -> bool:
        if self._files.size(file.path) != file.mapped.end:
            return False
        handle = self._open.handle(file.mapped)
        file.load(handle)
        is_on_disk = file.is_full and file.end_timestamp <= self._checkpoint.index_msg_timestamp
        is_safe = clean or ((cache_survived or is_on_disk) and file.is_whole(handle))
        # One without entries may lack what it takes over from the one before; it is made again.
        if is_safe and file.count > 1:
            return True
        self._open.close(file.mapped)
        return False

    def _resume(self) -> None:
        """Go on with the last record that the files know: it may have been entered in part."""
        self.position = max(self._log.min_offset, 0)
        while self._row:
            last = self._row[-1]
            if last.end_offset < self.position:
                return
            if self._log.record_at(last.end_offset) is not None:
                break
            logger.warning("index: %s removed, it is of another log", last.path)
            self._open.close(last.mapped)
            self._files.delete(self._row.pop().path)
        else:
            return
        hashes = set[int]()
        for file in reversed(self._row):
            if file.end_offset != last.end_offset:
                break
            hashes |= file.hashes_at_end(self._open.handle(file.mapped))
        self.position = last.end_offset
        self._entered = last.end_offset, frozenset(hashes)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Enter keys in the background from now on."""
        self._loop = loop
        self.appended()

    async def stop(self) -> None:
        """End the background work."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await asyncio.gather(*self._syncs)

    def finish(self) -> None:
        """Enter what is left and make the files durable. Blocks.

        Raises:
            OSError: The disk failed.
        """
        until = time.monotonic() + _STOP_SECONDS
        try:
            while self.build() and time.monotonic() < until:
                pass
        except OSError as error:
            if is_fatal(error):
                raise
        behind = self._dispatched() - self.position
        if behind and self._enabled:
            logger.warning("index: stopped %d bytes behind the log, goes on there", behind)
        unsynced = [file for file in self._row if file.unsynced]
        sync_files(self._files, [self._open.to_sync(file.mapped) for file in unsynced])
        if unsynced:
            self._files.sync_directory(self._directory)
        for file in unsynced:
            file.unsynced = False

    def close(self) -> None:
        self._prepared = None
        self._open.close_all()

    # --- entering ---------------------------------------------------------------------------

    def stored(self, start: int, end: int, records: list[RecordParts] | PackedKeys) -> None:
        """Keep for the next slice what dispatch knows of the log from ``start`` to ``end``."""
        if not self._enabled:
            return
        runs = self._stored
        if start == (runs[-1][1] if runs else self.position):
            if runs and not records:  # so that however many such cost nothing
                start, _, records = runs.pop()
            else:
                self._stored_bytes += bytes_of(records)
            runs.append((start, end, records))
            if self._stored_bytes > _MOST_STORED_BYTES:
                self._forget_stored()  # they are read from the log

    def _forget_stored(self) -> None:
        self._stored.clear()
        self._stored_bytes = 0

    def appended(self) -> None:
        """Note that dispatch went on."""
        if self._timer is None and self._loop is not None and self._enabled:
            self._timer = self._loop.call_later(_GATHER_SECONDS, self._work)

    def _work(self) -> None:
        self._timer = None
        loop = self._loop
        if loop is None:
            return
        began = loop.time()
        if self._build_guarded():
            # As long as it took: what is behind must not hold up who is served meanwhile.
            pause = max(loop.time() - began, _REST_SECONDS)
            self._timer = loop.call_later(pause, self._work)

    def _build_guarded(self) -> bool:
        try:
            return self.build()
        except OSError as error:
            self._on_failure(error)
            return False

    def retry(self) -> None:
        """Enter what the disk refused; the rest follows in the background.

        Raises:
            OSError: It refuses still.
        """
        if self._refused is not None:
            self.build()
            self.appended()

    def catch_up(self, seconds: float) -> Generator[None, None, None]:
        """Enter what came before, as far as ``seconds`` go. Yields after each slice."""
        until = time.monotonic() + seconds
        while self._build_guarded() and time.monotonic() < until:
            yield

    def build(self, most_records: int = SLICE_RECORDS) -> bool:
        """Enter the keys of the next records; return whether there are more.

        Raises:
            OSError: The disk did not take them. If it is broken, nothing is entered from now on.
        """
        if not self._enabled:
            return False
        limit = self._dispatched()
        if self._refused is not None:
            entries, end = self._refused
            self._enter(entries, end)
        elif self._stored:
            self._enter_stored(most_records)
        else:
            self._enter_from_log(limit, most_records)
        return self.position < limit

    def _enter_stored(self, most_records: int) -> None:
        found: list[RecordParts | PackedKeys] = []
        runs, room, end = self._stored, most_records, self.position
        while runs and room > 0:
            _, run_end, records = runs.popleft()
            taken, rest = split(records, room)
            if isinstance(taken, bytes):
                found.append(taken)
            else:
                found += taken
            end = run_end
            if rest:
                end = first_offset(rest) if isinstance(rest, bytes) else rest[0][0]
                runs.appendleft((end, run_end, rest))
            self._stored_bytes -= bytes_of(taken)
            room -= count_of(taken)
        self._enter(self._keys_of(found), end)

    def _keys_of(self, records: list[RecordParts | PackedKeys]) -> list[NewEntry] | PackedKeys:
        if pack_keys is not None:
            return pack_keys(records)
        found: list[NewEntry] = []
        self._scan.stored(cast("list[RecordParts]", records), found)
        return found

    def _enter_from_log(self, limit: int, most_records: int) -> None:
        position = self.position = max(self.position, self._log.min_offset, 0)
        view = self._log.read(position, limit - position)
        if not len(view):
            self.position = max(position, limit)
            return
        found: list[NewEntry] | PackedKeys
        if pack_keys is not None:
            found, read = packed_run(view, position, most_records)
        else:
            scanned: list[NewEntry] = []
            read = self._scan.run(view, position, most_records, scanned)
            found = scanned
        if position == self._entered[0]:
            each = PACKED.iter_unpack(found) if isinstance(found, bytes) else found
            found = [(key, at, time) for key, at, time in each if not self._is_entered(key, at)]
        self._enter(found, position + read)

    def _is_entered(self, hashed: int, physical_offset: int) -> bool:
        return physical_offset == self._entered[0] and hashed in self._entered[1]

    def _enter(self, found: list[NewEntry] | PackedKeys, end: int) -> None:
        """Enter ``found`` and let :attr:`position` be ``end``."""
        done, count = 0, count_of(found)
        self._refused = None
        try:
            while done < count:
                file = self._file_for_writing()
                handle = self._open.handle(file.mapped)
                if handle is not self._prepared:
                    file.prepare(handle)
                    self._prepared = handle
                done += file.add(handle, found, done)
        except OSError as error:
            self._prepared = None
            if is_fatal(error):
                self._enabled = False
                self._forget_stored()
            else:
                rest = found[done * PACKED.size :] if isinstance(found, bytes) else found[done:]
                self._refused = rest, end
            raise
        self.position = end

    def _file_for_writing(self) -> IndexFile:
        last = self._row[-1] if self._row else None
        if last is not None and not last.is_full:
            return last
        file = self._new_file(file_name(self._clock_ms(), last.path.name if last else ""))
        self._files.create(file.path, file.mapped.end, durable=False)
        if last is not None:
            try:
                file.begin_after(self._open.handle(file.mapped), last)
            except OSError:
                self._open.close(file.mapped)
                self._files.delete(file.path)
                raise
            self._begin_sync(last)
        self._row.append(file)
        return file

    def _begin_sync(self, file: IndexFile) -> None:
        """Make a full file durable, then let the checkpoint say so."""
        written = [self._open.to_sync(file.mapped)]
        if self._loop is None:
            self._sync(file, written)
            return
        task = self._loop.create_task(self._sync_aside(file, written))
        self._syncs.add(task)
        task.add_done_callback(self._syncs.discard)

    async def _sync_aside(self, file: IndexFile, written: list[ToSync]) -> None:
        try:
            await asyncio.to_thread(self._sync, file, written)
        except OSError as error:
            self._on_failure(error)

    def _sync(self, file: IndexFile, written: list[ToSync]) -> None:
        sync_files(self._files, written)
        if self._files.size(file.path) < 0:
            return  # expired meanwhile
        self._files.sync_directory(self._directory)
        file.unsynced = False
        self._checkpoint.index_msg_timestamp = file.end_timestamp
        self._checkpoint.write()

    # --- looking up -------------------------------------------------------------------------

    def find(
        self, topic: str, key: str, most: int, begin: int, end: int
    ) -> Generator[None, None, Found]:
        """Return where the newest ``most`` records with a key are, stored in a time range, ms.

        Records of other keys with the same hash are among them. Yields now and then.
        """
        offsets: list[int] = []
        if not self._row:
            return Found(offsets, 0, 0)
        hashed, last = key_hash(topic, key), self._row[-1]
        for file in reversed(self._row.copy()):
            if file.covers(begin, end) and file in self._row:  # it may expire between two steps
                handle = self._open.handle(file.mapped)
                yield from file.select(handle, hashed, begin, end, most, offsets)
            if file.begin_timestamp < begin or len(offsets) >= most:
                break
        return Found(offsets, last.end_timestamp, last.end_offset)

    # --- expiry -----------------------------------------------------------------------------

    def drop_before(self, min_physical_offset: int) -> list[Path]:
        """Forget the files, never the last, that only speak of what lies before an offset.

        The caller deletes them.
        """
        dropped = []
        while len(self._row) > 1 and self._row[0].end_offset < min_physical_offset:
            file = self._row.pop(0)
            self._open.close(file.mapped)
            dropped.append(file.path)
        return dropped


def count_of(records: Sequence[object] | PackedKeys) -> int:
    return len(records) // PACKED.size if isinstance(records, bytes) else len(records)


def bytes_of(records: list[RecordParts] | PackedKeys) -> int:
    return len(records) if isinstance(records, bytes) else len(records) * _PARTS_BYTES


def split(
    records: list[RecordParts] | PackedKeys, most: int
) -> tuple[list[RecordParts] | PackedKeys, list[RecordParts] | PackedKeys]:
    """Divide what was stored behind ``most`` records, or keys if it is keys."""
    if count_of(records) <= most:
        return records, []
    if isinstance(records, bytes):
        return split_packed(records, most)
    return records[:most], records[most:]


def file_name(now_ms: int, last: str) -> str:
    """Return the local time as yyyyMMddHHmmssSSS, or what follows ``last``: names are the order."""
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
    return name if name > last else f"{int(last) + 1:017d}"
