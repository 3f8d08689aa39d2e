"""One index file: a hash table from keys to records, as RocketMQ 4.9 lays it out, big-endian.

    | header, 40 bytes | slots, int32 each | entries, 20 bytes each |

    header   begin timestamp i64, end timestamp i64, begin physical offset i64,
             end physical offset i64, used slots i32, index of the next entry i32
    entry    key hash i32, physical offset i64, seconds since the begin i32, previous entry i32

A slot holds the newest entry of its keys, each entry the one before it; 0 ends the chain, so
entry 0 is never used. A new file begins where the one before it ended, until its first entry
says otherwise. Source: IndexFile and IndexHeader, apache/rocketmq 4.9.8.

**Order of writes.** Entries come in batches: first -1 as end offset, with the end timestamp to
be, then entries and slots, at last the whole header. So a file whose last entry does not speak of
its end offset was left in the middle of a batch and is not to be trusted. A Java broker goes by
the end timestamp: it deletes what is younger than its checkpoint.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from failback.broker.native import kernels
from failback.broker.store.index.index_keys import PACKED, NewEntry, PackedKeys
from failback.broker.store.log.files import FileHandle
from failback.broker.store.log.mapped_file import MappedFile

HEADER: Final = struct.Struct(">qqqqii")
ENTRY: Final = struct.Struct(">iqii")
SLOT: Final = struct.Struct(">i")
_ENDS: Final = struct.Struct(">qqqq")
_IN_BATCH: Final = -1
_MOST_SECONDS: Final = 2**31 - 1
_STEPS_AT_A_TIME: Final = 4096
"""Entries of a chain that are looked at in one go; more would hold up the event loop."""

Chained = tuple[bytes, dict[int, int], int, int]
"""Laid out entries, the heads of their chains by position, used slots and begin timestamp."""
ChainKeys = Callable[[memoryview, PackedKeys, int, int, int, int, int, int, int], Chained]
_chain_keys: ChainKeys | None = kernels.chain_keys if kernels is not None else None


def index_file_bytes(slots: int, entries: int) -> int:
    """Return the exact length of a file with so many slots and entries."""
    return HEADER.size + SLOT.size * slots + ENTRY.size * entries


class IndexFile:
    """One file; the caller gives its handle, so that only few need to be open.

    Attributes:
        count: Index of the next entry; 1 when there is none.
        unsynced: Whether the disk may not have all of it.
    """

    def __init__(self, path: Path, slots: int, entries: int) -> None:
        self.mapped = MappedFile(path, 0, index_file_bytes(slots, entries))
        self._slots = slots
        self._most = entries
        self._entries_at = HEADER.size + SLOT.size * slots
        self.begin_timestamp = self.end_timestamp = 0
        self.begin_offset = self.end_offset = 0
        self.used_slots = 0
        self.count = 1
        self.unsynced = False

    @property
    def path(self) -> Path:
        return self.mapped.path

    @property
    def is_full(self) -> bool:
        return self.count >= self._most

    def load(self, handle: FileHandle) -> None:
        """Read the header."""
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            count,
        ) = HEADER.unpack_from(handle.view())
        self.count = max(count, 1)

    def begin_after(self, handle: FileHandle, before: IndexFile) -> None:
        """Let this new file begin where ``before`` ended."""
        self.begin_timestamp = self.end_timestamp = before.end_timestamp
        self.begin_offset = self.end_offset = before.end_offset
        handle.write_at(0, HEADER.pack(*self._ends(), 0, 0))
        self.unsynced = True

    def _ends(self) -> tuple[int, int, int, int]:
        return self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset

    def is_whole(self, handle: FileHandle) -> bool:
        """Whether the last batch was written to its end."""
        if not 1 < self.count <= self._most:
            return self.count == 1 and self.end_offset != _IN_BATCH
        return self._entry(handle, self.count - 1)[1] == self.end_offset

    def hashes_at_end(self, handle: FileHandle) -> set[int]:
        """Return the key hashes that the last record has here."""
        hashes = set()
        for index in range(self.count - 1, 0, -1):
            key_hash, physical_offset, _, _ = self._entry(handle, index)
            if physical_offset != self.end_offset:
                break
            hashes.add(key_hash)
        return hashes

    def _entry(self, handle: FileHandle, index: int) -> tuple[int, int, int, int]:
        entry: tuple[int, int, int, int] = ENTRY.unpack_from(
            handle.view(), self._entries_at + ENTRY.size * index
        )
        return entry

    # --- writing ----------------------------------------------------------------------------

    def prepare(self, handle: FileHandle) -> None:
        """Make a newly opened handle ready for :meth:`add`.

        Raises:
            OSError: The disk has no room for header and slots.
        """
        handle.reserve(self._entries_at)

    def add(self, handle: FileHandle, new: Sequence[NewEntry] | PackedKeys, start: int) -> int:
        """Enter ``new`` from number ``start`` on, as far as there is room; return how many.

        The handle must be prepared (:meth:`prepare`). Packed keys come where there are kernels.

        Raises:
            OSError: The disk did not take them. The file is not to be trusted any more.
        """
        room = self._most - self.count
        if isinstance(new, bytes):
            count = min(room, len(new) // PACKED.size - start)
            if count <= 0:
                return 0
            first = PACKED.unpack_from(new, start * PACKED.size)
            last = PACKED.unpack_from(new, (start + count - 1) * PACKED.size)
            chained = self._chain_packed(handle.view(), new, start, count)
        else:
            taken = new[start : start + room]
            if not taken:
                return 0
            count, first, last = len(taken), taken[0], taken[-1]
            chained = self._chain(handle.view(), taken)
        self._write(handle, chained, (first[1], last[1], last[2]), count)
        return count

    def _chain_packed(self, view: memoryview, keys: PackedKeys, start: int, count: int) -> Chained:
        """Do what :meth:`_chain` does by a kernel."""
        assert _chain_keys is not None
        slots_at, slots, begin = HEADER.size, self._slots, self.begin_timestamp
        return _chain_keys(
            view, keys, start, count, slots_at, slots, self.count, self.used_slots, begin
        )

    def _chain(self, view: memoryview, taken: Sequence[NewEntry]) -> Chained:
        """Lay out the entries of ``taken``, each leading to the newest of its slot before it.

        Twin of ``chain_keys`` in ``native/index.c``.
        """
        slots, most_seconds = self._slots, _MOST_SECONDS
        pack, unpack, slots_at = ENTRY.pack, SLOT.unpack_from, HEADER.size
        count, used, begin = self.count, self.used_slots, self.begin_timestamp
        heads: dict[int, int] = {}
        entries = []
        time, seconds = -1, 0
        for key_hash, physical_offset, timestamp in taken:
            slot = slots_at + 4 * (key_hash % slots)
            if slot in heads:
                previous = heads[slot]
            else:
                (previous,) = unpack(view, slot)
                if not 0 < previous < count:
                    previous = 0
                    used += 1
            if timestamp != time:  # what was stored together has one
                time = timestamp
                seconds = (timestamp - begin) // 1000 if begin > 0 else 0
                if not 0 <= seconds <= most_seconds:
                    seconds = 0 if seconds < 0 else most_seconds
            entries.append(pack(key_hash, physical_offset, seconds, previous))
            if count == 1:
                begin, time, seconds = timestamp, -1, 0
            heads[slot] = count
            count += 1
        return b"".join(entries), heads, used, begin

    def _write(
        self, handle: FileHandle, chained: Chained, edges: tuple[int, int, int], count: int
    ) -> None:
        """Write a batch of ``count`` entries.

        ``edges`` are the physical offsets of the first and the last, and the last's timestamp.
        """
        entries, heads, used, begin = chained
        first_offset, last_offset, last_timestamp = edges
        self.unsynced = True
        ends = _ENDS.pack(self.begin_timestamp, last_timestamp, self.begin_offset, _IN_BATCH)
        handle.write_at(0, ends)
        handle.write_at(self._entries_at + ENTRY.size * self.count, entries)
        handle.write_words(heads)
        if self.count == 1:
            self.begin_timestamp, self.begin_offset = begin, first_offset
        self.end_timestamp, self.end_offset = last_timestamp, last_offset
        self.used_slots, self.count = used, self.count + count
        handle.write_at(0, HEADER.pack(*self._ends(), used, self.count))

    # --- reading ----------------------------------------------------------------------------

    def covers(self, begin: int, end: int) -> bool:
        """Whether any entry may be from the time ``begin`` to ``end``, ms."""
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def select(
        self, handle: FileHandle, key_hash: int, begin: int, end: int, most: int, found: list[int]
    ) -> Iterator[None]:
        """Add the physical offsets of a key to ``found``, newest first, until it holds ``most``.

        Times are ms; an entry's is rounded down to whole seconds since the file's begin. Yields
        now and then, so that a long chain need not be walked in one go.
        """
        view, entries_at, unpack = handle.view(), self._entries_at, ENTRY.unpack_from
        (index,) = SLOT.unpack_from(view, HEADER.size + SLOT.size * (key_hash % self._slots))
        if not 0 < index < self.count:
            return
        steps = 0
        while len(found) < most:
            entry_hash, physical_offset, seconds, previous = unpack(view, entries_at + 20 * index)
            if seconds < 0:
                return
            timestamp = self.begin_timestamp + seconds * 1000
            if entry_hash == key_hash and begin <= timestamp <= end:
                found.append(physical_offset)
            # Chains lead from newer to older entries; anything else is no chain.
            if not 0 < previous < index or timestamp < begin:
                return
            index = previous
            steps += 1
            if steps % _STEPS_AT_A_TIME == 0:
                yield
