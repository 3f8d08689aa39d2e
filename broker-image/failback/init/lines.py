"""Adding a line to a file: the whole of it is on the disk, or nothing of it is in the file.

For records that others rely on: what has to be undone, how a process died, who asked for what.
"""

from __future__ import annotations

import contextlib
import fcntl
import os


def append_line(path: str | os.PathLike[str], line: bytes, *, mode: int = 0o644) -> None:
    """Add ``line`` and a line end to ``path``, which is made if it is not there.

    A last line without an end, which a crash left, is ended first. Lines of several processes never
    mix.

    Raises:
        OSError: The disk refused: the file is as it was. Or it could not say that the line will
            outlive the machine: then the line is taken back as well.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        is_whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
        data = (b"" if is_whole else b"\n") + line + b"\n"
        try:
            _write_all(descriptor, data, size)
            os.fsync(descriptor)
            if size == 0:
                _sync_folder(os.path.dirname(os.path.abspath(path)))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            error.filename = error.filename or os.fspath(path)
            raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    """Write all of ``data``; a full disk takes a part first, and says so at the next write."""
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], position + written)


def _sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
