"""Files that are always the old or the new one, whenever the process dies."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from failback.common.files import sync_folder, write_all

if TYPE_CHECKING:
    import pyarrow as pa

_STAYS_WHERE_IT_IS: Final = (errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES, errno.EROFS)
"""Why a file can't be replaced by another: it is a mount of its own, or its folder is closed."""


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Put ``content`` at ``path``: written beside it, synced, renamed, the folder synced.

    Args:
        sync: ``False`` for what need not outlive the machine: nothing is synced.

    Raises:
        OSError: It can't be written; the old file is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{os.getpid()}-{threading.get_native_id()}"  # two threads may write the same file
    beside = path.with_name(f".{path.name}.{writer}.tmp")
    place(content, beside, path, sync=sync)


def place(
    content: bytes | memoryview | pa.Buffer, hidden: Path, path: Path, *, sync: bool = True
) -> None:
    """Write ``hidden``, fsync, rename to ``path``, fsync of the folder.

    Raises:
        OSError: The disk is full or fails: names ``path``. ``hidden`` is gone, ``path`` as it was.
    """
    try:
        with hidden.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException as error:
        hidden.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or os.fspath(path)  # a full disk names none
        raise
    if sync:
        sync_folder(path.parent)


def rewrite_file(path: Path, content: bytes) -> None:
    """Give a file that people own a new content; what it had stays in ``path`` + ``.bak``.

    It is replaced in one step, and keeps its mode. A file that is mounted alone, or that lies in a
    folder that is closed to us, can't be replaced. It is then written over by one write, so that
    a process that is killed leaves the old content or the new one.

    Raises:
        OSError: It can't be written; the file is as it was.
    """
    try:
        previous = path.read_bytes()
    except FileNotFoundError:
        replace_file(path, content)
        return
    beside = path.with_name(path.name + ".tmp")
    try:
        _write_synced(beside, content)
        beside.chmod(path.stat().st_mode & 0o7777)
        replace_file(path.with_name(path.name + ".bak"), previous)
        beside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if error.errno not in _STAYS_WHERE_IT_IS:
            raise
        write_over(path, previous, content)


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_over(path: Path, previous: bytes, content: bytes) -> None:
    """Give a file that can't be replaced a new content, by one write.

    Raises:
        OSError: It can't be written; it has its ``previous`` content again.
    """
    # Nothing of the old content is left behind the new one before the end is cut.
    with path.open("r+b", buffering=0) as file:
        try:
            write_all(file.fileno(), content.ljust(len(previous), b"\n"))
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                write_all(file.fileno(), previous)
                os.fsync(file.fileno())
                file.truncate(len(previous))
            raise
        file.truncate(len(content))
        os.fsync(file.fileno())
