"""Why something could not be read, written or reached, in words instead of numbers and types."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from typing import Final

REFUSED: Final = "connection refused"
_WORDS: Final[Mapping[int, str]] = {
    errno.ENOENT: "no such file or folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "is a folder, not a file",
    errno.ENXIO: "is a pipe, a socket or a device, not a file",
    errno.EEXIST: "exists already",
    errno.ENOSPC: "no space left on the disk",
    errno.EROFS: "the file system is read-only",
    errno.EIO: "the disk could not read or write",
    errno.ENODATA: "the file is shorter than it was made: somebody cut it",
    errno.EMFILE: "too many open files; raise ulimit -n",
    errno.ECONNREFUSED: REFUSED,
    errno.ECONNRESET: "the connection was cut",
    errno.EPIPE: "the connection was cut",
    errno.ETIMEDOUT: "no answer",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "no route to the network",
    errno.EADDRINUSE: "the port is taken",
    errno.EADDRNOTAVAIL: "no address of this machine",
}
_NUMBER: Final = re.compile(r"\[Errno (-?\d+)\]")


def why(error: Exception) -> str:
    """Return why something failed, without the name or the number of the error."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 text (byte {error.start})"
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: line {error.lineno}, column {error.colno}"
    if isinstance(error, OSError):
        return _of_system(error)
    return str(error).strip().partition("\n")[0] or type(error).__name__


def where_and_why(error: OSError) -> str:
    """Return which file something failed at, where it was one, and why."""
    return f"{error.filename}: {why(error)}" if error.filename else why(error)


def install(extra: str) -> str:
    """Return what installs an extra. The name alone would be asked of a package index."""
    return f"pip install '.[{extra}]' -c constraints.txt, in the checkout"


def _of_system(error: OSError) -> str:
    if type(error).__name__ in ("gaierror", "herror"):
        return "the host name is not known"
    if isinstance(error, TimeoutError) and not error.errno:
        return "no answer"
    numbers = [error.errno] if error.errno else list(map(int, _NUMBER.findall(str(error))))
    for number in numbers:
        if number in _WORDS:
            return _WORDS[number]
    if numbers and numbers[0] > 0:
        return os.strerror(numbers[0]).lower()
    return str(error) or type(error).__name__
