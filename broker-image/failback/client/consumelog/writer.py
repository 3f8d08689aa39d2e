"""Writes the hot log: a memory-mapped file per process that SIGKILL cannot take a record from.

Used by consumers, producers, the recorder of a run and the scanner, one :class:`ConsumeLog` each.
Rows of every table go into one file; a file is rotated when it is full or five seconds old and its
lock is then free, by which the shipper knows that it is finished. See ``hot_format`` for the bytes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import socket
import threading
import time
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from failback.client.consumelog import hot_format
from failback.client.consumelog.hot_format import ConsumeLogError
from failback.client.consumelog.schema import ASSIGN_END_COLUMNS, DELIVER_END_COLUMNS, TABLES

_SYNC_SECONDS: Final = 1.0
_FRAME_BYTES: Final = hot_format.FRAME.size
_WORD_BYTES: Final = hot_format.WORD.size
# Looked up once: these run twice per message.
_store_word: Final = hot_format.WORD.pack_into
_crc32: Final = zlib.crc32
_wall_ns: Final = time.time_ns
_monotonic_ns: Final = time.monotonic_ns
_DELIVER: Final = TABLES["deliver"].code
_DELIVER_END: Final = TABLES["deliver_end"].code
_UNKNOWN_AT_BEGIN: Final = {"deliver": DELIVER_END_COLUMNS, "assign": ASSIGN_END_COLUMNS}


def _writable(table: str) -> tuple[int, tuple[tuple[str, bool], ...]]:
    """A table's code and its columns as ``(name, nullable)``, without those known at the end."""
    columns = TABLES[table].own
    kept = columns[: len(columns) - _UNKNOWN_AT_BEGIN.get(table, 0)]
    return TABLES[table].code, tuple((column.name, column.nullable) for column in kept)


_COLUMNS: Final = {name: _writable(name) for name in TABLES}


def _put(mapped: mmap.mmap, position: int, payload: bytes) -> int:
    """Store a record at ``position``; its length word comes last. Returns the new tail."""
    start = position + _FRAME_BYTES
    end = start + len(payload)
    mapped[start:end] = payload
    _store_word(mapped, position + _WORD_BYTES, _crc32(payload))
    _store_word(mapped, position, len(payload))  # now, and only now, it exists
    return end


class ConsumeLog:
    """The hot log of one process. All methods may be called from any thread.

    Args:
        folder: Where the ``*.fblog`` files go; made if absent.
        run: Name of the run; ends up in the common column ``run``.
        proc: 16 bytes that name this process start; random by default.
        proc_no: Dense number of the process in the run; also the upper bits of every ``did``.
        role: ``producer``, ``consumer``, ``recorder`` ...: for people reading the folder.
        host: Name of the host, whose monotonic clock the times are readings of.
        sync_seconds: Period of the write-back thread; 0 starts none.

    Raises:
        ConsumeLogError: No file could be made or mapped, the disk is full, or the log is closed.
            Nothing of the row was stored; the caller must not go on with unlogged work.
    """

    def __init__(
        self,
        folder: Path,
        *,
        run: str,
        proc: bytes | None = None,
        proc_no: int,
        role: str,
        host: str | None = None,
        segment_bytes: int = hot_format.SEGMENT_BYTES,
        segment_seconds: float = hot_format.SEGMENT_SECONDS,
        sync_seconds: float = _SYNC_SECONDS,
    ) -> None:
        self.folder = folder
        self.run = run
        self.proc = secrets.token_bytes(16) if proc is None else proc
        self.proc_no = proc_no
        self.role = role
        self.host = socket.gethostname() if host is None else host
        if len(self.proc) != 16:
            raise ValueError(f"proc must be 16 bytes, not {len(self.proc)}")
        self._segment_bytes = segment_bytes
        self._segment_ns = round(segment_seconds * 1e9)
        self._encode = msgspec.msgpack.Encoder().encode
        self._lock = threading.Lock()
        self._seq = 0
        self._did = proc_no << 40
        self._index = -1
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._position = 0
        self._finished: list[Path] = []
        self._sync_error: OSError | None = None
        folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._open_next()
        self._stop_sync = threading.Event()
        self._sync_thread: threading.Thread | None = None
        if sync_seconds > 0:
            self._sync_thread = threading.Thread(
                target=self._sync_loop, args=(sync_seconds,), name="consumelog-sync", daemon=True
            )
            self._sync_thread.start()

    @property
    def last_seq(self) -> int:
        """Number of the newest stored record; 0 before the first."""
        return self._seq

    def write(self, table: str, /, **columns: Any) -> int:
        """Store one row and return its ``seq``.

        ``run``, ``proc``, ``proc_no``, ``seq``, both times and ``host`` are filled in. Absent
        columns are null.

        Raises:
            ValueError: A column is unknown, or one that may not be null is missing.
        """
        code, names = _COLUMNS[table]
        values = [columns.pop(name, None) for name, _ in names]
        if columns:
            raise ValueError(f"table {table} has no column {', '.join(sorted(columns))}")
        if None in values:
            for value, (name, nullable) in zip(values, names, strict=True):
                if value is None and not nullable:
                    raise ValueError(f"table {table} needs column {name}")
        with self._lock:
            now = _monotonic_ns()
            self._append(now, (code, self._seq + 1, _wall_ns(), now, *values))
            return self._seq

    def deliver_begin(
        self,
        call_id: int,
        grp: str,
        client_id: str,
        pqe: int,
        pull_id: int | None,
        broker: str,
        ptopic: str,
        qid: int,
        qoff: int,
        phy: int,
        omid: bytes,
        ukey: str | None,
        keys: str | None,
        lane: int | None,
        lseq: int | None,
        okey: str | None,
        kseq: int | None,
        ltopic: str,
        rt: int,
        origin_id: str | None,
        born_ms: int,
        store_ms: int,
        crc: int,
    ) -> int:
        """Store the begin of a delivery and return its ``did``. Call it before the handler.

        Positional and without checks: this runs once per message. A struct in place of the
        arguments was measured at twice the cost of the whole call (5.2 instead of 2.4 µs).
        """
        with self._lock:
            now = _monotonic_ns()
            did = self._did + 1
            self._append(
                now,
                (
                    _DELIVER, self._seq + 1, _wall_ns(), now, did, call_id, grp, client_id,
                    self.proc_no, pqe, pull_id, broker, ptopic, qid, qoff, phy, omid, ukey, keys,
                    lane, lseq, okey, kseq, ltopic, rt, origin_id, born_ms, store_ms, crc, now,
                ),
            )  # fmt: skip
            self._did = did
            return did

    def deliver_end(
        self, did: int, status: str, applied: bool | None, remove_result: int | None
    ) -> None:
        """Store how the handler call of ``did`` ended, after it returned."""
        with self._lock:
            now = _monotonic_ns()
            self._append(
                now,
                (
                    _DELIVER_END,
                    self._seq + 1,
                    _wall_ns(),
                    now,
                    did,
                    now,
                    status,
                    applied,
                    remove_result,
                ),
            )

    def close(self) -> None:
        """Free the lock of the current file, cut its unused end, stop the write-back thread."""
        self._stop_sync.set()
        if self._sync_thread is not None:
            self._sync_thread.join()
            self._sync_thread = None
        with self._lock:
            self._finish_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, now: int, record: tuple[Any, ...]) -> None:
        """Write one record at the tail; the length word comes last, then the tail and seq move."""
        if now >= self._rotate_at and self._position > self._first_record:
            self._open_next()
        payload = self._encode(record)
        start = self._position + _FRAME_BYTES
        if start + len(payload) > self._limit:
            self._open_next()
            start = self._position + _FRAME_BYTES
            if start + len(payload) > self._limit:
                raise ConsumeLogError(f"a row of {len(payload)} bytes is too long", self.path)
        if self._map is None:
            raise ConsumeLogError("closed", self.path)
        if self._sync_error is not None:
            raise ConsumeLogError(f"write-back failed: {self._sync_error}", self.path)
        self._position = _put(self._map, self._position, payload)
        self._seq += 1

    def _open_next(self) -> None:
        """Make, fill and map the next file, then let go of the old one."""
        index = self._index + 1
        path = self.folder / hot_format.file_name(self.proc, index)
        hidden = path.with_suffix(".new")
        try:
            fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                # Blocks are taken now: a store into a hole of a full disk would be a SIGBUS.
                os.posix_fallocate(fd, 0, self._segment_bytes)
                mapped = mmap.mmap(fd, self._segment_bytes, mmap.MAP_SHARED)
                head = (hot_format.FORMAT, self.run, self.proc, self.proc_no, self.role, self.host)
                first_record = _put(mapped, 0, self._encode((*head, index, self._seq + 1)))
                # Locked, and with its head, before it gets its name: what a shipper or a
                # reader finds under a final name can be read, and is finished if it is free.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                hidden.rename(path)
            except BaseException:
                os.close(fd)
                hidden.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise ConsumeLogError(error.strerror or str(error), path) from error
        self._finish_file()
        self._fd, self._map, self._index, self.path = fd, mapped, index, path
        # The zero length that ends the file always has room.
        self._limit = self._segment_bytes - _WORD_BYTES
        self._rotate_at = _monotonic_ns() + self._segment_ns
        self._position = self._first_record = first_record

    def _finish_file(self) -> None:
        if self._map is None:
            return
        self._map.close()
        self._map = None
        os.ftruncate(self._fd, self._position)
        os.close(self._fd)  # frees the lock
        self._fd = -1
        self._finished.append(self.path)

    def _sync_loop(self, seconds: float) -> None:
        while not self._stop_sync.wait(seconds):
            try:
                self._sync_once()
            except OSError as error:  # the disk: the next row must fail, not this thread alone
                self._sync_error = error
                return

    def _sync_once(self) -> None:
        """Write back the current file, and those finished since the last time.

        fdatasync instead of mmap.flush: it writes mapped pages back as well, and it lets the
        other threads run meanwhile.
        """
        with self._lock:
            finished, self._finished = self._finished, []
            current = self.path
        for path in (*finished, current):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # sealed meanwhile: its rows are in the lake, synced there
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
