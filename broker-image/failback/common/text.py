"""Text for people: reasons of failures, escapes, commands to copy, hints at known names. Pure.

Control characters, line and paragraph separators, marks that change the direction of writing,
characters without a width and halves of characters are shown as the escapes that Python writes for
them. All other characters stay as they are.
"""

from __future__ import annotations

import difflib
import errno
import json
import os
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final

_DECIMAL: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\x1b": r"\x1b"}
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


def visible(text: str, most: int | None = None) -> str:
    """Return ``text`` with escapes for what cannot be seen, on one line.

    Args:
        most: Characters after which the rest is only counted.
    """
    left = "" if most is None or len(text) <= most else f"... ({len(text)} characters)"
    text = text if most is None else text[:most]
    return (text if text.isprintable() else "".join(map(_shown, text))) + left


def is_visible(text: str) -> bool:
    """Whether ``text`` is shown as it is."""
    return text.isprintable() or visible(text) == text


def _shown(character: str) -> str:
    # A blank of another width is seen as a blank; Python counts it among what cannot be printed.
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def typed(*words: object) -> str:
    """Return a command to copy into a shell; each of ``words`` stays one word.

    What cannot be seen is escaped, so that no word ends the line.
    """
    return shlex.join(visible(str(word)) for word in words)


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the known word that is nearest to ``word``; empty when none is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return near[0] if near else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``, did you mean "X"?``, or nothing when no known word is near."""
    near = nearest(word, known)
    return f', did you mean "{near}"?' if near else ""


def near_or_all(near: str, known: Iterable[str]) -> str:
    """Return ``, did you mean "X"?`` for what is near, else all that is known."""
    return f', did you mean "{near}"?' if near else f", one of {', '.join(known)}"


def why(error: Exception) -> str:
    """Return why something failed, without the name or the number of the error."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 text (byte {error.start})"
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: line {error.lineno}, column {error.colno}"
    if isinstance(error, OSError):
        return _of_system(error)
    return str(error).strip().partition("\n")[0] or type(error).__name__


def where_and_why(error: Exception) -> str:
    """Return at which file something failed, where it was one, and why."""
    file = error.filename if isinstance(error, OSError) else None
    return f"{file}: {why(error)}" if file else why(error)


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


def csv_cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula: such a text begins with ``'``.

    Source: https://owasp.org/www-community/attacks/CSV_Injection
    """
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value if _DECIMAL.fullmatch(value) else f"'{value}"
    return value
