"""Reads files that anybody may have put there: a pipe is no file, and JSON has its bounds.

Who reads a folder of somebody else opens what lies in it here: what is no regular file is an
``OSError`` that names it, never a wait for a writer that does not come.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from io import BufferedReader
from typing import Any, Final, NoReturn

_HALF_CHARACTER: Final = b"\\ud"


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


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file. Raises as :func:`open_file`."""
    with open_file(path) as file:
        return file.read()


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
