"""Reads regular files only, parses JSON within bounds, and appends whole lines.

What lies in a folder of another program may be a pipe, a device or a folder. It is an ``OSError``
that names it: the reader never waits for a writer. A line is appended durably, for records that
others rely on: an undo, the end of a process, the author of a request.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import struct
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, NoReturn

_HALF_CHARACTER: Final = b"\\ud"
_FLOCK: Final = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""


def cache_folder() -> Path:
    """Return where downloads are kept across clones and runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "failback"


def check_regular(descriptor: int, path: str | os.PathLike[str]) -> None:
    """Refuse an open file that is no regular one.

    Raises:
        OSError: It is a folder, a pipe, a socket or a device; names ``path``.
    """
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
        raise OSError(number, os.strerror(number), os.fspath(path))


def open_file(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: It is not there, it is no regular file, or it may not be read.
    """
    return open(path, "rb", opener=_open)


def state_folder() -> Path:
    """Return where this account's programs keep what outlives them: ``$XDG_STATE_HOME/failback``.

    Raises:
        RuntimeError: The account has no home folder.
    """
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "failback"


def own_folder(path: Path) -> None:
    """Make a folder that only this account can write to.

    Raises:
        OSError: It cannot be made, it is a link, or another account can write to it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_own or found.st_mode & 0o022:
        raise OSError(errno.EPERM, "another account can write to it, or it is no folder", str(path))


def place_in(folder: Path, path: Path) -> Path:
    """Return ``path``, to be written in a folder that may come from elsewhere.

    Raises:
        OSError: A link, or a name in it, leads out of the folder; names ``path``.
    """
    if not path.resolve().is_relative_to(folder.resolve()):
        raise OSError(errno.EXDEV, f"a link or a name leads out of {folder}", str(path))
    return path


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file. Raises as :func:`open_file`."""
    with open_file(path) as file:
        return file.read()


def digest_of(data: bytes) -> str:
    """Return the sha256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the value of a JSON file.

    Raises:
        OSError: As :func:`open_file`.
        ValueError: It has no JSON, a number that is none, half a character, or too many levels.
    """
    return parsed(read_file(path))


def read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The same of a file that holds an object. Raises as :func:`read_json`."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError("must hold an object")
    return found


def parsed(content: bytes) -> Any:
    """Return the value of a JSON text. Raises ``ValueError`` as :func:`read_json`."""
    try:
        found = json.loads(content, parse_constant=_refuse)
        if _HALF_CHARACTER in content.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("is no document of ours: it is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except UnicodeEncodeError:
        raise ValueError("has half a character, which no text can have") from None
    except ValueError as error:
        if isinstance(error, _NoNumber):
            raise
        raise ValueError("has a number of too many digits") from None
    return found


class _NoNumber(ValueError):
    """``NaN`` or an infinity, which JSON does not have."""


def _refuse(word: str) -> NoReturn:
    raise _NoNumber(f"has {word}, which is no number of JSON")


def _open(path: str, flags: int) -> int:
    # A pipe would wait for its writer, and a device may do anything.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        check_regular(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


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
            write_all(descriptor, data, size)
            os.fsync(descriptor)
            if size == 0:
                sync_folder(Path(path).absolute().parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            error.filename = error.filename or os.fspath(path)
            raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes, position: int = 0) -> None:
    """Write all of ``content``; a full disk takes a part first, and says so at the next write."""
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, content[written:], position + written)


def sync_folder(path: Path) -> None:
    """Make renames and new names in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def lock_first_byte(descriptor: int) -> str:
    """Take the lock by which a broker keeps others from its store; it ends with any ``close``.

    It is a record lock on byte 0, which Java's FileChannel.tryLock(0, 1, false) takes.

    Returns:
        The process that has it, as :func:`lock_owner`; empty when it is taken.

    Raises:
        OSError: The file takes no locks.
    """
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return lock_owner(descriptor) or "a process that has just ended"
    return ""


def lock_owner(fd: int) -> str:
    """Return the process with the record lock on the first byte of ``fd``, as ``ps`` would show it.

    Empty when it is free. The kernel tells the pid, 0 for a process of another machine or pid
    namespace.
    """
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    except (OSError, struct.error):
        return "a process that this system does not name"
    if kind == fcntl.F_UNLCK:
        return ""
    if pid <= 0:
        return "a process outside of this container or machine"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"pid {pid}"
    return f"pid {pid} ({b' '.join(words).decode(errors='replace').strip()[:200] or '?'})"


def has_rows(name: str) -> bool:
    """Whether a file's name is one of rows: ``.parquet``, hidden by no ``.`` or ``_`` before it.

    Spark, Hive, Trino and Arrow pass over the others.
    """
    return name.endswith(".parquet") and not name.startswith((".", "_"))
