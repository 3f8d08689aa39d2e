"""The file system as the store uses it: few methods, so that tests can crash it.

A mapped file is created at its full length under another name and renamed. A Java broker refuses a
directory that holds a file of any other size, or any other file. The other name therefore lies in
the directory's parent. Data go in by ``pwrite``: writing through a mapping stalls when the kernel
writes the page back. They come out through a read-only mapping of the whole file; on Linux the two
agree. Only the slots of index files are written through a mapping: they lie all over the file, and
no answer waits for them. A file's holes have no room on the disk: a writer that must not be refused
later allocates it first (:meth:`FileHandle.allocate`).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from failback.broker.disk_errors import sync_failed
from failback.broker.native import kernels
from failback.common.files import lock_first_byte
from failback.protocol.errors import StoreError

TEMPORARY_PREFIX: Final = ".creating-"
_WORD: Final = struct.Struct(">i")
_write_words: Callable[[mmap.mmap, dict[int, int]], None] | None = (
    kernels.write_words if kernels is not None else None
)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NO_ALLOCATION: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""What a file system answers that allocates nothing before it is written."""
_PIECE_BYTES: Final = 1 << 20


def disk_ratio(path: Path) -> float:
    """Return how full the disk under ``path`` is, 0 to 1; -1 when that is unknown.

    Of what a user could have, in whole percent, rounded up: what ``df`` shows, and
    UtilAll.getDiskPartitionSpaceUsedPercent of 4.9.
    """
    try:
        disk = os.statvfs(path)
    except OSError:
        return -1.0
    used = disk.f_blocks - disk.f_bfree
    whole = used + disk.f_bavail
    return -(-used * 100 // whole) / 100 if whole else -1.0


class FileHandle(Protocol):
    """One open mapped file. Each thread opens its own."""

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Write all of ``data``; OSError if the disk won't take it."""

    def view(self) -> memoryview:
        """Return the whole file, read-only. Valid as long as it is referenced."""

    def allocate(self, position: int, length: int) -> None:
        """Take disk space for bytes of the file: writing them can't fail for the want of it.

        OSError if there is not enough. What was written stays.
        """

    def is_readable(self, length: int) -> bool:
        """Try to read the first ``length`` bytes without a mapping; tell whether all are there.

        A mapping can't show a hole where the file system has no room for the page, as tmpfs.
        """

    def reserve(self, length: int) -> None:
        """Allocate the first ``length`` bytes and let :meth:`write_words` write there."""

    def write_words(self, words: Mapping[int, int]) -> None:
        """Write int32 values, big-endian, at their positions in what is reserved.

        For many that lie far apart: a ``write_at`` for each costs several times as much.
        """

    def sync(self) -> None:
        """Return when everything written before the call is durable; else SyncFailed."""

    def duplicate(self) -> FileHandle:
        """Return a handle for another thread to sync with.

        It reports all errors of writes through this one, which a newly opened one may not.
        """

    def data_after(self, position: int) -> tuple[int, int] | None:
        """Return start and end of the next range that was ever written, None if there is none.

        The range may hold zeros: file systems answer in blocks.
        """

    def close(self) -> None:
        """Free the descriptor. Views that are still referenced stay valid."""


class Files(Protocol):
    """Directories and whole files. Every method may raise OSError."""

    def names(self, directory: Path) -> list[str]:
        """Return the sorted names in ``directory``; none if it is not there or no directory."""

    def size(self, path: Path) -> int:
        """Return the length in bytes, -1 for what is no regular file."""

    def modified_ms(self, path: Path) -> int:
        """Return when the file was last written, ms."""

    def used_ratio(self, path: Path) -> float:
        """Return how full the disk under ``path`` is, as :func:`disk_ratio`."""

    def create(self, path: Path, size: int, *, durable: bool) -> None:
        """Make ``path`` appear at once as ``size`` zero bytes, its directory too."""

    def open(self, path: Path) -> FileHandle: ...

    def delete(self, path: Path) -> None:
        """Remove a file; nothing happens if there is none."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; one that is missing or not empty stays as it is."""

    def sync_directory(self, path: Path) -> None:
        """Make creations and removals in ``path`` and in its parents durable."""

    def read_small(self, path: Path) -> bytes | None:
        """Return a small file, None if there is none."""

    def write_small(self, path: Path, data: bytes) -> None:
        """Replace a small file, atomically and durably."""

    def lock(self, path: Path) -> Callable[[], None]:
        """Take the store's lock; return what releases it. StoreError names its owner."""

    def boot_id(self) -> str:
        """Return what changes whenever the page cache may have been lost."""


class OsFileHandle:
    """A file of the real file system."""

    __slots__ = ("_fd", "_map", "_path", "_view")

    def __init__(self, path: Path, fd: int | None = None) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC) if fd is None else fd
        self._map: mmap.mmap | None = None
        """The whole file for writing; only where words are written."""
        self._view: memoryview | None = None

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        try:
            written = os.pwrite(self._fd, data, position)
            if written != len(data):  # a full disk or a signal; the next call says which
                rest = memoryview(data)
                while written < len(data):
                    written += os.pwrite(self._fd, rest[written:], position + written)
        except OSError as error:
            error.filename = str(self._path)
            raise

    def view(self) -> memoryview:
        if self._view is None:
            try:
                mapped = self._map or mmap.mmap(self._fd, 0, prot=mmap.PROT_READ)
            except ValueError as error:
                raise OSError(errno.ENODATA, str(error), str(self._path)) from error
            self._view = memoryview(mapped).toreadonly()
        return self._view

    def allocate(self, position: int, length: int) -> None:
        try:
            os.posix_fallocate(self._fd, position, length)
        except OSError as error:
            if error.errno in _NO_ALLOCATION:  # the write itself has to tell
                return
            error.filename = str(self._path)
            raise

    def is_readable(self, length: int) -> bool:
        position = 0
        while position < length:
            try:
                piece = os.pread(self._fd, min(_PIECE_BYTES, length - position), position)
            except OSError:
                return False
            if not piece:
                return False
            position += len(piece)
        return True

    def reserve(self, length: int) -> None:
        # Where a mapped page finds no room on the disk, writing to it kills the process.
        self.allocate(0, length)
        self._map, self._view = mmap.mmap(self._fd, 0), None

    def write_words(self, words: Mapping[int, int]) -> None:
        assert self._map is not None, "reserve comes first"
        if _write_words is not None and isinstance(words, dict):
            _write_words(self._map, words)
            return
        mapped, write = self._map, _WORD.pack_into
        for position, value in words.items():
            write(mapped, position, value)

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise sync_failed(error, self._path) from error

    def duplicate(self) -> OsFileHandle:
        return OsFileHandle(self._path, os.dup(self._fd))

    def data_after(self, position: int) -> tuple[int, int] | None:
        try:
            start = os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise
        return start, os.lseek(self._fd, start, os.SEEK_HOLE)

    def close(self) -> None:
        self._map = self._view = None
        os.close(self._fd)


class OsFiles:
    """The real file system."""

    def __init__(self) -> None:
        self._temporary_count = 0

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: Path) -> int:
        return path.stat().st_size if path.is_file() else -1

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def used_ratio(self, path: Path) -> float:
        return disk_ratio(path)

    def create(self, path: Path, size: int, *, durable: bool) -> None:
        directory = path.parent
        directory.mkdir(parents=True, exist_ok=True)
        on_one_device = directory.stat().st_dev == directory.parent.stat().st_dev
        beside = directory.parent if on_one_device else directory
        try:
            self._create(path, size, self._temporary(beside), durable=durable)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # A mount point after all, of the file system that its parent is on too.
            self._create(path, size, self._temporary(directory), durable=durable)
        if durable:
            self.sync_directory(directory)

    def _create(self, path: Path, size: int, temporary: Path, *, durable: bool) -> None:
        try:
            fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(fd, size)
                if durable:
                    os.fsync(fd)  # of nothing but zeros: where it fails, nothing is lost
            finally:
                os.close(fd)
            os.rename(temporary, path)
        except OSError:
            self.delete(temporary)
            raise

    def _temporary(self, directory: Path) -> Path:
        """Return a name that nothing in ``directory`` has."""
        self._temporary_count += 1
        return directory / f"{TEMPORARY_PREFIX}{os.getpid()}-{self._temporary_count}"

    def open(self, path: Path) -> OsFileHandle:
        return OsFileHandle(path)

    def delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.rmdir()

    def sync_directory(self, path: Path) -> None:
        for directory in (path, path.parent, path.parent.parent):
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            except OSError as error:
                raise sync_failed(error, directory) from error
            finally:
                os.close(fd)

    def read_small(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write_small(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._temporary(path.parent)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            self.delete(temporary)
            error.filename = str(path)
            raise
        self.sync_directory(path.parent)

    def lock(self, path: Path) -> Callable[[], None]:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            owner = lock_first_byte(fd)
            if owner:
                raise StoreError(f"{path} is held by {owner}: another broker uses this store")
            os.pwrite(fd, b"lock", 0)
        except (OSError, StoreError):
            os.close(fd)
            raise
        return lambda: os.close(fd)

    def boot_id(self) -> str:
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            return ""
